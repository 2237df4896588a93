/**
 * TCP wire: the frames of many calls on one connection.
 *
 *   length (4 bytes, big-endian), then that number of bytes: one MessagePack array [kind, stream, content]
 *
 *   stream 0, about the connection
 *     hello     {protocol, version, frameBytesMax, streamsMax, windowBytes, idleMs}: the first frame of each
 *               side: what it reads, so the other must stay within
 *     alive     nil: this side is there, although it has nothing to say
 *     bye       integer: the last stream that the server has seen; it takes no more, and what is open goes on
 *   streams 1, 2, …, each a call, in the order in which the client opens them (kinds: requests/frames.ts)
 *     body, data    bin         credit, end    integer
 *     open, head    map         failed         [reason, whether the request was seen]
 *     cancel        nil
 *
 * A server says no `accept`: its `hello` says how much of each body may come. Header values are latin1, as on
 * the wire of HTTP. Length, kind, stream and the first two members of `hello` are those of every version, so
 * that each side can name a version that it cannot read.
 *
 * Bounds   a frame by what its reader said in its hello; before that, HELLO_BYTES_MAX. Of a frame that is not
 *          whole only what has come is kept. Members of a map by VALUES_MAX and DEPTH_MAX.
 */

import {
  BrokenMessageError,
  decodeMessagePack,
  MessagePackReader,
  MessagePackWriter,
  WrongTypeError,
} from '@homing/protocol'
import type { HttpHeaders } from '../http-types.ts'
import { FRAME, type FrameKind } from '../requests/frames.ts'

export const TCP_PROTOCOL = 'homing-requests'
export const TCP_VERSION = 1
export const HELLO_BYTES_MAX = 4096
/** Headers of 64 KiB, the least of which have some bytes each. */
const VALUES_MAX = 65_536
/** The map, its headers, the values of one. */
const DEPTH_MAX = 4
export const LENGTH_BYTES = 4
/** Length, array, kind, stream and the head of the content. */
const FRAME_HEAD_BYTES = LENGTH_BYTES + 1 + 1 + 5 + 5
/** A larger piece would keep other calls waiting. */
const PIECE_BYTES_MAX = 64 * 1024

/** About the connection; the kinds of calls are below. */
export const LINK = { hello: 16, alive: FRAME.alive, bye: 17 } as const

export interface TcpFrame {
  readonly kind: FrameKind | (typeof LINK)[keyof typeof LINK]
  readonly stream: number
  readonly content: unknown
}

/** What a side says of itself. */
export interface TcpHello {
  readonly frameBytesMax: number
  readonly streamsMax: number
  readonly windowBytes: number
  readonly idleMs: number
}

/** Largest piece that fits into a frame of `frameBytesMax` bytes. */
export function tcpPieceBytesMax(frameBytesMax: number): number {
  return Math.min(PIECE_BYTES_MAX, frameBytesMax - FRAME_HEAD_BYTES)
}

/** A frame with its length. */
export function encodeTcpFrame(kind: TcpFrame['kind'], stream: number, content: unknown): Uint8Array {
  if (kind === FRAME.data || kind === FRAME.body) return encodePiece(kind, stream, content as Uint8Array)
  const bytes = packer.encode([kind, stream, packed(kind, content)])
  const frame = Buffer.allocUnsafe(LENGTH_BYTES + bytes.length)
  frame.writeUInt32BE(bytes.length, 0)
  frame.set(bytes, LENGTH_BYTES)
  return frame
}

export function encodeHello(hello: TcpHello): Uint8Array {
  return encodeTcpFrame(LINK.hello, 0, { protocol: TCP_PROTOCOL, version: TCP_VERSION, ...hello })
}

/** What is wrong with a hello, or what it says. */
export function readHello(content: unknown): TcpHello | string {
  const { protocol, version, frameBytesMax, streamsMax, windowBytes, idleMs } = content as Record<
    string,
    unknown
  >
  if (protocol !== TCP_PROTOCOL) return 'it does not speak the request plane'
  if (version !== TCP_VERSION)
    return `its request plane is of version ${Number.isSafeInteger(version) ? version : 'unknown'}, not ${TCP_VERSION}`
  const isRight =
    isWithin(frameBytesMax, HELLO_BYTES_MAX, 2 ** 32 - 1) &&
    isWithin(streamsMax, 1, 2 ** 32 - 1) &&
    isWithin(windowBytes, 4096, 2 ** 30) &&
    isWithin(idleMs, 1, 2 ** 31)
  return isRight
    ? { frameBytesMax, streamsMax, windowBytes, idleMs }
    : 'what it says of itself cannot be right'
}

/** One frame, without its length. Undefined: it is none. Bytes are views of what was given. */
export function decodeTcpFrame(bytes: Uint8Array): TcpFrame | undefined {
  try {
    const reader = new MessagePackReader(bytes)
    if (reader.arrayCount() !== 3) return undefined
    const kind = reader.integer() as TcpFrame['kind']
    const stream = reader.integer()
    if (
      stream < 0 ||
      stream >= 2 ** 32 ||
      (stream === 0) !== (kind === LINK.hello || kind === LINK.bye || kind === LINK.alive)
    )
      return undefined
    const content = contentOf(kind, reader, bytes)
    return content === WRONG ? undefined : { kind, stream, content }
  } catch (error) {
    if (error instanceof BrokenMessageError || error instanceof WrongTypeError) return undefined
    throw error
  }
}

