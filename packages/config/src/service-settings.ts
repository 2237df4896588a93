/** The settings of HTTP and logs of a service of short requests, under its own variables. */

import type { RuleFacts, SettingDescriptor } from './descriptor.ts'
import { faultOfOther, faultOfOwnEndpoint } from './router/replica-settings.ts'
import { shared } from './shared-settings.ts'
import { HOUR_MS, MIB, SECOND_MS } from './units.ts'

export interface ServiceNames {
  /** Begins its variables: 'HOMING_SLOTS'. */
  readonly variables: string
  /** What it is called in sentences: 'slot tracker'. */
  readonly noun: string
  readonly port: number
  /** The routes that --max-open-requests is for. */
  readonly routes: string
  /** How a request comes to be held: 'added'. */
  readonly held?: string
}

/** How many requests are held, and how long. */
export function bookingSettings({ variables, held = 'added' }: ServiceNames) {
  return [
    {
      key: 'activeRequestsMax',
      name: 'max-active-requests',
      group: 'Requests',
      kind: 'integer',
      default: 65_536,
      min: 1,
      max: 10_000_000,
      unit: 'requests',
      env: `${variables}_MAX_ACTIVE_REQUESTS`,
      help: `Most requests that are held at one time: ${held} and not freed, those that replicas hold included. A further one is answered with 503.`,
    },
    {
      key: 'activeBlocksMax',
      name: 'max-active-blocks',
      group: 'Requests',
      kind: 'integer',
      default: 4_194_304,
      min: 1,
      max: 100_000_000,
      unit: 'blocks',
      env: `${variables}_MAX_ACTIVE_BLOCKS`,
      help: `Most blocks of the requests that were ${held} here; blocks that requests of one rank have in common count once. A request whose blocks may find no room is answered with 503. A block takes about 18 bytes.`,
    },
    {
      key: 'activeRequestExpiryMs',
      name: 'active-request-expiry-secs',
      group: 'Requests',
      kind: 'duration',
      default: 300 * SECOND_MS,
      min: SECOND_MS,
      max: 24 * HOUR_MS,
      aliases: ['active-request-expiry'],
      env: `${variables}_ACTIVE_REQUEST_EXPIRY_SECS`,
      envAliases: [{ name: 'DYN_ROUTER_ACTIVE_REQUEST_EXPIRY_SECS' }],
      help: `A request that is not freed is freed by itself this long after it was ${held}, or after its prefill was complete. Longer than the longest answer.`,
    },
  ] as const satisfies readonly SettingDescriptor[]
}

export function listeningSettings({ variables, noun, port, routes }: ServiceNames) {
  return [
    {
      ...shared.host,
      env: `${variables}_HOST`,
      help: 'Address to listen on. 0.0.0.0 is every interface of the machine; 127.0.0.1 accepts connections from this machine only. There is no authentication.',
    },
    {
      ...shared.hostNames,
      env: `${variables}_HOST_NAMES`,
      help: `A further name under which this ${noun} is called by browsers, or through a proxy on this machine. Such a request for a name that is not known is refused with 403, because a page of another site may have its own name resolve to this machine. Programs on other machines may use any name.`,
    },
    {
      ...shared.port,
      default: port,
      env: `${variables}_PORT`,
      help: 'Port of the HTTP routes; GET / lists them.',
    },
    {
      ...shared.bodyBytesMax,
      default: 8 * MIB,
      env: `${variables}_MAX_BODY_BYTES`,
      help: 'Largest request body. A longer one is answered with 413 and not read to its end. 8 MiB hold the hashes of about 400,000 blocks.',
    },
    {
      ...shared.bodiesBytesMax,
      default: 256 * MIB,
      env: `${variables}_MAX_BODIES_BYTES`,
      help: 'Most bytes of request bodies in memory at one time. A request that finds no room is answered with 503 at once.',
    },
    { ...shared.bodyTimeoutMs, env: `${variables}_BODY_TIMEOUT` },
    {
      ...shared.clientStallTimeoutMs,
      env: `${variables}_CLIENT_STALL_TIMEOUT`,
      help: 'How long an answer may wait for a client that takes none of its bytes. Then the connection is cut.',
    },
    { ...shared.keepAliveTimeoutMs, env: `${variables}_KEEP_ALIVE_TIMEOUT` },
    {
      ...shared.openRequestsMax,
      default: 1024,
      env: `${variables}_MAX_OPEN_REQUESTS`,
      help: `Most requests of ${routes} that may be open at one time. Further ones are answered with 503 at once.`,
    },
    {
      ...shared.openOperatorRequestsMax,
      env: `${variables}_MAX_OPEN_OPERATOR_REQUESTS`,
      help: 'Most requests of the other routes at one time, apart from --max-open-requests. A request counts until its client has taken the answer, and one address has half of the places at most. Further ones are answered with 503 at once; /health and /metrics have 8 places of their own.',
    },
    {
      ...shared.shutdownTimeoutMs,
      default: 10 * SECOND_MS,
      env: `${variables}_SHUTDOWN_TIMEOUT`,
    },
    {
      ...shared.detach,
      env: `${variables}_DETACH`,
      help: `Keep running when the process that started the ${noun} has gone.`,
    },
  ] as const satisfies readonly SettingDescriptor[]
}

