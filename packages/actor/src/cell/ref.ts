/**
 * Ref: the way to reach an actor. A LocalRef (local-ref.ts) reaches a cell of this thread directly and passes
 * messages by reference; a RemoteRef (runtime/remote-ref.ts) sends frames. Neither throws, whatever happened
 * to the target.
 */

import { inspect } from 'node:util'
import type { PendingAsk } from '../asks/asks.ts'
import type { PendingAsks } from '../asks/pending-asks.ts'
import { checkedFields, shown, unknownField } from '../contract/settings.ts'
import type { ActorRef, AskOptions, TellStatus } from '../contract/types.ts'
import type { DeadLetters } from '../observe/dead-letters.ts'
import { BaseRef, type RefTarget } from '../packing/pack.ts'
import { toMs } from '../values/durations.ts'
import { AskAbortedError, MalformedMessageError } from '../values/errors.ts'
import { type Message, type TransferOptions, typeOf } from '../values/message.ts'

/** The thread that has a ref. */
export interface RefHost {
  readonly thread: string
  readonly asks: PendingAsks
  readonly deadLetters: DeadLetters
}

const ASK_FIELDS = ['timeout', 'signal', 'transfer'] as const

/** The key of an actor: equal for all refs to it. */
export function keyOf(thread: string, id: number): string {
  return `${thread}/${id}`
}

export abstract class Ref extends BaseRef implements ActorRef<Message> {
  readonly id: number
  readonly name: string

  constructor(id: number, name: string) {
    super()
    this.id = id
    this.name = name
  }

  protected abstract get host(): RefHost
  abstract get thread(): string
  abstract tell(message: Message, options?: TransferOptions): TellStatus
  protected abstract send(message: Message, ask: PendingAsk, transfer?: readonly ArrayBuffer[]): void

  get key(): string {
    return keyOf(this.thread, this.id)
  }

  ask(message: { readonly type: string }, options: AskOptions): Promise<never> {
    return new Promise<never>((resolve, reject) => {
      if (options === undefined || options === null)
        throw new RangeError(`cannot ask ${this.name} without a timeout`)
      const { timeout, signal } = options
      if (timeout === undefined) checkedFields(`the ask of ${this.name}`, options, ASK_FIELDS)
      // Asks are many, so their few fields are compared one by one.
      for (const field in options) {
        if (field !== 'timeout' && field !== 'signal' && field !== 'transfer')
          throw unknownField(field, `the ask of ${this.name}`, ASK_FIELDS)
      }
      if (signal !== undefined && !(signal instanceof AbortSignal))
        throw new RangeError(`cannot use ${shown(signal)} as signal of an ask: use an AbortSignal`)
      const timeoutMs =
        typeof timeout === 'number' && timeout >= 0 && timeout < Infinity ? timeout : toMs(timeout)
      const type = typeOf(message)
      if (type === undefined) {
        reject(new MalformedMessageError(this.name))
        return
      }
      if (signal?.aborted === true) {
        reject(new AskAbortedError(this.name, type, signal.reason))
        return
      }
      const ask = this.host.asks.open(this.name, type, timeoutMs, resolve, reject)
      if (signal !== undefined) ask.abortWith(signal)
      try {
        this.send(message, ask, options.transfer)
      } catch (error) {
        // A field of the message cannot be read.
        ask.reject(error)
      }
    })
  }

  /** `id`: of the actor, when it is on this thread. */
  protected refuse(id: number): TellStatus {
    this.host.deadLetters.add(this.name, '', 'malformed', id)
    return 'dead'
  }

  /** The message types that its definition lists as control. */
  abstract get control(): ReadonlySet<string> | undefined

  override target(): RefTarget {
    const { thread, id, name, control } = this
    return {
      kind: 'ref',
      thread,
      id,
      name,
      ...(control === undefined ? {} : { control: [...control] }),
    }
  }

  /** What a log line shows. */
  toJSON(): { readonly ref: string; readonly key: string } {
    return { ref: this.name, key: this.key }
  }

  [inspect.custom](): string {
    return this.toString()
  }

  override toString(): string {
    return `ActorRef(${this.name} ${this.key})`
  }
}

/** The runtime's own ref behind the public type. Throws TypeError for anything else. */
export function asRef(ref: ActorRef<never>): Ref {
  if (ref instanceof Ref) return ref
  throw new TypeError('cannot use this value as a ref: it was not made by an actor system')
}
