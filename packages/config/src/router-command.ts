/**
 * The settings of `homing router`. Each of them has an effect; settings of later versions are
 * not here: a user would set them in vain.
 *
 * Source   names and older spellings: the options and `DYN_*` variables that operators of KV-aware
 *          routers know. Defaults are ours where theirs do not suit a standalone router.
 */

import { brokerSettings } from './broker-settings.ts'
import type { Command, RuleFacts, SettingDescriptor, SettingsOf } from './descriptor.ts'
import { foreignRouterOptions } from './foreign-options.ts'
import { accessSettings } from './router/access-settings.ts'
import { disaggSettings } from './router/disagg-settings.ts'
import { discoverySettings, faultOfDiscovery, namesWorkers } from './router/discovery-settings.ts'
import { eventSettings } from './router/event-settings.ts'
import { labelSettings } from './router/label-settings.ts'
import { listeningSettings } from './router/listening-settings.ts'
import { outputSettings } from './router/output-settings.ts'
import { overloadSettings } from './router/overload-settings.ts'
import { pickerSettings } from './router/picker-settings.ts'
import { faultOfIdleWeights, faultOfTrustedHints, queueSettings } from './router/queue-settings.ts'
import { replicaSettings } from './router/replica-settings.ts'
import { requestSettings } from './router/request-settings.ts'
import { routingSettings } from './router/routing-settings.ts'
import { tracingSettings } from './router/tracing-settings.ts'
import { workerSettings } from './router/worker-settings.ts'
import { faultOfBodies, faultOfLabels, faultOfShards, indexBytesMin } from './shared-settings.ts'
import { tcpSettingGiven } from './tcp-settings.ts'

const routerSettings = [
  ...listeningSettings,
  ...accessSettings,
  ...workerSettings,
  ...discoverySettings,
  ...routingSettings,
  ...queueSettings,
  ...overloadSettings,
  ...disaggSettings,
  ...pickerSettings,
  ...eventSettings,
  ...labelSettings,
  ...replicaSettings,
  ...brokerSettings,
  ...requestSettings,
  ...outputSettings,
  ...tracingSettings,
] as const satisfies readonly SettingDescriptor[]

/** The settings of `homing router` as its actors are given them: times in milliseconds, sizes in bytes. */
export type RouterSettings = SettingsOf<typeof routerSettings>

/** Settings that tune the linear rule. */
const LINEAR_ONLY = ['overlapWeight', 'temperature', 'activeRequestWeight'] as const

/** Settings of sessions: they need the one that switches affinity on. */
const SESSION_ONLY = ['affinityMode', 'affinityPrefixBlocks', 'affinitiesMax'] as const

/** Settings of the demo fleet. */
const DEMO_ONLY = ['demoEngines', 'demoSpeed', 'demoDisagg', 'demoLoad'] as const

