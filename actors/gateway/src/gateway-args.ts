/** Arguments of the gateway: limits, and the actors that a request passes through. */

import type { ActorRef } from '@homing/actor'
import type { ConsoleMessage } from '@homing/actors/console'
import type { DirectoryMessage } from '@homing/actors/directory'
import type { QueueMessage } from '@homing/actors/queue'
import type { RouterMessage } from '@homing/actors/router'
import type { NearTokenizerMessage, TokenizerMessage } from '@homing/actors/tokenizer'
import type { TrackerMessage } from '@homing/actors/tracker'
import {
  AFFINITY_HEADERS,
  type ModelAlias,
  type RelayRoute,
  type RouterSettings,
  readModelAlias,
  readRelayRoute,
  readTenantWeights,
  readTrustedHints,
  type TrustedHints,
} from '@homing/config'
import type { CommonRow, TlsArgs } from '@homing/http'
import type { ModelLabels } from '@homing/metrics'
import type { UnnamedTenants } from '@homing/queue'
import type { ClientKeysArgs } from './client-door.ts'
import type { ExchangeLimits } from './exchange-parts.ts'
import type { GatewaysMessage } from './messages.ts'
import type { OwnRoute } from './own-routes.ts'
import type { PickerArgs } from './picker-args.ts'
import type { DisaggSettings } from './prefill-pools.ts'
import type { TracingArgs } from './tracing.ts'

export interface Operators {
  readonly console: ActorRef<ConsoleMessage>
  readonly routes: readonly OwnRoute[]
}

/** What a gateway has that is on a thread of its own. */
export interface OwnThread {
  /** Reads short bodies there. */
  readonly nearTokenizer: ActorRef<NearTokenizerMessage>
  /** Longer bodies go to the tokenizer, without asking there; in bytes. */
  readonly nearBodyBytesMax: number
  /** Its row of what all gateways have taken. */
  readonly row: CommonRow
  readonly count: number
  /** Knows the others. */
  readonly keeper: ActorRef<GatewaysMessage>
  /** Certificates in PEM that are believed besides those of Node and of the system. */
  readonly engineCertificates: string | undefined
}

/** What the names count for that clients give themselves. */
export interface TenantArgs {
  readonly weights: ReadonlyMap<string, number>
  /** What tenants have that are not in `weights`, where that names any. */
  readonly unnamed: UnnamedTenants
  /** Tenants whose hints count. */
  readonly trusted: TrustedHints
}

