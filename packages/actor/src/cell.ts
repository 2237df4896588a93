/**
 * Cell: one actor on its thread: mailbox, behavior, supervision, children, watchers.
 *
 *   starting ──setup──▶ running ──failure, restart──▶ restarting ──backoff──▶ starting
 *       │                  │                              │
 *       └──────────────────┴───────────stop───────────────┴──▶ stopping ──▶ ended
 *
 * Invariants
 *   I1  Only `turn` runs arms of the behavior, so one message is handled at a time; a pending async
 *       arm of an actor that is not reentrant keeps the turn from taking another.
 *   I2  `generation` changes with every instance. What an earlier instance left behind (async arms,
 *       schedules, pipes, its context) sees that and does nothing.
 *   I3  The mailbox outlives instances: a restart loses the failing message, no other.
 *   I4  An ended cell has no children, no schedules, no open asks and no watchers.
 *
 * Stopping waits for the message in hand, then for the children in reverse order of their spawn, then
 * for the `stopped` signal. One deadline, `shutdown`, covers all of it; past it the cell and what is
 * left below it are abandoned: they end at once and are reported as slow.
 */

import { fromErrorRecord, type RouterError } from '@homing/errors'
import { type InboundAsk, type OpenAsk, type PendingAsk, type ReplyFunction, replyTo } from './asks.ts'
import { type Child, Children } from './children.ts'
import { Context } from './context.ts'
import type { Deadline } from './deadlines.ts'
import {
  ActorFailedError,
  RestartBudgetError,
  StashFullError,
  ThreadDownError,
  UnhandledMessageError,
} from './errors.ts'
import type { Ending, Halt, Settings } from './frames.ts'
import { type CompiledLayout, compiledOf } from './layout/compile.ts'
import { LazySet } from './lazy-set.ts'
import { Mailbox, type MessageKey } from './mailbox.ts'
import { failTakenAsks, openAskOf } from './message-asks.ts'
import type { Watcher } from './peer.ts'
import { type AnyRef, LocalRef } from './refs.ts'
import type { Runtime } from './runtime.ts'
import { PeriodicTell, ScheduledTell } from './schedules.ts'
import { backoffMs, RestartBudget } from './supervision.ts'
import { terminatedOf } from './terminated.ts'
import { describe, failureOf, recordOf } from './thrown.ts'
import {
  type ActorDefinition,
  type ActorStatus,
  type Message,
  type Signal,
  signal,
  type TellStatus,
  type TerminationReason,
} from './types.ts'

export type { Child } from './children.ts'
export { backoffMs } from './supervision.ts'
export { terminatedOf } from './terminated.ts'

/** Messages handled before another actor has its turn. */
export const QUANTUM = 64

/** An ask of this type is answered in its turn by every actor: what was sent before it has been handled. */
export const SETTLE = 'homing.settle'

/** An arm that takes every message without an arm of its own; for probes. */
export const anyMessage: unique symbol = Symbol('homing.anyMessage')

const STARTING = 0
const RUNNING = 1
const RESTARTING = 2
const STOPPING = 3
const ENDED = 4

type Arms = Record<string, ((message: Message) => void | Promise<void>) | undefined> & {
  readonly [signal]?: (signal: Signal) => void | Promise<void>
  readonly [anyMessage]?: (message: Message) => void
}

/** Who is told when the actor ends, and what it fails when it escalates. */
export type Parent = Cell | { readonly thread: string; readonly uid: number; readonly id: number } | undefined

/** What a cell is made from. */
export interface CellInit {
  readonly id: number
  readonly name: string
  readonly args: unknown
  readonly settings: Settings
  readonly parent: Parent
  readonly restarts: number
}

export class Cell implements Watcher {
  readonly runtime: Runtime
  readonly id: number
  readonly name: string
  readonly settings: Settings
  readonly parent: Parent
  readonly ref: LocalRef
  generation = 0
  /** The first of the asks that this actor has not answered. */
  firstAsk: OpenAsk | undefined = undefined
  /** True while the cell is in the run queue or having its turn. */
  isQueued = false
  children: Children | undefined = undefined
  /** How it ended; while `state` is ended. */
  endReason: TerminationReason = 'stopped'
  endError: RouterError | undefined = undefined

