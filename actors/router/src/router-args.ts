/** What a router is given. */

import type { ActorRef } from '@homing/actor'
import type { DecisionLogMessage, SettledMessage } from '@homing/actors/decision-log'
import type { AuditMessage, ComputedMessage, DirectoryMessage } from '@homing/actors/directory'
import type { IndexerMessage, RoutedMessage } from '@homing/actors/indexer'
import type { TrackerMessage } from '@homing/actors/tracker'
import type { RouterSettings } from '@homing/config'
import type { ShardMemory } from '@homing/index'
import type { AffinitySettings, LayerWeights, TrackingSettings } from '@homing/placement'
import {
  CustomPolicy,
  type CustomSelection,
  type GuardSettings,
  type SelectionSettings,
} from '@homing/selection'

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

type SettingsOfRouter = AffinityOfSettings &
  Pick<
    RouterSettings,
    | 'workerSlotsMax'
    | 'hostCacheHitWeight'
    | 'diskCacheHitWeight'
    | 'guessTtlWithoutEventsMs'
    | 'guessTtlUntilEventsMs'
    | 'guessBlocksMax'
    | 'routerMode'
    | 'routerPolicy'
    | 'overlapWeight'
    | 'overlapCredit'
    | 'creditDecay'
    | 'activeRequestWeight'
    | 'prefillMsPerToken'
    | 'attentionMsPerMillionPairs'
    | 'temperature'
    | 'guardShare'
    | 'decisionsKept'
    | 'decisionRowsKept'
    | 'openRequestsMax'
    | 'overloadStatus'
    | 'trackActiveBlocks'
    | 'trackPrefillTokens'
  >

type AffinityOfSettings = Pick<
  RouterSettings,
  'affinityTtlMs' | 'affinityMode' | 'affinityPrefixBlocks' | 'affinitiesMax'
>

const TRACKER_MS_MAX = 10_000
/** A request that is placed again has a decision more before the first is settled. */
const DECISIONS_PER_REQUEST = 2

/** `customSelection`: the selection in place of the policy; undefined: none is. */
export function routerArgsFromSettings(
  settings: SettingsOfRouter,
  parts: Pick<
    RouterArgs,
    'tracker' | 'directory' | 'decisionLog' | 'whatIf' | 'indexMemories' | 'indexers'
  > & { readonly customSelection: CustomSelection | undefined },
): RouterArgs {
  const { customSelection, ...refs } = parts
  return {
    ...refs,
    workerSlotsMax: settings.workerSlotsMax,
    layerWeights: { host: settings.hostCacheHitWeight, disk: settings.diskCacheHitWeight },
    guesses: {
      ttlWithoutEventsMs: settings.guessTtlWithoutEventsMs,
      ttlUntilEventsMs: settings.guessTtlUntilEventsMs === 0 ? undefined : settings.guessTtlUntilEventsMs,
      blocksMax: settings.guessBlocksMax,
    },
    selection: {
      mode: settings.routerMode,
      policy: settings.routerPolicy,
      custom: customSelection === undefined ? undefined : new CustomPolicy(customSelection),
      overlapWeight: settings.overlapWeight,
      overlapCredit: settings.overlapCredit,
      creditDecay: settings.creditDecay,
      activeRequestWeight: settings.activeRequestWeight,
      prefillMsPerToken: settings.prefillMsPerToken,
      attentionMsPerMillionPairs: settings.attentionMsPerMillionPairs,
      temperature: settings.temperature,
    },
    guard: { share: settings.guardShare },
    decisionsKept: settings.decisionsKept,
    receiptRowsMax: settings.decisionRowsKept,
    openMax: settings.openRequestsMax * DECISIONS_PER_REQUEST,
    overloadStatus: settings.overloadStatus,
    affinity: affinityOf(settings),
    tracking: {
      activeBlocks: settings.trackActiveBlocks,
      prefillTokens: settings.trackPrefillTokens,
    },
    trackerMsMax: TRACKER_MS_MAX,
  }
}

function affinityOf(settings: AffinityOfSettings): AffinitySettings | undefined {
  const { affinityTtlMs: ttlMs, affinityMode, affinityPrefixBlocks, affinitiesMax } = settings
  if (ttlMs === 0) return undefined
  return {
    ttlMs,
    isHard: affinityMode === 'hard',
    prefixBlocks: affinityPrefixBlocks,
    sessionsMax: affinitiesMax,
  }
}
