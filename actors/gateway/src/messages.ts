import type { Reply } from '@homing/actor'
import type { FleetMessage } from '@homing/directory'
import type { AnswerMessage } from '@homing/dispatcher'

export interface GatewayAddress {
  readonly host: string
  readonly port: number
}

export type GatewayMessage =
  | FleetMessage
  | AnswerMessage
  /** Where it listens. */
  | { readonly type: 'address'; readonly reply: Reply<GatewayAddress> }
  /** Stops accepting, lets open exchanges end for `graceMs`, cuts the rest; answers how many were cut. */
  | { readonly type: 'drain'; readonly graceMs: number; readonly reply: Reply<number> }
