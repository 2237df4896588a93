/**
 * Mailbox: the bounded queue in front of an actor. A ring of messages that grows by doubling up to
 * its capacity, so that an idle actor costs no slots.
 *
 * `pushForced` goes past the bound: it is for what the actor itself has outstanding (its schedules
 * and piped promises), whose number the actor bounds.
 */

import type { Message } from './types.ts'

const SLOTS_MIN = 8

export class Mailbox {
  readonly capacity: number
  #slots: (Message | undefined)[] = []
  #head = 0
  #size = 0

  constructor(capacity: number) {
    this.capacity = capacity
  }

  get size(): number {
    return this.#size
  }

  /** False when the mailbox is full; the message was not taken. */
  push(message: Message): boolean {
    if (this.#size >= this.capacity) return false
    this.pushForced(message)
    return true
  }

  /** Adds the message even past the capacity. */
  pushForced(message: Message): void {
    if (this.#size === this.#slots.length) this.#grow()
    this.#slots[(this.#head + this.#size) & (this.#slots.length - 1)] = message
    this.#size++
  }

  /** The oldest message, or undefined. */
  shift(): Message | undefined {
    if (this.#size === 0) return undefined
    const message = this.#slots[this.#head]
    this.#slots[this.#head] = undefined
    this.#head = (this.#head + 1) & (this.#slots.length - 1)
    this.#size--
    return message
  }

  /** The waiting messages, oldest first; for counting and for failing asks, not for handling. */
  *waiting(): Generator<Message> {
    for (let i = 0; i < this.#size; i++) yield this.#slots[(this.#head + i) & (this.#slots.length - 1)]!
  }

  #grow(): void {
    const slots = new Array<Message | undefined>(Math.max(SLOTS_MIN, this.#slots.length * 2)).fill(undefined)
    for (let i = 0; i < this.#size; i++) slots[i] = this.#slots[(this.#head + i) & (this.#slots.length - 1)]
    this.#slots = slots
    this.#head = 0
  }
}
