/**
 * Kept pieces: what came of a body, until all of it is there.
 *
 * Every byte is copied, because a view would keep all that was received with it in memory. Small pieces are
 * put together, because each costs far more than its bytes: what is kept takes at most about twice the bytes.
 */

/** Smaller ones are put together. */
const SMALL_BYTES = 1024
const JOINED_BYTES_MIN = 256
const JOINED_BYTES_MAX = 64 * 1024

export class KeptPieces {
  #pieces: Uint8Array[] = []
  /** Of small pieces, as far as `#joinedBytes`. */
  #joined = NOTHING
  #joinedBytes = 0

  put(bytes: Uint8Array): void {
    if (bytes.length >= SMALL_BYTES) {
      this.#close()
      this.#pieces.push(new Uint8Array(bytes))
      return
    }
    for (let at = 0; at < bytes.length; ) {
      if (this.#joinedBytes === this.#joined.length) this.#grow()
      const part = bytes.subarray(at, at + this.#joined.length - this.#joinedBytes)
      this.#joined.set(part, this.#joinedBytes)
      this.#joinedBytes += part.length
      at += part.length
    }
  }

  /** All of it, in one; nothing is kept any more. */
  take(): Uint8Array {
    this.#close()
    const pieces = this.#pieces
    this.#pieces = []
    return pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces)
  }

  clear(): void {
    this.#pieces = []
    this.#joined = NOTHING
    this.#joinedBytes = 0
  }

  #grow(): void {
    const size = Math.min(JOINED_BYTES_MAX, Math.max(JOINED_BYTES_MIN, 2 * this.#joined.length))
    if (this.#joinedBytes > 0) this.#pieces.push(this.#joined)
    this.#joined = new Uint8Array(size)
    this.#joinedBytes = 0
  }

  /** Without room for more. */
  #close(): void {
    if (this.#joinedBytes > 0) this.#pieces.push(this.#joined.slice(0, this.#joinedBytes))
    this.#joined = NOTHING
    this.#joinedBytes = 0
  }
}

const NOTHING = new Uint8Array(0)
