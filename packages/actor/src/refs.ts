/**
 * Refs: LocalRef reaches a cell of this thread directly and passes messages by reference; RemoteRef
 * sends frames. Neither throws, whatever happened to the target.
 */

import { inspect } from 'node:util'
import type { PendingAsk } from './asks.ts'
import type { Cell } from './cell.ts'
import { toMs } from './durations.ts'
import { AskAbortedError, MalformedMessageError } from './errors.ts'
import type { CompiledLayout } from './layout/compile.ts'
import { typeOf } from './message-type.ts'
import { BaseRef, type RefTarget } from './pack.ts'
import type { Peer } from './peer.ts'
import type { Runtime } from './runtime.ts'
import type { ActorRef, AskOptions, Message, TellStatus } from './types.ts'

/** The key of an actor: equal for all refs to it. */
export function keyOf(thread: string, id: number): string {
  return `${thread}/${id}`
}

abstract class Ref extends BaseRef implements ActorRef<Message> {
  readonly runtime: Runtime
  readonly id: number
  readonly name: string

  constructor(runtime: Runtime, id: number, name: string) {
    super()
    this.runtime = runtime
    this.id = id
    this.name = name
  }

  abstract get thread(): string
  abstract tell(message: Message): TellStatus
  protected abstract send(message: Message, ask: PendingAsk): void

  get key(): string {
    return keyOf(this.thread, this.id)
  }

  ask(message: { readonly type: string }, options: AskOptions): Promise<never> {
    return new Promise<never>((resolve, reject) => {
      if (options === undefined) throw new RangeError(`cannot ask ${this.name} without a timeout`)
      const { timeout, signal } = options
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
      const ask = this.runtime.asks.open(this.name, type, timeoutMs, resolve, reject)
      if (signal !== undefined) ask.abortWith(signal)
      try {
        this.send(message, ask)
      } catch (error) {
        // A field of the message cannot be read.
        ask.reject(error)
      }
    })
  }

  /** `id`: of the actor, when it is on this thread. */
  protected refuse(id: number): TellStatus {
    this.runtime.deadLetter(this.name, '', 'malformed', id)
    return 'dead'
  }

  /** The codecs for messages to it, when its definition declares a layout. */
  abstract get layout(): CompiledLayout | undefined

  override target(): RefTarget {
    const { thread, id, name, layout } = this
    return layout === undefined
      ? { kind: 'ref', thread, id, name }
      : { kind: 'ref', thread, id, name, layout: layout.description }
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

/** A ref to an actor of this thread. */
export class LocalRef extends Ref {
  #cell: Cell | undefined

  constructor(runtime: Runtime, id: number, name: string, cell: Cell | undefined) {
    super(runtime, id, name)
    this.#cell = cell
  }

  /** Undefined when the actor ended before the ref came to be, or is still on its way here. */
  get cell(): Cell | undefined {
    this.#cell ??= this.runtime.cells.get(this.id)
    return this.#cell
  }

  override get thread(): string {
    return this.runtime.thread
  }

  override get layout(): CompiledLayout | undefined {
    return this.cell?.layout
  }

  override tell(message: Message): TellStatus {
    if (typeOf(message) === undefined) return this.refuse(this.id)
    this.runtime.counts.sent++
    const cell = this.#cell ?? this.cell
    return cell === undefined
      ? this.runtime.inbound.tellMissing(this.id, this.name, message)
      : cell.enqueue(message)
  }

  protected override send(message: Message, ask: PendingAsk): void {
    this.runtime.counts.sent++
    const { cell } = this
    if (cell !== undefined) cell.enqueueAsk(message, ask)
    else {
      const deliver = (to: Cell): void => to.enqueueAsk(message, ask)
      this.runtime.inbound.askMissing(this.id, this.name, message.type, ask, deliver)
    }
  }
}

/** A ref to an actor of another thread. */
export class RemoteRef extends Ref {
  readonly peer: Peer
  override readonly layout: CompiledLayout | undefined

  constructor(runtime: Runtime, id: number, name: string, peer: Peer, layout: CompiledLayout | undefined) {
    super(runtime, id, name)
    this.peer = peer
    this.layout = layout
  }

  override get thread(): string {
    return this.peer.name
  }

  override tell(message: Message): TellStatus {
    return typeOf(message) === undefined ? this.refuse(0) : this.runtime.outbound.tell(this, message)
  }

  protected override send(message: Message, ask: PendingAsk): void {
    this.runtime.outbound.ask(this, message, ask)
  }
}

export type AnyRef = LocalRef | RemoteRef

/** The runtime's own ref behind the public type. Throws TypeError for anything else. */
export function asAnyRef(ref: ActorRef<never>): AnyRef {
  if (ref instanceof LocalRef || ref instanceof RemoteRef) return ref
  throw new TypeError('cannot use this value as a ref: it was not made by an actor system')
}