  #state = STARTING
  #definition: ActorDefinition<Message, unknown> | undefined
  readonly #args: unknown
  readonly #mailbox: Mailbox
  #behavior: Arms | undefined = undefined
  #isReentrant = false
  /** Async arms (or an async setup or signal) in flight. */
  #inFlightCount = 0
  #signals: Signal[] | undefined = undefined
  #watching: Map<string, AnyRef> | undefined = undefined
  #restarts: number
  #mailboxHighWater = 0
  // Most actors never need these three.
  #budget: RestartBudget | undefined = undefined
  #scheduled: LazySet<Deadline> | undefined = undefined
  #watchers: LazySet<Watcher> | undefined = undefined
  #backoff: Deadline | undefined = undefined
  #stopDeadline: Deadline | undefined = undefined
  #stopRequest: Ending | undefined = undefined
  /** The instance is to end after the message in hand, and another to follow. */
  #haltRequest: { readonly error: unknown; readonly isOwn: boolean; readonly limit: Deadline } | undefined =
    undefined
  /** A stop or a halt is requested: no message is taken before it. */
  #isInterrupted = false
  /** There is no instance, and the parent says when the next may start. */
  #isHeld = false
  /** The parent has said so before this instance had ended. */
  #isReleased = false
  readonly #isCoalescing: boolean
  #stash: Message[] | undefined = undefined

  /** Without a definition the cell waits for `define`; messages wait with it. */
  constructor(runtime: Runtime, init: CellInit, definition: ActorDefinition<Message, unknown> | undefined) {
    this.runtime = runtime
    this.id = init.id
    this.name = init.name
    this.settings = init.settings
    this.parent = init.parent
    this.#args = init.args
    this.#restarts = init.restarts
    if (init.restarts > 0) this.#budget = new RestartBudget(init.restarts, runtime.clock.nowMs())
    this.#definition = definition
    this.#mailbox = new Mailbox(init.settings.capacity)
    this.#isCoalescing = init.settings.overflow === 'coalesce'
    if (definition !== undefined) this.#follow(definition)
    if (init.restarts > 0 && init.settings.isGrouped) {
      // Its thread was lost, and its parent restarts others with it.
      this.#state = RESTARTING
      this.#isHeld = true
    }
    this.ref = new LocalRef(runtime, init.id, init.name, this)
  }

