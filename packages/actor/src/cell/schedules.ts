/**
 * Schedules: messages that an actor sends itself later: once, periodically, or when a promise has settled.
 */

import type { Deadline, Deadlines } from '../values/deadlines.ts'
import type { Message } from '../values/message.ts'

/** The cell that is told. */
export interface ScheduleOwner {
  readonly host: { readonly deadlines: Deadlines; readonly clock: { nowMs(): number } }
  forgetScheduled(entry: Deadline): void
  enqueueForced(message: Message): void
}

/** The outcome of a promise that is to come as a message. */
export class Pipe {}

/** A message that an actor tells itself later. */
export class ScheduledTell implements Deadline {
  dueMs = 0
  position = -1
  readonly #owner: ScheduleOwner
  readonly #message: Message

  constructor(owner: ScheduleOwner, message: Message) {
    this.#owner = owner
    this.#message = message
  }

  expire(): void {
    this.#owner.forgetScheduled(this)
    this.#owner.enqueueForced(this.#message)
  }
}

/** The owner of periodic messages can say whether one still waits. */
export interface PeriodicOwner extends ScheduleOwner {
  isWaiting(message: Message): boolean
}

/**
 * A message that an actor tells itself at every multiple of an interval. One that is due while the last
 * still waits is left out, and so are all but one of those that came due during a pause.
 */
export class PeriodicTell implements Deadline {
  dueMs = 0
  position = -1
  readonly #owner: PeriodicOwner
  readonly #intervalMs: number
  readonly #message: Message

  constructor(owner: PeriodicOwner, intervalMs: number, message: Message) {
    this.#owner = owner
    this.#intervalMs = intervalMs
    // An object of its own, so that it differs from an equal one of another sender.
    this.#message = { ...message }
  }

  expire(): void {
    const { deadlines, clock } = this.#owner.host
    const lateMs = Math.max(0, clock.nowMs() - this.dueMs)
    deadlines.add(this, this.#intervalMs - (lateMs % this.#intervalMs))
    if (!this.#owner.isWaiting(this.#message)) this.#owner.enqueueForced(this.#message)
  }
}
