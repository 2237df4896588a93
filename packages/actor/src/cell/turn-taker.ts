/**
 * TurnTaker: handles the waiting messages of an actor: in turns, one message or signal at a time, with the
 * arms of the current instance's behavior.
 *
 * Invariants
 *   I1  Only `turn` runs arms of the behavior, so one message is handled at a time; a pending async
 *       arm of an actor that is not reentrant keeps the turn from taking another.
 *   I2  `generation` changes with every instance. Leftovers of an earlier instance (async arms,
 *       schedules, pipes, its context) see that and do nothing.
 *
 * The life cycle (cell.ts) decides when instances begin and end; only it changes `state`.
 */

import type { CodedError } from '@homing/base'
import { openAskOf } from '../asks/message-asks.ts'
import { terminatedOf } from '../contract/terminated.ts'
import { type ActorDefinition, type Signal, signal, type TerminationReason } from '../contract/types.ts'
import type { Deadline } from '../values/deadlines.ts'
import { MalformedMessageError, UnhandledMessageError } from '../values/errors.ts'
import { type Message, typeOf } from '../values/message.ts'
import { describe } from '../values/thrown.ts'
import { type Arms, anyMessage } from './arms.ts'
import type { CellHost } from './host.ts'
import { Inbox, type InboxInit } from './inbox.ts'
import type { Ref } from './ref.ts'
import type { Watcher } from './watcher.ts'

/** Messages handled before another actor has its turn. */
const QUANTUM = 64

/** There is no behavior yet. */
export const STARTING = 0
export const RUNNING = 1
/** The last instance has ended, and the next may not start yet. */
export const RESTARTING = 2
export const STOPPING = 3
export const ENDED = 4

export abstract class TurnTaker extends Inbox implements Watcher {
  generation = 0
  protected state = STARTING
  declare protected definition: ActorDefinition<Message, unknown> | undefined
  protected behavior: Arms | undefined = undefined
  protected isReentrant = false
  /** Async arms (or an async setup or signal) in flight. */
  protected inFlightCount = 0
  /** A stop, or another instance, is requested: no message is taken before it. */
  protected isInterrupted = false
  #signals: Signal[] | undefined = undefined
  #watching: Map<string, Ref> | undefined = undefined

  /** Without a definition messages wait. */
  constructor(host: CellHost, init: InboxInit, definition: ActorDefinition<Message, unknown> | undefined) {
    super(host, init)
    this.definition = definition
    if (definition !== undefined) this.follow(definition)
  }

  /** Makes the next instance. */
  protected abstract start(): void

  /** Does what it was interrupted for. */
  protected abstract interrupt(): void

  /** It drains, and nothing is left to handle. */
  protected abstract emptied(): void

  /** The actor failed, while handling `message` if there is one. */
  abstract fail(error: unknown, message: Message | undefined): void

  override get isAccepting(): boolean {
    return this.state < STOPPING && this.drain === undefined
  }

  override get isAlive(): boolean {
    return this.state < STOPPING
  }

  /** True while messages wait or an arm is in flight. */
  get isBusy(): boolean {
    return this.state < STOPPING && (this.mailbox.size > 0 || this.inFlightCount > 0)
  }

  /** True when the mailbox is full only because the cell has had no turn. */
  get isFullButRunnable(): boolean {
    if (!this.mailbox.isFull) return false
    return this.#canHandle() || (this.state === STARTING && this.#hasWork())
  }

  // ── Turns ────────────────────────────────────────────────────────────────────────────────────

