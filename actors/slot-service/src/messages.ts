import type { Reply } from '@homing/actor'
import type { ErrorRecord } from '@homing/base'

/** The service answers. */
export interface SlotServiceReady {
  readonly host: string
  readonly port: number
}

export type SlotServiceMessage =
  /** Answered once it listens, or cannot. */
  | { readonly type: 'whenReady'; readonly reply: Reply<SlotServiceReady | ErrorRecord> }
  /** Stops accepting, lets open requests end for `graceMs`, cuts the rest; answers how many were cut. */
  | { readonly type: 'drain'; readonly graceMs: number; readonly reply: Reply<number> }
  // From itself.
  | { readonly type: 'started'; readonly outcome: SlotServiceReady | ErrorRecord }
  /** Tells its tracker the workers again, and its bridge the peers: either may have begun anew. */
  | { readonly type: 'renew' }
