/**
 * Registrations: the actors that main knows because their thread may be replaced, or is their own. Actors
 * whose directive is `restart` go with the next life of their thread, within their restart budget. For the
 * others, and for those beyond their budget, the parent is told that they have ended.
 */

import type { CodedError } from '@homing/base'
import type { TerminationReason } from '../contract/types.ts'
import { OP, type Registration, type SpawnSpec } from '../links/frames.ts'
import { MAIN } from '../links/life.ts'
import type { Runtime } from '../runtime/runtime.ts'
import { RestartBudgetError, ThreadDownError } from '../values/errors.ts'
import type { ThreadEnd } from '../values/thread-end.ts'
import { recordOf } from '../values/thrown.ts'

interface Entry {
  readonly registration: Registration
  /** The life that has the actor, or will; 0 when the next one gets it. */
  uid: number
  restartTimesMs: number[]
}

/** A thread whose life has ended. */
interface LostThread {
  readonly name: string
  readonly end: ThreadEnd
  readonly isRecycling: boolean
}

export class Registrations {
  readonly #runtime: Runtime
  readonly #entries = new Map<number, Entry>()

  constructor(runtime: Runtime) {
    this.#runtime = runtime
  }

  add(registration: Registration): void {
    this.#entries.set(registration.spec.id, { registration, uid: registration.sentToUid, restartTimesMs: [] })
  }

  /** Forgets an actor; undefined when it was not known. */
  remove(id: number): Registration | undefined {
    const entry = this.#entries.get(id)
    this.#entries.delete(id)
    return entry?.registration
  }

  /** True when one lives on `thread`, or will. */
  hasAnyOn(thread: string): boolean {
    for (const { registration } of this.#entries.values()) if (registration.thread === thread) return true
    return false
  }

  /** The actor is on life `uid` of its thread; 0: it waits for the next. */
  place(id: number, uid: number): void {
    const entry = this.#entries.get(id)
    if (entry !== undefined) entry.uid = uid
  }

  /** An actor was restarted where it lives. */
  restarted(id: number, nowMs: number): void {
    const entry = this.#entries.get(id)
    if (entry === undefined) return
    const { restartTimesMs: times, registration } = entry
    times.push(nowMs)
    while (nowMs - times[0]! >= registration.spec.settings.withinMs) times.shift()
  }

  /** A life of `thread` begins: the actors that wait for it, and that it may have. */
  takeWaiting(
    thread: string,
    uid: number,
    nowMs: number,
    mayHave: (spec: SpawnSpec) => boolean,
  ): SpawnSpec[] {
    const specs: SpawnSpec[] = []
    for (const entry of this.#entries.values()) {
      const { registration, restartTimesMs } = entry
      const { spec } = registration
      if (registration.thread !== thread || entry.uid !== 0 || !mayHave(spec)) continue
      entry.uid = uid
      specs.push({ ...spec, restartAgesMs: restartTimesMs.map(timeMs => nowMs - timeMs) })
    }
    return specs
  }

  /**
   * Life `uid` has ended, and the parents on it. Their children cannot be restarted; they are returned.
   */
  removeChildrenOf(uid: number): Registration[] {
    const removed: Registration[] = []
    for (const [id, { registration }] of this.#entries) {
      if (registration.spec.parent.uid !== uid) continue
      this.#entries.delete(id)
      removed.push(registration)
    }
    return removed
  }

  /** The thread is not coming back; the parents hear that elsewhere. */
  removeAllOn(thread: string): void {
    for (const [id, { registration }] of this.#entries) {
      if (registration.thread === thread) this.#entries.delete(id)
    }
  }

  /** Sorts the actors that were on a lost thread into those that come back and those that end. */
  displace({ name, end, isRecycling }: LostThread, nowMs: number): void {
    for (const [id, entry] of this.#entries) {
      const { spec, thread, sentToUid } = entry.registration
      if (thread !== name || entry.uid === 0) continue
      const { directive, restartsMax, withinMs, whenExhausted } = spec.settings
      if (directive !== 'restart') {
        // Its parent saw the link close and has ended it already, unless it was spawned after that, through
        // main.
        if (sentToUid === entry.uid) this.#entries.delete(id)
        else this.end(id, end.reason, ThreadDownError.ended(thread, end))
        continue
      }
      if (isRecycling) {
        // None of them failed.
        entry.uid = 0
        continue
      }
      entry.restartTimesMs = entry.restartTimesMs.filter(timeMs => nowMs - timeMs < withinMs)
      if (entry.restartTimesMs.length >= restartsMax) {
        const cause = ThreadDownError.ended(thread, end)
        const exhausted = new RestartBudgetError(spec.name, restartsMax, withinMs, cause)
        this.end(id, 'failed', exhausted, whenExhausted === 'escalate')
        continue
      }
      entry.restartTimesMs.push(nowMs)
      entry.uid = 0
    }
  }

  /** Forgets an actor and tells its parent that it has ended. */
  end(id: number, reason: TerminationReason, error: CodedError, isEscalated = false): void {
    const registration = this.remove(id)
    if (registration === undefined) return
    const { parent } = registration.spec
    const ending = { reason, error: recordOf(error), isLost: true, ...(isEscalated ? { isEscalated } : {}) }
    if (parent.thread === MAIN) this.#runtime.kinship.childLost(parent.id, id, ending)
    else {
      const peer = this.#runtime.peers.to(parent.thread)
      peer.send({ op: OP.CHILD_ENDED, target: parent.id, corr: id, body: ending, patches: 0 })
    }
  }
}
