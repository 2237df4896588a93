/**
 * Children: the table of one actor's children, in the order of their spawn, and the order in which
 * they are stopped: the last spawned first, each before the next. With a strategy other than `one-for-one`,
 * `group` restarts siblings together.
 */

import type { CodedError } from '@homing/errors'
import type { Strategy } from '../contract/types.ts'
import type { Deadlines } from '../values/deadlines.ts'
import type { Drain } from './drain.ts'
import type { CellHost } from './host.ts'
import type { Child, Ending, LocalParent } from './kin.ts'
import type { LocalRef } from './local-ref.ts'
import { type GroupHost, RestartGroup } from './restart-group.ts'

export class Children implements GroupHost {
  /** Undefined: one-for-one. */
  readonly group: RestartGroup | undefined
  readonly #host: CellHost
  readonly #parent: LocalParent
  readonly #children = new Map<number, Child>()
  #stopOrder: Child[] = []
  /** All drain, before they stop. */
  #drain: Drain | undefined = undefined
  #isInStopLoop = false
  #onAllStopped: (() => void) | undefined = undefined

  constructor(host: CellHost, parent: LocalParent, strategy: Strategy) {
    this.#host = host
    this.#parent = parent
    this.group = strategy === 'one-for-one' ? undefined : new RestartGroup(this, strategy)
  }

  get deadlines(): Deadlines {
    return this.#host.deadlines
  }

  /** True while all are being stopped. */
  get isStopping(): boolean {
    return this.#onAllStopped !== undefined
  }

  get(id: number): Child | undefined {
    return this.#children.get(id)
  }

  values(): Iterable<Child> {
    return this.#children.values()
  }

  add(child: Child): void {
    this.#children.set(child.id, child)
  }

  /**
   * Stops one child, or lets it drain for so long before; nothing when it is not one, or is stopping already. A child that
   * drains can still be stopped.
   */
  stop(id: number, drainMs?: number): void {
    const child = this.#children.get(id)
    if (child === undefined) return
    if (child.isStopping && (drainMs !== undefined || child.drainDueMs === undefined)) return
    child.isStopping = true
    child.drainDueMs = drainMs === undefined ? undefined : this.#host.clock.nowMs() + drainMs
    // Siblings that restart do not wait for it.
    if (drainMs !== undefined) this.group?.ended(id)
    if (child.guard !== undefined) this.#host.deadlines.remove(child.guard)
    this.#host.kinship.stop(this.#parent, child)
  }

  /** Forgets a child that has ended; undefined when it was none. */
  remove(id: number): Child | undefined {
    const child = this.#children.get(id)
    if (child === undefined) return undefined
    this.#children.delete(id)
    if (child.guard !== undefined) this.#host.deadlines.remove(child.guard)
    return child
  }

  /** Stops the children one after the other, the last spawned first, after they have drained; then calls `done`. */
  stopAll(done: () => void, drain?: Drain): void {
    this.group?.cancel()
    this.#drain = drain
    this.#stopOrder = [...this.#children.values()]
    this.#onAllStopped = done
    this.stopNext()
  }

  /** Goes on with stopping all, after the end of one. */
  stopNext(): void {
    // A child may end while it is being told to: then this loop goes on, not a nested one.
    if (this.#isInStopLoop) return
    this.#isInStopLoop = true
    const order = this.#stopOrder
    while (order.length > 0) {
      const child = order[order.length - 1]!
      if (this.#children.has(child.id)) {
        this.stop(child.id, this.#drain?.leftMs)
        if (this.#children.has(child.id)) break
      }
      order.pop()
    }
    this.#isInStopLoop = false
    const done = this.#onAllStopped
    if (order.length > 0 || done === undefined) return
    this.#onAllStopped = undefined
    done()
  }

  haltChild(child: Child, error: unknown): void {
    this.#host.kinship.halt(child, error)
  }

  releaseChild(child: Child): void {
    this.#host.kinship.release(child)
  }

  /** Ends every child at once, the last spawned first; reported as slow unless that is how they are to end. */
  abandonAll(
    isReported: boolean,
    ended: (id: number, ending: Ending, error: CodedError | undefined) => void,
  ): void {
    this.group?.cancel()
    for (const child of [...this.#children.values()].reverse()) {
      if (isReported || child.thread !== undefined) this.#host.kinship.abandon(child)
      else (child.ref as LocalRef).cell?.kill()
      ended(child.id, { reason: 'stopped' }, undefined)
    }
  }

  /** Forgets who waits for all to stop. */
  forgetStop(): void {
    this.#onAllStopped = undefined
  }
}
