/**
 * Turns: work that only a few requests may have done at one time. Further ones wait in a short line, in the
 * order in which they came, or are refused.
 */

import type { Clock, Timer } from '@homing/base'

export interface TurnsOptions {
  readonly clock: Pick<Clock, 'after'>
  readonly atOnceMax: number
  /** 0: requests are refused instead of waiting. */
  readonly waitingMax: number
  readonly waitMsMax: number
  /** Turns of one key at one time, those in the line included; default: no such bound. */
  readonly perKeyMax?: number
  /** What a request is refused with. */
  readonly refusal: () => Error
}

interface Waiting {
  readonly begin: () => void
  readonly timer: Timer
}

export class Turns {
  readonly #options: TurnsOptions
  readonly #line = new Set<Waiting>()
  readonly #byKey = new Map<string, number>()
  #open = 0
  #refused = 0

  constructor(options: TurnsOptions) {
    this.#options = options
  }

  /** Requests refused since the start. */
  get refused(): number {
    return this.#refused
  }

  /** Resolves with what ends the turn, which may be called more than once; rejects with the refusal. */
  async take(key = ''): Promise<() => void> {
    const { clock, atOnceMax, waitingMax, waitMsMax, perKeyMax = Number.POSITIVE_INFINITY } = this.#options
    const ofKey = this.#byKey.get(key) ?? 0
    const mustWait = this.#open >= atOnceMax
    if (ofKey >= perKeyMax || (mustWait && this.#line.size >= waitingMax)) throw this.#refuse()
    this.#byKey.set(key, ofKey + 1)
    if (!mustWait) {
      this.#open++
      return this.#release(key)
    }
    const turn = Promise.withResolvers<void>()
    const waiting: Waiting = {
      begin: turn.resolve,
      timer: clock.after(waitMsMax, () => {
        this.#line.delete(waiting)
        turn.reject(this.#refuse())
      }),
    }
    this.#line.add(waiting)
    try {
      await turn.promise
    } catch (thrown) {
      this.#forget(key)
      throw thrown
    }
    return this.#release(key)
  }

  #release(key: string): () => void {
    let isOver = false
    return () => {
      if (isOver) return
      isOver = true
      this.#forget(key)
      // Its place goes to the next one in the line.
      for (const next of this.#line) {
        this.#line.delete(next)
        next.timer.cancel()
        next.begin()
        return
      }
      this.#open--
    }
  }

  #forget(key: string): void {
    const left = this.#byKey.get(key)! - 1
    if (left > 0) this.#byKey.set(key, left)
    else this.#byKey.delete(key)
  }

  #refuse(): Error {
    this.#refused++
    return this.#options.refusal()
  }
}
