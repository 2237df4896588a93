/** A fault of the fault matrix. */

import type { EngineSettings } from '@homing/engine'
import type { Trust } from '@homing/index'
import type { ObservedFleet, ObservedOptions } from './observed-fleet.ts'

export interface Row {
  readonly name: string
  readonly engine?: Partial<EngineSettings>
  readonly sidecarBatchesMax?: number
  readonly observed?: Pick<ObservedOptions, 'mistake' | 'hasSalts' | 'hasReports'>
  /** The router keeps checkpoints. */
  readonly hasCheckpoints?: boolean
  /** What the fault requires; by default an engine and a router. */
  readonly needs?: 'events' | 'replay' | 'vLLM' | 'sidecar' | 'broker' | 'stream' | 'ports'
  /** It is a mistake of the start, and looked at from there. */
  readonly isThereAtStart?: boolean
  /** The trusts that it may end with; default: as its column says. */
  readonly ends?: readonly Trust[]
  /** When its trust is final, in milliseconds; default: as its column says. */
  readonly healsMs?: number
  /** Removals are unreadable, so removed blocks stay credited. */
  readonly hidesRemovals?: boolean
  /** Blocks may be missing under any trust. */
  readonly mayLack?: boolean
  readonly deal: (observed: ObservedFleet) => void | Promise<void>
}
