import type { Reply } from '@homing/actor'
import type { SourceStatus } from '@homing/directory'
import type { Frames } from '@homing/transport'

/** What a listener is told. The first three come from others, the rest from its own sockets and timers. */
export type ListenerMessage =
  /** Forget what was applied and rebuild from the engine's replay. */
  | { readonly type: 'resync'; readonly reason: string }
  | { readonly type: 'status'; readonly reply: Reply<SourceStatus> }
  /** The engine's process is another one than before (its start time moved). */
  | { readonly type: 'engineRestarted' }
  | { readonly type: 'live'; readonly frames: Frames }
  | { readonly type: 'connected' }
  | { readonly type: 'disconnected' }
  | { readonly type: 'replayed'; readonly attempt: number; readonly frames: Frames }
  | { readonly type: 'replayTimeout'; readonly attempt: number }