/** `homing router`. */
export const routerCommand: Command<typeof routerSettings> = {
  name: 'router',
  summary:
    'Routes OpenAI requests to the engine that has most of their prompt cached, weighed against its load.',
  settings: routerSettings,
  examples: [
    {
      does: 'A demo fleet of four simulated engines behind port 8000, with some load, to be seen at http://localhost:8000/:',
      line: 'homing router --demo-load',
    },
    {
      does: 'The same with two engines that compute prompts and two that answer:',
      line: 'homing router --demo-disagg --demo-load',
    },
    {
      does: 'Two engines of your own; they report their event and replay ports:',
      line: 'homing router --worker http://10.0.0.1:8001 --worker http://10.0.0.2:8001 --tokenizer ./model',
    },
  ],
  implied: facts => {
    const settings = {
      ...facts.settings,
      ...(linearBy(facts) === undefined ? {} : { routerPolicy: 'linear' as const }),
    }
    const { routerPolicy } = settings
    return {
      routerPolicy,
      ...(ordersIdleQueue(settings) ? { queueThreshold: 'auto' } : {}),
      ...withoutIndex(facts),
    }
  },
  rules: [
    ({ settings, isGiven }) =>
      settings.affinityTtlMs === 0 && SESSION_ONLY.some(isGiven)
        ? '--router-session-affinity-mode, --router-session-prefix-blocks and --router-session-max have no effect without --router-session-affinity-ttl-secs: give it, or leave them out'
        : undefined,
    ({ settings: { replicaSync, replicaEndpoint, replicas } }) =>
      !replicaSync && (replicaEndpoint !== undefined || replicas.length > 0)
        ? '--router-replica-endpoint and --router-replica-peer have no effect without --router-replica-sync: give it, or leave them out'
        : undefined,
    ({ settings: { replicaEndpoint, replicas } }) =>
      replicaEndpoint === undefined && replicas.length > 0
        ? '--router-replica-endpoint is missing: without it, the other routers of --router-replica-peer cannot hear this one'
        : undefined,
    ({ settings: { discovery, replicaEndpoint, replicas, replicaHost } }) =>
      replicaHost !== undefined &&
      (discovery !== 'etcd' || replicaEndpoint === undefined || replicas.length > 0)
        ? '--router-replica-host has no effect without --discovery-backend etcd and --router-replica-endpoint, nor with --router-replica-peer: give those, or leave it out'
        : undefined,
    ({ settings }) =>
      settings.trackOutputBlocks && !settings.trackActiveBlocks
        ? '--router-track-output-blocks needs --router-track-active-blocks: leave one of them out'
        : undefined,
    ({ settings }) => {
      const threshold = prefillThresholdOf(settings)
      return threshold !== undefined && !settings.trackPrefillTokens
        ? `${threshold} goes by prefill tokens, which --no-router-track-prefill-tokens does not count: leave one of them out`
        : undefined
    },
    ({ settings }) =>
      settings.activeDecodeBlocksThreshold !== undefined && !settings.trackActiveBlocks
        ? '--active-decode-blocks-threshold goes by active blocks, which --no-router-track-active-blocks does not count: leave one of them out'
        : undefined,
    ({ settings, isGiven }) =>
      settings.overlapWeight > 0 && isGiven('overlapWeight') && settings.routerPolicy === 'auto'
        ? '--kv-overlap-score-weight has no effect on --router-policy auto: leave it out, or use linear'
        : undefined,
    ({ settings, isGiven }) =>
      namesWorkers(settings) && DEMO_ONLY.some(isGiven)
        ? '--demo-engines, --demo-speed, --demo-disagg and --demo-load have no effect when workers are named: leave them out, or leave out --worker'
        : undefined,
    faultOfDiscovery,
    ({ settings: { demoDisagg, demoEngines } }) =>
      demoDisagg && demoEngines < 2
        ? `--demo-disagg needs an engine of either kind, and --demo-engines is ${demoEngines}: use 2 or more, or leave out --demo-disagg`
        : undefined,
    ({ settings: { disaggRule, routerPolicy, routerMode, selectionModule } }) =>
      disaggRule === 'auto' &&
      (routerPolicy !== 'auto' || routerMode !== 'kv' || selectionModule !== undefined)
        ? '--disagg-rule auto needs --router-mode kv and --router-policy auto, which knows what engines take: leave out one of them'
        : undefined,
    ({ settings: { disaggRule, conditionalDisagg } }) =>
      disaggRule === 'auto' && conditionalDisagg
        ? '--router-conditional-disagg goes by its own thresholds, and --disagg-rule auto by none: leave one of them out'
        : undefined,
    ({ settings, isGiven }) =>
      settings.requestPlane === 'http' && isGiven('requestWindowBytes')
        ? '--request-window-bytes has no effect without --request-plane nats or tcp: give one of them, or leave it out'
        : undefined,
    ({ settings: { requestPlane }, isGiven }) => {
      const given = requestPlane === 'tcp' ? undefined : tcpSettingGiven(isGiven)
      return given && `${given} has no effect without --request-plane tcp: give it, or leave it out`
    },
    ({ settings: { requestPlane, gatewayThreads } }) =>
      requestPlane === 'nats' && gatewayThreads > 1
        ? `--gateway-threads ${gatewayThreads} is not for --request-plane nats, whose connection is on the main thread: use 1, or leave it out`
        : undefined,
    faultOfNoFrontend,
    faultOfShardSize,
    faultOfEstimate,
    ({ settings }) =>
      settings.activeRequestWeight > 0 && settings.routerPolicy !== 'linear'
        ? `--router-decode-active-request-weight has no effect on --router-policy ${settings.routerPolicy}: leave it out, or use linear`
        : undefined,
    faultOfGuardShare,
    ({ isGiven }) =>
      isGiven('selectionModule') && isGiven('routerPolicy')
        ? '--selection-module takes the place of --router-policy: leave one of them out'
        : undefined,
    ({ settings: { selectionModule, routerMode } }) =>
      selectionModule !== undefined && routerMode !== 'kv'
        ? `--selection-module has no effect in --router-mode ${routerMode}: use mode kv, or leave it out`
        : undefined,
    ({ settings: { tenantWeights, queueThreshold, policyClassFile } }) =>
      faultOfIdleWeights(tenantWeights, queueThreshold, policyClassFile !== undefined),
    ({ settings: { trustedHints } }) => faultOfTrustedHints(trustedHints),
    ({ settings: { port, adminPort } }) =>
      adminPort === port && port > 0
        ? `--admin-port ${adminPort} is the same as --port: choose another, or leave it out`
        : undefined,
    faultOfMetricsPort,
    faultOfPicker,
    ({ settings: { tlsCertificateFile, tlsKeyFile } }) =>
      (tlsCertificateFile === undefined) !== (tlsKeyFile === undefined)
        ? `--tls-cert and --tls-key go together: give ${tlsKeyFile === undefined ? '--tls-key' : '--tls-cert'}, too, or leave both out`
        : undefined,
    ({ settings: { tlsCertificateFile, clientKeysFile, demoLoad } }) =>
      demoLoad && (tlsCertificateFile !== undefined || clientKeysFile !== undefined)
        ? '--demo-load speaks plain HTTP to the router, without a key: leave it out, or --tls-cert, --tls-key and --client-keys-file'
        : undefined,
    ({ settings }) =>
      settings.guessTtlUntilEventsMs > 0 && !settings.kvEvents
        ? '--router-predicted-ttl-secs covers the time until KV events come, but --no-kv-events disables them: use --router-ttl-secs'
        : undefined,
    faultOfBodies,
  ],
  remarks: [remarkOfLinear, remarkOfOrder, remarkOfStream, remarkOfKeys],
  foreign: foreignRouterOptions,
}

