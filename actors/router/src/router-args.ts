/** Router args: what a router is given at start. */

import type { ActorRef } from '@homing/actor'
import type { DecisionLogMessage, SettledMessage } from '@homing/actors/decision-log'
import type {
  AuditMessage,
  ComputedMessage,
  DirectoryMessage,
  PromptsMessage,
} from '@homing/actors/directory'
import type { IndexerMessage, RoutedMessage } from '@homing/actors/indexer'
import type { TrackerMessage } from '@homing/actors/tracker'
import type { RouterSettings } from '@homing/config'
import type { ShardMemory } from '@homing/index'
import type {
  AffinitySettings,
  LabelWeights,
  LayerWeights,
  TrackingSettings,
  UnlistedModels,
} from '@homing/placement'
import {
  CustomPolicy,
  type CustomSelection,
  type GuardSettings,
  type SelectionSettings,
} from '@homing/selection'
import type { RouterKeeperMessage } from './messages.ts'

export interface RouterArgs {
  readonly tracker: ActorRef<TrackerMessage>
  readonly directory: ActorRef<
    | AuditMessage
    | ComputedMessage
    | PromptsMessage
    | Extract<DirectoryMessage, { readonly type: 'subscribe' }>
  >
  /** Undefined: no decision log is written. */
  readonly decisionLog?: ActorRef<DecisionLogMessage> | undefined
  /** Is told of every request that has ended, as the decision log is; undefined: requests are not kept. */
  readonly whatIf?: ActorRef<SettledMessage> | undefined
  /** One per index shard: its door (index service) or its memory. */
  readonly indexMemories: readonly ShardMemory[]
  /** By shard; an indexer tells where the memory of its shard is. */
  readonly indexers: readonly ActorRef<IndexerMessage | RoutedMessage>[]
  readonly workerSlotsMax: number
  readonly layerWeights: LayerWeights
  /** Default: labels count for nothing. */
  readonly labelWeights?: LabelWeights | undefined
  readonly guesses: GuessSettings
  readonly selection: SelectionSettings
  readonly guard: GuardSettings
  readonly decisionsKept: number
  /** Maximum candidates and excluded workers in all receipts together. */
  readonly receiptRowsMax: number
  /** Maximum decisions that are not settled. */
  readonly openMax: number
  /** HTTP status of requests for which all workers are busy; default: that of the error. */
  readonly overloadStatus?: number | undefined
  /** Undefined: requests of a session go by cost like any others. */
  readonly affinity?: AffinitySettings | undefined
  /** What a model may be that no worker lists; undefined: it is not known. */
  readonly unlisted?: Omit<UnlistedModels, 'wallMs'> | undefined
  /** What the tracker counts; default: everything that thresholds need. */
  readonly tracking?: Pick<TrackingSettings, 'activeBlocks' | 'prefillTokens'>
  /** Keeps what the guard knows over restarts of the router; undefined: a restart forgets it. */
  readonly keeper?: ActorRef<RouterKeeperMessage> | undefined
  /** Longest wait for the tracker, in milliseconds. */
  readonly trackerMsMax: number
}

/** Guesses: blocks count as held by a worker because a prompt was sent there. */
export interface GuessSettings {
  /** Lifetime of a guess without KV events, in milliseconds. */
  readonly ttlWithoutEventsMs: number
  /** Lifetime of a guess with KV events, until they come, in milliseconds; undefined: no such guesses. */
  readonly ttlUntilEventsMs: number | undefined
  /** Maximum guessed blocks of all keys, and so of each; of one, no more than its engine is known to hold. */
  readonly blocksMax: number
}

type SettingsOfRouter = AffinityOfSettings &
  Pick<
    RouterSettings,
    | 'workerSlotsMax'
    | 'hostCacheHitWeight'
    | 'diskCacheHitWeight'
    | 'moeHitWeight'
    | 'pooledHitWeight'
    | 'pooledMigrationWeight'
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
    | 'unlistedAdaptersOf'
    | 'workerLoadingMsMax'
  >

type AffinityOfSettings = Pick<
  RouterSettings,
  'affinityTtlMs' | 'affinityMode' | 'affinityPrefixBlocks' | 'affinitiesMax'
>

const TRACKER_MS_MAX = 10_000
/** A request that is placed again has a second decision before the first one is settled. */
const DECISIONS_PER_REQUEST = 2

/** `customSelection`: replaces the policy; undefined: the policy selects. */
export function routerArgsFromSettings(
  settings: SettingsOfRouter,
  parts: Pick<
    RouterArgs,
    'tracker' | 'directory' | 'decisionLog' | 'whatIf' | 'indexMemories' | 'indexers' | 'keeper'
  > & { readonly customSelection: CustomSelection | undefined },
): RouterArgs {
  const { customSelection, ...refs } = parts
  return {
    ...refs,
    workerSlotsMax: settings.workerSlotsMax,
    layerWeights: { host: settings.hostCacheHitWeight, disk: settings.diskCacheHitWeight },
    labelWeights: {
      moe: settings.moeHitWeight,
      pooled: settings.pooledHitWeight,
      migration: settings.pooledMigrationWeight,
    },
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
    unlisted: { adapterBase: settings.unlistedAdaptersOf, loadingMsMax: settings.workerLoadingMsMax },
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