  /** The codecs for messages to it, when its definition declares a layout. */
  get layout(): CompiledLayout | undefined {
    return compiledOf(this.#definition?.layout)
  }

  /** Who is told when it ends. */
  get watchers(): LazySet<Watcher> {
    this.#watchers ??= new LazySet()
    return this.#watchers
  }

  get scheduled(): LazySet<Deadline> {
    this.#scheduled ??= new LazySet()
    return this.#scheduled
  }

  get isEnded(): boolean {
    return this.#state === ENDED
  }

  get isAccepting(): boolean {
    return this.#state < STOPPING
  }

  // ── Messages ─────────────────────────────────────────────────────────────────────────────────

  enqueue(message: Message): TellStatus {
    if (this.#state >= STOPPING) {
      this.runtime.deadLetter(this.name, message.type, 'dead', this.id)
      return 'dead'
    }
    if (this.#isCoalescing && this.#coalesce(message)) return 'ok'
    if (!this.#mailbox.offer(message)) {
      if (!this.#overflow(message)) return 'full'
    } else if (!this.isQueued) this.runtime.turns.enqueue(this)
    return 'ok'
  }

  /** Takes an ask whose promise is on this thread. */
  enqueueAsk(message: { readonly type: string }, ask: PendingAsk): void {
    if (this.#state >= STOPPING) {
      this.runtime.deadLetter(this.name, message.type, 'dead', this.id)
      ask.fail('terminated')
      return
    }
    this.#enqueueOpenAsk({ ...message, reply: replyTo(ask) } as Message, ask)
  }

  /** Takes an ask that came from another thread; `message` is ours. */
  enqueueInbound(message: Message & { reply?: ReplyFunction }, ask: InboundAsk): void {
    if (this.#state >= STOPPING) {
      this.runtime.deadLetter(this.name, message.type, 'dead', this.id)
      ask.fail('terminated')
      return
    }
    message.reply = replyTo(ask)
    this.#enqueueOpenAsk(message, ask)
  }

  /** Takes a message of the actor to itself, past the bound of the mailbox. */
  enqueueForced(message: Message): void {
    if (this.#state >= STOPPING) return
    this.runtime.counts.sent++
    if (this.#isCoalescing && this.#coalesce(message)) return
    this.#mailbox.pushForced(message)
    if (!this.isQueued) this.runtime.turns.enqueue(this)
  }

  isControl(message: Message): boolean {
    return this.#mailbox.isControl(message)
  }

  /** True while messages wait or an arm is in flight. */
  get isBusy(): boolean {
    return this.#state < STOPPING && (this.#mailbox.size > 0 || this.#inFlightCount > 0)
  }

  /** True when the mailbox is full only because the cell has had no turn. */
  get isFullButRunnable(): boolean {
    if (!this.#mailbox.isFull) return false
    return this.#canHandle() || (this.#state === STARTING && this.#hasWork())
  }

  #enqueueOpenAsk(message: Message, ask: OpenAsk): void {
    const { runtime } = this
    if (this.#isCoalescing && this.#coalesce(message)) {
      ask.linkTo(this)
      return
    }
    if (!this.#mailbox.offer(message)) {
      if (this.settings.overflow === 'dropOldest' && !this.#mailbox.isControl(message)) {
        ask.linkTo(this)
        this.#overflow(message)
      } else {
        this.#refused(message)
        ask.fail('refused')
      }
      return
    }
    ask.linkTo(this)
    if (!this.isQueued) runtime.turns.enqueue(this)
  }

  /** Applies the overflow policy. False when the sender is to be told 'full'. */
  #overflow(message: Message): boolean {
    const { overflow } = this.settings
    if (overflow === 'reject' || overflow === 'coalesce' || this.#mailbox.isControl(message)) {
      this.#refused(message)
      return false
    }
    if (overflow === 'dropNewest') {
      this.runtime.deadLetter(this.name, message.type, 'overflow', this.id)
      return true
    }
    const oldest = this.#mailbox.takeUser()!
    this.runtime.deadLetter(this.name, oldest.type, 'overflow', this.id)
    openAskOf(oldest)?.fail('refused')
    this.#mailbox.pushForced(message)
    return true
  }

  #refused(message: Message): void {
    this.runtime.counts.refused++
    this.runtime.flight.note('overflow', this.id, message.type)
  }

  /** Puts the message in the place of a waiting one with its key, if there is one. */
  #coalesce(message: Message): boolean {
    const replaced = this.#mailbox.replace(message)
    if (replaced === undefined) return false
    this.#replaced(replaced)
    return true
  }

  #replaced(message: Message): void {
    this.runtime.deadLetter(this.name, message.type, 'coalesced', this.id)
    openAskOf(message)?.fail('refused')
  }

  #follow(definition: ActorDefinition<Message, unknown>): void {
    const { control, coalesce } = definition
    const keyOf = coalesce === undefined || !this.#isCoalescing ? undefined : this.#safely(coalesce)
    for (const message of this.#mailbox.follow({ control, coalesce: keyOf })) this.#replaced(message)
  }

  /** A key that cannot be had is none: a tell never throws. */
  #safely(keyOf: (message: Message) => MessageKey): (message: Message) => MessageKey {
    return message => {
      try {
        return keyOf(message)
      } catch (error) {
        this.runtime.log.warn(
          { actor: this.name, type: message.type, error: describe(error) },
          'no key for a message',
        )
        return undefined
      }
    }
  }

