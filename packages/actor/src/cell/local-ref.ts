/** LocalRef: reaches an actor of this thread, and offers what others on this thread may do with it. */

import type { CodedError } from '@homing/base'
import type { InboundAsk, OpenAsk, PendingAsk } from '../asks/asks.ts'
import type { TellStatus, TerminationReason } from '../contract/types.ts'
import type { Counts } from '../observe/counts.ts'
import { type Message, typeOf } from '../values/message.ts'
import { Ref, type RefHost } from './ref.ts'
import type { Watcher } from './watcher.ts'

/** An actor, as others on its thread reach it. */
export interface LocalCell {
  /** The message types that its definition lists as control. */
  readonly control: ReadonlySet<string> | undefined
  readonly isEnded: boolean
  /** How it ended. */
  readonly endReason: TerminationReason
  readonly endError: CodedError | undefined
  enqueue(message: Message): TellStatus
  /** Takes an ask whose promise is on this thread. */
  enqueueAsk(message: { readonly type: string }, ask: PendingAsk): void
  /** Takes an ask that came from another thread; `message` is ours. */
  enqueueInbound(message: Message, ask: InboundAsk): void
  addWatcher(watcher: Watcher): void
  removeWatcher(watcher: Watcher): void
  /** Stops the actor after the message in hand. */
  requestStop(): void
  /** Stops the actor after what waits for it, within that time; default: its shutdown time. */
  requestDrain(withinMs?: number): void
  /** Ends the actor and everything below it now, without signals, and reports it as slow. */
  abandon(): void
  /** Ends the actor and everything below it now, without signals, as its options say. */
  kill(): void
}

/** The thread of the actor. */
export interface LocalRefHost extends RefHost {
  readonly counts: Counts
  readonly cells: { get(id: number): LocalCell | undefined }
  /** Takes what is for an actor that is not here, but may be on its way. */
  readonly inbound: {
    tellMissing(id: number, name: string, message: Message): TellStatus
    askMissing(id: number, name: string, type: string, ask: OpenAsk, deliver: (cell: LocalCell) => void): void
  }
}

/** A ref to an actor of this thread. */
export class LocalRef extends Ref {
  readonly host: LocalRefHost
  #cell: LocalCell | undefined

  constructor(host: LocalRefHost, id: number, name: string, cell: LocalCell | undefined) {
    super(id, name)
    this.host = host
    this.#cell = cell
  }

  /** Undefined when the actor ended before the ref came to be, or is still on its way here. */
  get cell(): LocalCell | undefined {
    this.#cell ??= this.host.cells.get(this.id)
    return this.#cell
  }

  override get thread(): string {
    return this.host.thread
  }

  override get control(): ReadonlySet<string> | undefined {
    return this.cell?.control
  }

  override tell(message: Message): TellStatus {
    if (typeOf(message) === undefined) return this.refuse(this.id)
    this.host.counts.sent++
    const cell = this.#cell ?? this.cell
    return cell === undefined
      ? this.host.inbound.tellMissing(this.id, this.name, message)
      : cell.enqueue(message)
  }

  protected override send(message: Message, ask: PendingAsk): void {
    this.host.counts.sent++
    const { cell } = this
    if (cell !== undefined) cell.enqueueAsk(message, ask)
    else {
      const deliver = (to: LocalCell): void => to.enqueueAsk(message, ask)
      this.host.inbound.askMissing(this.id, this.name, message.type, ask, deliver)
    }
  }
}
