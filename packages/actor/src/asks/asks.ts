/**
 * Asks: one object per ask that awaits its answer, on each side.
 *
 *   PendingAsk   on the thread that asked: the promise and its deadline
 *   InboundAsk   on the thread of the target, when that is another one
 *
 * An ask settles exactly once; whatever comes later is discarded. The object that the target can
 * settle is linked into a list of the target's cell, so that everything unanswered fails when the
 * cell ends, at no cost while it does not. An answered ask leaves the list at once.
 */

import type { ErrorRecord } from '@homing/base'
import type { Deadline } from '../values/deadlines.ts'
import { ActorTerminatedError, AskAbortedError, AskRefusedError, AskTimeoutError } from '../values/errors.ts'
import type { TransferOptions } from '../values/message.ts'
import { errorOf, recordOf } from '../values/thrown.ts'

/** Why an ask failed on the side of its target. */
export interface AskFailure {
  readonly kind: 'refused' | 'terminated' | 'failed'
  readonly error?: ErrorRecord
}

/** Where the reply function of an ask keeps its ask. */
export const askOf: unique symbol = Symbol('homing.ask')

export type ReplyFunction = ((value: unknown, options?: TransferOptions) => void) & {
  [askOf]?: OpenAsk | ForwardedAsk
}

/** The head of the list of asks that a cell has not answered. */
export interface AskOwner {
  firstAsk: OpenAsk | undefined
  /** None is left. */
  asksAnswered(): void
}

export abstract class OpenAsk {
  owner: AskOwner | undefined = undefined
  previous: OpenAsk | undefined = undefined
  next: OpenAsk | undefined = undefined
  isSettled = false

  abstract answer(value: unknown, transfer?: readonly ArrayBuffer[]): void
  abstract fail(kind: AskFailure['kind'], error?: unknown): void

  /** Makes `owner` responsible: the ask fails when it ends. */
  linkTo(owner: AskOwner): void {
    this.owner = owner
    const first = owner.firstAsk
    this.next = first
    if (first !== undefined) first.previous = this
    owner.firstAsk = this
  }

  unlink(): void {
    const { owner, previous, next } = this
    if (owner === undefined) return
    if (previous === undefined) owner.firstAsk = next
    else previous.next = next
    if (next !== undefined) next.previous = previous
    this.owner = undefined
    this.previous = undefined
    this.next = undefined
    if (owner.firstAsk === undefined) owner.asksAnswered()
  }
}

/** What a PendingAsk needs of its runtime. */
export interface AskHost {
  settled(ask: PendingAsk): void
  timedOut(ask: PendingAsk): void
  /** Nobody waits for the answer any more. */
  cancelled(ask: PendingAsk): void
}

export class PendingAsk extends OpenAsk implements Deadline {
  dueMs = 0
  position = -1
  /** Its number, once another thread is involved; 0 before. */
  corr = 0
  /** The thread that has to answer, when it is another one. */
  thread: string | undefined = undefined
  readonly actor: string
  readonly type: string
  readonly timeoutMs: number
  readonly #host: AskHost
  readonly #resolve: (value: never) => void
  readonly #reject: (error: unknown) => void
  #signal: AbortSignal | undefined = undefined
  #onAbort: (() => void) | undefined = undefined

  constructor(
    host: AskHost,
    actor: string,
    type: string,
    timeoutMs: number,
    resolve: (value: never) => void,
    reject: (error: unknown) => void,
  ) {
    super()
    this.#host = host
    this.actor = actor
    this.type = type
    this.timeoutMs = timeoutMs
    this.#resolve = resolve
    this.#reject = reject
  }

  /** Lets the caller abandon the ask. */
  abortWith(signal: AbortSignal): void {
    this.#signal = signal
    this.#onAbort = () => {
      if (this.isSettled) return
      this.#host.cancelled(this)
      this.reject(new AskAbortedError(this.actor, this.type, signal.reason))
    }
    signal.addEventListener('abort', this.#onAbort, { once: true })
  }

  override answer(value: unknown): void {
    if (this.#settle()) this.#resolve(value as never)
  }

  override fail(kind: AskFailure['kind'], error?: unknown): void {
    if (this.isSettled) return
    if (kind === 'refused')
      this.reject(new AskRefusedError(this.actor, this.type, String(error ?? 'its mailbox')))
    else if (kind === 'terminated') {
      this.reject(
        new ActorTerminatedError(this.actor, `get an answer to '${this.type}' from actor ${this.actor}`),
      )
    } else this.reject(error)
  }

  /** Settles with the failure that another thread reported. */
  failRemotely(failure: AskFailure): void {
    const { kind, error } = failure
    if (kind === 'failed') this.fail(kind, errorOf(error as ErrorRecord))
    else this.fail(kind, error?.message)
  }

  reject(error: unknown): void {
    if (this.#settle()) this.#reject(error)
  }

  expire(): void {
    if (this.isSettled) return
    this.#host.timedOut(this)
    this.#host.cancelled(this)
    this.reject(new AskTimeoutError(this.actor, this.type, this.timeoutMs))
  }

  #settle(): boolean {
    if (this.isSettled) return false
    this.isSettled = true
    this.unlink()
    this.#host.settled(this)
    if (this.#onAbort !== undefined) this.#signal!.removeEventListener('abort', this.#onAbort)
    return true
  }
}

/** How an InboundAsk reaches the thread that asked. */
export interface InboundHost {
  reply(ask: InboundAsk, value: unknown, transfer?: readonly ArrayBuffer[]): void
  failed(ask: InboundAsk, failure: AskFailure): void
}

/** An ask of an actor on another thread, to be answered here. */
export class InboundAsk extends OpenAsk {
  readonly thread: string
  readonly corr: number
  readonly #host: InboundHost

  constructor(host: InboundHost, thread: string, corr: number) {
    super()
    this.#host = host
    this.thread = thread
    this.corr = corr
  }

  override answer(value: unknown, transfer?: readonly ArrayBuffer[]): void {
    if (this.isSettled) return
    this.release()
    this.#host.reply(this, value, transfer)
  }

  override fail(kind: AskFailure['kind'], error?: unknown): void {
    if (this.isSettled) return
    this.release()
    this.#host.failed(this, error === undefined ? { kind } : { kind, error: recordOf(error) })
  }

  /** Nobody waits for this side any more: the asker gave up, died, or the reply moved on. */
  release(): void {
    this.isSettled = true
    this.unlink()
  }
}

/** The reply of an ask that came here in a message, not as an ask to an actor of this thread. */
export interface ForwardedAsk {
  readonly thread: string
  readonly corr: number
}

/** The function that a handler is given to answer `ask`. */
export function replyTo(ask: OpenAsk): ReplyFunction {
  const reply: ReplyFunction = (value, options) => ask.answer(value, options?.transfer)
  reply[askOf] = ask
  return reply
}
