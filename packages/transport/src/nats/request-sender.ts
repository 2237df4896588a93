/** Request sender: sends bytes in pieces, as far as the other side has given credit for them. */

import { type FRAME, type FrameWriter, PIECE_BYTES, pieceBytesMax } from './request-wire.ts'

export class PieceSender {
  readonly #writer: FrameWriter
  readonly #kind: typeof FRAME.body | typeof FRAME.data
  readonly #pieceBytesMax: number
  #creditBytes = 0
  #waiting: Uint8Array[] = []
  #waitingBytes = 0

  constructor(writer: FrameWriter, kind: typeof FRAME.body | typeof FRAME.data, payloadBytesMax: number) {
    this.#writer = writer
    this.#kind = kind
    this.#pieceBytesMax = pieceBytesMax(payloadBytesMax)
  }

  /** Bytes that wait for credit. */
  get waitingBytes(): number {
    return this.#waitingBytes
  }

  credit(bytes: number): void {
    this.#creditBytes += bytes
    this.#send()
  }

  /** `bytes` must stay as they are until nothing waits. */
  put(bytes: Uint8Array): void {
    if (bytes.length === 0) return
    this.#waiting.push(bytes)
    this.#waitingBytes += bytes.length
    this.#send()
  }

  /** What waits is not wanted any more. */
  clear(): void {
    this.#waiting = []
    this.#waitingBytes = 0
  }

  #send(): void {
    let sent = 0
    for (; sent < this.#waiting.length && this.#creditBytes > PIECE_BYTES; ) {
      const bytes = this.#waiting[sent]!
      const size = Math.min(bytes.length, this.#pieceBytesMax, this.#creditBytes - PIECE_BYTES)
      this.#creditBytes -= size + PIECE_BYTES
      this.#waitingBytes -= size
      // A piece of at least one byte fits in any payload.
      this.#writer.put(this.#kind, bytes.subarray(0, size))
      if (size < bytes.length) this.#waiting[sent] = bytes.subarray(size)
      else sent++
    }
    if (sent > 0) this.#waiting.splice(0, sent)
  }
}