/**
 * The setting by which the linear rule is meant though no policy is given; undefined: there is none. A weight
 * is one whatever it is; of the others, 0 is what every policy does without them.
 */
export function linearBy({
  settings,
  isGiven,
}: RuleFacts<RouterSettings>): (typeof LINEAR_ONLY)[number] | undefined {
  if (isGiven('routerPolicy')) return undefined
  return LINEAR_ONLY.find(key => isGiven(key) && (key === 'overlapWeight' || settings[key] > 0))
}

/** Where caches are ignored, nothing is in the index: one thread, and the least memory. */
function withoutIndex({
  settings: { overlapWeight, workerSlotsMax },
  isGiven,
}: RuleFacts<RouterSettings>): Partial<RouterSettings> {
  if (overlapWeight > 0 || isGiven('eventThreads') || isGiven('indexBytes')) return {}
  return { eventThreads: 1, indexBytes: indexBytesMin(workerSlotsMax) }
}

/** An order was given, and without a threshold nothing would ever be ordered. */
function ordersIdleQueue(settings: RouterSettings): boolean {
  return (
    settings.queueOrder !== 'auto' &&
    settings.queueThreshold === undefined &&
    settings.trackPrefillTokens &&
    !isPolicyAuto(settings)
  )
}

function isPolicyAuto({ routerMode, routerPolicy, selectionModule }: RouterSettings): boolean {
  return routerPolicy === 'auto' && routerMode === 'kv' && selectionModule === undefined
}

