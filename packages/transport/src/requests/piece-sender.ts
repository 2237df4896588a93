/** Piece sender: sends bytes in pieces, as far as the other side has given credit for them. */

import { type FRAME, type FrameSink, PIECE_BYTES } from './frames.ts'

export class PieceSender {
  readonly #sink: FrameSink
  readonly #kind: typeof FRAME.body | typeof FRAME.data
  #creditBytes = 0
  #waiting: Uint8Array[] = []
  #waitingBytes = 0

  constructor(sink: FrameSink, kind: typeof FRAME.body | typeof FRAME.data) {
    this.#sink = sink
    this.#kind = kind
  }

  /** Bytes that wait for credit, or for the network. */
  get waitingBytes(): number {
    return this.#waitingBytes
  }

  credit(bytes: number): void {
    this.#creditBytes += bytes
    this.goOn()
  }

  /** `bytes` must stay as they are until nothing waits. */
  put(bytes: Uint8Array): void {
    if (bytes.length === 0) return
    this.#waiting.push(bytes)
    this.#waitingBytes += bytes.length
    this.goOn()
  }

  /** What waits is not wanted any more. */
  clear(): void {
    this.#waiting = []
    this.#waitingBytes = 0
  }

  /** Sends what may be sent. */
  goOn(): void {
    let sent = 0
    while (sent < this.#waiting.length && this.#creditBytes > PIECE_BYTES && !this.#sink.isBlocked) {
      const bytes = this.#waiting[sent]!
      const size = Math.min(bytes.length, this.#sink.pieceBytesMax, this.#creditBytes - PIECE_BYTES)
      this.#creditBytes -= size + PIECE_BYTES
      this.#waitingBytes -= size
      // A piece of at least one byte fits in any frame.
      this.#sink.put(this.#kind, bytes.subarray(0, size))
      if (size < bytes.length) this.#waiting[sent] = bytes.subarray(size)
      else sent++
    }
    if (sent > 0) this.#waiting.splice(0, sent)
  }
}
