/**
 * Prefill pools: for which models prefill and decode are apart, as the last fleet has it, and the settings of
 * it (docs/disaggregation.md). It comes to life with the first prefill worker of a model that another worker
 * takes over from, in either order of start, and ends with the last one.
 *
 * Cost   of a fleet without prefill workers: one look into an empty map for each request.
 */

import { type Fleet, type PrefillState, prefillStates, roleOf, type WorkerRecord } from '@homing/fleet'
import { LostHandovers } from './lost-handovers.ts'

export interface DisaggSettings {
  /** Requests of a model with prefill workers are refused where no hand-over is possible. */
  readonly isEnforced: boolean
  /**
   * Which prompts stay at the worker that answers. A rule: those with fewer tokens to compute, and a smaller
   * share of them, at a worker that holds the rest. `auto`: those that are expected to cost less there.
   * Undefined: none.
   */
  readonly stay: { readonly tokens: number; readonly share: number } | 'auto' | undefined
}

/** Why a request whose model has prefill workers goes whole. */
export type AloneReason = 'inactive' | 'unfit' | 'no_room' | 'cached' | 'cheaper' | 'failed' | 'lost'
/** How a prefill leg ended. */
export type LegOutcome =
  | 'handed_over'
  | 'answered'
  | 'not_handed_over'
  | 'refused'
  | 'failed'
  | 'silent'
  | 'not_placed'
  | 'deadline'

export class PrefillPools {
  readonly settings: DisaggSettings
  /** Of decode workers. */
  readonly lost = new LostHandovers()
  #states: ReadonlyMap<string, PrefillState> = new Map()
  #fleet: Fleet = { version: 0, workers: [] }

  constructor(settings: DisaggSettings = { isEnforced: false, stay: undefined }) {
    this.settings = settings
  }

  /** Returns the models whose state has changed. */
  takeFleet(fleet: Fleet): readonly (readonly [model: string, state: PrefillState | undefined])[] {
    const before = this.#states
    this.#fleet = fleet
    this.#states = prefillStates(fleet)
    this.lost.keepOnly(new Set(fleet.workers.map(({ id }) => id)))
    const models = new Set([...before.keys(), ...this.#states.keys()])
    return [...models].flatMap(model => {
      const state = this.#states.get(model)
      return state === before.get(model) ? [] : [[model, state] as const]
    })
  }

  /** Whether it is active, of each model that has a state. */
  get active(): ReadonlyMap<string, boolean> {
    return new Map([...this.#states].map(([model, state]) => [model, state === 'active']))
  }

  /** Undefined: the workers of the model are all of the role `both`. */
  state(model: string): PrefillState | undefined {
    return this.#states.get(model)
  }

  /** Nothing is apart, and nothing has to be. */
  get isPlain(): boolean {
    return this.#states.size === 0 && !this.settings.isEnforced
  }

  serves(model: string): boolean {
    return this.#fleet.workers.some(({ models }) => models.some(({ name }) => name === model))
  }

  /** Decode workers that get no hand-over now, though others of the model could take it. */
  avoided(
    model: string,
    topology: readonly string[],
    excluded: readonly string[],
    nowMs: number,
  ): readonly string[] {
    if (this.lost.isEmpty) return []
    const able = this.#fleet.workers.filter(
      worker =>
        worker.state === 'up' &&
        roleOf(worker) !== 'prefill' &&
        !excluded.includes(worker.id) &&
        (model === '' || worker.models.some(({ name }) => name === model)) &&
        topology.every(taint => worker.taints.includes(taint)),
    )
    return this.lost.avoided(
      able.map(({ id }) => id),
      nowMs,
    )
  }

  worker(id: string): WorkerRecord | undefined {
    return this.#fleet.workers.find(worker => worker.id === id)
  }
}