  /**
   * One turn. Returns the number of messages and signals handled. The caller took the cell out of the run
   * queue; it is back in it when work remains.
   */
  turn(): number {
    const handled = this.work()
    if (this.#hasWork()) this.host.turns.requeue(this)
    else this.isQueued = false
    return handled
  }

  /**
   * Does whatever is due of starting, stopping and signals, then handles messages, up to QUANTUM together.
   */
  work(): number {
    const { flight, turns } = this.host
    let handled = 0
    // Messages of one type in a row, which the flight recorder takes together.
    let type = ''
    let messages = 0
    this.noteDepth()
    while (handled < QUANTUM) {
      if (this.inFlightCount > 0 && (!this.isReentrant || this.state !== RUNNING)) break
      if (this.isInterrupted && this.state < STOPPING) {
        if (this.inFlightCount > 0) break
        this.interrupt()
        break
      }
      if (this.state === STARTING) {
        if (this.definition === undefined) break
        this.start()
        continue
      }
      if (this.state !== RUNNING) break
      if (this.#signals !== undefined && this.#signals.length > 0) {
        handled++
        this.#deliver(this.#signals.shift()!)
        continue
      }
      const message = this.mailbox.take()
      if (message === undefined) {
        if (this.#isEmptied) this.emptied()
        break
      }
      handled++
      if (message.type !== type) {
        if (typeOf(message) === undefined) {
          this.#handleMalformed(message)
          continue
        }
        if (messages > 0) flight.handled(messages)
        messages = 0
        type = message.type
        flight.handling(this.id, type)
      }
      messages++
      this.#handle(message)
      if (turns.isOverAfter(handled)) break
    }
    if (messages > 0) flight.handled(messages)
    return handled
  }

  #canHandle(): boolean {
    return this.state === RUNNING && (this.inFlightCount === 0 || this.isReentrant)
  }

  #hasWork(): boolean {
    if (this.state >= STOPPING) return false
    if (this.isInterrupted) return this.inFlightCount === 0
    if (this.state === STARTING) return this.inFlightCount === 0 && this.definition !== undefined
    if (!this.#canHandle()) return false
    if (this.mailbox.size > 0 || (this.#signals !== undefined && this.#signals.length > 0)) return true
    return this.#isEmptied
  }

  /** True when it drains and its mailbox is all that could hold anything yet. */
  get #isEmptied(): boolean {
    const { drain } = this
    if (drain === undefined || drain.isCatchingUp || drain.isEmpty) return false
    return this.#hasNothingBegun
  }

  /** Nothing waits for it, as far as is known here, nor is anything in its hands. */
  protected get hasNothingLeft(): boolean {
    return this.mailbox.size === 0 && this.#hasNothingBegun
  }

  get #hasNothingBegun(): boolean {
    return this.inFlightCount === 0 && this.firstAsk === undefined && !this.hasPipes
  }

  asksAnswered(): void {
    if (this.drain !== undefined) this.wake()
  }

  protected wake(): void {
    if (!this.isQueued && this.#hasWork()) this.host.turns.enqueue(this)
  }

  #handle(message: Message): void {
    const behavior = this.behavior!
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

  /** It was a message when it was told: its type did not travel, or its sender took it away. */
  #handleMalformed(message: Message): void {
    this.host.deadLetters.add(this.name, '', 'malformed', this.id)
    openAskOf(message)?.fail('failed', new MalformedMessageError(this.name))
  }

  #handleUnknown(behavior: Arms, message: Message): void {
    const catchAll = behavior[anyMessage]
    if (catchAll !== undefined) {
      catchAll(message)
      return
    }
    this.host.counts.unhandled()
    this.host.deadLetters.add(this.name, message.type, 'no arm', this.id)
    openAskOf(message)?.fail('failed', new UnhandledMessageError(this.name, message.type))
  }

  #deliver(given: Signal): void {
    if (given.type === 'terminated' && this.#watching?.delete(given.ref.key) !== true) return
    const behavior = this.behavior!
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
    this.inFlightCount++
    // A thenable of another kind may answer twice, at once, or throw; a promise does not.
    Promise.resolve(promise).then(
      () => {
        if (generation !== this.generation) return
        this.inFlightCount--
        this.wake()
      },
      (error: unknown) => {
        if (generation === this.generation) {
          this.inFlightCount--
          this.fail(error, message)
          this.wake()
          return
        }
        this.host.log.debug({ actor: this.name, error: describe(error) }, 'earlier instance failed')
        openAskOf(message)?.fail('failed', error)
      },
    )
  }

  // ── Signals ──────────────────────────────────────────────────────────────────────────────────

  watch(ref: Ref): void {
    this.#watching ??= new Map()
    if (this.#watching.has(ref.key)) return
    this.#watching.set(ref.key, ref)
    this.host.watches.add(this, ref)
  }

  unwatch(ref: Ref): void {
    if (this.#watching?.delete(ref.key) === true) this.host.watches.remove(this, ref)
  }

  onTerminated(key: string, _name: string, reason: TerminationReason, error: CodedError | undefined): void {
    const ref = this.#watching?.get(key)
    if (ref === undefined || this.state >= STOPPING) return
    this.#signals ??= []
    this.#signals.push(terminatedOf(ref, reason, error))
    this.wake()
  }

  /** Cuts off what the present instance left behind. */
  protected leaveGeneration(): void {
    this.generation++
    this.inFlightCount = 0
    this.cancelSchedules()
    this.#signals = undefined
    const watching = this.#watching
    this.#watching = undefined
    if (watching !== undefined) for (const ref of watching.values()) this.host.watches.remove(this, ref)
  }

  /** Hands the present behavior a signal that ends it, bounded by the shutdown time. */
  protected lastSignal(given: Signal, done: () => void): void {
    const behavior = this.behavior
    const arm = behavior?.[signal]
    if (behavior === undefined || arm === undefined) {
      done()
      return
    }
    const { generation } = this
    const report = (error: unknown): void =>
      this.host.log.warn(
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
      this.inFlightCount++
      let isFinished = false
      const finish = (): void => {
        this.host.deadlines.remove(limit)
        if (isFinished || generation !== this.generation) return
        isFinished = true
        this.inFlightCount--
        done()
      }
      const limit = this.after(this.settings.shutdownMs, () => {
        if (generation === this.generation) this.host.slowActors.add(this.name)
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

  /** Calls `expire` after a while, unless the deadline is removed. */
  after(delayMs: number, expire: () => void): Deadline {
    const deadline: Deadline = { dueMs: 0, position: -1, expire }
    this.host.deadlines.add(deadline, delayMs)
    return deadline
  }
}

export function isThenable(value: unknown): value is Promise<unknown> {
  return (
    typeof value === 'object' && value !== null && typeof (value as { then?: unknown }).then === 'function'
  )
}
