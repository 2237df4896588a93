/** SlowActors: the actors that did not stop, or drain, in time; the last SLOW_MAX of a thread. */

import type { Clock, Log } from '@homing/base'
import { LineLimit } from './line-limit.ts'

const SLOW_MAX = 1000

export class SlowActors {
  readonly #slow: { readonly name: string; readonly atMs: number }[] = []
  readonly #clock: Clock
  readonly #log: Log
  readonly #text: string
  readonly #limit: LineLimit

  constructor(clock: Clock, log: Log, text = 'actor abandoned: it did not stop in time') {
    this.#clock = clock
    this.#log = log
    this.#text = text
    this.#limit = new LineLimit(clock)
  }

  add(name: string): void {
    const { leftOut, isAllowed } = this.#limit.next()
    if (leftOut > 0) this.#log.warn({ actors: leftOut }, 'more actors abandoned, not shown')
    if (isAllowed) this.#log.warn({ actor: name }, this.#text)
    if (this.#slow.length >= SLOW_MAX) this.#slow.shift()
    this.#slow.push({ name, atMs: this.#clock.nowMs() })
  }

  /** The names of those since a time. */
  since(timeMs: number): readonly string[] {
    return this.#slow.filter(({ atMs }) => atMs >= timeMs).map(({ name }) => name)
  }
}
