/** Arguments of the index service: plain data, in the units of the names. See packages/config. */

import type { JsonServiceArgs } from '@homing/http'
import type { LabelShape } from '@homing/index'
import type { Registration } from './requests.ts'

export interface IndexServiceArgs extends JsonServiceArgs {
  readonly threads: number
  /**
   * The pool whose threads `<pool>-0 … <pool>-(threads − 1)` host indexers and listeners; default 'events'.
   */
  readonly eventPool?: string
  readonly indexBytes: number
  readonly labelBytes: number
  /** How they are divided; default: LABEL_SHAPE. */
  readonly labelShape?: LabelShape
  readonly workerSlotsMax: number
  readonly replayTimeoutMs: number
  /** Where listeners keep checkpoints; undefined: nowhere. */
  readonly checkpointDirectory?: string | undefined
  readonly checkpointIntervalMs?: number
  /** Ranks that are registered from the start; only these can inherit from a peer. */
  readonly registrations: readonly Registration[]
  readonly peers: readonly string[]
  readonly peersMax: number
  readonly peerWaitMs: number
  readonly peerTimeoutMs: number
  readonly peerDumpBytesMax: number
}
