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
 *   I1  The n-th message that enters the back of a queue has the sequence number n for as long as it waits:
 *       the oldest has `firstSequence`.
 *   I2  While the mailbox coalesces, at most one waiting user message has a given key, and `sequences` says
 *       which.
 *
 * `pushForced` bypasses the bound: it is for the actor's own outstanding messages (its schedules
 * and piped promises), whose number the actor bounds.
 */

import type { Message, MessageKey } from '../values/message.ts'

const MAILBOX_SLOTS_MIN = 8

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
  count = 0
  firstSequence = 0

  push(message: Message): void {
    if (this.count === this.#slots.length) this.#grow()
    this.#slots[(this.#head + this.count) & (this.#slots.length - 1)] = message
    this.count++
  }

  shift(): Message | undefined {
    if (this.count === 0) return undefined
    const message = this.#slots[this.#head]
    this.#slots[this.#head] = undefined
    this.#head = (this.#head + 1) & (this.#slots.length - 1)
    this.count--
    this.firstSequence++
    return message
  }

  /** Puts `message` in the place of a waiting one, which is returned. */
  replaceAt(sequence: number, message: Message): Message {
    const at = (this.#head + sequence - this.firstSequence) & (this.#slots.length - 1)
    const replaced = this.#slots[at]!
    this.#slots[at] = message
    return replaced
  }

  *queued(): Generator<Message> {
    for (let i = 0; i < this.count; i++) yield this.#slots[(this.#head + i) & (this.#slots.length - 1)]!
  }

  #grow(): void {
    const slots = new Array<Message | undefined>(Math.max(MAILBOX_SLOTS_MIN, this.#slots.length * 2)).fill(
      undefined,
    )
    for (let i = 0; i < this.count; i++) slots[i] = this.#slots[(this.#head + i) & (this.#slots.length - 1)]
    this.#slots = slots
    this.#head = 0
  }
}

/** What a mailbox that sorts its messages has more. */
interface Sorting {
  readonly controlTypes: ReadonlySet<string>
  readonly control: Queue
  readonly keyOf: ((message: Message) => MessageKey) | undefined
  /** The sequence number of the waiting message with a key. */
  readonly sequences: Map<string | number, number>
}

/** The queue of user messages, and with `#sorting` that of control messages in front of it. */
export class Mailbox extends Queue {
  readonly capacity: number
  #sorting: Sorting | undefined = undefined

  constructor(capacity: number) {
    super()
    this.capacity = capacity
  }

  get size(): number {
    return this.#sorting === undefined ? this.count : this.count + this.#sorting.control.count
  }

  /** True when it refuses messages of either queue. */
  get isFull(): boolean {
    return this.count >= this.capacity || (this.#sorting !== undefined && this.#isControlFull)
  }

  get #isControlFull(): boolean {
    return this.#sorting!.control.count >= this.capacity
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
    this.#sorting = {
      controlTypes: control ?? new Set(),
      control: this.#sorting?.control ?? new Queue(),
      keyOf: coalesce as ((message: Message) => MessageKey) | undefined,
      sequences: new Map(),
    }
    const replaced: Message[] = []
    for (let left = this.count; left > 0; left--) {
      const message = this.shift()!
      const before = this.replace(message)
      if (before !== undefined) replaced.push(before)
      else this.pushForced(message)
    }
    return replaced
  }

  /** False when the mailbox is full; the message was not taken. */
  offer(message: Message): boolean {
    if (this.#sorting !== undefined && this.isControl(message)) {
      if (this.#isControlFull) return false
      this.#sorting.control.push(message)
      return true
    }
    if (this.count >= this.capacity) return false
    this.#pushUser(message)
    return true
  }

  /** Adds the message even past the capacity. */
  pushForced(message: Message): void {
    if (this.isControl(message)) this.#sorting!.control.push(message)
    else this.#pushUser(message)
  }

  #pushUser(message: Message): void {
    const keyOf = this.#sorting?.keyOf
    if (keyOf !== undefined) {
      const key = keyOf(message)
      if (key !== undefined) this.#sorting!.sequences.set(key, this.firstSequence + this.count)
    }
    this.push(message)
  }

  isControl(message: Message): boolean {
    return this.#sorting?.controlTypes.has(message.type) === true
  }

  /**
   * Puts the message in the place of a waiting one with its key, which is returned; undefined when there is
   * none.
   */
  replace(message: Message): Message | undefined {
    const keyOf = this.#sorting?.keyOf
    if (keyOf === undefined || this.isControl(message)) return undefined
    const key = keyOf(message)
    const sequence = key === undefined ? undefined : this.#sorting!.sequences.get(key)
    return sequence === undefined ? undefined : this.replaceAt(sequence, message)
  }

  /** The oldest message, control first; or undefined. */
  take(): Message | undefined {
    if (this.#sorting === undefined) return this.shift()
    return this.#sorting.control.shift() ?? this.takeUser()
  }

  /** The oldest user message, or undefined. */
  takeUser(): Message | undefined {
    const message = this.shift()
    const keyOf = this.#sorting?.keyOf
    if (message === undefined || keyOf === undefined) return message
    const key = keyOf(message)
    const { sequences } = this.#sorting!
    if (key !== undefined) sequences.delete(key)
    return message
  }

  /** The waiting messages in their order; for counting and for failing asks, not for handling. */
  *waiting(): Generator<Message> {
    if (this.#sorting !== undefined) yield* this.#sorting.control.queued()
    yield* this.queued()
  }
}
