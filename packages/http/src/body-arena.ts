/**
 * Body arena: memory that all threads share, in which long request bodies lie from their last byte to the end
 * of their request. A body is copied into it once, where it is put together from its pieces; readers on other
 * threads scan it there, and the worker is sent the same bytes.
 *
 *   arena   | body of one request | free | another's body | free …
 *              ▲      ▲
 *              │      └ loan of the reader, while a thread may read it
 *              └ loan of the exchange; a loan of a call whose connection still has bytes of it
 *
 * Invariants
 *   I1  A range belongs to one body until all loans of it are given back. So no reader, and no connection,
 *       sees bytes of another request.
 *   I2  A loan that is lost (it is not known whether its reader has stopped) ends this memory: later bodies
 *       get new memory, and the lost range is never used again.
 *
 * Memory that was used stays until no body was taken for IDLE_MS; then it is left, and the next body gets new
 * memory: a burst of long bodies costs nothing once it is over.
 *
 * Bounds   `bytesMax` of addresses; the system gives memory to those that were used, and first fit keeps them
 *          few. What finds no room is kept in memory of its own, as are bodies below LENT_BYTES_MIN and above
 *          LENT_BYTES_MAX.
 */

import type { Clock } from '@homing/base'

/** Shorter bodies are read where they arrive, or copied to another thread at no cost. */
export const LENT_BYTES_MIN = 16 * 1024
/** Longer ones are rare, and a few of them would take all room. */
export const LENT_BYTES_MAX = 4 * 2 ** 20
/** New memory costs its pages once more, 0.1 ms a MiB: too little to matter once in so long. */
const IDLE_MS = 30_000
/** As of the system: memory that is used anew is not next to memory that waits for another thread. */
const SYSTEM_PAGE_BYTES = 4096

/** The right of one holder to read the bytes of a body. */
export interface BodyLoan {
  readonly bytes: Uint8Array
  /** A right of another holder to the same bytes. Not after the end of this one. */
  lend(): BodyLoan
  /** The holder does not read the bytes any more. Idempotent. */
  giveBack(): void
  /** The holder may read the bytes for ever. Idempotent, and nothing after `giveBack`. */
  lose(): void
}

interface Range {
  readonly start: number
  /** Behind the last byte, at the end of a page. */
  readonly end: number
  readonly byteCount: number
  loans: number
}

/** The memory until a loan of it is lost. */
interface Life {
  readonly memory: SharedArrayBuffer
  /** Up to here the system has given memory. */
  touched: number
  /** By their start. */
  readonly used: Range[]
}

export class BodyArena {
  readonly #bytesMax: number
  /** Undefined: nothing was lent since the start, or since a loan was lost. */
  #life: Life | undefined
  #bytes = 0
  readonly #clock: Clock | undefined
  /** Bodies since the last look whether memory is used. */
  #takenSince = 0
  #isWatched = false

  /** Without `clock` memory that was used stays. */
  constructor(bytesMax: number, clock?: Clock) {
    this.#bytesMax = bytesMax
    this.#clock = clock
  }

  /** Bytes of the bodies in it. */
  get bytes(): number {
    return this.#bytes
  }

  /** Bytes of memory that it has used and keeps. */
  get keptBytes(): number {
    return this.#life?.touched ?? 0
  }

  /** Room for a body, with whatever bytes are there; undefined: there is none, or it needs none. */
  take(byteCount: number): BodyLoan | undefined {
    if (byteCount < LENT_BYTES_MIN || byteCount > LENT_BYTES_MAX) return undefined
    const size = Math.ceil(byteCount / SYSTEM_PAGE_BYTES) * SYSTEM_PAGE_BYTES
    if (size > this.#bytesMax) return undefined
    this.#life ??= { memory: new SharedArrayBuffer(this.#bytesMax), touched: 0, used: [] }
    const life = this.#life
    const { used } = life
    let start = 0
    let at = 0
    for (; at < used.length && used[at]!.start - start < size; at++) start = used[at]!.end
    if (start + size > this.#bytesMax) return undefined
    const range: Range = { start, end: start + size, byteCount, loans: 0 }
    used.splice(at, 0, range)
    this.#bytes += byteCount
    life.touched = Math.max(life.touched, range.end)
    this.#takenSince++
    this.#watch()
    return this.#loan(life, range, new Uint8Array(life.memory, start, byteCount))
  }

  /** Looks again and again while there is memory, and leaves it once none was used in between. */
  #watch(): void {
    if (this.#isWatched || this.#clock === undefined) return
    this.#isWatched = true
    const look = (): void => {
      this.#isWatched = false
      if (this.#takenSince === 0 && this.#life?.used.length === 0) this.#life = undefined
      this.#takenSince = 0
      if (this.#life !== undefined) this.#watch()
    }
    this.#clock.after(IDLE_MS, look, { unref: true })
  }

  #loan(life: Life, range: Range, bytes: Uint8Array): BodyLoan {
    range.loans++
    let isOpen = true
    const end = (): void => {
      isOpen = false
      if (--range.loans > 0) return
      life.used.splice(life.used.indexOf(range), 1)
      this.#bytes -= range.byteCount
    }
    return {
      bytes,
      lend: () => {
        if (!isOpen) throw new Error('bytes that were given back cannot be lent')
        return this.#loan(life, range, bytes)
      },
      giveBack: () => {
        if (isOpen) end()
      },
      lose: () => {
        if (!isOpen) return
        if (this.#life === life) this.#life = undefined
        end()
      },
    }
  }
}