function remarkOfLinear(facts: RuleFacts<RouterSettings>): string | undefined {
  const { routerMode, selectionModule, queueThreshold, tenantWeights, policyClassFile } = facts.settings
  const cause = linearBy(facts)
  if (cause === undefined || routerMode !== 'kv' || selectionModule !== undefined) return undefined
  const option = `--${routerSettings.find(({ key }) => key === cause)!.name}`
  const waits = queueThreshold !== undefined || tenantWeights.length > 0 || policyClassFile !== undefined
  const queue = waits
    ? ''
    : ', and no request waits in the router (--router-queue-threshold 2 would hold some)'
  return `${option} is given without a policy, so --router-policy is linear${queue}; name a policy to choose another`
}

function remarkOfOrder({ settings }: RuleFacts<RouterSettings>): string | undefined {
  const { queueOrder, queueThreshold, policyClassFile, trackPrefillTokens } = settings
  if (queueOrder === 'auto' || policyClassFile !== undefined) return undefined
  const why =
    queueThreshold === 'none'
      ? '--router-queue-threshold none lets no request wait'
      : queueThreshold === undefined && !trackPrefillTokens && !isPolicyAuto(settings)
        ? 'no request waits without prefill tokens, which --no-router-track-prefill-tokens does not count'
        : undefined
  return why && `--router-queue-policy ${queueOrder} has no effect: ${why}`
}

function faultOfPicker({ settings, isGiven }: RuleFacts<RouterSettings>): string | undefined {
  const {
    pickerPort,
    pickerHealthPort,
    pickerTls,
    tlsCertificateFile,
    port,
    adminPort,
    metricsPort,
    gatewayThreads,
  } = settings
  if (pickerPort === undefined) {
    const idle = pickerSettings.find(({ key }) => key !== 'pickerPort' && isGiven(key))
    return idle && `--${idle.name} has no effect without --picker-port: give it, or leave --${idle.name} out`
  }
  if (pickerTls === 'files' && tlsCertificateFile === undefined)
    return '--picker-tls files needs --tls-cert and --tls-key: give them, or use self-signed'
  if (gatewayThreads > 1 && (pickerPort === 0 || pickerHealthPort === 0))
    return `--gateway-threads ${gatewayThreads} share one port, which --picker-port and --picker-health-port must name: 0 is none`
  const names = [
    ['--port', port],
    ['--admin-port', adminPort],
    ['--metrics-port', metricsPort],
    ['--picker-port', pickerPort],
    ['--picker-health-port', pickerHealthPort],
  ] as const
  for (const [name, number] of names.slice(3))
    for (const [other, taken] of names)
      if (name !== other && number === taken && number !== undefined && number > 0)
        return `${name} ${number} is the same as ${other}: choose another`
  return undefined
}

function faultOfMetricsPort({ settings }: RuleFacts<RouterSettings>): string | undefined {
  const { port, adminPort, metricsPort } = settings
  if (metricsPort === undefined || metricsPort === 0) return undefined
  for (const [other, taken] of [
    ['--port', port],
    ['--admin-port', adminPort],
  ] as const)
    if (metricsPort === taken)
      return `--metrics-port ${metricsPort} is the same as ${other}: choose another, or leave it out`
  return undefined
}

/** Nothing passes through a router without it. */
export function faultOfNoFrontend({ settings, isGiven }: RuleFacts<RouterSettings>): string | undefined {
  if (settings.frontend) return undefined
  if (isGiven('relayRoutes'))
    return '--relay-route has no effect with --no-frontend, which relays nothing: leave one of them out'
  return !namesWorkers(settings)
    ? '--no-frontend needs the workers that programs send their requests to: name them with --worker'
    : undefined
}

