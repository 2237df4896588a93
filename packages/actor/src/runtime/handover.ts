/**
 * Handover: the messages of other threads that wait for a turn of their actors. A link takes no more frames
 * until those of its last batch have been handled, because messages in mailboxes die with the thread.
 *
 * A message is identified by its sequence number in the mailbox of its actor. It also counts as handled when
 * it waits for something other than a turn: for the promise of an earlier message, or for a restart.
 */

import type { Cell } from '../cell/cell.ts'

/** Messages that were handled and are still listed, before the lists are cut. */
const DONE_MAX = 4096

export class Handover {
  /** Kept from batch to batch: an array that is emptied gives its memory back, and has to grow again. */
  readonly #cells: (Cell | undefined)[] = []
  readonly #sequences: number[] = []
  #count = 0
  /** The first that may not have been handled. */
  #at = 0
  /** Messages before those that are listed. */
  #before = 0

  /** Counts the messages that were handed over. */
  get position(): number {
    return this.#before + this.#count
  }

  /** A message of another thread has come to the end of the mailbox of `cell`. */
  note(cell: Cell): void {
    this.#cells[this.#count] = cell
    this.#sequences[this.#count++] = cell.lastSequence
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
    if (this.#count > 0) this.#forget(this.#count)
  }

  #forget(count: number): void {
    const left = this.#count - count
    if (left > 0) {
      this.#cells.copyWithin(0, count, this.#count)
      this.#sequences.copyWithin(0, count, this.#count)
    }
    for (let i = left; i < this.#count; i++) this.#cells[i] = undefined
    this.#before += count
    this.#count = left
    this.#at = 0
    if (this.#cells.length > 2 * DONE_MAX) this.#cells.length = this.#sequences.length = left
  }
}
