import type {
  AuditMessage,
  ComputedMessage,
  DirectoryMessage,
  PromptsMessage,
} from '@homing/actors/directory'
import type { RankListenersMessage, ShardsMessage } from '@homing/actors/index-service'
import type { ServiceMessage } from '@homing/http'

/** The service answers. */
export interface SelectServiceReady {
  readonly host: string
  readonly port: number
}

export type SelectServiceMessage =
  | ServiceMessage<SelectServiceReady>
  | ShardsMessage
  | RankListenersMessage
  /** From its router, for which it is the directory. */
  | AuditMessage
  | ComputedMessage
  | PromptsMessage
  | Extract<DirectoryMessage, { readonly type: 'subscribe' }>
  /**
   * From itself: tells tracker and router the workers again, for either may have begun anew, and ends
   * reservations that have expired.
   */
  | { readonly type: 'renew' }
  /** From itself: what is known of caches has changed. */
  | { readonly type: 'fleetDue' }
