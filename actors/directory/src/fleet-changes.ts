/**
 * Fleet changes: workers that join at run time, that drain, and that leave.
 *
 *   add ──▶ probed like every other, on trial until its cache is known (worker-trials.ts)
 *   drain ──▶ draining ──last request has ended, or `drainMsMax`──▶ left
 *   pause ──▶ gets no new requests until it is resumed; what it has and what is cached there stays
 *   remove ──▶ left: keys, slots, probes and listeners end; requests under way go on by themselves
 *
 * What a worker still has at `drainMsMax` is to go on elsewhere: gateways are told that it is overdue.
 *
 * Owns   which workers drain, and the roll of present workers. It decides when a worker joins or leaves;
 *        `joined` and `left` do the work.
 */

import type { ActorContext } from '@homing/actor'
import { CodedError, type ErrorRecord, toErrorRecord } from '@homing/base'
import {
  type KeyLimits,
  parseWorkerSpec,
  placeOf,
  WorkerRoll,
  type WorkerSpec,
  withinLimits,
} from '@homing/fleet'
import type { DirectoryMessage, KeptFleet } from './messages.ts'
import type { Worker } from './worker.ts'
import type { WorkerTable } from './worker-table.ts'

export interface FleetChangesOptions {
  readonly context: ActorContext<DirectoryMessage>
  readonly workers: WorkerTable
  /** The workers that the start names: each has its number again when it comes back. */
  readonly specs: readonly WorkerSpec[]
  /** How long a worker may drain, in milliseconds. */
  readonly drainMsMax: number
  readonly joined: (worker: Worker) => void
  /** `isOverdue`: its drain took too long. */
  readonly left: (worker: Worker, isOverdue: boolean) => void
  /** The record of the worker may have changed. */
  readonly changed: (worker: Worker) => void
  /** The workers as they are now, after a change at run time. */
  readonly keep: (workers: KeptFleet['workers']) => void
}

export class FleetChanges {
  readonly #options: FleetChangesOptions
  readonly #roll = new WorkerRoll()
  /** Numbers of the workers that the start names, by place. */
  readonly #numbers: ReadonlyMap<string, number>
  #turns = 0
  #joinedMsLast = 0

  constructor(options: FleetChangesOptions) {
    this.#options = options
    this.#numbers = new Map(options.specs.map(spec => [placeOf(spec), spec.instanceId]))
  }

  /** At the start of a life of the directory: they were checked before. */
  begin(workers: KeptFleet['workers']): void {
    const { workers: table, joined, context } = this.#options
    for (const { joinedMs = 0 } of workers) this.#joinedMsLast = Math.max(this.#joinedMsLast, joinedMs)
    for (const { spec, isDraining, pause, joinedMs = this.#nextJoinedMs() } of workers) {
      const worker = table.tryAdd(spec, joinedMs)
      if (worker === undefined) {
        context.log.warn({ worker: spec.id }, 'worker is given twice; the first one counts')
        continue
      }
      this.#roll.note(spec.id, spec)
      worker.pause = pause
      joined(worker)
      if (isDraining) this.#beginDrain(worker)
    }
  }

  /**
   * At run time: it is on trial until its cache is known. `limits`: of the keys that it may name; undefined:
   * it is the operator's, and names any.
   */
  add(url: string, limits?: KeyLimits): { readonly id: string } | ErrorRecord {
    const added = this.#join(url, true, limits)
    if ('id' in added) {
      this.#options.context.log.info({ worker: added.id }, 'worker is added')
      this.keep()
    }
    return added
  }

  /** As `begin`, of one URL. */
  beginWith(url: string): { readonly id: string } | ErrorRecord {
    return this.#join(url, false)
  }

  /** The id of a worker with this URL. Throws InvalidWorkerError. */
  idOf(url: string): string {
    return parseWorkerSpec(url, undefined).id
  }

  has(workerId: string): boolean {
    return this.#options.workers.get(workerId) !== undefined
  }

  isDraining(workerId: string): boolean {
    return this.#options.workers.get(workerId)?.drain !== undefined
  }

  #join(url: string, isOnTrial: boolean, limits?: KeyLimits): { readonly id: string } | ErrorRecord {
    const { workers, joined } = this.#options
    try {
      const given = this.#parse(url)
      const spec = limits === undefined ? given : withinLimits(given, limits)
      this.#roll.enter(spec.id, spec)
      joined(workers.tryAdd(spec, this.#nextJoinedMs(), isOnTrial)!)
      return { id: spec.id }
    } catch (thrown) {
      if (thrown instanceof CodedError) return toErrorRecord(thrown)
      throw thrown
    }
  }

  /** Throws InvalidWorkerError. */
  #parse(url: string): WorkerSpec {
    const spec = parseWorkerSpec(url, undefined)
    const number = this.#numbers.get(placeOf(spec))
    return number === undefined ? spec : parseWorkerSpec(url, number)
  }

  /**
   * Larger than the `joinedMs` of every present or earlier worker, also of earlier lives of the directory.
   */
  #nextJoinedMs(): number {
    this.#joinedMsLast = Math.max(this.#joinedMsLast + 1, Math.floor(this.#options.context.clock.wallMs()))
    return this.#joinedMsLast
  }

