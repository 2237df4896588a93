/** RemoteRef: reaches an actor of another thread. */

import type { PendingAsk } from '../asks/asks.ts'
import { Ref, type RefHost } from '../cell/ref.ts'
import type { TellStatus } from '../contract/types.ts'
import type { Peer } from '../links/peer.ts'
import { type Message, type TransferOptions, typeOf } from '../values/message.ts'

/** The thread that has the ref. */
export interface RemoteRefHost extends RefHost {
  readonly outbound: {
    tell(ref: RemoteRef, message: Message, transfer?: readonly ArrayBuffer[]): TellStatus
    ask(
      ref: RemoteRef,
      message: { readonly type: string },
      ask: PendingAsk,
      transfer?: readonly ArrayBuffer[],
    ): void
  }
}

/** A ref to an actor of another thread. */
export class RemoteRef extends Ref {
  readonly host: RemoteRefHost
  readonly peer: Peer
  override readonly control: ReadonlySet<string> | undefined

  constructor(
    host: RemoteRefHost,
    id: number,
    name: string,
    peer: Peer,
    control: ReadonlySet<string> | undefined,
  ) {
    super(id, name)
    this.host = host
    this.peer = peer
    this.control = control
  }

  /** True for a message type that overtakes the others, and passes where they are refused. */
  isControl(type: string): boolean {
    return this.control?.has(type) === true
  }

  override get thread(): string {
    return this.peer.name
  }

  override tell(message: Message, options?: TransferOptions): TellStatus {
    if (typeOf(message) === undefined) return this.refuse(0)
    return this.host.outbound.tell(this, message, options?.transfer)
  }

  protected override send(message: Message, ask: PendingAsk, transfer?: readonly ArrayBuffer[]): void {
    this.host.outbound.ask(this, message, ask, transfer)
  }
}
