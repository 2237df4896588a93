/**
 * Handover: the messages of other threads that wait for a turn of their actors. A link takes no more frames before those
 * of its last batch have been handled, because what waits in mailboxes dies with the thread.
 *
 * A message is known by its sequence number in the mailbox of its actor. It counts as handled, too, when it waits for
 * something else than a turn: for the promise of an earlier message, for a restart.
 */

import type { Cell } from './cell.ts'

/** Messages that were handled and are still listed, before the lists are cut. */
const DONE_MAX = 4096

export class Handover {
  #cells: Cell[] = []
  #sequences: number[] = []
  /** The first that may not have been handled. */
  #at = 0
  /** Messages before those that are listed. */
  #before = 0

  /** Counts the messages that were handed over. */
  get position(): number {
    return this.#before + this.#cells.length
  }

  /** A message of another thread has come to the end of the mailbox of `cell`. */
  note(cell: Cell): void {
    this.#cells.push(cell)
    this.#sequences.push(cell.lastSequence)
  }

  /** True when nothing up to `position` waits for its turn. */
  isHandled(position: number): boolean {
    const end = position - this.#before
    while (this.#at < end && !this.#cells[this.#at]!.isAwaitingTurn(this.#sequences[this.#at]!)) this.#at++
    if (this.#at > DONE_MAX) this.#forget(this.#at)
    return this.#before + this.#at >= position
  }

  /** No actor has anything to do. */
  clear(): void {
    if (this.#cells.length > 0) this.#forget(this.#cells.length)
  }

  #forget(count: number): void {
    this.#before += count
    this.#at = 0
    if (count === this.#cells.length) {
      this.#cells.length = 0
      this.#sequences.length = 0
      return
    }
    this.#cells = this.#cells.slice(count)
    this.#sequences = this.#sequences.slice(count)
  }
}
