/**
 * Busy refusals: requests that no worker took because all were busy, by the model that they count under.
 *
 * Owns   their number, and for each model an estimate when refused clients should come back.
 */

import type { Clock, ErrorRecord } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import { Overload } from '@homing/queue'

export class BusyRefusals {
  /** By model. */
  readonly counts = new Map<string, number>()
  readonly #clock: Clock
  /** The model under which adapters count that no worker lists; undefined: each under its own name. */
  readonly #adapterBase: string | undefined
  readonly #overloads = new Map<string, Overload>()

  constructor(clock: Clock, adapterBase: string | undefined) {
    this.#clock = clock
    this.#adapterBase = adapterBase
  }

  /** A request was placed: models that are refused requests for become free at this rate. */
  placed(fleet: Fleet, model: string): void {
    this.#overloads.get(this.#countedAs(fleet, model))?.placed(this.#clock.nowMs())
  }

  /** Counts a request as refused. Adds to the error when its client should come back. */
  refused(fleet: Fleet, model: string, error: ErrorRecord): ErrorRecord {
    const counted = this.#countedAs(fleet, model)
    this.counts.set(counted, (this.counts.get(counted) ?? 0) + 1)
    return this.#overloaded(error, counted)
  }

  takeFleet(fleet: Fleet): void {
    const models = new Set(fleet.workers.flatMap(worker => worker.models.map(({ name }) => name)))
    for (const model of this.counts.keys()) {
      if (models.has(model)) continue
      this.counts.delete(model)
      this.#overloads.delete(model)
    }
  }

  /** The listed model under which a request counts: clients could make up any number of unlisted adapters. */
  #countedAs(fleet: Fleet, model: string): string {
    const base = this.#adapterBase
    if (base === undefined) return model
    const isListed = fleet.workers.some(({ models }) => models.some(({ name }) => name === model))
    return isListed ? model : base
  }

  /** Adds `retryAfterSeconds` to the error, by the rate of placements since the first refusal. */
  #overloaded(error: ErrorRecord, model: string): ErrorRecord {
    let overload = this.#overloads.get(model)
    if (overload === undefined) {
      overload = new Overload()
      this.#overloads.set(model, overload)
    }
    const retryAfterSeconds = overload.refused(this.#clock.nowMs())
    return retryAfterSeconds === undefined
      ? error
      : { ...error, details: { ...error.details, retryAfterSeconds } }
  }
}
