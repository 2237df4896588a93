/**
 * RestartGroup: a child that restarts, and the siblings that its parent restarts with it.
 *
 *   halt, the last spawned first, each before the next ──▶ wait for lost threads ──▶ backoff ──▶ release in order
 *
 * A member keeps its ref and its mailbox; only its instance is replaced. Members live on any thread: the child's own
 * thread ends the instance (`Cell.halt`), reports (`childHalted`) and waits for the release. Siblings whose directive
 * is `stop` are temporary: they are stopped and do not come back. As at the first spawn, one setup does not wait for
 * an asynchronous one before it.
 *
 * A member that fails, or loses its thread, while the group is being halted, joins as another that failed: its own
 * siblings become members and the longest backoff counts. Every wait is bounded: past it the group goes on, and a
 * member that comes later starts at once (`Cell.release` is remembered).
 */

import type { Strategy } from '../contract/types.ts'
import type { Deadline, Deadlines } from '../values/deadlines.ts'
import type { Child } from './kin.ts'

/** How long a group waits for a member beyond that member's own time. */
const HALT_MARGIN_MS = 1000
/** How long it waits for the thread of a member to be replaced. */
const DISPLACED_MS_MAX = 5000

const TO_HALT = 0
const HALTING = 1
const HALTED = 2
/** Its thread died: there is nothing to halt, and main spawns it again. */
const DISPLACED = 3
type MemberState = typeof TO_HALT | typeof HALTING | typeof HALTED | typeof DISPLACED

/** What a group needs of the parent and its runtime. */
export interface GroupHost {
  readonly deadlines: Deadlines
  values(): Iterable<Child>
  stop(id: number): void
  haltChild(child: Child, error: unknown): void
  releaseChild(child: Child): void
}

export class RestartGroup {
  readonly #host: GroupHost
  readonly #strategy: Exclude<Strategy, 'one-for-one'>
  readonly #members = new Map<number, MemberState>()
  /** Members that may have to be halted, in the order of their spawn: the last is the next. */
  #toHalt: Child[] = []
  /** The member that is waited for, while its state is HALTING. */
  #haltingId = 0
  #error: unknown = undefined
  #delayMs = 0
  #isActive = false
  #isInLoop = false
  /** Bounds the present wait, or is the backoff. */
  readonly #limit: Deadline = { dueMs: 0, position: -1, expire: () => this.#onLimit() }
  #isBackoff = false

  constructor(host: GroupHost, strategy: Exclude<Strategy, 'one-for-one'>) {
    this.#host = host
    this.#strategy = strategy
  }

  /** A child's instance has ended. False when nobody here waits for that: it may start at once. */
  halted(child: Child, isFailure: boolean, delayMs: number, error: unknown): boolean {
    if (isFailure) this.#add(child, HALTED, delayMs, error)
    else if (this.#members.has(child.id)) this.#members.set(child.id, HALTED)
    else return false
    this.#advance()
    return true
  }

  /** The thread of a child that main spawns again is gone. */
  displaced(child: Child, error: unknown): void {
    this.#add(child, DISPLACED, 0, error)
    this.#advance()
  }

  /** A child has ended for good. */
  ended(id: number): void {
    if (this.#members.delete(id)) this.#advance()
  }

  /** The parent stops its children. */
  cancel(): void {
    this.#isActive = false
    this.#members.clear()
    this.#toHalt = []
    this.#host.deadlines.remove(this.#limit)
  }

  #add(failed: Child, state: MemberState, delayMs: number, error: unknown): void {
    if (this.#isActive) this.#delayMs = Math.max(this.#delayMs, delayMs)
    else {
      this.#delayMs = delayMs
      this.#error = error
      this.#isActive = true
    }
    this.#members.set(failed.id, state)
    // Ids grow in the order of spawn.
    const toHalt: Child[] = []
    for (const sibling of this.#host.values()) {
      const isAfter = this.#strategy === 'one-for-all' || sibling.id > failed.id
      if (isAfter && !sibling.isStopping && !this.#members.has(sibling.id))
        this.#members.set(sibling.id, TO_HALT)
      if (this.#stateOf(sibling) === TO_HALT) toHalt.push(sibling)
    }
    this.#toHalt = toHalt
    this.#isBackoff = false
    this.#host.deadlines.remove(this.#limit)
  }

  #advance(): void {
    // A member may halt or end while it is being told to: then this loop goes on, not a nested one.
    if (this.#isInLoop || !this.#isActive || this.#isBackoff) return
    this.#isInLoop = true
    while (this.#isActive && !this.#isHalting) {
      const next = this.#toHalt.pop()
      if (next === undefined) break
      if (this.#stateOf(next) !== TO_HALT) continue
      this.#members.set(next.id, HALTING)
      this.#haltingId = next.id
      this.#wait(next.settings.shutdownMs + HALT_MARGIN_MS)
      if (next.settings.directive === 'stop') this.#host.stop(next.id)
      else this.#host.haltChild(next, this.#error)
    }
    this.#isInLoop = false
    if (!this.#isActive || this.#isHalting) return
    if (this.#has(DISPLACED)) {
      this.#wait(DISPLACED_MS_MAX)
      return
    }
    this.#isBackoff = true
    if (this.#delayMs > 0) this.#wait(this.#delayMs)
    else this.#release()
  }

  #onLimit(): void {
    if (this.#isBackoff) {
      this.#release()
      return
    }
    const waitsForHalt = this.#isHalting
    for (const [id, state] of this.#members) {
      if (state === HALTING || (state === DISPLACED && !waitsForHalt)) this.#members.set(id, HALTED)
    }
    this.#advance()
  }

  #release(): void {
    const released = [...this.#host.values()].filter(child => this.#members.has(child.id))
    this.#isActive = false
    this.#isBackoff = false
    this.#members.clear()
    this.#host.deadlines.remove(this.#limit)
    for (const child of released) if (!child.isStopping) this.#host.releaseChild(child)
  }

  #wait(limitMs: number): void {
    this.#host.deadlines.remove(this.#limit)
    this.#host.deadlines.add(this.#limit, limitMs)
  }

  get #isHalting(): boolean {
    return this.#members.get(this.#haltingId) === HALTING
  }

  #stateOf(child: Child): MemberState | undefined {
    return this.#members.get(child.id)
  }

  #has(state: MemberState): boolean {
    for (const present of this.#members.values()) if (present === state) return true
    return false
  }
}
