/**
 * Recovery: brings an actor that is restarted to its next instance. Created when the actor first needs it;
 * most never do.
 *
 * After a failure it waits for its backoff, within its budget; beyond the budget the actor ends. A permanent
 * actor that stops itself restarts the same way.
 *
 * The end of an instance that was asked for waits for the current message, but no longer than the shutdown
 * time.
 */

import type { Settings } from '../contract/settings.ts'
import type { Deadline } from '../values/deadlines.ts'
import { RestartBudgetError } from '../values/errors.ts'
import type { CellHost } from './host.ts'
import type { ChildCell } from './kin.ts'
import { backoffMs, RestartBudget } from './supervision.ts'

/** The cell whose instances these are. */
export interface Recovering extends ChildCell {
  readonly host: CellHost
  readonly name: string
  readonly settings: Settings
  /** It handles what waits, and then stops. */
  readonly isDraining: boolean
  /** Calls `expire` after a while, unless the deadline is removed. */
  after(delayMs: number, expire: () => void): Deadline
  /** Ends the instance; then calls `done`, unless the actor is to stop. */
  endInstance(error: unknown, messageType: string | undefined, delayMs: number, done: () => void): void
  startAgain(): void
  /** Its instance is to end: no message is taken before. */
  interruptSoon(): void
  /** Its instance is not to end for another, but maybe for good. */
  notInterrupted(): void
  /** More failures than supervision allows. */
  giveUp(error: RestartBudgetError): void
}

export class Recovery {
  readonly #cell: Recovering
  readonly #budget: RestartBudget
  #backoff: Deadline | undefined = undefined
  /** The instance is to end after the message in hand, and another to follow; no later than this. */
  #limit: Deadline | undefined = undefined

  /** `restartAgesMs`: before this life of its thread. */
  constructor(cell: Recovering, restartAgesMs: readonly number[]) {
    this.#cell = cell
    this.#budget = new RestartBudget(restartAgesMs, cell.host.clock.nowMs())
  }

  /** Restarts within the budget; past it the actor ends. */
  restart(error: unknown, messageType: string | undefined): void {
    const cell = this.#cell
    const { settings, host } = cell
    const attempt = this.#budget.take(settings, host.clock.nowMs())
    if (attempt === undefined) {
      cell.giveUp(new RestartBudgetError(cell.name, settings.restartsMax, settings.withinMs, error))
      return
    }
    host.kinship.restarted(cell)
    const delayMs = backoffMs(settings, attempt, host.random.next())
    this.#forgetRequest()
    cell.endInstance(error, messageType, delayMs, () => {
      this.#backoff = cell.after(delayMs, () => {
        this.#backoff = undefined
        cell.startAgain()
      })
    })
  }

  /** Asks for an end of the instance, after the message in hand. */
  request(): void {
    if (this.#limit !== undefined) return
    const cell = this.#cell
    this.#limit = cell.after(cell.settings.shutdownMs, () => {
      cell.host.slowActors.add(cell.name)
      this.begin()
    })
    cell.interruptSoon()
  }

  /** Ends the instance, as was requested. */
  begin(): void {
    this.#forgetRequest()
    this.restart(undefined, undefined)
  }

  #forgetRequest(): void {
    if (this.#limit === undefined) return
    this.#cell.host.deadlines.remove(this.#limit)
    this.#limit = undefined
    this.#cell.notInterrupted()
  }

  /** The actor stops: no instance follows. */
  cancel(): void {
    this.#forgetRequest()
    if (this.#backoff !== undefined) this.#cell.host.deadlines.remove(this.#backoff)
  }
}
