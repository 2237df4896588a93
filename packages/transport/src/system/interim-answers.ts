/**
 * Removes interim answers (1xx) from a server's bytes, so that the call sees only the final answer.
 *
 *   HTTP/1.1 100 Continue↵↵ │ HTTP/1.1 103 Early Hints↵link: …↵↵ │ HTTP/1.1 200 OK↵ …  ▶ the parser
 *   dropped                   dropped                              passes, and all after it
 *
 * A server may send any number of them, asked or not (RFC 9110 §15.2). undici fails a call at `100 Continue`,
 * and has no setting for it; other interim answers are not used here. `101 Switching Protocols` is final and
 * passes.
 *
 * undici takes bytes from its socket with `read()`, so the bytes are inspected there, and only until the
 * final answer of a request has begun: a body costs nothing. An incomplete head is kept back, up to the size
 * limit of heads.
 */

import type { Socket } from 'node:net'

const HEAD_END = Buffer.from('\r\n\r\n')
/** 'HTTP/1.1 100' */
const STATUS_BYTES = 12

export class InterimAnswers {
  readonly #headBytesMax: number
  #isBeforeFinal = true
  #kept: Buffer | undefined

  /** Reads of `socket` go through this from now on. */
  constructor(socket: Socket, headBytesMax: number) {
    this.#headBytesMax = headBytesMax
    const read = socket.read
    socket.read = (size?: number): unknown => {
      const bytes: unknown = read.call(socket, size)
      return this.#isBeforeFinal && Buffer.isBuffer(bytes) ? this.#pass(bytes) : bytes
    }
  }

  /** A request is about to be written: what is read next answers it. */
  expectAnswer(): void {
    this.#isBeforeFinal = true
    this.#kept = undefined
  }

  #pass(chunk: Buffer): Buffer | null {
    let bytes = this.#kept === undefined ? chunk : Buffer.concat([this.#kept, chunk])
    this.#kept = undefined
    for (;;) {
      const isInterim = tryInterim(bytes)
      if (isInterim === false) break
      const end = isInterim === undefined ? -1 : bytes.indexOf(HEAD_END)
      if (end < 0) {
        if (bytes.length > this.#headBytesMax) break
        this.#kept = bytes
        return null
      }
      bytes = bytes.subarray(end + HEAD_END.length)
    }
    this.#isBeforeFinal = false
    return bytes
  }
}

/** Whether these bytes begin an interim answer; undefined: too few to tell. */
function tryInterim(bytes: Buffer): boolean | undefined {
  const line = bytes.toString('latin1', 0, STATUS_BYTES)
  if (line.length === STATUS_BYTES) return /^HTTP\/1\.\d 1(?!01)/.test(line)
  return 'HTTP/1.1 1'.startsWith(line.slice(0, 10).replace('1.0', '1.1')) ? undefined : false
}
