/**
 * The settings of `homing select`.
 *
 * How a worker is chosen is set by the router's own options and variables, with the router's defaults, ranges
 * and rules: the service must choose as a router with the same options would.
 */

import { completeSettings } from './complete-settings.ts'
import type { Command, RuleFacts, SettingDescriptor, SettingsOf } from './descriptor.ts'
import { eventSettings } from './router/event-settings.ts'
import { labelSettings } from './router/label-settings.ts'
import { overloadSettings } from './router/overload-settings.ts'
import { routingSettings } from './router/routing-settings.ts'
import { linearBy, type RouterSettings, routerCommand } from './router-command.ts'
import {
  bookingSettings,
  faultOfLonelyPeers,
  listeningSettings,
  loggingSettings,
  peerSettings,
} from './service-settings.ts'
import { shared } from './shared-settings.ts'
import { HOUR_MS, KIB, MIB, SECOND_MS } from './units.ts'

const NAMES = {
  variables: 'HOMING_SELECT',
  noun: 'selection service',
  port: 8092,
  routes: '/select, /select_and_reserve, /reservations, /potential_loads and /overlap_scores',
  held: 'reserved',
} as const

const ROUTING = [
  'routerPolicy',
  'guardShare',
  'selectionModule',
  'overlapWeight',
  'overlapCredit',
  'creditDecay',
  'activeRequestWeight',
  'prefillMsPerToken',
  'attentionMsPerMillionPairs',
  'temperature',
  'trackActiveBlocks',
  'trackPrefillTokens',
  'assumeKvReuse',
  'affinityTtlMs',
  'affinityMode',
  'affinityPrefixBlocks',
  'affinitiesMax',
] as const

const INDEX = [
  'guessTtlWithoutEventsMs',
  'guessBlocksMax',
  'pruneTargetRatio',
  'guessTtlUntilEventsMs',
  'hostCacheHitWeight',
  'diskCacheHitWeight',
  'eventThreads',
  'indexBytes',
  'replayTimeoutMs',
] as const

const LABELS = [
  'labelBytes',
  'labelRecordsPerBlock',
  'labelWorkersShare',
  'moeHitWeight',
  'pooledHitWeight',
  'pooledMigrationWeight',
] as const

const OVERLOAD = [
  'activeDecodeBlocksThreshold',
  'activePrefillTokensThreshold',
  'activePrefillTokensThresholdFraction',
] as const

const HELP: Readonly<Record<string, string>> = {
  affinityTtlMs:
    'Requests of a session (session_id in the body) go where the last one went, until it has been idle for this time. It is needed only for what engines keep beside their prefix cache.',
  activeDecodeBlocksThreshold:
    'A worker takes no more requests while more than this part of its KV cache (total_kv_blocks) is in use by reservations, on all its ranks. If that is so of all workers that could take a request, it is answered with 429.',
  activePrefillTokensThreshold:
    'The same, while more prefill tokens than this are under way at a worker, on all its ranks.',
  activePrefillTokensThresholdFraction:
    'The same, while more prefill tokens are under way than this many times its max_num_batched_tokens.',
}

const selectSettings = [
  ...listeningSettings(NAMES),
  {
    ...shared.workerSlotsMax,
    unit: 'ranks',
    env: 'HOMING_SELECT_WORKER_SLOTS_MAX',
    help: 'Most ranks of workers that may be there at one time, over all models and groups, incomplete workers included. A worker that finds no room is answered with 503.',
  },
  ...picked(routingSettings, ROUTING),
  ...picked(overloadSettings, OVERLOAD),
  ...picked(eventSettings, INDEX),
  ...picked(labelSettings, LABELS),
  ...bookingSettings(NAMES),
  {
    key: 'selectionTtlMs',
    name: 'selection-ttl',
    group: 'Requests',
    kind: 'duration',
    default: 120 * SECOND_MS,
    min: SECOND_MS,
    max: 24 * HOUR_MS,
    env: 'HOMING_SELECT_SELECTION_TTL',
    help: 'How long what POST /select answered to a request with a selection_id can be reserved by that id alone.',
  },
  {
    key: 'selectionsMax',
    name: 'selections-max',
    group: 'Requests',
    kind: 'integer',
    default: 4096,
    min: 1,
    max: 1_000_000,
    unit: 'selections',
    env: 'HOMING_SELECT_SELECTIONS_MAX',
    help: 'Most such answers that are kept at one time; of more, the oldest are forgotten.',
  },
  {
    key: 'selectionBytesMax',
    name: 'selection-bytes',
    group: 'Requests',
    kind: 'size',
    default: 256 * MIB,
    min: 64 * KIB,
    max: 64 * 1024 * MIB,
    env: 'HOMING_SELECT_SELECTION_BYTES',
    help: 'Most memory of such answers, with the hashes of their prompts.',
  },
  ...peerSettings(NAMES),
  ...loggingSettings(NAMES),
] as const satisfies readonly SettingDescriptor[]

/** The settings of `homing select`: times in milliseconds, sizes in bytes. */
export type SelectSettings = SettingsOf<typeof selectSettings>

const KEYS: ReadonlySet<string> = new Set(selectSettings.map(({ key }) => key))

/** `homing select`. */
export const selectCommand: Command<typeof selectSettings> = {
  name: 'select',
  summary:
    'Runs the choice of workers alone, over HTTP: it follows their KV events, knows their load from what callers reserve, and answers which worker a router would choose.',
  settings: selectSettings,
  examples: [
    {
      does: 'A selection service on port 8092; workers are added with POST /workers:',
      line: 'homing select',
    },
    {
      does: 'One that refuses requests with 429 while every worker has more than 16,384 prompt tokens to compute:',
      line: 'homing select --active-prefill-tokens-threshold 16384',
    },
  ],
  implied(facts) {
    const { routerPolicy, eventThreads, indexBytes } = {
      ...facts.settings,
      ...routerCommand.implied?.(routerFacts(facts)),
    }
    return { routerPolicy, eventThreads, indexBytes }
  },
  rules: [
    faultOfLonelyPeers,
    ...(routerCommand.rules ?? []).map(
      rule => (facts: RuleFacts<SelectSettings>) => rule(routerFacts(facts)),
    ),
  ],
  remarks: [remarkOfLinear],
}

/** The settings of a router that chooses as this service does; what it does not have is at its default. */
export function routerSettingsOfSelect(settings: SelectSettings): RouterSettings {
  // The service is a replica in its own way.
  const { replicaEndpoint: _endpoint, replicas: _replicas, ...others } = settings
  return { ...completeSettings(routerCommand, {}), ...others }
}

function routerFacts({ settings, isGiven }: RuleFacts<SelectSettings>): RuleFacts<RouterSettings> {
  return {
    settings: routerSettingsOfSelect(settings),
    isGiven: key => KEYS.has(key) && isGiven(key as keyof SelectSettings),
  }
}

function remarkOfLinear(facts: RuleFacts<SelectSettings>): string | undefined {
  const cause = linearBy(routerFacts(facts))
  if (cause === undefined || facts.settings.selectionModule !== undefined) return undefined
  const { name } = selectSettings.find(({ key }) => key === cause)!
  return `--${name} is given without a policy, so --router-policy is linear; name a policy to choose another`
}

/** Settings of the router, in its order. */
function picked<const D extends SettingDescriptor, const K extends D['key']>(
  settings: readonly D[],
  keys: readonly K[],
): readonly Extract<D, { readonly key: K }>[] {
  return settings
    .filter(({ key }) => (keys as readonly string[]).includes(key))
    .map(setting => ({ ...setting, help: HELP[setting.key] ?? setting.help })) as never
}
