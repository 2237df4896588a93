/**
 * Limbo: messages for an actor whose spawn is still on its way.
 *
 * A thread A spawns an actor on B and gives its ref to C; messages of C to the actor may reach B before the
 * spawn does, because each pair of threads has its own link. Spawns of A reach B in the order of
 * their ids, so B can tell an actor that has yet to come from one that has ended. Messages, asks and
 * watches wait here in order, bounded in number and time, including those of actors on B itself.
 */

import type { Cell } from '../cell/cell.ts'
import type { Deadline, Deadlines } from '../values/deadlines.ts'

const HELD_MAX = 4096
const WAIT_MS_MAX = 5000

/** One message, ask or watch that waits; exactly one of the two is called, once. */
export interface Held {
  /** The actor has come. */
  deliver(cell: Cell): void
  /** It will not come. */
  giveUp(): void
}

interface Waiting {
  readonly all: Held[]
  readonly limit: Deadline
}

export class Limbo {
  readonly #deadlines: Deadlines
  readonly #waiting = new Map<number, Waiting>()
  #heldCount = 0

  constructor(deadlines: Deadlines) {
    this.#deadlines = deadlines
  }

  /** Keeps something for actor `id`; false when there is no room. */
  hold(id: number, held: Held): boolean {
    if (this.#heldCount >= HELD_MAX) return false
    let waiting = this.#waiting.get(id)
    if (waiting === undefined) {
      waiting = { all: [], limit: { dueMs: 0, position: -1, expire: () => this.giveUp(id) } }
      this.#waiting.set(id, waiting)
      this.#deadlines.add(waiting.limit, WAIT_MS_MAX)
    }
    waiting.all.push(held)
    this.#heldCount++
    return true
  }

  /** The actor has come: hands over what waited, in order. */
  deliver(cell: Cell): void {
    for (const held of this.#take(cell.id)) held.deliver(cell)
  }

  /** The actor will not come. */
  giveUp(id: number): void {
    for (const held of this.#take(id)) held.giveUp()
  }

  /** None of these actors will come. */
  giveUpWhere(isMeant: (id: number) => boolean): void {
    for (const id of [...this.#waiting.keys()]) if (isMeant(id)) this.giveUp(id)
  }

  #take(id: number): readonly Held[] {
    const waiting = this.#waiting.get(id)
    if (waiting === undefined) return []
    this.#waiting.delete(id)
    this.#deadlines.remove(waiting.limit)
    this.#heldCount -= waiting.all.length
    return waiting.all
  }
}
