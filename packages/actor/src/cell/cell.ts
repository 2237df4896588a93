/**
 * Cell: one actor on its thread: its life cycle, supervision, children and watchers. Its waiting messages are
 * in its inbox (inbox.ts), its turns handle them (turn-taker.ts): parts of one object, because there may be
 * millions.
 *
 *   starting ──setup──▶ running ──failure, restart──▶ restarting ──backoff──▶ starting
 *       │                  │                              │
 *       └──────────────────┴───────────stop───────────────┴──▶ stopping ──▶ ended
 *
 * An ended cell has no children, no schedules, no open asks and no watchers.
 *
 * Stopping waits for the current message, then for the children in reverse order of their spawn, then for the
 * `stopped` signal. One deadline, `shutdown`, covers all of it; after it the cell and its remaining children
 * are abandoned: they end at once and are reported as slow. A stop may let the actor drain first: drain.ts.
 */

import type { CodedError } from '@homing/base'
import { failTakenAsks, openAskOf } from '../asks/message-asks.ts'
import { terminatedOf } from '../contract/terminated.ts'
import type { ActorDefinition, ActorStatus, Signal, TerminationReason } from '../contract/types.ts'
import type { Deadline } from '../values/deadlines.ts'
import { ActorFailedError, type RestartBudgetError, SystemStoppedError } from '../values/errors.ts'
import type { Message } from '../values/message.ts'
import { describe, errorOf, failureOf, recordOf } from '../values/thrown.ts'
import { armsOf } from './arms.ts'
import { Children, NO_TIME } from './children.ts'
import { Context } from './context.ts'
import { CATCH_UP_MS_MAX, Drain } from './drain.ts'
import type { CellHost } from './host.ts'
import type { InboxInit } from './inbox.ts'
import type { Child, Ending, LocalParent, Parent } from './kin.ts'
import { type LocalCell, LocalRef } from './local-ref.ts'
import { type Recovering, Recovery } from './recovery.ts'
import { ENDED, isThenable, RESTARTING, RUNNING, STARTING, STOPPING, TurnTaker } from './turn-taker.ts'
import type { Watcher } from './watcher.ts'

/** What a cell is made from. */
interface CellInit extends InboxInit {
  readonly args: unknown
  readonly parent: Parent
  readonly restartAgesMs: readonly number[]
}

export class Cell extends TurnTaker implements LocalCell, LocalParent, Recovering {
  declare readonly parent: Parent
  declare readonly ref: LocalRef
  children: Children | undefined = undefined
  /** How it ended; while `state` is ended. */
  endReason: TerminationReason = 'stopped'
  endError: CodedError | undefined = undefined

  readonly #args: unknown
  #restarts: number
  // Most actors never need what follows.
  #watchers: Set<Watcher> | undefined = undefined
  #stopDeadline: Deadline | undefined = undefined
  #stopRequest: Ending | undefined = undefined
  #recovery: Recovery | undefined = undefined

  /** Without a definition the cell waits for `define`; messages wait with it. */
  constructor(host: CellHost, init: CellInit, definition: ActorDefinition<Message, unknown> | undefined) {
    super(host, init, definition)
    this.parent = init.parent
    this.#args = init.args
    this.#restarts = init.restartAgesMs.length
    if (this.#restarts > 0) {
      // Its thread was lost.
      this.#recovery = new Recovery(this, init.restartAgesMs)
    }
    this.ref = new LocalRef(host, init.id, init.name, this)
  }

  get control(): ReadonlySet<string> | undefined {
    return this.definition?.control
  }

  addWatcher(watcher: Watcher): void {
    this.#watchers ??= new Set()
    this.#watchers.add(watcher)
  }

  removeWatcher(watcher: Watcher): void {
    this.#watchers?.delete(watcher)
  }

  get isDraining(): boolean {
    return this.drain !== undefined
  }

  get isEnded(): boolean {
    return this.state === ENDED
  }

