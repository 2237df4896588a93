/**
 * Children: the table of one actor's children, in the order of their spawn, and the order in which
 * they are stopped: the last spawned first, each before the next. With a strategy other than `one-for-one`,
 * `group` restarts siblings together.
 */

import type { RouterError } from '@homing/errors'
import type { Cell } from './cell.ts'
import type { Deadline, Deadlines } from './deadlines.ts'
import type { Ending, Settings } from './frames.ts'
import type { AnyRef, LocalRef } from './refs.ts'
import { type GroupHost, RestartGroup } from './restart-group.ts'
import type { Strategy, Terminated } from './types.ts'

/** A child as its parent sees it. */
export interface Child {
  readonly id: number
  readonly ref: AnyRef
  readonly settings: Settings
  /** The thread it was placed on, when that is another one. */
  readonly thread: string | undefined
  /** Main knows it too, because its thread can be replaced or is its own. */
  readonly isRegistered: boolean
  /** Whom to tell, when anybody asked. */
  onEnded: ((terminated: Terminated) => void)[] | undefined
  isStopping: boolean
  /** Bounds the wait for a child on another thread. */
  guard: Deadline | undefined
}

/** A child that was just spawned. */
export function newChild(
  ref: AnyRef,
  settings: Settings,
  thread: string | undefined,
  isRegistered: boolean,
): Child {
  return {
    id: ref.id,
    ref,
    settings,
    thread,
    isRegistered,
    onEnded: undefined,
    isStopping: false,
    guard: undefined,
  }
}

export class Children implements GroupHost {
  /** Undefined: one-for-one. */
  readonly group: RestartGroup | undefined
  readonly #parent: Cell
  readonly #children = new Map<number, Child>()
  #stopOrder: Child[] = []
  #isInStopLoop = false
  #onAllStopped: (() => void) | undefined = undefined

  constructor(parent: Cell, strategy: Strategy) {
    this.#parent = parent
    this.group = strategy === 'one-for-one' ? undefined : new RestartGroup(this, strategy)
  }

  get deadlines(): Deadlines {
    return this.#parent.runtime.deadlines
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

  /** Stops one child; nothing when it is not one, or is stopping already. */
  stop(id: number): void {
    const child = this.#children.get(id)
    if (child === undefined || child.isStopping) return
    child.isStopping = true
    this.#parent.runtime.kinship.stop(this.#parent, child)
  }

  /** Forgets a child that has ended; undefined when it was none. */
  remove(id: number): Child | undefined {
    const child = this.#children.get(id)
    if (child === undefined) return undefined
    this.#children.delete(id)
    if (child.guard !== undefined) this.#parent.runtime.deadlines.remove(child.guard)
    return child
  }

  /** Stops the children one after the other, the last spawned first; then calls `done`. */
  stopAll(done: () => void): void {
    this.group?.cancel()
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
        this.stop(child.id)
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
    this.#parent.runtime.kinship.halt(child, error)
  }

  releaseChild(child: Child): void {
    this.#parent.runtime.kinship.release(child)
  }

  /** Ends every child at once, the last spawned first; reported as slow unless that is how they are to end. */
  abandonAll(
    isReported: boolean,
    ended: (id: number, ending: Ending, error: RouterError | undefined) => void,
  ): void {
    this.group?.cancel()
    for (const child of [...this.#children.values()].reverse()) {
      if (isReported || child.thread !== undefined) this.#parent.runtime.kinship.abandon(child)
      else (child.ref as LocalRef).cell?.kill()
      ended(child.id, { reason: 'stopped' }, undefined)
    }
  }

  /** Forgets who waits for all to stop. */
  forgetStop(): void {
    this.#onAllStopped = undefined
  }
}
