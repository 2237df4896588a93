/** Schedules: what an actor tells itself later. */

import type { Deadline } from './deadlines.ts'
import type { Message } from './types.ts'

/** The cell that is told. */
export interface ScheduleOwner {
  readonly scheduled: { delete(entry: ScheduledTell): void }
  enqueueForced(message: Message): void
}

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
    this.#owner.scheduled.delete(this)
    this.#owner.enqueueForced(this.#message)
  }
}
