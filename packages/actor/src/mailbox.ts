/**
 * Mailbox: the bounded queue in front of an actor, as up to two queues:
 *
 *   control   messages of the types that the definition calls `control`; emptied first
 *   user      all others
 *
 * Each is first in, first out, and has the capacity of the mailbox. A queue is a ring of messages that
 * grows by doubling, so that an idle actor costs no slots.
 *
 * Invariants
 *   I1  The n-th message that enters the back of a queue has the sequence number n for as long as it waits: the
 *       oldest has `firstSequence`. What is put back in front counts down from there.
 *   I2  While the mailbox coalesces, at most one waiting user message has a given key, and `#sequences` says which.
 *
 * `pushForced` goes past the bound: it is for what the actor itself has outstanding (its schedules
 * and piped promises), whose number the actor bounds; and `putBack` for what it stashed.
 */

import type { Message } from './types.ts'

const SLOTS_MIN = 8

/** What a message is replaced by, when waiting: equal keys. Undefined: it replaces none. */
export type MessageKey = string | number | undefined

/** How a definition sorts its messages. */
export interface MailboxRules {
  readonly control?: ReadonlySet<string> | undefined
  readonly coalesce?: ((message: never) => MessageKey) | undefined
}

/** Shared by all queues that nothing has been in. */
const NO_SLOTS: (Message | undefined)[] = []

class Queue {
  #slots = NO_SLOTS
  #head = 0
  size = 0
  firstSequence = 0

  push(message: Message): void {
    if (this.size === this.#slots.length) this.#grow()
    this.#slots[(this.#head + this.size) & (this.#slots.length - 1)] = message
    this.size++
  }

  unshift(message: Message): void {
    if (this.size === this.#slots.length) this.#grow()
    this.#head = (this.#head - 1) & (this.#slots.length - 1)
    this.#slots[this.#head] = message
    this.size++
    this.firstSequence--
  }

  shift(): Message | undefined {
    if (this.size === 0) return undefined
    const message = this.#slots[this.#head]
    this.#slots[this.#head] = undefined
    this.#head = (this.#head + 1) & (this.#slots.length - 1)
    this.size--
    this.firstSequence++
    return message
  }

  /** Puts `message` in the place of a waiting one, which is returned. */
  replace(sequence: number, message: Message): Message {
    const at = (this.#head + sequence - this.firstSequence) & (this.#slots.length - 1)
    const replaced = this.#slots[at]!
    this.#slots[at] = message
    return replaced
  }

  *waiting(): Generator<Message> {
    for (let i = 0; i < this.size; i++) yield this.#slots[(this.#head + i) & (this.#slots.length - 1)]!
  }

  #grow(): void {
    const slots = new Array<Message | undefined>(Math.max(SLOTS_MIN, this.#slots.length * 2)).fill(undefined)
    for (let i = 0; i < this.size; i++) slots[i] = this.#slots[(this.#head + i) & (this.#slots.length - 1)]
    this.#slots = slots
    this.#head = 0
  }
}

export class Mailbox {
  readonly capacity: number
  readonly #user = new Queue()
  #control: Queue | undefined = undefined
  #controlTypes: ReadonlySet<string> | undefined = undefined
  #keyOf: ((message: Message) => MessageKey) | undefined = undefined
  #sequences: Map<string | number, number> | undefined = undefined

  constructor(capacity: number) {
    this.capacity = capacity
  }

  get size(): number {
    return this.#control === undefined ? this.#user.size : this.#user.size + this.#control.size
  }

  /** True when it refuses messages of either queue. */
  get isFull(): boolean {
    return this.#user.size >= this.capacity || (this.#control?.size ?? 0) >= this.capacity
  }

  /** True while that very message waits. O(size): for periodic messages, not for every one. */
  isWaiting(message: Message): boolean {
    for (const waiting of this.waiting()) if (waiting === message) return true
    return false
  }

  /** Sorts by these rules from now on, and what waits already too. Returns what that replaced. */
  follow(rules: MailboxRules): readonly Message[] {
    const { control, coalesce } = rules
    if (control === undefined && coalesce === undefined) return []
    this.#controlTypes = control
    this.#keyOf = coalesce as ((message: Message) => MessageKey) | undefined
    if (control !== undefined) this.#control ??= new Queue()
    if (coalesce !== undefined) this.#sequences ??= new Map()
    const replaced: Message[] = []
    for (let left = this.#user.size; left > 0; left--) {
      const message = this.#user.shift()!
      const before = this.replace(message)
      if (before !== undefined) replaced.push(before)
      else this.pushForced(message)
    }
    return replaced
  }

  /** False when the mailbox is full; the message was not taken. */
  push(message: Message): boolean {
    if (this.#controlTypes !== undefined && this.isControl(message)) {
      if (this.#control!.size >= this.capacity) return false
      this.#control!.push(message)
      return true
    }
    if (this.#user.size >= this.capacity) return false
    if (this.#keyOf !== undefined) this.#keep(message, this.#nextSequence)
    this.#user.push(message)
    return true
  }

  /** Adds the message even past the capacity. */
  pushForced(message: Message): void {
    if (this.#controlTypes !== undefined && this.isControl(message)) {
      this.#control!.push(message)
      return
    }
    if (this.#keyOf !== undefined) this.#keep(message, this.#nextSequence)
    this.#user.push(message)
  }

  isControl(message: Message): boolean {
    return this.#controlTypes?.has(message.type) === true
  }

  /** Puts the message in the place of a waiting one with its key, which is returned; undefined when there is none. */
  replace(message: Message): Message | undefined {
    if (this.#keyOf === undefined || this.isControl(message)) return undefined
    const key = this.#keyOf(message)
    const sequence = key === undefined ? undefined : this.#sequences!.get(key)
    return sequence === undefined ? undefined : this.#user.replace(sequence, message)
  }

  /** Puts messages in front of all others, in their order, past the capacity and without regard to keys. */
  putBack(messages: readonly Message[]): void {
    for (let i = messages.length - 1; i >= 0; i--) {
      const message = messages[i]!
      if (this.isControl(message)) this.#control!.unshift(message)
      else this.#user.unshift(message)
    }
  }

  /** The oldest message, control first; or undefined. */
  shift(): Message | undefined {
    if (this.#control !== undefined && this.#control.size > 0) return this.#control.shift()
    if (this.#keyOf !== undefined) return this.shiftUser()
    return this.#user.shift()
  }

  /** The oldest user message, or undefined. */
  shiftUser(): Message | undefined {
    const sequence = this.#user.firstSequence
    const message = this.#user.shift()
    if (message === undefined || this.#keyOf === undefined) return message
    const key = this.#keyOf(message)
    // One that was put back in front may have its key in common with another, which keeps it.
    if (key !== undefined && this.#sequences!.get(key) === sequence) this.#sequences!.delete(key)
    return message
  }

  /** The waiting messages in their order; for counting and for failing asks, not for handling. */
  *waiting(): Generator<Message> {
    if (this.#control !== undefined) yield* this.#control.waiting()
    yield* this.#user.waiting()
  }

  #keep(message: Message, sequence: number): void {
    const key = this.#keyOf!(message)
    if (key !== undefined) this.#sequences!.set(key, sequence)
  }

  /** The sequence number that the next user message gets. */
  get #nextSequence(): number {
    return this.#user.firstSequence + this.#user.size
  }
}
