import type { ActorRef, Reply } from '@homing/actor'
import type { FromConsole } from '@homing/actors/console'
import type { DoorsMessage } from '@homing/actors/directory'
import type { ErrorRecord } from '@homing/base'
import type { FleetMessage } from '@homing/fleet'
import type { HttpAddress } from '@homing/http'
import type { PromptWord } from './deadly-prompts.ts'
import type { PickerAddress } from './picker-args.ts'
import type { Held } from './response-holders.ts'

/** Where a gateway listens. */
export interface GatewayAddress extends HttpAddress {
  /** For Envoys; undefined: it takes none. */
  readonly picker?: PickerAddress | undefined
}

/** From another gateway of the same router. */
export type PeerMessage =
  | PromptWord
  /** A response passed through that gateway, before its client has it. */
  | { readonly type: 'responseHeld'; readonly id: string; readonly held: Held }
  /** Who has this response? Undefined: not known here. */
  | { readonly type: 'heldOf'; readonly id: string; readonly reply: Reply<Held | undefined> }

/** To the guardian, from a gateway that begins: all gateways, itself among them. */
export interface GatewaysMessage {
  readonly type: 'gateways'
  readonly reply: Reply<readonly ActorRef<PeerMessage>[]>
}

export type GatewayMessage =
  | FleetMessage
  | PeerMessage
  /** From the directory, on a thread of its own. */
  | DoorsMessage
  /** From the console. */
  | FromConsole
  /** Where it listens, or why it cannot. */
  | { readonly type: 'address'; readonly reply: Reply<GatewayAddress | ErrorRecord> }
  /** From the guardian: every worker was probed once and the first replays are over, or took too long. */
  | { readonly type: 'started' }
  /** From the guardian: the end is near, so `/ready` says no; everything is served as before. */
  | { readonly type: 'leave' }
  /** Stops accepting, lets open exchanges end for `graceMs`, cuts the rest; answers how many were cut. */
  | { readonly type: 'drain'; readonly graceMs: number; readonly reply: Reply<number> }
  /** From the gateway to itself, periodically: check the open exchanges. */
  | { readonly type: 'look' }