export interface GatewayArgs {
  readonly host: string
  /** 0 picks a free port; `address` tells which. */
  readonly port: number
  /** Its certificate and key; default: plain HTTP. */
  readonly tls?: TlsArgs | undefined
  /** Where Envoys ask for workers; default: nowhere. */
  readonly picker?: PickerArgs | undefined
  /** Clients that may send requests; default: requests need no key. */
  readonly clientKeys?: ClientKeysArgs | undefined
  readonly bodyBytesMax: number
  /** Maximum bytes of all request bodies together. */
  readonly bodiesBytesMax: number
  /** Longest wait for the next bytes of a request body, in milliseconds. */
  readonly bodySilenceMsMax: number
  /** Longest time that an answer may wait for a client that takes none of it, in milliseconds. */
  readonly clientStallMsMax: number
  /** Longest time that a connection without a request is kept, in milliseconds; default: the transport's. */
  readonly keepAliveMsMax?: number
  /** Tabs of the page that may be open on its port. */
  readonly pageTabsMax: number
  /** Connections of clients at one time; default: no bound. */
  readonly connectionsMax?: number
  readonly openRequestsMax: number
  /** Requests for operator routes on this port; default: that of ViewRoom. */
  readonly openOperatorRequestsMax?: number
  /** Default: each tenant has the same share, and the hints of all count. */
  readonly tenants?: TenantArgs
  /** HTTP status of refused requests that waited; default: that of the error. */
  readonly overloadStatus?: number | undefined
  /**
   * Where the access log goes (`-`: standard output), and the share of requests that get a line, 0 … 1;
   * undefined: there is none.
   */
  readonly accessLog?: { readonly path: string; readonly sample: number } | undefined
  /** Where spans of requests go; undefined: requests are not traced. */
  readonly tracing?: TracingArgs | undefined
  /**
   * A request that a program has booked and not freed ends after this time without a sign of life, in
   * milliseconds; default RESERVATION_MS_MAX.
   */
  readonly reservationMsMax?: number
  /** Responses whose worker is remembered; 0: none. */
  readonly rememberedResponsesMax: number
  readonly exchangeLimits: ExchangeLimits
  /** Streams are asked for usage, for the audit of predictions. */
  readonly audit: boolean
  /** Engine routes to relay besides the built-in ones (relay-routes.ts); default: none. */
  readonly relayRoutes?: readonly RelayRoute[]
  /** False: it serves no API, and relays nothing; default true. */
  readonly hasFrontend?: boolean
  /** Origins whose pages may use the API from browsers, or '*' for all; default: none. */
  readonly corsOrigins?: readonly string[]
  /** Names that clients use for models; default: none. */
  readonly modelAliases?: readonly ModelAlias[]
  /** Headers that name the session of a request, in lower case; the first that is there counts. */
  readonly affinityHeaders: readonly string[]
  /** How long a worker that does not answer may still bring a model that none lists, in ms; default: 0. */
  readonly workerLoadingMsMax?: number
  /** Longest wait for the tokenizer, in milliseconds; a long prompt may need seconds. */
  readonly readMsMax: number
  /** Longest wait for the router, in milliseconds. */
  readonly askMsMax: number
  /** Next turns that are computed at a time for clients that ask for it; default 0: none. */
  readonly nextTurnsMax?: number
  /** Default MODEL_LABELS_DEFAULT. */
  readonly modelLabels?: ModelLabels
  readonly tokenizer: ActorRef<TokenizerMessage>
  /** It is on a thread of its own, beside others; undefined: it is alone, on main. */
  readonly own?: OwnThread | undefined
  /** Longest wait of a request for room, in milliseconds; 0: requests never wait. */
  readonly queueMsMax: number
  /**
   * Long prompts are sent in slices where the rule for long prompts holds and another tenant came within this
   * time, in milliseconds; default 0, never.
   */
  readonly slicesWithinMs?: number
  /** Prefill and decode on workers of their own; default: not enforced, and no prompt stays on decode. */
  readonly disagg?: DisaggSettings
  readonly queue: ActorRef<QueueMessage>
  readonly router: ActorRef<RouterMessage>
  readonly directory: ActorRef<DirectoryMessage>
  readonly tracker: ActorRef<TrackerMessage>
  /**
   * The operator routes and the actor that answers them; undefined: they have a port of their own.
   */
  readonly operators?: Operators | undefined
}

export type GatewaySettings = Pick<
  RouterSettings,
  | 'host'
  | 'port'
  | 'pickerPort'
  | 'pickerHealthPort'
  | 'pickerTls'
  | 'pickerFallbacks'
  | 'pickerConformance'
  | 'adminPort'
  | 'bodyBytesMax'
  | 'bodiesBytesMax'
  | 'bodyTimeoutMs'
  | 'clientStallTimeoutMs'
  | 'keepAliveTimeoutMs'
  | 'pageTabsMax'
  | 'connectionsMax'
  | 'gatewayThreads'
  | 'openRequestsMax'
  | 'openOperatorRequestsMax'
  | 'activeRequestExpiryMs'
  | 'rememberedResponsesMax'
  | 'accessLog'
  | 'accessLogSample'
  | 'otlpEndpoint'
  | 'otlpSample'
  | 'otlpContext'
  | 'otlpQueueSpans'
  | 'queueTimeoutMs'
  | 'prefillSlices'
  | 'enforceDisagg'
  | 'conditionalDisagg'
  | 'conditionalDisaggTokens'
  | 'conditionalDisaggShare'
  | 'disaggRule'
  | 'retries'
  | 'retryBudget'
  | 'migrationsMax'
  | 'migrationTokensMax'
  | 'migrationBytesMax'
  | 'hedgeAfterMs'
  | 'hedgeRule'
  | 'stallTimeoutMs'
  | 'silenceTimeoutMs'
  | 'requestTimeoutMs'
  | 'streamKeepAliveMs'
  | 'audit'
  | 'relayRoutes'
  | 'frontend'
  | 'corsOrigins'
  | 'metricsModelsMax'
  | 'nextTurnsMax'
  | 'metricsModelIdleMs'
  | 'modelAliases'
  | 'affinityHeaders'
  | 'tenantContentionMs'
  | 'tenantWeights'
  | 'unnamedTenants'
  | 'trustedHints'
  | 'overloadStatus'
  | 'workerLoadingMsMax'
>

const READ_MS_MAX = 60_000
/** As --active-request-expiry-secs. */
export const RESERVATION_MS_MAX = 300_000
const ASK_MS_MAX = 10_000

/**
 * `isQueueOn`: requests may wait for room. `operators` has no effect if the operator routes have a port of
 * their own. `hasKeys`: the router has a key of engines or operators, so its clients are not all trusted.
 */