function faultOfShardSize({ settings }: RuleFacts<RouterSettings>): string | undefined {
  const { indexBytes, labelBytes, workerSlotsMax, eventThreads: threads } = settings
  const threadsOption = '--router-event-threads'
  return (
    faultOfShards({ indexBytes, workerSlotsMax, threads, threadsOption }) ??
    faultOfLabels(labelBytes, threads, threadsOption)
  )
}

function faultOfGuardShare({ settings, isGiven }: RuleFacts<RouterSettings>): string | undefined {
  if (!isGiven('guardShare')) return undefined
  const { routerMode, routerPolicy, selectionModule } = settings
  const where =
    routerMode !== 'kv'
      ? `in --router-mode ${routerMode}`
      : selectionModule !== undefined
        ? 'beside --selection-module'
        : routerPolicy !== 'auto'
          ? `on --router-policy ${routerPolicy}`
          : undefined
  return where && `--router-guard-share has no effect ${where}: leave it out, or use policy auto in mode kv`
}

function faultOfEstimate({ settings, isGiven }: RuleFacts<RouterSettings>): string | undefined {
  const { routerPolicy, prefillMsPerToken, attentionMsPerMillionPairs } = settings
  if (routerPolicy !== 'est-ttft') {
    return isGiven('prefillMsPerToken') || isGiven('attentionMsPerMillionPairs')
      ? `--est-ttft-ms-per-token and --est-ttft-attention-ms-per-million-pairs have no effect on --router-policy ${routerPolicy}: leave them out, or use est-ttft`
      : undefined
  }
  return prefillMsPerToken === 0 && attentionMsPerMillionPairs === 0
    ? '--est-ttft-ms-per-token and --est-ttft-attention-ms-per-million-pairs are both 0, so all workers would cost the same: give the figures of your engines'
    : undefined
}

/**
 * The option that goes by prefill tokens, if there is one. What policy auto itself calls a step it learns in
 * another way.
 */
function prefillThresholdOf(settings: RouterSettings): string | undefined {
  const { queueThreshold } = settings
  const isAuto = isPolicyAuto(settings)
  const isOwn = queueThreshold === 'auto' && isAuto
  const isGiven = queueThreshold !== undefined && queueThreshold !== 'none'
  if (isGiven && !isOwn) return '--router-queue-threshold'
  const isForWeights = queueThreshold === undefined && settings.tenantWeights.length > 0
  if (isForWeights && !isAuto) return 'the queue of --router-tenant-weight'
  if (settings.activePrefillTokensThreshold !== undefined) return '--active-prefill-tokens-threshold'
  return settings.activePrefillTokensThresholdFraction === undefined
    ? undefined
    : '--active-prefill-tokens-threshold-frac'
}

/** Both are known from routers that use a broker without being told so: they stop nothing here. */
function remarkOfStream({
  settings: { durableKvEvents, resetStates, eventPlane, workers },
}: RuleFacts<RouterSettings>): string | undefined {
  if (resetStates && !durableKvEvents)
    return '--router-reset-states has no effect without --router-durable-kv-events: no events are kept at a broker'
  const isAtBroker = eventPlane === 'nats' || workers.some(url => url.includes('nats='))
  return durableKvEvents && !isAtBroker
    ? '--router-durable-kv-events has an effect only on workers whose events come over NATS: by --event-plane nats, nats= in their URLs, or engines that report a nats:// endpoint'
    : undefined
}

function remarkOfKeys({
  settings: { clientKeysFile, adminPort },
}: RuleFacts<RouterSettings>): string | undefined {
  return clientKeysFile !== undefined && adminPort === undefined
    ? '--client-keys-file does not guard the operator routes, which are on --port, too: give --admin-port, and keep clients away from that one'
    : undefined
}
