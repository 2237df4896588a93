/**
 * Worker outcomes: how the requests of each worker key end under the policy, beside those that the control
 * arm sent there, and beside those of the whole fleet under the policy.
 *
 * A worker is shown as worse by the rule of outcome-differences.ts, if the difference is beyond Z_WORKER
 * standard errors and WORSE_RATIO. It is shown only: what to do about it is up to the operator.
 *
 * Bounded: a few means for each worker slot that was used, until its worker key leaves.
 */

import { AUTO_CONSTANTS } from '@homing/load'
import { FadingMean, type FadingMeanState } from './fading-mean.ts'
import {
  type Differences,
  errorDifference,
  NO_DIFFERENCES,
  timeDifference,
  worseBy,
} from './outcome-differences.ts'

const { WORKER_OUTCOMES, WORSE_RATIO, Z_WORKER } = AUTO_CONSTANTS.guard

/** Means of recent requests; times are multiples of those of all requests of about the same size. */
export interface OutcomeMeans {
  /** Requests that were finished, or that the worker failed. */
  readonly requests: number
  readonly errorShare: number
  /** 0: none was seen. */
  readonly correctedTtft: number
  readonly correctedDuration: number
}

export interface WorkerOutcomeReport {
  readonly workerSlot: number
  readonly policy: OutcomeMeans
  readonly control: OutcomeMeans
  /** Requests of the policy end worse there than those that control sent there. */
  readonly isWorseThanControl: boolean
  /** They end worse there than at the workers of the fleet together. */
  readonly isWorseThanFleet: boolean
}

/** Means of a group of requests, in the order of GUARD_MEASURES. */
type GroupState = readonly FadingMeanState[]

export interface WorkerOutcomesState {
  readonly fleet: GroupState
  readonly workers: readonly (readonly [workerSlot: number, policy: GroupState, control: GroupState])[]
}

class Group {
  readonly errors = new FadingMean(WORKER_OUTCOMES)
  readonly ttft = new FadingMean(WORKER_OUTCOMES)
  readonly durations = new FadingMean(WORKER_OUTCOMES)

  finished(corrected: number): void {
    this.errors.add(0)
    if (corrected > 0) this.durations.add(corrected)
  }

  get means(): OutcomeMeans {
    return {
      requests: this.errors.count,
      errorShare: this.errors.mean,
      correctedTtft: this.ttft.mean,
      correctedDuration: this.durations.mean,
    }
  }

  get state(): GroupState {
    return [this.errors.state, this.ttft.state, this.durations.state]
  }

  restore(state: GroupState): void {
    for (const [m, mean] of [this.errors, this.ttft, this.durations].entries()) mean.restore(state[m]!)
  }
}

interface WorkerGroups {
  readonly policy: Group
  readonly control: Group
}

export class WorkerOutcomes {
  readonly #fleet = new Group()
  readonly #workers = new Map<number, WorkerGroups>()

  /** `corrected`: time to the first token ÷ the usual one. */
  firstToken(workerSlot: number, isControl: boolean, corrected: number): void {
    this.#groupOf(workerSlot, isControl).ttft.add(corrected)
    if (!isControl) this.#fleet.ttft.add(corrected)
  }

  /** A whole answer; `corrected`: its time ÷ the usual one; 0: that is not known. */
  finished(workerSlot: number, isControl: boolean, corrected: number): void {
    this.#groupOf(workerSlot, isControl).finished(corrected)
    if (!isControl) this.#fleet.finished(corrected)
  }

  failed(workerSlot: number, isControl: boolean): void {
    this.#groupOf(workerSlot, isControl).errors.add(1)
    if (!isControl) this.#fleet.errors.add(1)
  }

  /** Forgets the workers of all other slots. */
  keepOnly(workerSlots: ReadonlySet<number>): void {
    for (const workerSlot of this.#workers.keys())
      if (!workerSlots.has(workerSlot)) this.#workers.delete(workerSlot)
  }

  report(): readonly WorkerOutcomeReport[] {
    return Array.from(this.#workers, ([workerSlot, { policy, control }]) => ({
      workerSlot,
      policy: policy.means,
      control: control.means,
      isWorseThanControl: isWorse(policy, control),
      isWorseThanFleet: isWorse(policy, this.#fleet),
    }))
  }

  get state(): WorkerOutcomesState {
    return {
      fleet: this.#fleet.state,
      workers: Array.from(
        this.#workers,
        ([workerSlot, { policy, control }]) => [workerSlot, policy.state, control.state] as const,
      ),
    }
  }

  restore({ fleet, workers }: WorkerOutcomesState): void {
    this.#fleet.restore(fleet)
    for (const [workerSlot, policy, control] of workers) {
      this.#of(workerSlot).policy.restore(policy)
      this.#of(workerSlot).control.restore(control)
    }
  }

  #groupOf(workerSlot: number, isControl: boolean): Group {
    const { policy, control } = this.#of(workerSlot)
    return isControl ? control : policy
  }

  #of(workerSlot: number): WorkerGroups {
    let groups = this.#workers.get(workerSlot)
    if (groups === undefined) {
      groups = { policy: new Group(), control: new Group() }
      this.#workers.set(workerSlot, groups)
    }
    return groups
  }
}

function isWorse(one: Group, other: Group): boolean {
  return worseBy(differencesOf(one, other), Z_WORKER) > WORSE_RATIO - 1
}

function differencesOf(one: Group, other: Group): Differences {
  if (one.errors.count === 0 && one.ttft.count === 0) return NO_DIFFERENCES
  return {
    errors: errorDifference(one.errors, other.errors),
    ttft: timeDifference(one.ttft, other.ttft),
    duration: timeDifference(one.durations, other.durations),
  }
}