  stash(message: Message): void {
    this.#stash ??= []
    const { stashCapacity } = this.settings
    if (this.#stash.length >= stashCapacity) throw new StashFullError(this.name, message.type, stashCapacity)
    this.#stash.push(message)
  }

  unstashAll(): number {
    const count = this.#stash?.length ?? 0
    this.#unstash()
    this.#wake()
    return count
  }

  /** A message that an earlier instance still had and could not keep. */
  lose(message: Message): void {
    this.runtime.deadLetter(this.name, message.type, 'dead', this.id)
    openAskOf(message)?.fail('terminated')
  }

  // ── Turns ────────────────────────────────────────────────────────────────────────────────────

  /**
   * One turn. Returns the number of messages and signals handled. The caller took the cell out of the run queue; it
   * is back in it when work remains.
   */
  turn(): number {
    const handled = this.work()
    if (this.#hasWork()) this.runtime.turns.requeue(this)
    else this.isQueued = false
    return handled
  }

  /** Does whatever is due of starting, stopping and signals, then handles messages, up to QUANTUM together. */
  work(): number {
    const { flight } = this.runtime
    let handled = 0
    // Messages of one type in a row, which the flight recorder takes together.
    let type = ''
    let messages = 0
    this.#noteDepth()
    while (handled < QUANTUM) {
      if (this.#inFlightCount > 0 && (!this.#isReentrant || this.#state !== RUNNING)) break
      if (this.#isInterrupted && this.#state < STOPPING) {
        if (this.#inFlightCount > 0) break
        if (this.#stopRequest !== undefined) this.#beginStop()
        else this.#beginHalt()
        break
      }
      if (this.#state === STARTING) {
        if (this.#definition === undefined) break
        this.#start()
        continue
      }
      if (this.#state !== RUNNING) break
      if (this.#signals !== undefined && this.#signals.length > 0) {
        handled++
        this.#deliver(this.#signals.shift()!)
        continue
      }
      const message = this.#mailbox.take()
      if (message === undefined) break
      handled++
      if (message.type !== type) {
        if (messages > 0) flight.handled(messages)
        messages = 0
        type = message.type
        flight.handling(this.id, type)
      }
      messages++
      this.#handle(message)
    }
    if (messages > 0) flight.handled(messages)
    return handled
  }

  /** A mailbox only grows between turns, so its high water is found at their start. */
  #noteDepth(): void {
    const depth = this.#mailbox.size
    if (depth <= this.#mailboxHighWater) return
    this.#mailboxHighWater = depth
    this.runtime.counts.raiseMailbox(depth)
  }

  #canHandle(): boolean {
    return this.#state === RUNNING && (this.#inFlightCount === 0 || this.#isReentrant)
  }

  #hasWork(): boolean {
    if (this.#state >= STOPPING) return false
    if (this.#isInterrupted) return this.#inFlightCount === 0
    if (this.#state === STARTING) return this.#inFlightCount === 0 && this.#definition !== undefined
    if (!this.#canHandle()) return false
    return this.#mailbox.size > 0 || (this.#signals !== undefined && this.#signals.length > 0)
  }

  #wake(): void {
    if (!this.isQueued && this.#hasWork()) this.runtime.turns.enqueue(this)
  }

  #handle(message: Message): void {
    const behavior = this.#behavior!
    try {
      const arm = behavior[message.type]
      if (arm === undefined) {
        this.#handleUnknown(behavior, message)
        return
      }
      const result = arm.call(behavior, message)
      if (result !== undefined && result !== null && typeof result.then === 'function') {
        this.#suspend(result, message)
      }
    } catch (error) {
      this.fail(error, message)
    }
  }

  #handleUnknown(behavior: Arms, message: Message): void {
    if (message.type === SETTLE) {
      this.runtime.counts.unhandled()
      openAskOf(message)?.answer(0)
      return
    }
    const catchAll = behavior[anyMessage]
    if (catchAll !== undefined) {
      catchAll(message)
      return
    }
    this.runtime.counts.unhandled()
    this.runtime.deadLetter(this.name, message.type, 'no arm', this.id)
    openAskOf(message)?.fail('failed', new UnhandledMessageError(this.name, message.type))
  }

  #deliver(given: Signal): void {
    if (given.type === 'terminated' && this.#watching?.delete(given.ref.key) !== true) return
    const behavior = this.#behavior!
    const arm = behavior[signal]
    if (arm === undefined) return
    try {
      const result = arm.call(behavior, given)
      if (isThenable(result)) this.#suspend(result, undefined)
    } catch (error) {
      this.fail(error, undefined)
    }
  }

  #suspend(promise: Promise<unknown>, message: Message | undefined): void {
    const { generation } = this
    this.#inFlightCount++
    // A thenable of another kind may answer twice, at once, or throw; a promise does not.
    Promise.resolve(promise).then(
      () => {
        if (generation !== this.generation) return
        this.#inFlightCount--
        this.#wake()
      },
      (error: unknown) => {
        if (generation === this.generation) {
          this.#inFlightCount--
          this.fail(error, message)
          this.#wake()
          return
        }
        this.runtime.log.debug({ actor: this.name, error: describe(error) }, 'earlier instance failed')
        openAskOf(message)?.fail('failed', error)
      },
    )
  }

  // ── Start, failure, restart ──────────────────────────────────────────────────────────────────

  /** Gives a cell that was made without one its definition. */
  define(definition: ActorDefinition<Message, unknown>): void {
    this.#definition = definition
    this.#follow(definition)
    if (this.#isHeld) this.runtime.kinship.halted(this, { isFailure: false, delayMs: 0 })
    this.#wake()
  }

  #start(): void {
    const definition = this.#definition!
    const { generation } = this
    this.#isReentrant = definition.reentrant
    try {
      const made = definition.setup(new Context(this, generation), this.#args)
      if (!isThenable(made)) {
        this.#run(made)
        return
      }
      this.#inFlightCount++
      Promise.resolve(made).then(
        behavior => {
          if (generation !== this.generation) return
          this.#inFlightCount--
          this.#run(behavior)
          this.#wake()
        },
        (error: unknown) => {
          if (generation !== this.generation) return
          this.#inFlightCount--
          this.fail(error, undefined)
          this.#wake()
        },
      )
    } catch (error) {
      this.fail(error, undefined)
    }
  }

  #run(behavior: unknown): void {
    if (this.#state !== STARTING) return
    if (typeof behavior !== 'object' || behavior === null) {
      this.fail(new TypeError(`cannot run actor ${this.name}: its setup returned no behavior`), undefined)
      return
    }
    this.#behavior = behavior as Arms
    this.#state = RUNNING
    if (this.id !== 0) this.runtime.flight.note('started', this.id, '', this.#restarts)
  }

  /** The actor failed, while handling `message` if there is one; supervision decides. */
  fail(error: unknown, message: Message | undefined): void {
    openAskOf(message)?.fail('failed', error)
    const { settings, runtime } = this
    const failure = { actor: this.name, directive: settings.directive, error: describe(error) }
    if (this.#state >= STOPPING || this.#stopRequest !== undefined) {
      runtime.log.warn(failure, 'actor failed while stopping')
      return
    }
    if (this.parent === undefined) {
      // The guardian: nobody is above it, and nothing that was spawned is lost with the failure.
      runtime.log.error(failure, 'failure escalated to the top')
      return
    }
    runtime.log.warn(failure, 'actor failed')
    runtime.flight.note('failed', this.id, message?.type ?? '')
    if (message !== undefined) this.#stash = this.#stash?.filter(stashed => stashed !== message)
    if (settings.directive === 'resume' && this.#state === RUNNING) return
    if (settings.directive === 'restart') {
      this.#restart(error, message?.type)
      return
    }
    this.endError = failureOf(this.name, error)
    this.#requestEnd({ reason: 'failed', isEscalated: settings.directive === 'escalate' })
  }

  /** Restarts within the budget; past it the actor ends. */
  #restart(error: unknown, messageType: string | undefined): void {
    const { settings, runtime } = this
    this.#budget ??= new RestartBudget()
    const attempt = this.#budget.take(settings, runtime.clock.nowMs())
    if (attempt === undefined) {
      const exhausted = new RestartBudgetError(this.name, settings.restartsMax, settings.withinMs, error)
      runtime.log.error({ actor: this.name, error: describe(exhausted) }, 'actor given up')
      this.endError = exhausted
      this.#requestEnd({ reason: 'failed', isEscalated: settings.whenExhausted === 'escalate' })
      return
    }
    const delayMs = backoffMs(settings, attempt, runtime.random.next())
    this.#halt(error, messageType, delayMs, () => {
      if (settings.isGrouped) this.#hold({ isFailure: true, delayMs, ...recordIn(error) })
      else {
        this.#backoff = this.#after(delayMs, () => {
          this.#backoff = undefined
          this.#startAgain()
        })
      }
    })
  }

  /** Ends the instance for the sake of a sibling, after the message in hand; another follows `release`. */
  halt(error: unknown): void {
    if (this.#isHeld) this.runtime.kinship.halted(this, { isFailure: false, delayMs: 0 })
    else if (this.#state < RESTARTING) this.#requestHalt(error, false)
  }

  /** The parent lets the next instance start. */
  release(): void {
    if (this.#isHeld) {
      this.#isHeld = false
      this.#startAgain()
    } else if (this.#state === RESTARTING || this.#haltRequest !== undefined) this.#isReleased = true
  }

  #requestHalt(error: unknown, isOwn: boolean): void {
    if (this.#stopRequest !== undefined || this.#haltRequest !== undefined) return
    const limit = this.#after(this.settings.shutdownMs, () => {
      this.runtime.noteSlow(this.name)
      this.#beginHalt()
    })
    this.#haltRequest = { error, isOwn, limit }
    this.#isInterrupted = true
    this.#wake()
  }

  #beginHalt(): void {
    const { error, isOwn } = this.#haltRequest!
    this.#forgetHalt()
    if (isOwn) this.#restart(undefined, undefined)
    else this.#halt(error, undefined, 0, () => this.#hold({ isFailure: false, delayMs: 0 }))
  }

  #forgetHalt(): void {
    if (this.#haltRequest === undefined) return
    this.runtime.deadlines.remove(this.#haltRequest.limit)
    this.#haltRequest = undefined
    this.#isInterrupted = this.#stopRequest !== undefined
  }

  /** Ends the instance; then calls `done`, unless the actor is to stop. */
  #halt(error: unknown, messageType: string | undefined, delayMs: number, done: () => void): void {
    const { runtime } = this
    this.#forgetHalt()
    this.#restarts++
    runtime.counts.restarts++
    runtime.flight.note('restarted', this.id, '', this.#restarts)
    this.#state = RESTARTING
    this.#leaveGeneration()
    this.#unstash()
    failTakenAsks(this, () => this.#mailbox.waiting())
    runtime.log.warn({ actor: this.name, restarts: this.#restarts, delayMs }, 'actor restarts')
    const given: Signal = {
      type: 'beforeRestart',
      error,
      ...(messageType === undefined ? {} : { messageType }),
    }
    this.#stopChildren(() => {
      this.#lastSignal(given, () => {
        this.#behavior = undefined
        if (this.#stopRequest !== undefined) this.#wake()
        else done()
      })
    })
  }

  /** Waits for the parent, which restarts others with this actor. */
  #hold(halt: Halt): void {
    this.#isHeld = true
    if (this.#isReleased) {
      this.#isReleased = false
      this.release()
    } else this.runtime.kinship.halted(this, halt)
  }

  #startAgain(): void {
    this.#state = STARTING
    this.#wake()
  }

  /** Cuts off what the present instance left behind. */
  #leaveGeneration(): void {
    this.generation++
    this.#inFlightCount = 0
    for (const entry of this.#scheduled?.values() ?? []) this.runtime.deadlines.remove(entry)
    this.#scheduled = undefined
    this.#signals = undefined
    const watching = this.#watching
    this.#watching = undefined
    if (watching !== undefined) for (const ref of watching.values()) this.runtime.watches.remove(this, ref)
  }

  /** Hands the present behavior a signal that ends it, bounded by the shutdown time. */
  #lastSignal(given: Signal, done: () => void): void {
    const behavior = this.#behavior
    const arm = behavior?.[signal]
    if (behavior === undefined || arm === undefined) {
      done()
      return
    }
    const { generation } = this
    const report = (error: unknown): void =>
      this.runtime.log.warn(
        { actor: this.name, signal: given.type, error: describe(error) },
        'signal arm failed',
      )
    try {
      const result = arm.call(behavior, given)
      if (!isThenable(result)) {
        done()
        return
      }
      // Counts as an arm in flight: a stop waits for it, as for any other.
      this.#inFlightCount++
      let isFinished = false
      const finish = (): void => {
        this.runtime.deadlines.remove(limit)
        if (isFinished || generation !== this.generation) return
        isFinished = true
        this.#inFlightCount--
        done()
      }
      const limit = this.#after(this.settings.shutdownMs, () => {
        if (generation === this.generation) this.runtime.noteSlow(this.name)
        finish()
      })
      Promise.resolve(result).then(finish, (error: unknown) => {
        report(error)
        finish()
      })
    } catch (error) {
      report(error)
      done()
    }
  }

