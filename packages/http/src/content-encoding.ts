/**
 * Content encodings of request bodies (RFC 9110 §8.4): what a client has compressed is decoded before it is
 * read, within the bounds of bodies.
 *
 * A few bytes may stand for gigabytes, so the decoder is stopped with the first piece past the bound, and
 * every piece takes room among all bodies before it is kept. Past FREE_BYTES a body must not be more than
 * RATIO_MAX times as large as what it was decoded from (Apache httpd stops at the same ratio): bytes that
 * cost a client nothing must not cost this thread its time. At most DECODERS_MAX bodies are decoded at a
 * time, because a decoder has a window of its own (8 MiB for zstd, 16 MiB for br); the others wait. A body is
 * decoded once it is here, so no client can hold a decoder.
 *
 * One encoding per body: programs that compress twice are not known.
 */

import type { Transform } from 'node:stream'
import * as zlib from 'node:zlib'
import { BodyTooLargeError, type HttpHeaders } from '@homing/transport'
import { EncodingRatioError, MalformedEncodingError, UnsupportedEncodingError } from './errors.ts'

const DECODERS_MAX = 8
/** RFC 9659 §3: the window that a decoder of zstd must have for a body, and the most that one may ask for. */
const WINDOW_LOG_MAX = 23
const DECODED_PIECE_BYTES = 64 * 1024
/** A body of one sentence, over and over, as load tests send it. */
const FREE_BYTES = 4 * 2 ** 20
const RATIO_MAX = 200

/** What `zlib` makes. */
interface Decoder extends Transform {
  /** Bytes that were decoded so far. */
  readonly bytesWritten: number
}

type CreateDecoder = (body: Uint8Array) => Decoder

const DECODERS: Readonly<Record<string, CreateDecoder>> = {
  gzip: () => zlib.createGunzip({ chunkSize: DECODED_PIECE_BYTES }),
  // Some clients leave out the header that the specification wants.
  deflate: ([first = 0]) =>
    ((first & 0x0f) === 8 ? zlib.createInflate : zlib.createInflateRaw)({ chunkSize: DECODED_PIECE_BYTES }),
  br: () => zlib.createBrotliDecompress({ chunkSize: DECODED_PIECE_BYTES }),
  // Node 20 has none.
  ...('createZstdDecompress' in zlib && {
    zstd: () =>
      zlib.createZstdDecompress({
        chunkSize: DECODED_PIECE_BYTES,
        params: { [zlib.constants.ZSTD_d_windowLogMax]: WINDOW_LOG_MAX },
      }),
  }),
}

/** The encodings that are decoded, as in `accept-encoding`. */
export const KNOWN_ENCODINGS: readonly string[] = Object.keys(DECODERS)

/** The encoding of a body; undefined: it is sent as it is. Throws UnsupportedEncodingError. */
export function encodingOf(headers: HttpHeaders): string | undefined {
  const given = headers['content-encoding']
  const text = (typeof given === 'string' ? given : (given ?? []).join(', ')).trim().toLowerCase()
  if (text === '' || text === 'identity') return undefined
  const name = text === 'x-gzip' ? 'gzip' : text
  if (Object.hasOwn(DECODERS, name)) return name
  throw new UnsupportedEncodingError(text, KNOWN_ENCODINGS)
}

/** Decodes bodies of one service, a few at a time. */
export class BodyDecoders {
  #free = DECODERS_MAX
  readonly #waiting: (() => void)[] = []

  /**
   * The decoded body. `take` gets the size of each piece before it is kept, and may throw.
   * Rejects with that, with BodyTooLargeError past `bytesMax`, with EncodingRatioError and with
   * MalformedEncodingError.
   */
  async decode(
    encoding: string,
    body: Uint8Array,
    bytesMax: number,
    take: (byteCount: number) => void,
  ): Promise<Uint8Array> {
    if (this.#free === 0) await new Promise<void>(resolve => this.#waiting.push(resolve))
    else this.#free--
    try {
      return await decoded(encoding, body, bytesMax, take)
    } finally {
      const next = this.#waiting.shift()
      if (next === undefined) this.#free++
      else next()
    }
  }
}

function decoded(
  encoding: string,
  body: Uint8Array,
  bytesMax: number,
  take: (byteCount: number) => void,
): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const decoder = DECODERS[encoding]!(body)
    const pieces: Buffer[] = []
    let size = 0
    const refuse = (thrown: unknown): void => {
      pieces.length = 0
      decoder.destroy()
      reject(thrown)
    }
    decoder.on('error', error => refuse(new MalformedEncodingError(encoding, error)))
    decoder.on('data', (piece: Buffer) => {
      if (decoder.destroyed) return
      size += piece.length
      if (size > bytesMax) return refuse(new BodyTooLargeError(bytesMax))
      if (size > FREE_BYTES && size > RATIO_MAX * decoder.bytesWritten)
        return refuse(new EncodingRatioError(encoding, RATIO_MAX))
      try {
        take(piece.length)
      } catch (thrown) {
        return refuse(thrown)
      }
      pieces.push(piece)
    })
    decoder.on('end', () => resolve(Buffer.concat(pieces)))
    decoder.end(body)
  })
}
