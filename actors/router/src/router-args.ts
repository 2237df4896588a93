/** What a router is given. */

import type { ActorRef } from '@homing/actor'
import type { DecisionLogMessage, SettledMessage } from '@homing/actors/decision-log'
import type { AuditMessage, ComputedMessage, DirectoryMessage } from '@homing/actors/directory'
import type { IndexerMessage, RoutedMessage } from '@homing/actors/indexer'
import type { TrackerMessage } from '@homing/actors/tracker'
import type { ShardMemory } from '@homing/index'
import type { TrackingSettings } from '@homing/placement'
import type { GuardSettings, SelectionSettings } from '@homing/selection'
import type { AffinitySettings } from './conversation-affinity.ts'
import type { LayerWeights } from './overlap-lookup.ts'

export interface RouterArgs {
  readonly tracker: ActorRef<TrackerMessage>
  readonly directory: ActorRef<
    AuditMessage | ComputedMessage | Extract<DirectoryMessage, { readonly type: 'subscribe' }>
  >
  /** Undefined: none is written. */
  readonly decisionLog?: ActorRef<DecisionLogMessage> | undefined
  /** Is told of every request that is over, as the decision log is; undefined: nobody keeps them. */
  readonly whatIf?: ActorRef<SettledMessage> | undefined
  /** One per shard of the index: its door, or its memory. */
  readonly indexMemories: readonly ShardMemory[]
  /** By shard; they say where its memory is. */
  readonly indexers: readonly ActorRef<IndexerMessage | RoutedMessage>[]
  readonly workerSlotsMax: number
  readonly layerWeights: LayerWeights
  readonly guesses: GuessSettings
  readonly selection: SelectionSettings
  readonly guard: GuardSettings
  readonly decisionsKept: number
  /** Candidates and excluded workers in all receipts together. */
  readonly receiptRowsMax: number
  /** Decisions that are not settled. */
  readonly openMax: number
  /** HTTP status of requests for which all workers are busy; default: that of the error. */
  readonly overloadStatus?: number | undefined
  /** Undefined: requests of a session go by cost like any others. */
  readonly affinity?: AffinitySettings | undefined
  /** What the tracker counts; default: all that thresholds need. */
  readonly tracking?: Pick<TrackingSettings, 'activeBlocks' | 'prefillTokens'>
  /** Longest wait for the tracker, in milliseconds. */
  readonly trackerMsMax: number
}

/** What is taken to be held because it was sent there. */
export interface GuessSettings {
  /** How long, in milliseconds, where no events tell. */
  readonly ttlWithoutEventsMs: number
  /** How long where events do, until they come; undefined: not at all. */
  readonly ttlUntilEventsMs: number | undefined
  /** Most blocks of a worker key; fewer where its engine is known to hold fewer. */
  readonly blocksMax: number
}