  // ── Start, failure, restart ──────────────────────────────────────────────────────────────────

  /** Gives a cell that was made without one its definition. */
  define(definition: ActorDefinition<Message, unknown>): void {
    this.definition = definition
    this.follow(definition)
    this.wake()
  }

  protected override start(): void {
    const definition = this.definition!
    const { generation } = this
    this.isReentrant = definition.reentrant
    try {
      const made = definition.setup(new Context(this, generation), this.#args)
      if (!isThenable(made)) {
        this.#run(made)
        return
      }
      this.inFlightCount++
      Promise.resolve(made).then(
        behavior => {
          if (generation !== this.generation) return
          this.inFlightCount--
          this.#run(behavior)
          this.wake()
        },
        (error: unknown) => {
          if (generation !== this.generation) return
          this.inFlightCount--
          this.fail(error, undefined)
          this.wake()
        },
      )
    } catch (error) {
      this.fail(error, undefined)
    }
  }

  #run(behavior: unknown): void {
    if (this.state !== STARTING) return
    if (typeof behavior !== 'object' || behavior === null) {
      this.fail(new TypeError(`cannot run actor ${this.name}: its setup returned no behavior`), undefined)
      return
    }
    this.behavior = armsOf(behavior)
    this.state = RUNNING
    if (this.id !== 0) this.host.flight.note('started', this.id, '', this.#restarts)
  }

  /** The actor failed, while handling `message` if there is one; supervision decides. */
  override fail(error: unknown, message: Message | undefined): void {
    openAskOf(message)?.fail('failed', error)
    const { settings, host } = this
    const failure = { actor: this.name, directive: settings.directive, error: describe(error) }
    if (this.state >= STOPPING || this.#stopRequest !== undefined) {
      host.log.warn(failure, 'actor failed while stopping')
      return
    }
    if (!host.isOpen && error instanceof SystemStoppedError) {
      // It wanted something of a system that shuts down, before its own turn to stop: no fault of its own.
      host.log.debug(failure, 'actor is refused while the system shuts down')
      if (this.state !== RUNNING) this.#requestEnd({ reason: 'stopped' })
      return
    }
    if (this.parent === undefined) {
      // The root has no parent, and its failure loses no spawned actor.
      host.log.error(failure, 'failure escalated to the top')
      return
    }
    host.log.warn(failure, 'actor failed')
    host.flight.note('failed', this.id, message?.type ?? '')
    if (settings.directive === 'resume' && this.state === RUNNING) return
    if (settings.directive === 'restart') {
      this.#recover().restart(error, message?.type)
      return
    }
    this.endError = failureOf(this.name, error)
    this.#requestEnd({ reason: 'failed', isEscalated: settings.directive === 'escalate' })
  }

  /** More failures than supervision allows. */
  giveUp(error: RestartBudgetError): void {
    this.host.log.error({ actor: this.name, error: describe(error) }, 'actor given up')
    this.endError = error
    this.#requestEnd({ reason: 'failed', isEscalated: this.settings.whenExhausted === 'escalate' })
  }

  #recover(): Recovery {
    this.#recovery ??= new Recovery(this, [])
    return this.#recovery
  }

  /** Its instance is to end: no message is taken before. */
  interruptSoon(): void {
    this.isInterrupted = true
    this.wake()
  }

  /** Its instance is not to end for another, but maybe for good. */
  notInterrupted(): void {
    this.isInterrupted = this.#stopRequest !== undefined
  }

