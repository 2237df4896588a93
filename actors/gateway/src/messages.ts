import type { Reply } from '@homing/actor'
import type { FromConsole } from '@homing/actors/console'
import type { ErrorRecord } from '@homing/base'
import type { FleetMessage } from '@homing/fleet'
import type { HttpAddress } from '@homing/http'
import type { ProgramMessage } from './program-messages.ts'

export type GatewayMessage =
  | FleetMessage
  /** From the console. */
  | FromConsole
  | ProgramMessage
  /** Where it listens, or why it cannot. */
  | { readonly type: 'address'; readonly reply: Reply<HttpAddress | ErrorRecord> }
  /** From the guardian: every worker was probed once and the first replays are over, or took too long. */
  | { readonly type: 'started' }
  /** From the guardian: the end is near, so `/ready` says no; everything is served as before. */
  | { readonly type: 'leave' }
  /** Stops accepting, lets open exchanges end for `graceMs`, cuts the rest; answers how many were cut. */
  | { readonly type: 'drain'; readonly graceMs: number; readonly reply: Reply<number> }
  /** From the gateway to itself, periodically: check the open exchanges. */
  | { readonly type: 'look' }
