/** Troubles: false information for a router, for the cases of the guard. See `Trouble` in cell-types.ts. */

import type { Random } from '@homing/base'
import type { FleetView } from './fleet-view.ts'
import type { SimRequest } from './sim-request.ts'

export const AT_ONCE_MS = 1
const LATER_FACTOR_MAX = 8
const PROXIES_EVERY = 4

export type SignalTrouble = 'at-once' | 'some-at-once' | 'random'

/** When the router hears of first tokens. */
export class TroubledSignals {
  readonly #kind: SignalTrouble
  readonly #random: Random

  constructor(kind: SignalTrouble, random: Random) {
    this.#kind = kind
    this.#random = random
  }

  /** Whether the first tokens of requests to this worker are reported before they exist. */
  isAtOnce(worker: number): boolean {
    switch (this.#kind) {
      case 'at-once':
        return true
      case 'some-at-once':
        return worker % PROXIES_EVERY === 0
      case 'random':
        return this.#random.next() < 0.5
    }
  }

  /** When a first token that came now is reported. */
  laterMs({ arrivalMs }: SimRequest, nowMs: number): number {
    if (this.#kind !== 'random') return nowMs
    return (
      arrivalMs + Math.max(AT_ONCE_MS, nowMs - arrivalMs) * (1 + (LATER_FACTOR_MAX - 1) * this.#random.next())
    )
  }
}

/** Overlaps of the last prompt with another root, as far as this prompt is long. */
export class FlippedView implements FleetView {
  readonly #view: FleetView
  #last: ArrayLike<number> = []
  #other: ArrayLike<number> = []

  constructor(view: FleetView) {
    this.#view = view
  }

  get heldBlocks(): Int32Array | undefined {
    return this.#view.heldBlocks
  }

  overlaps(ids: ArrayLike<number>, count: number, into: Int32Array, nowMs: number): void {
    if (count > 0 && this.#last[0] !== ids[0]) this.#other = this.#last
    if (count > 0) this.#last = ids
    this.#view.overlaps(this.#other, Math.min(count, this.#other.length), into, nowMs)
  }

  sent(ids: ArrayLike<number>, count: number, worker: number, nowMs: number): void {
    this.#view.sent(ids, count, worker, nowMs)
  }

  clear(worker: number): void {
    this.#view.clear(worker)
  }
}
