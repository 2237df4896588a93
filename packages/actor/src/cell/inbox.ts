/**
 * Inbox: everything that waits for an actor: its mailbox, and its scheduled messages to itself.
 *
 * A full mailbox answers according to the overflow policy of the actor. A message that is not taken, or is
 * dropped for a newer one, is a dead letter or was refused, and an ask in it fails at once. Waiting messages
 * outlive the instance that was to handle them: a restart loses only the failing message.
 */

import { type InboundAsk, type OpenAsk, type PendingAsk, type ReplyFunction, replyTo } from '../asks/asks.ts'
import { openAskOf } from '../asks/message-asks.ts'
import type { Settings } from '../contract/settings.ts'
import type { ActorDefinition, TellStatus } from '../contract/types.ts'
import type { Deadline } from '../values/deadlines.ts'
import { type Message, type MessageKey, typeOf } from '../values/message.ts'
import { describe } from '../values/thrown.ts'
import type { Drain } from './drain.ts'
import type { CellHost } from './host.ts'
import { Mailbox } from './mailbox.ts'
import { PeriodicTell, Pipe, ScheduledTell } from './schedules.ts'

/** What an actor is known by, and how its mailbox is bounded. */
export interface InboxInit {
  readonly id: number
  readonly name: string
  readonly settings: Settings
}

export abstract class Inbox {
  // `declare`, here and in what extends it: a field that is defined is written twice, which is 2 % of a
  // spawn.
  declare readonly host: CellHost
  declare readonly id: number
  declare readonly name: string
  declare readonly settings: Settings
  /** The first of the asks that this actor has not answered. */
  firstAsk: OpenAsk | undefined = undefined
  /** While it handles what waits, before it stops. */
  drain: Drain | undefined = undefined
  /** True while the cell is in the run queue or having its turn. */
  isQueued = false
  declare protected readonly mailbox: Mailbox
  readonly #isCoalescing: boolean
  #highWater = 0
  // Most actors never need it.
  #scheduled: Set<Deadline | Pipe> | undefined = undefined

  constructor(host: CellHost, { id, name, settings }: InboxInit) {
    this.host = host
    this.id = id
    this.name = name
    this.settings = settings
    this.mailbox = new Mailbox(settings.capacity)
    this.#isCoalescing = settings.overflow === 'coalesce'
  }

  /** False once the actor stops, or drains: what comes then is dead. */
  abstract get isAccepting(): boolean

  /** False once the actor stops. */
  abstract get isAlive(): boolean

  /** No ask is left that this actor has to answer. */
  abstract asksAnswered(): void

  /** Has its turn, once `turns` comes to it. */
  abstract turn(): number

  /** Puts the cell into the run queue if it can do something. */
  protected abstract wake(): void

  // ── Messages ─────────────────────────────────────────────────────────────────────────────────

  /** The sequence number of the message that came last. */
  get lastSequence(): number {
    return this.mailbox.firstSequence + this.mailbox.count - 1
  }

  /** True when the message with this sequence number waits for a turn, and for nothing else. */
  isAwaitingTurn(sequence: number): boolean {
    return this.isQueued && this.mailbox.count > 0 && this.mailbox.firstSequence <= sequence
  }

  enqueue(message: Message): TellStatus {
    return this.isAccepting ? this.#put(message) : this.#tooLate(message)
  }

  /**
   * Takes a message that came from another thread: when the actor began to drain it may have been on its way.
   */
  enqueueFrame(message: Message): TellStatus {
    return this.isAccepting || this.isCatchingUp ? this.#put(message) : this.#tooLate(message)
  }

  get isCatchingUp(): boolean {
    return this.drain?.isCatchingUp === true && this.isAlive
  }