export function gatewayArgsFromSettings(
  settings: GatewaySettings,
  parts: Pick<
    GatewayArgs,
    'tls' | 'clientKeys' | 'tokenizer' | 'queue' | 'router' | 'directory' | 'tracker' | 'own'
  > & {
    readonly operators: Operators
    readonly isQueueOn: boolean
    readonly hasKeys: boolean
  },
): GatewayArgs {
  const { isQueueOn, hasKeys, operators, ...refs } = parts
  const { accessLog: path, accessLogSample: sample } = settings
  const { conditionalDisaggTokens, conditionalDisaggShare } = settings
  const rule = { tokens: conditionalDisaggTokens, share: conditionalDisaggShare }
  return {
    ...refs,
    host: settings.host,
    port: settings.port,
    picker: pickerArgs(settings),
    bodyBytesMax: settings.bodyBytesMax,
    bodiesBytesMax: settings.bodiesBytesMax,
    bodySilenceMsMax: settings.bodyTimeoutMs,
    clientStallMsMax: settings.clientStallTimeoutMs,
    keepAliveMsMax: settings.keepAliveTimeoutMs,
    pageTabsMax: settings.pageTabsMax,
    connectionsMax: Math.ceil(settings.connectionsMax / settings.gatewayThreads),
    openRequestsMax: settings.openRequestsMax,
    openOperatorRequestsMax: settings.openOperatorRequestsMax,
    tenants: {
      weights: readTenantWeights(settings.tenantWeights),
      unnamed: settings.unnamedTenants,
      trusted: readTrustedHints(settings.trustedHints, hasKeys || settings.tenantWeights.length > 0),
    },
    overloadStatus: settings.overloadStatus,
    accessLog: path === undefined ? undefined : { path, sample },
    tracing: tracingArgs(settings),
    reservationMsMax: settings.activeRequestExpiryMs,
    rememberedResponsesMax: settings.rememberedResponsesMax,
    exchangeLimits: {
      retriesMax: settings.retries,
      retryShare: settings.retryBudget,
      migrationsMax: settings.migrationsMax,
      migrationTokensMax: settings.migrationTokensMax,
      migrationBytesMax: Math.ceil(settings.migrationBytesMax / settings.gatewayThreads),
      hedgeMsMin: settings.hedgeAfterMs,
      hedgeRule: settings.hedgeRule,
      stallMsMin: settings.stallTimeoutMs,
      silenceMsMax: settings.silenceTimeoutMs,
      requestMsMax: settings.requestTimeoutMs,
      streamKeepAliveMs: settings.streamKeepAliveMs,
    },
    audit: settings.audit,
    relayRoutes: settings.relayRoutes.map(readRelayRoute),
    hasFrontend: settings.frontend,
    corsOrigins: settings.corsOrigins,
    modelAliases: settings.modelAliases.map(readModelAlias),
    affinityHeaders: (settings.affinityHeaders.length > 0 ? settings.affinityHeaders : AFFINITY_HEADERS).map(
      name => name.toLowerCase(),
    ),
    workerLoadingMsMax: settings.workerLoadingMsMax,
    readMsMax: READ_MS_MAX,
    askMsMax: ASK_MS_MAX,
    nextTurnsMax: Math.ceil(settings.nextTurnsMax / (refs.own?.count ?? 1)),
    modelLabels: { modelsMax: settings.metricsModelsMax, modelIdleMs: settings.metricsModelIdleMs },
    slicesWithinMs: settings.prefillSlices === 'auto' ? settings.tenantContentionMs : 0,
    disagg: {
      isEnforced: settings.enforceDisagg,
      stay: settings.conditionalDisagg ? rule : settings.disaggRule === 'auto' ? 'auto' : undefined,
    },
    queueMsMax: isQueueOn ? settings.queueTimeoutMs : 0,
    operators: settings.adminPort === undefined ? operators : undefined,
  }
}

function pickerArgs(settings: GatewaySettings): PickerArgs | undefined {
  const { pickerPort: port, pickerHealthPort: healthPort, pickerTls: tls } = settings
  const { pickerFallbacks: fallbacks, pickerConformance: isConformance } = settings
  return port === undefined ? undefined : { port, healthPort, tls, fallbacks, isConformance }
}

function tracingArgs({
  otlpEndpoint: endpoint,
  otlpSample: sample,
  otlpContext: context,
  otlpQueueSpans: queueMax,
}: GatewaySettings): TracingArgs | undefined {
  return endpoint === undefined ? undefined : { endpoint, sample, context, queueMax }
}