  protected override interrupt(): void {
    if (this.#stopRequest !== undefined) this.#beginStop()
    else this.#recovery!.begin()
  }

  /** Ends the instance; then calls `done`, unless the actor is to stop. */
  endInstance(error: unknown, messageType: string | undefined, delayMs: number, done: () => void): void {
    const { host } = this
    this.#restarts++
    host.counts.restarts++
    host.flight.note('restarted', this.id, '', this.#restarts)
    this.state = RESTARTING
    this.leaveGeneration()
    failTakenAsks(this, () => this.mailbox.waiting())
    host.log.warn({ actor: this.name, restarts: this.#restarts, delayMs }, 'actor restarts')
    const given: Signal = {
      type: 'beforeRestart',
      error,
      ...(messageType === undefined ? {} : { messageType }),
    }
    this.#stopChildren(() => {
      this.lastSignal(given, () => {
        this.behavior = undefined
        if (this.#stopRequest !== undefined) this.wake()
        else done()
      })
    })
  }

  startAgain(): void {
    this.state = STARTING
    this.wake()
  }

  // ── Stop ─────────────────────────────────────────────────────────────────────────────────────

  /** Stops the actor after the message in hand. */
  requestStop(): void {
    if (this.settings.isKilled) this.kill()
    else this.#requestEnd({ reason: 'stopped' })
  }

  /** The actor stops itself, after what waits if it says so; a permanent one is restarted, and keeps that. */
  requestOwnStop(drainMs?: number | 'shutdown'): void {
    if (!this.settings.isPermanent) {
      if (drainMs === undefined) this.requestStop()
      else this.requestDrain(drainMs === 'shutdown' ? undefined : drainMs)
    } else if (this.state < RESTARTING && this.#stopRequest === undefined) this.#recover().request()
  }

  requestDrain(withinMs = this.settings.shutdownMs): void {
    if (this.state >= STOPPING || this.#stopRequest !== undefined || this.drain !== undefined) return
    this.cancelSchedules(true)
    const drain = new Drain(
      this.host.clock,
      this.after(withinMs, () => this.requestStop()),
      withinMs,
    )
    this.drain = drain
    this.host.kinship.drains(this, withinMs)
    const caughtUp = (): void => {
      drain.isCatchingUp = false
      this.wake()
    }
    if (withinMs <= 0) {
      this.requestStop()
      return
    }
    // Nobody tells the root anything.
    if (this.parent === undefined) caughtUp()
    else this.host.whenCaughtUp(Math.min(withinMs, CATCH_UP_MS_MAX), caughtUp)
  }

  protected override emptied(): void {
    const drain = this.drain!
    drain.isEmpty = true
    this.leaveGeneration()
    if (this.children === undefined) this.requestStop()
    else this.children.stopAll(() => this.requestStop(), drain)
  }

  /** It stops with something left. A child that has something left reports that itself. */
  #reportDrain(): void {
    if (this.drain?.isEmpty === false && !this.hasNothingLeft) this.host.undrained.add(this.name)
  }

  #requestEnd(ending: Ending): void {
    if (this.state >= STOPPING || this.#stopRequest !== undefined) return
    this.#stopRequest = ending
    this.isInterrupted = true
    // An actor that does nothing now begins its stop in its next turn; only what takes longer needs the
    // bound.
    if (this.state !== RUNNING || this.inFlightCount > 0) this.#boundStop()
    this.wake()
  }

  #boundStop(): void {
    this.#stopDeadline ??= this.after(this.settings.shutdownMs, () => this.abandon())
  }

  #beginStop(): void {
    const ending = this.#stopRequest!
    this.#reportDrain()
    this.state = STOPPING
    this.endReason = ending.reason
    this.#recovery?.cancel()
    this.leaveGeneration()
    this.dropAll()
    this.#stopChildren(
      () => this.lastSignal({ type: 'stopped', reason: ending.reason }, () => this.#finish()),
      this.isDraining,
    )
    if (!this.isEnded) this.#boundStop()
  }

  /** Ends the actor without a start: its definition could not be had. */
  cannotStart(error: CodedError): void {
    this.host.log.error({ actor: this.name, error: describe(error) }, 'actor cannot start')
    if (this.state >= STOPPING || this.#stopRequest !== undefined) return
    this.endError = error
    this.#requestEnd({ reason: 'failed', isEscalated: this.settings.directive === 'escalate' })
  }

  /** Ends the actor and everything below it now, without signals, and reports it as slow. */
  abandon(): void {
    if (this.state === ENDED) return
    this.host.slowActors.add(this.name)
    this.#endNow(true)
  }

  /** Ends the actor and everything below it now, without signals, as its options say. */
  kill(): void {
    if (this.state !== ENDED) this.#endNow(false)
  }

  #endNow(isReported: boolean): void {
    if (this.state < STOPPING) {
      this.#reportDrain()
      this.endReason = this.#stopRequest?.reason ?? 'stopped'
    }
    this.state = STOPPING
    this.children?.forgetStop()
    this.#recovery?.cancel()
    this.leaveGeneration()
    this.dropAll()
    this.#abandonChildren(isReported)
    this.#finish()
  }

  /** Ends every child at once, the last spawned first, and reports them as slow. */
  abandonChildren(): void {
    this.#abandonChildren(true)
  }

  #abandonChildren(isReported: boolean): void {
    this.children?.abandonAll(isReported, this.isDraining)
  }

  #finish(): void {
    if (this.state === ENDED) return
    this.state = ENDED
    this.generation++
    this.behavior = undefined
    if (this.#stopDeadline !== undefined) this.host.deadlines.remove(this.#stopDeadline)
    if (this.drain !== undefined) this.host.deadlines.remove(this.drain.limit)
    this.children = undefined
    while (this.firstAsk !== undefined) this.firstAsk.fail('terminated')
    const { endReason, endError } = this
    const watchers = this.#watchers
    this.#watchers = undefined
    if (watchers !== undefined) {
      for (const watcher of [...watchers]) watcher.onTerminated(this.ref.key, this.name, endReason, endError)
    }
    this.host.ended(this, {
      reason: endReason,
      ...(endError === undefined ? {} : { error: recordOf(endError) }),
      ...(this.#stopRequest?.isEscalated === true ? { isEscalated: true } : {}),
    })
  }

  // ── Children ─────────────────────────────────────────────────────────────────────────────────

  addChild(child: Child): void {
    this.children ??= new Children(this.host, this)
    this.children.add(child)
  }

  stopChild(id: number, drainMs?: number | 'shutdown'): void {
    const ownMs = this.children?.get(id)?.settings.shutdownMs
    this.children?.stop(id, drainMs === 'shutdown' ? ownMs : drainMs)
  }

  childEnded(id: number, ending: Ending, error: CodedError | undefined): void {
    const children = this.children
    const child = children?.remove(id)
    if (children === undefined || child === undefined) return
    const known = error ?? (ending.error === undefined ? undefined : errorOf(ending.error))
    if (child.hasToDrain && ending.isLost === true) this.host.undrained.add(child.ref.name)
    const terminated = terminatedOf(child.ref, ending.reason, known)
    for (const onEnded of child.onEnded ?? []) onEnded(terminated)
    if (children.isStopping) {
      children.stopNext()
      return
    }
    if (ending.isEscalated === true && this.state < STOPPING) {
      this.fail(known ?? new ActorFailedError(child.ref.name, ending.reason), undefined)
      this.wake()
    }
  }

  childDrains(id: number, withinMs: number): void {
    this.children?.drains(id, withinMs)
  }

  /** `isCutShort`: they were to drain, and there is no time. */
  #stopChildren(done: () => void, isCutShort = false): void {
    if (this.children === undefined) done()
    else this.children.stopAll(done, isCutShort ? NO_TIME : undefined)
  }

  /** How it stands, without its children. */
  status(): Omit<ActorStatus, 'children' | 'thread'> {
    return {
      name: this.name,
      state:
        this.state >= STOPPING || this.#stopRequest !== undefined || this.drain !== undefined
          ? 'stopping'
          : this.state === RESTARTING
            ? 'backoff'
            : this.state === STARTING
              ? 'starting'
              : 'running',
      mailboxDepth: this.depth,
      mailboxHighWater: this.highWater,
      restarts: this.#restarts,
    }
  }
}