  #tooLate(message: { readonly type: string }): 'dead' {
    this.host.deadLetters.add(this.name, message.type, 'dead', this.id)
    return 'dead'
  }

  #put(message: Message): TellStatus {
    if (this.#isCoalescing && this.#coalesce(message)) return 'ok'
    if (!this.mailbox.offer(message)) {
      if (!this.#overflow(message)) return 'full'
    } else if (!this.isQueued) this.host.turns.enqueue(this)
    return 'ok'
  }

  /** Takes an ask whose promise is on this thread. */
  enqueueAsk(message: { readonly type: string }, ask: PendingAsk): void {
    if (!this.isAccepting) {
      this.#tooLate(message)
      ask.fail('terminated')
      return
    }
    this.#enqueueOpenAsk({ ...message, reply: replyTo(ask) } as Message, ask)
  }

  /** Takes an ask that came from another thread; `message` is ours. */
  enqueueInbound(message: Message & { reply?: ReplyFunction }, ask: InboundAsk): void {
    if (!this.isAccepting && !this.isCatchingUp) {
      this.#tooLate(message)
      ask.fail('terminated')
      return
    }
    message.reply = replyTo(ask)
    this.#enqueueOpenAsk(message, ask)
  }

  /** Takes a message of the actor to itself, past the bound of the mailbox. */
  enqueueForced(message: Message): void {
    if (!this.isAlive) return
    if (typeOf(message) === undefined) {
      this.host.deadLetters.add(this.name, '', 'malformed', this.id)
      return
    }
    this.host.counts.sent++
    if (this.#isCoalescing && this.#coalesce(message)) return
    this.mailbox.pushForced(message)
    if (!this.isQueued) this.host.turns.enqueue(this)
  }

  isControl(message: Message): boolean {
    return this.mailbox.isControl(message)
  }

  #enqueueOpenAsk(message: Message, ask: OpenAsk): void {
    const { host } = this
    if (this.#isCoalescing && this.#coalesce(message)) {
      ask.linkTo(this)
      return
    }
    if (!this.mailbox.offer(message)) {
      if (this.settings.overflow === 'dropOldest' && !this.mailbox.isControl(message)) {
        ask.linkTo(this)
        this.#overflow(message)
      } else {
        this.#refused(message)
        ask.fail('refused')
      }
      return
    }
    ask.linkTo(this)
    if (!this.isQueued) host.turns.enqueue(this)
  }

  /** Applies the overflow policy. False when the sender is to be told 'full'. */
  #overflow(message: Message): boolean {
    const { overflow } = this.settings
    if (overflow === 'reject' || overflow === 'coalesce' || this.mailbox.isControl(message)) {
      this.#refused(message)
      return false
    }
    if (overflow === 'dropNewest') {
      this.host.deadLetters.add(this.name, message.type, 'overflow', this.id)
      return true
    }
    const oldest = this.mailbox.takeUser()!
    this.host.deadLetters.add(this.name, oldest.type, 'overflow', this.id)
    openAskOf(oldest)?.fail('refused')
    this.mailbox.pushForced(message)
    return true
  }

  #refused(message: Message): void {
    this.host.counts.refused++
    this.host.flight.note('overflow', this.id, message.type)
  }

  /** Puts the message in the place of a waiting one with its key, if there is one. */
  #coalesce(message: Message): boolean {
    const replaced = this.mailbox.replace(message)
    if (replaced === undefined) return false
    this.#replaced(replaced)
    return true
  }

  #replaced(message: Message): void {
    this.host.deadLetters.add(this.name, message.type, 'coalesced', this.id)
    openAskOf(message)?.fail('refused')
  }

  /** Sorts what waits, and will wait, as the definition says. */
  protected follow(definition: ActorDefinition<Message, unknown>): void {
    const { control, coalesce } = definition
    const keyOf = coalesce === undefined || !this.#isCoalescing ? undefined : this.#safely(coalesce)
    for (const message of this.mailbox.follow({ control, coalesce: keyOf })) this.#replaced(message)
  }

  /** A key that cannot be had is none: a tell never throws. */
  #safely(keyOf: (message: Message) => MessageKey): (message: Message) => MessageKey {
    return message => {
      try {
        return keyOf(message)
      } catch (error) {
        this.host.log.warn(
          { actor: this.name, type: message.type, error: describe(error) },
          'no key for a message',
        )
        return undefined
      }
    }
  }

  /** A mailbox only grows between turns, so its high water is found at their start. */
  protected noteDepth(): void {
    const depth = this.mailbox.size
    if (depth <= this.#highWater) return
    this.#highWater = depth
    this.host.counts.raiseMailbox(depth)
  }

  get depth(): number {
    return this.mailbox.size
  }

  get highWater(): number {
    return Math.max(this.#highWater, this.mailbox.size)
  }

  /** Nobody will handle what waits. */
  protected dropAll(): void {
    for (let message = this.mailbox.take(); message !== undefined; message = this.mailbox.take()) {
      this.host.counts.dropped++
      this.host.deadLetters.add(this.name, message.type, 'stopped', this.id)
      openAskOf(message)?.fail('terminated')
    }
  }

  // ── Schedules ────────────────────────────────────────────────────────────────────────────────

  schedule(delayMs: number, message: Message): { cancel(): void } {
    return this.#plan(new ScheduledTell(this, message), delayMs)
  }

  #plan(entry: Deadline, delayMs: number): { cancel(): void } {
    this.#scheduled ??= new Set()
    this.#scheduled.add(entry)
    this.host.deadlines.add(entry, delayMs)
    return {
      cancel: () => {
        this.forgetScheduled(entry)
        this.host.deadlines.remove(entry)
      },
    }
  }

  scheduleEvery(intervalMs: number, message: Message): { cancel(): void } {
    return this.#plan(new PeriodicTell(this, intervalMs, message), intervalMs)
  }

  /** It has been told, or is not to be. */
  forgetScheduled(entry: Deadline): void {
    this.#scheduled?.delete(entry)
  }

  /** True while that very message is in the mailbox. */
  isWaiting(message: Message): boolean {
    return this.mailbox.isWaiting(message)
  }

  /** Of the present instance; `arePipesKept`: what is on its way already may still come. */
  protected cancelSchedules(arePipesKept = false): void {
    const scheduled = this.#scheduled
    this.#scheduled = undefined
    for (const entry of scheduled ?? []) {
      if (!(entry instanceof Pipe)) this.host.deadlines.remove(entry)
      else if (arePipesKept) this.pipeBegins(entry)
    }
  }

  /** The outcome of a promise is to come as a message. */
  pipeBegins(pipe = new Pipe()): Pipe {
    this.#scheduled ??= new Set()
    this.#scheduled.add(pipe)
    return pipe
  }

  /** It has come. */
  pipeEnds(pipe: Pipe): void {
    this.#scheduled?.delete(pipe)
    if (this.drain !== undefined) this.wake()
  }

  protected get hasPipes(): boolean {
    for (const entry of this.#scheduled ?? []) if (entry instanceof Pipe) return true
    return false
  }
}
