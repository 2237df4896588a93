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
  /** What it takes to happen; by default an engine and a router. */
  readonly needs?: 'events' | 'replay' | 'vLLM' | 'sidecar' | 'broker' | 'ports'
  /** It is a mistake of the start, and looked at from there. */
  readonly isThereAtStart?: boolean
  /** The trusts that it may end with; default: as its column says. */
  readonly ends?: readonly Trust[]
  /** By when its trust is what it stays, in milliseconds; default: as its column says. */
  readonly healsMs?: number
  /** Blocks whose removal nobody can read stay. */
  readonly hidesRemovals?: boolean
  /** Blocks may be missing, whatever the trust. */
  readonly mayLack?: boolean
  readonly deal: (observed: ObservedFleet) => void | Promise<void>
}
