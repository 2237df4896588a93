/**
 * Children: the table of one actor's children, in the order of their spawn, and the order in which
 * they are stopped: the last spawned first, each before the next.
 *
 * When all children drain, they share the time that their parent has left. The child in turn leaves the
 * `shutdown` time of each child behind it, together at most half, and may use the rest. It drains for at
 * least four fifths of its part, is then told to stop, and is abandoned when its part is over. The last child
 * has all time that is left.
 */

import type { Deadline } from '../values/deadlines.ts'
import type { CellHost } from './host.ts'
import type { Child, LocalParent } from './kin.ts'
import type { LocalRef } from './local-ref.ts'

/** Of its part of the time, the most that a child keeps for its stop. */
const STOP_SHARE = 0.2

/** The time left in which children may drain. */
interface TimeLeft {
  readonly leftMs: number
}

/** For children that were to drain, when their parent has no time left. */
export const NO_TIME: TimeLeft = { leftMs: 0 }

export class Children {
  readonly #host: CellHost
  readonly #parent: LocalParent
  readonly #children = new Map<number, Child>()
  #stopOrder: Child[] = []
  /** All drain, before they stop. */
  #drain: TimeLeft | undefined = undefined
  /** The one that is being stopped, of those in `#stopOrder`. */
  #present: Child | undefined = undefined
  /** Ends its drain, and then itself, while others wait. */
  #presentLimit: Deadline | undefined = undefined
  #isInStopLoop = false
  #onAllStopped: (() => void) | undefined = undefined

  constructor(host: CellHost, parent: LocalParent) {
    this.#host = host
    this.#parent = parent
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
   * Stops one child, or lets it drain for so long before; nothing when it is not one, or is stopping already.
   * A child that drains can still be stopped.
   */
  stop(id: number, drainMs?: number): void {
    const child = this.#children.get(id)
    if (child === undefined) return
    if (child.isStopping && (drainMs !== undefined || child.drainDueMs === undefined)) return
    child.isStopping = true
    child.drainDueMs = undefined
    if (drainMs !== undefined) this.#setDrain(child, drainMs)
    if (child.guard !== undefined) this.#host.deadlines.remove(child.guard)
    this.#host.kinship.stop(this.#parent, child)
  }

  /** A child drains on its own order, or on that of an actor other than its parent. */
  drains(id: number, withinMs: number): void {
    const child = this.#children.get(id)
    if (child === undefined || child.isStopping) return
    child.isStopping = true
    this.#setDrain(child, withinMs)
  }

  #setDrain(child: Child, drainMs: number): void {
    child.hasToDrain = true
    child.drainDueMs = this.#host.clock.nowMs() + drainMs
  }

  /** Forgets a child that has ended; undefined when it was none. */
  remove(id: number): Child | undefined {
    const child = this.#children.get(id)
    if (child === undefined) return undefined
    this.#children.delete(id)
    if (child.guard !== undefined) this.#host.deadlines.remove(child.guard)
    return child
  }

  /**
   * Stops the children one after the other, the last spawned first, after they have drained; then calls
   * `done`.
   */
  stopAll(done: () => void, drain?: TimeLeft): void {
    this.#leavePresent()
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
        if (child !== this.#present) this.#stopInTurn(child)
        if (this.#children.has(child.id)) break
      }
      this.#leavePresent()
      order.pop()
    }
    this.#isInStopLoop = false
    const done = this.#onAllStopped
    if (order.length > 0 || done === undefined) return
    this.#onAllStopped = undefined
    done()
  }

  #stopInTurn(child: Child): void {
    this.#present = child
    const leftMs = this.#drain?.leftMs
    // One that drains already, and has no time left, is cut short.
    if (leftMs === undefined || (leftMs === 0 && child.isStopping)) {
      this.stop(child.id)
      return
    }
    const { drainMs, stopMs } = this.#shareOf(child, leftMs)
    this.stop(child.id, drainMs)
    if (stopMs === undefined || !this.#children.has(child.id)) return
    this.#limitPresent(drainMs, () => {
      this.stop(child.id)
      if (this.#children.has(child.id)) this.#limitPresent(stopMs, () => this.#abandon(child, true))
    })
  }

  /** How long it may drain; and how long it may take to stop then, unless that is its own affair. */
  #shareOf({ settings }: Child, leftMs: number): { readonly drainMs: number; readonly stopMs?: number } {
    const { shutdownMs } = settings
    if (leftMs === Number.POSITIVE_INFINITY) return { drainMs: shutdownMs }
    const reservedMs = this.#reservedMs(leftMs)
    if (reservedMs === 0) return { drainMs: leftMs }
    const shareMs = leftMs - reservedMs
    const stopMs = Math.min(shutdownMs, shareMs * STOP_SHARE)
    return { drainMs: shareMs - stopMs, stopMs }
  }

  /** What those that wait behind the present one are to keep of `leftMs`. */
  #reservedMs(leftMs: number): number {
    const reservedMsMax = leftMs / 2
    let sumMs = 0
    for (let at = this.#stopOrder.length - 2; at >= 0 && sumMs < reservedMsMax; at--) {
      const { id, settings } = this.#stopOrder[at]!
      if (this.#children.has(id)) sumMs += settings.shutdownMs
    }
    return Math.min(sumMs, reservedMsMax)
  }

  #limitPresent(delayMs: number, expire: () => void): void {
    this.#presentLimit = { dueMs: 0, position: -1, expire }
    this.#host.deadlines.add(this.#presentLimit, delayMs)
  }

  #leavePresent(): void {
    this.#present = undefined
    if (this.#presentLimit !== undefined) this.#host.deadlines.remove(this.#presentLimit)
    this.#presentLimit = undefined
  }

  /**
   * Ends every child at once, the last spawned first; reported as slow unless that is how they are to end.
   * `isDrain`: they were to drain.
   */
  abandonAll(isReported: boolean, isDrain: boolean): void {
    for (const child of [...this.#children.values()].reverse()) {
      if (isDrain) {
        child.hasToDrain = true
        if (!child.isStopping && child.thread === undefined) this.stop(child.id, 0)
      }
      this.#abandon(child, isReported)
    }
  }

  #abandon(child: Child, isReported: boolean): void {
    if (isReported || child.thread !== undefined) this.#host.kinship.abandon(child)
    else (child.ref as LocalRef).cell?.kill()
    this.#parent.childEnded(child.id, { reason: 'stopped', isLost: true }, undefined)
  }

  /** Forgets the waiters for the stop of all children. */
  forgetStop(): void {
    this.#onAllStopped = undefined
    this.#leavePresent()
  }
}
