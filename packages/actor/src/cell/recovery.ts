/**
 * Recovery: brings an actor that is restarted to its next instance. Created when the actor first needs it;
 * most never do.
 *
 *   by itself       after a failure: within its budget, after its backoff. Beyond the budget the actor ends
 *   with siblings   if its parent restarts children together: the actor *halts* when it is told to, or fails;
 *                   then it is *held*, without an instance, until it is *released*
 *
 * A halt waits for the current message, but no longer than the shutdown time.
 */

import type { Settings } from '../contract/settings.ts'
import type { Deadline } from '../values/deadlines.ts'
import { RestartBudgetError } from '../values/errors.ts'
import { recordOf } from '../values/thrown.ts'
import type { CellHost } from './host.ts'
import type { ChildCell, Halt } from './kin.ts'
import { backoffMs, RestartBudget } from './supervision.ts'

/** The instance is to end after the message in hand, and another to follow. */
interface HaltRequest {
  readonly error: unknown
  /** The actor stopped itself, and is permanent. */
  readonly isOwn: boolean
  readonly limit: Deadline
}

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
  #request: HaltRequest | undefined = undefined
  /** There is no instance, and the parent says when the next may start. */
  #isHeld: boolean
  /** The parent has said so before this instance had ended. */
  #isReleased = false

  /** `restartAgesMs`: before this life of its thread. */
  constructor(cell: Recovering, restartAgesMs: readonly number[], isHeld: boolean) {
    this.#cell = cell
    this.#budget = new RestartBudget(restartAgesMs, cell.host.clock.nowMs())
    this.#isHeld = isHeld
  }

  get isHeld(): boolean {
    return this.#isHeld
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
      if (settings.isGrouped) this.#hold({ isFailure: true, delayMs, ...recordIn(error) })
      else {
        this.#backoff = cell.after(delayMs, () => {
          this.#backoff = undefined
          cell.startAgain()
        })
      }
    })
  }

  /** Asks for an end of the instance, after the message in hand. */
  request(error: unknown, isOwn: boolean): void {
    if (this.#request !== undefined) return
    const cell = this.#cell
    const limit = cell.after(cell.settings.shutdownMs, () => {
      cell.host.slowActors.add(cell.name)
      this.begin()
    })
    this.#request = { error, isOwn, limit }
    cell.interruptSoon()
  }

  /** Ends the instance, as was requested. */
  begin(): void {
    const { error, isOwn } = this.#request!
    this.#forgetRequest()
    if (isOwn) this.restart(undefined, undefined)
    else this.#cell.endInstance(error, undefined, 0, () => this.#hold({ isFailure: false, delayMs: 0 }))
  }

  #forgetRequest(): void {
    if (this.#request === undefined) return
    this.#cell.host.deadlines.remove(this.#request.limit)
    this.#request = undefined
    this.#cell.notInterrupted()
  }

  /** Waits for the parent, which restarts others with this actor. */
  #hold(halt: Halt): void {
    this.#isHeld = true
    if (this.#isReleased) {
      this.#isReleased = false
      this.release(false)
      return
    }
    this.#cell.host.kinship.halted(this.#cell, halt)
    if (this.#cell.isDraining) this.goOn()
  }

  /** The actor drains: it waits for no sibling. */
  goOn(): void {
    if (this.#isHeld) this.release(false)
  }

  /** The parent lets the next instance start; `isEnding`: while the last one ends. */
  release(isEnding: boolean): void {
    if (this.#isHeld) {
      this.#isHeld = false
      this.#cell.startAgain()
    } else if (isEnding || this.#request !== undefined) this.#isReleased = true
  }

  /** The actor stops: no instance follows. */
  cancel(): void {
    this.#forgetRequest()
    if (this.#backoff !== undefined) this.#cell.host.deadlines.remove(this.#backoff)
  }
}

function recordIn(error: unknown): Pick<Halt, 'error'> {
  return error === undefined ? {} : { error: recordOf(error) }
}
