/**
 * Untaken: messages of a consumer that were passed on and are not dealt with yet, in order. The broker is
 * told of the last message before which nothing is open.
 *
 *   passed on    p1 … p2 … p3     open until their receiver says that it has dealt with them
 *   passed over  …    x …   x     nothing is to be done for them; dealt with as soon as those before are
 */

import { PACK_MESSAGES_MAX, UNTAKEN_MAX } from './streams.ts'

/** Numbers fit into 31 bits and begin again; far more than can be open. */
const NUMBER_MAX = 2 ** 30

interface Open {
  /** 0: passed over. */
  readonly number: number
  readonly taken: () => void
}

export class Untaken {
  #open: Open[] = []
  #last = 0

  /** At most what UNTAKEN_MAX packs have, unless the broker sends more than it was told to. */
  get size(): number {
    return this.#open.length
  }

  /** The number, from 1, that its receiver says when it has dealt with it. */
  passOn(taken: () => void): number {
    this.#last = this.#last >= NUMBER_MAX ? 1 : this.#last + 1
    this.#add({ number: this.#last, taken })
    return this.#last
  }

  passOver(taken: () => void): void {
    this.#add({ number: 0, taken })
    this.#tell(0)
  }

  /** The receiver has dealt with this one and all before. A number that is not open means nothing. */
  done(number: number): void {
    const at = this.#open.findIndex(open => open.number === number)
    if (number > 0 && at >= 0) this.#tell(at + 1)
  }

  /** Nothing of before counts. */
  forget(): void {
    this.#open = []
  }

  #add(open: Open): void {
    this.#open.push(open)
    // What the broker sends again has its place already.
    if (this.#open.length > 2 * UNTAKEN_MAX * PACK_MESSAGES_MAX) this.#open.shift()
  }

  /** `count` are dealt with, and so is what was passed over behind them. */
  #tell(count: number): void {
    let end = count
    while (this.#open[end]?.number === 0) end++
    if (end === 0) return
    const last = this.#open[end - 1]!
    this.#open.splice(0, end)
    last.taken()
  }
}