export function loggingSettings({ variables }: ServiceNames) {
  return [
    {
      ...shared.accessLog,
      group: 'Logging',
      unsetMeans: 'none',
      env: `${variables}_ACCESS_LOG`,
      help: 'File to which one JSON line per request is appended; - is standard output. After you move it away, a new one is begun within a second, or at once with POST /reopen_logs.',
    },
    {
      ...shared.traceIdHeader,
      env: `${variables}_TRACE_ID_HEADER`,
    },
    {
      ...shared.logLevel,
      env: `${variables}_LOG_LEVEL`,
      help: 'How much is logged, on standard error. info reports registrations.',
    },
    shared.logFormat,
  ] as const satisfies readonly SettingDescriptor[]
}

/** How it tells others of its kind what is held, and hears of what they hold. */
export function peerSettings({ variables, noun, held = 'added' }: ServiceNames) {
  return [
    {
      key: 'replicaEndpoint',
      name: 'replica-endpoint',
      group: 'Replicas',
      kind: 'text',
      placeholder: 'ENDPOINT',
      default: undefined,
      unsetMeans: 'this one is alone',
      check: faultOfOwnEndpoint,
      env: `${variables}_REPLICA_ENDPOINT`,
      help: `Endpoint such as tcp://*:5801 on which other ${noun}s hear of the requests that are ${held} here; it answers their questions on the port behind it.`,
    },
    {
      key: 'replicas',
      name: 'replica-peer',
      group: 'Replicas',
      kind: 'list',
      placeholder: 'ENDPOINT',
      separator: 'comma or space',
      unsetMeans: 'none: they are registered over HTTP',
      check: faultOfOther,
      env: `${variables}_REPLICA_PEERS`,
      help: `Endpoint of another ${noun}, such as tcp://10.0.0.2:5801, as its --replica-endpoint says; give it once for each. Each must have this one as a peer, too.`,
    },
    {
      key: 'replicaDelayMs',
      name: 'replica-delay',
      group: 'Replicas',
      kind: 'duration',
      default: 2,
      min: 0,
      max: SECOND_MS,
      env: `${variables}_REPLICA_DELAY`,
      help: `What is ${held} after a pause is told at once; what follows is gathered for so long.`,
    },
    {
      key: 'replicaExpiryMs',
      name: 'replica-expiry',
      group: 'Replicas',
      kind: 'duration',
      default: 3 * SECOND_MS,
      min: 100,
      max: HOUR_MS,
      env: `${variables}_REPLICA_EXPIRY`,
      help: `How long the requests of a ${noun} count that cannot be heard any more. One that ends in good order is forgotten at once.`,
    },
  ] as const satisfies readonly SettingDescriptor[]
}

/** Peers must hear this one, too. */
export function faultOfLonelyPeers({
  settings: { replicas, replicaEndpoint },
}: RuleFacts<{
  readonly replicas: readonly string[]
  readonly replicaEndpoint: string | undefined
}>): string | undefined {
  if (replicas.length === 0 || replicaEndpoint !== undefined) return undefined
  return '--replica-peer needs --replica-endpoint, on which the peer hears of what is added here, such as tcp://*:5801'
}
