/** Living workers: which workers of a cell there are, from its joins and deaths, and the fleet of them. */

import type { Fleet } from '@homing/fleet'
import type { CellSpec } from './cell-types.ts'
import { SimFleet } from './sim-fleet.ts'

export interface WorkerChange {
  readonly atMs: number
  readonly worker: number
  readonly isDeath: boolean
}

export class LivingWorkers {
  /** In order of time. */
  readonly #changes: readonly WorkerChange[]
  #changesDone = 0
  readonly #isAlive: boolean[]
  readonly #simFleet: SimFleet
  /** Workers at the end of the list that long prompts are kept from. */
  readonly #keptFromLong: number
  #count = 0
  #fleet: Fleet
  #fleetForLong: Fleet

  constructor(spec: CellSpec) {
    const { joins = [], deaths = [], workers, selection } = spec
    this.#changes = [
      ...joins.map(change => ({ ...change, isDeath: false })),
      ...deaths.map(change => ({ ...change, isDeath: true })),
    ].sort((a, b) => a.atMs - b.atMs)
    const joining = new Set(joins.map(({ worker }) => worker))
    this.#isAlive = Array.from({ length: workers }, (_, worker) => !joining.has(worker))
    this.#keptFromLong = selection.workersWithoutLongPrompts ?? 0
    this.#simFleet = new SimFleet(spec)
    const [fleet, forLong] = this.#fleets()
    this.#fleet = fleet
    this.#fleetForLong = forLong
  }

  get count(): number {
    return this.#count
  }

  /** All of them. */
  get fleet(): Fleet {
    return this.#fleet
  }

  /** Without those that long prompts are kept from. */
  get fleetForLong(): Fleet {
    return this.#fleetForLong
  }

  /** The next join or death; undefined: there is none. */
  get next(): WorkerChange | undefined {
    return this.#changes[this.#changesDone]
  }

  /** Applies the next change. Undefined: the worker was so already. */
  change(): WorkerChange | undefined {
    const change = this.#changes[this.#changesDone++]!
    const { worker, isDeath } = change
    if (this.#isAlive[worker] === !isDeath) return undefined
    this.#isAlive[worker] = !isDeath
    const [fleet, forLong] = this.#fleets()
    this.#fleet = fleet
    this.#fleetForLong = forLong
    return change
  }

  #fleets(): readonly [all: Fleet, forLong: Fleet] {
    const alive = Int32Array.from(this.#isAlive.keys()).filter(worker => this.#isAlive[worker]!)
    this.#count = alive.length
    const kept = this.#keptFromLong
    const forLong = kept === 0 || alive.length <= kept ? alive : alive.subarray(0, alive.length - kept)
    return [this.#simFleet.of(alive), this.#simFleet.of(forLong)]
  }
}