/** Cuts what comes of a connection into frames. */
export class TcpFrameReader {
  /** Larger ones are not read. */
  frameBytesMax = HELLO_BYTES_MAX
  /** What came last, as far as it is not read. */
  #view = NOTHING
  /** The beginning of a frame, a copy; at most twice as long as what has come of it. */
  #kept = NOTHING
  #keptBytes = 0

  /** Bytes that wait for the end of their frame. */
  get waitingBytes(): number {
    return this.#keptBytes + this.#view.length
  }

  /** `bytes` are read until `next` says that there is no whole frame. */
  put(bytes: Uint8Array): void {
    this.#view = this.#view.length === 0 ? bytes : Buffer.concat([this.#view, bytes])
  }

  clear(): void {
    this.#view = NOTHING
    this.#forgetKept()
  }

  /** Undefined: there is no whole frame yet. A text: nothing more can be read, and why. */
  next(): TcpFrame | string | undefined {
    const head = this.#first(LENGTH_BYTES)
    if (head === undefined) return undefined
    const length = ((head[0]! << 24) | (head[1]! << 16) | (head[2]! << 8) | head[3]!) >>> 0
    if (length > this.frameBytesMax)
      return `a frame of ${length} bytes came, and ${this.frameBytesMax} are read`
    const size = LENGTH_BYTES + length
    const frame = this.#first(size)?.subarray(LENGTH_BYTES, size)
    if (frame === undefined) return undefined
    if (this.#keptBytes > 0) this.#forgetKept()
    else this.#view = this.#view.length === size ? NOTHING : this.#view.subarray(size)
    return decodeTcpFrame(frame) ?? 'a frame came that cannot be read'
  }

  /**
   * A given number of bytes of a frame, in one piece. Undefined: they have not come, and what has come is
   * kept.
   */
  #first(size: number): Uint8Array | undefined {
    if (this.#keptBytes === 0 && this.#view.length >= size) return this.#view
    if (this.#keptBytes < size) this.#keep(size)
    return this.#keptBytes < size ? undefined : this.#kept
  }

  /** Copies what there is of this number of bytes. */
  #keep(size: number): void {
    const bytes = this.#view.subarray(0, size - this.#keptBytes)
    if (bytes.length === 0) return
    const needed = this.#keptBytes + bytes.length
    if (needed > this.#kept.length) {
      const kept = new Uint8Array(Math.min(size, Math.max(needed, 2 * this.#kept.length)))
      kept.set(this.#kept.subarray(0, this.#keptBytes))
      this.#kept = kept
    }
    this.#kept.set(bytes, this.#keptBytes)
    this.#keptBytes = needed
    this.#view = bytes.length === this.#view.length ? NOTHING : this.#view.subarray(bytes.length)
  }

  #forgetKept(): void {
    this.#kept = NOTHING
    this.#keptBytes = 0
  }
}

function encodePiece(kind: number, stream: number, bytes: Uint8Array): Uint8Array {
  const frame = Buffer.allocUnsafe(FRAME_HEAD_BYTES + bytes.length)
  frame.writeUInt32BE(FRAME_HEAD_BYTES - LENGTH_BYTES + bytes.length, 0)
  frame[4] = 0x93
  frame[5] = kind
  frame[6] = 0xce
  frame.writeUInt32BE(stream, 7)
  frame[11] = 0xc6
  frame.writeUInt32BE(bytes.length, 12)
  frame.set(bytes, FRAME_HEAD_BYTES)
  return frame
}

function packed(kind: number, content: unknown): unknown {
  if (kind === FRAME.head || kind === FRAME.open) {
    const { headers, ...rest } = content as { readonly headers: HttpHeaders }
    const given = Object.entries(headers).filter(([, value]) => value !== undefined)
    return { ...rest, headers: Object.fromEntries(given) }
  }
  if (kind !== FRAME.failed) return content
  const { reason, wasSeen } = content as { readonly reason: string; readonly wasSeen: boolean }
  return [reason, wasSeen]
}

/** WRONG: it is not what a frame of this kind has. */
function contentOf(kind: number, reader: MessagePackReader, bytes: Uint8Array): unknown {
  switch (kind) {
    case FRAME.data:
    case FRAME.body: {
      const piece = reader.binary()
      // No sender has an empty one, and a flood of them would carry nothing.
      return piece.length === 0 ? WRONG : atEnd(reader, piece)
    }
    case FRAME.credit:
    case FRAME.end:
    case LINK.bye: {
      const count = reader.integer()
      return count < 0 || count >= 2 ** 32 ? WRONG : atEnd(reader, count)
    }
    case FRAME.cancel:
    case LINK.alive:
      return reader.takeNil() ? atEnd(reader, undefined) : WRONG
    case FRAME.failed: {
      if (reader.arrayCount() !== 2) return WRONG
      const reason = reader.string()
      const wasSeen = reader.takeTrue()
      if (!wasSeen) reader.skip()
      return atEnd(reader, { reason, wasSeen })
    }
    case FRAME.open:
    case FRAME.head:
    case LINK.hello: {
      if (reader.peek() !== 'map') return WRONG
      return decodeMessagePack(bytes.subarray(reader.at), {
        bytesMax: bytes.length,
        valuesMax: VALUES_MAX,
        depthMax: DEPTH_MAX,
      })
    }
    default:
      return WRONG
  }
}

function atEnd(reader: MessagePackReader, content: unknown): unknown {
  return reader.isAtEnd ? content : WRONG
}

function isWithin(value: unknown, min: number, max: number): value is number {
  return Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max
}

const WRONG = Symbol('wrong')
const NOTHING: Uint8Array = new Uint8Array(0)
const packer = new MessagePackWriter()
