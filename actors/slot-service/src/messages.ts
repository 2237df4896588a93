import type { ServiceMessage } from '@homing/http'

/** The service answers. */
export interface SlotServiceReady {
  readonly host: string
  readonly port: number
}

export type SlotServiceMessage =
  | ServiceMessage<SlotServiceReady>
  /**
   * From itself: tells its tracker the workers again, and its bridge the peers: either may have begun anew.
   */
  | { readonly type: 'renew' }