  // ── Stop ─────────────────────────────────────────────────────────────────────────────────────

  /** Stops the actor after the message in hand. */
  requestStop(): void {
    if (this.settings.isKilled) this.kill()
    else this.#requestEnd({ reason: 'stopped' })
  }

  /** The actor stops itself; a permanent one is restarted. */
  requestOwnStop(): void {
    if (!this.settings.isPermanent) this.requestStop()
    else if (this.#state < RESTARTING) this.#requestHalt(undefined, true)
  }

  #requestEnd(ending: Ending): void {
    if (this.#state >= STOPPING || this.#stopRequest !== undefined) return
    this.#stopRequest = ending
    this.#isInterrupted = true
    // An actor that does nothing now begins its stop in its next turn; only what takes longer needs the bound.
    if (this.#state !== RUNNING || this.#inFlightCount > 0) this.#boundStop()
    this.#wake()
  }

  #boundStop(): void {
    this.#stopDeadline ??= this.#after(this.settings.shutdownMs, () => this.abandon())
  }

  #beginStop(): void {
    const ending = this.#stopRequest!
    this.#state = STOPPING
    this.endReason = ending.reason
    this.#forgetHalt()
    if (this.#backoff !== undefined) this.runtime.deadlines.remove(this.#backoff)
    this.#leaveGeneration()
    this.#dropMailbox()
    this.#stopChildren(() => {
      this.#lastSignal({ type: 'stopped', reason: ending.reason }, () => this.#finish())
    })
    if (!this.isEnded) this.#boundStop()
  }

  /** Ends the actor without a start: its definition could not be had. */
  cannotStart(error: RouterError): void {
    this.runtime.log.error({ actor: this.name, error: describe(error) }, 'actor cannot start')
    if (this.#state >= STOPPING || this.#stopRequest !== undefined) return
    this.endError = error
    this.#requestEnd({ reason: 'failed', isEscalated: this.settings.directive === 'escalate' })
  }

  /** Ends the actor and everything below it now, without signals, and reports it as slow. */
  abandon(): void {
    if (this.#state === ENDED) return
    this.runtime.noteSlow(this.name)
    this.#endNow(true)
  }

  /** Ends the actor and everything below it now, without signals, as its options say. */
  kill(): void {
    if (this.#state !== ENDED) this.#endNow(false)
  }

  #endNow(isReported: boolean): void {
    if (this.#state < STOPPING) this.endReason = this.#stopRequest?.reason ?? 'stopped'
    this.#state = STOPPING
    this.children?.forgetStop()
    this.#forgetHalt()
    if (this.#backoff !== undefined) this.runtime.deadlines.remove(this.#backoff)
    this.#leaveGeneration()
    this.#dropMailbox()
    this.#abandonChildren(isReported)
    this.#finish()
  }

  /** Ends every child at once, the last spawned first, and reports them as slow. */
  abandonChildren(): void {
    this.#abandonChildren(true)
  }

  #abandonChildren(isReported: boolean): void {
    this.children?.abandonAll(isReported, (id, ending, error) => this.childEnded(id, ending, error))
  }

  #finish(): void {
    if (this.#state === ENDED) return
    this.#state = ENDED
    this.generation++
    this.#behavior = undefined
    if (this.#stopDeadline !== undefined) this.runtime.deadlines.remove(this.#stopDeadline)
    this.children = undefined
    while (this.firstAsk !== undefined) this.firstAsk.fail('terminated')
    const { endReason, endError } = this
    const watchers = this.#watchers
    this.#watchers = undefined
    if (watchers !== undefined) {
      for (const watcher of [...watchers.values()])
        watcher.onTerminated(this.ref.key, this.name, endReason, endError)
    }
    this.runtime.ended(this, {
      reason: endReason,
      ...(endError === undefined ? {} : { error: recordOf(endError) }),
      ...(this.#stopRequest?.isEscalated === true ? { isEscalated: true } : {}),
    })
  }

  /** What is stashed waits again, in front. */
  #unstash(): void {
    if (this.#stash === undefined) return
    this.#mailbox.putBack(this.#stash)
    this.#stash = undefined
  }

  #dropMailbox(): void {
    this.#unstash()
    for (let message = this.#mailbox.take(); message !== undefined; message = this.#mailbox.take()) {
      this.runtime.counts.dropped++
      this.runtime.deadLetter(this.name, message.type, 'stopped', this.id)
      openAskOf(message)?.fail('terminated')
    }
  }

  // ── Children ─────────────────────────────────────────────────────────────────────────────────

  addChild(child: Child): void {
    this.children ??= new Children(this, this.#definition?.supervise ?? 'one-for-one')
    this.children.add(child)
  }

  stopChild(id: number): void {
    this.children?.stop(id)
  }

  childEnded(id: number, ending: Ending, error: RouterError | undefined): void {
    const children = this.children
    const child = children?.remove(id)
    if (children === undefined || child === undefined) return
    const known = error ?? (ending.error === undefined ? undefined : fromErrorRecord(ending.error))
    const terminated = terminatedOf(child.ref, ending.reason, known)
    for (const onEnded of child.onEnded ?? []) onEnded(terminated)
    if (children.isStopping) {
      children.stopNext()
      return
    }
    children.group?.ended(id)
    if (ending.isEscalated === true && this.#state < STOPPING) {
      this.fail(known ?? new ActorFailedError(child.ref.name, ending.reason), undefined)
      this.#wake()
    }
  }

  /** True when restarts of its children concern each other. */
  get isGrouping(): boolean {
    return (this.#definition?.supervise ?? 'one-for-one') !== 'one-for-one'
  }

  /** The instance of a child has ended. False when it may start again at once. */
  childHalted(id: number, halt: Halt): boolean {
    const { children } = this
    const child = children?.get(id)
    // One that is to stop needs no word.
    if (children === undefined || child === undefined || children.isStopping || child.isStopping) return true
    const error = halt.error === undefined ? undefined : fromErrorRecord(halt.error)
    return children.group?.halted(child, halt.isFailure, halt.delayMs, error) ?? false
  }

  /** The thread of a child that will be spawned again has ended. */
  childDisplaced(child: Child): void {
    const { children } = this
    if (children === undefined || children.isStopping) return
    children.group?.displaced(child, new ThreadDownError(child.thread ?? '', 'it has ended'))
  }

  #stopChildren(done: () => void): void {
    if (this.children === undefined) done()
    else this.children.stopAll(done)
  }

  // ── Watch ────────────────────────────────────────────────────────────────────────────────────

  watch(ref: AnyRef): void {
    this.#watching ??= new Map()
    if (this.#watching.has(ref.key)) return
    this.#watching.set(ref.key, ref)
    this.runtime.watches.add(this, ref)
  }

  unwatch(ref: AnyRef): void {
    if (this.#watching?.delete(ref.key) === true) this.runtime.watches.remove(this, ref)
  }

  onTerminated(key: string, _name: string, reason: TerminationReason, error: RouterError | undefined): void {
    const ref = this.#watching?.get(key)
    if (ref === undefined || this.#state >= STOPPING) return
    this.#signals ??= []
    this.#signals.push(terminatedOf(ref, reason, error))
    this.#wake()
  }

  // ── For the context ──────────────────────────────────────────────────────────────────────────

  schedule(delayMs: number, message: Message): { cancel(): void } {
    return this.#plan(new ScheduledTell(this, message), delayMs)
  }

  #plan(entry: Deadline, delayMs: number): { cancel(): void } {
    this.scheduled.add(entry)
    this.runtime.deadlines.add(entry, delayMs)
    return {
      cancel: () => {
        this.scheduled.delete(entry)
        this.runtime.deadlines.remove(entry)
      },
    }
  }

  scheduleEvery(intervalMs: number, message: Message): { cancel(): void } {
    return this.#plan(new PeriodicTell(this, intervalMs, message), intervalMs)
  }

  /** True while that very message is in the mailbox. */
  isWaiting(message: Message): boolean {
    return this.#mailbox.isWaiting(message)
  }

  /** How it stands, without its children. */
  status(): Omit<ActorStatus, 'children' | 'thread'> {
    return {
      name: this.name,
      state:
        this.#state >= STOPPING || this.#stopRequest !== undefined
          ? 'stopping'
          : this.#state === RESTARTING
            ? 'backoff'
            : this.#state === STARTING
              ? 'starting'
              : 'running',
      mailboxDepth: this.#mailbox.size,
      mailboxHighWater: Math.max(this.#mailboxHighWater, this.#mailbox.size),
      restarts: this.#restarts,
    }
  }

  #after(delayMs: number, expire: () => void): Deadline {
    const deadline: Deadline = { dueMs: 0, position: -1, expire }
    this.runtime.deadlines.add(deadline, delayMs)
    return deadline
  }
}

function isThenable(value: unknown): value is Promise<unknown> {
  return (
    typeof value === 'object' && value !== null && typeof (value as { then?: unknown }).then === 'function'
  )
}

function recordIn(error: unknown): Pick<Halt, 'error'> {
  return error === undefined ? {} : { error: recordOf(error) }
}