  /** False: there is none of this id. */
  remove(workerId: string, reason = 'it was removed', isOverdue = false): boolean {
    const { context, workers, left } = this.#options
    const worker = workers.remove(workerId)
    if (worker === undefined) return false
    this.#roll.leave(worker.spec)
    worker.drain?.due.cancel()
    context.log.info({ worker: workerId, reason }, 'worker has left')
    left(worker, isOverdue)
    this.keep()
    return true
  }

  /** False: there is none of this id. Once more while it drains changes nothing. */
  drain(workerId: string): boolean {
    const worker = this.#options.workers.get(workerId)
    if (worker === undefined) return false
    if (worker.drain === undefined) {
      this.#beginDrain(worker)
      this.keep()
    }
    return true
  }

  #beginDrain(worker: Worker): void {
    const { context, drainMsMax, changed } = this.#options
    const workerId = worker.spec.id
    const turn = ++this.#turns
    const due = context.schedule(drainMsMax, { type: 'drainDue', workerId, turn })
    worker.drain = { turn, sinceMs: context.clock.nowMs(), due }
    context.log.info({ worker: workerId, drainMsMax }, 'worker drains: it gets no new requests')
    changed(worker)
  }

  /** Has the workers as they are now kept over the lives of the directory. */
  keep(): void {
    const { workers, keep } = this.#options
    keep(
      Array.from(workers.all(), ({ spec, joinedMs, drain, pause }) => ({
        spec,
        joinedMs,
        isDraining: drain !== undefined,
        pause,
      })),
    )
  }

  /** It gets no new requests for now. `reason`, for people; undefined: it gets requests again. */
  pause(workerId: string, reason: string | undefined): void {
    const { context, workers, changed } = this.#options
    const worker = workers.get(workerId)
    if (worker === undefined || worker.pause === reason) return
    if (worker.pause === undefined)
      context.log.info({ worker: workerId, reason }, 'worker is paused: it gets no new requests')
    else if (reason === undefined) context.log.info({ worker: workerId }, 'worker gets requests again')
    worker.pause = reason
    changed(worker)
    this.keep()
  }

  /** Whether it answers its probes; undefined: there is none of this id. */
  answers(workerId: string): boolean | undefined {
    const worker = this.#options.workers.get(workerId)
    return worker && worker.state === 'up'
  }

  /** A worker that drains takes requests again. */
  resume(workerId: string): void {
    const { context, workers, changed } = this.#options
    const worker = workers.get(workerId)
    if (worker?.drain === undefined) return
    worker.drain.due.cancel()
    worker.drain = undefined
    context.log.info({ worker: workerId }, 'worker drains no longer')
    changed(worker)
    this.keep()
  }

  /** A worker that drains has no open request. */
  drained(workerId: string): void {
    if (this.#options.workers.get(workerId)?.drain === undefined) return
    this.remove(workerId, 'it drained')
  }

  /** The time of a drain is over. */
  drainDue(workerId: string, turn: number): void {
    if (this.#options.workers.get(workerId)?.drain?.turn !== turn) return
    const { context, drainMsMax } = this.#options
    context.log.warn({ worker: workerId, drainMsMax }, 'a worker that drains still has open requests')
    this.remove(workerId, 'its drain took too long; its open requests go on', true)
  }
}
