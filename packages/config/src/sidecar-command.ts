/** The settings of `homing sidecar`. */

import { brokerSettings } from './broker-settings.ts'
import type { Command, RuleFacts, SettingDescriptor, SettingsOf } from './descriptor.ts'
import { ETCD_HELP, etcdSettings } from './etcd-settings.ts'
import { faultOfBodies, shared } from './shared-settings.ts'
import { streamSettings } from './stream-settings.ts'
import { faultOfTcpServer, tcpServerSettings } from './tcp-settings.ts'
import { GIB, MIB, SECOND_MS } from './units.ts'

const sidecarSettings = [
  {
    key: 'engineEvents',
    name: 'events',
    group: 'Engine',
    kind: 'text',
    placeholder: 'ENDPOINT',
    default: undefined,
    unsetMeans: 'none: this or --poll must be given',
    env: 'HOMING_SIDECAR_EVENTS',
    check: faultOfEndpoint,
    help: 'Endpoint on which the engine publishes its KV events, such as tcp://127.0.0.1:5557. With several ranks this is the endpoint of rank 0; rank r is expected on this port + r.',
  },
  {
    key: 'poll',
    name: 'poll',
    group: 'Engine',
    kind: 'text',
    placeholder: 'URL',
    default: undefined,
    unsetMeans: 'none: this or --events must be given',
    env: 'HOMING_SIDECAR_POLL',
    check: faultOfUrl,
    help: 'TensorRT-LLM server whose KV events are polled over HTTP (POST /kv_cache_events), such as http://127.0.0.1:8000. It returns each event only once, so no other client may poll it.',
  },
  {
    ...shared.blockSizeTokens,
    name: 'block-size',
    group: 'Engine',
    default: 32,
    env: 'HOMING_SIDECAR_BLOCK_SIZE',
    help: 'With --poll: tokens_per_block of the server, which its events do not contain. With a wrong value every block counts as partial, and none is published.',
  },
  {
    key: 'pollIntervalMs',
    name: 'poll-interval',
    group: 'Engine',
    kind: 'duration',
    default: 50,
    min: 1,
    max: 60 * SECOND_MS,
    env: 'HOMING_SIDECAR_POLL_INTERVAL',
    help: 'With --poll: pause between an answer and the next request. The server itself waits up to 2s when it has no events.',
  },
  {
    key: 'ranks',
    name: 'ranks',
    group: 'Engine',
    kind: 'integer',
    default: 1,
    min: 1,
    max: 64,
    unit: 'ranks',
    env: 'HOMING_SIDECAR_RANKS',
    help: 'Data-parallel ranks of the engine. With --events each rank has its own port; --poll asks for all of them.',
  },
  {
    key: 'topic',
    name: 'topic',
    group: 'Engine',
    kind: 'text',
    placeholder: 'TOPIC',
    default: '',
    env: 'HOMING_SIDECAR_TOPIC',
    help: 'Topic of the events of --events, as set in the engine; the sidecar publishes under the same topic. Empty takes every topic and publishes without one.',
  },
  {
    ...shared.eventPlane,
    group: 'Listening',
    env: 'HOMING_SIDECAR_EVENT_PLANE',
    envAliases: [{ name: 'DYN_EVENT_PLANE' }],
    help: 'How routers get the events: zmq opens two ports for each rank; nats publishes at the broker of --nats, and answers questions there, so no port is open.',
  },
  {
    key: 'natsSubject',
    name: 'nats-subject',
    group: 'Listening',
    kind: 'text',
    placeholder: 'SUBJECT',
    default: undefined,
    unsetMeans: 'homing.kv.HOST_PORT of --worker',
    env: 'HOMING_SIDECAR_NATS_SUBJECT',
    help: 'With --event-plane nats: subject under which this engine publishes; rank r uses SUBJECT.r. Every engine has its own.',
  },
  {
    ...streamSettings.durableKvEvents,
    group: 'Listening',
    env: 'HOMING_SIDECAR_DURABLE_KV_EVENTS',
    envAliases: [{ name: 'DYN_DURABLE_KV_EVENTS' }],
    help: 'With --event-plane nats: publish the events once more into a stream at the broker, which keeps them for routers that have the option, too. Needs a broker that was started with -js.',
  },
  {
    ...streamSettings.namespace,
    group: 'Listening',
    env: 'HOMING_SIDECAR_NAMESPACE',
    envAliases: [{ name: 'DYN_NAMESPACE' }],
  },
  { ...streamSettings.retentionMs, group: 'Listening', env: 'HOMING_SIDECAR_KV_EVENTS_RETENTION' },
  { ...streamSettings.bytesMax, group: 'Listening', env: 'HOMING_SIDECAR_KV_EVENTS_BYTES' },
  {
    key: 'worker',
    name: 'worker',
    group: 'Listening',
    kind: 'text',
    placeholder: 'HOST:PORT',
    default: undefined,
    unsetMeans: 'host and port of --poll',
    env: 'HOMING_SIDECAR_WORKER',
    check: faultOfWorker,
    help: 'With --event-plane nats: host and port (and path, if it has one) under which routers reach the engine, exactly as their --worker has it. It names the subject where routers look for the events of that worker.',
  },
  {
    key: 'register',
    name: 'register',
    group: 'Listening',
    kind: 'text',
    placeholder: 'NAME',
    default: undefined,
    unsetMeans: 'routers are told of the engine in another way',
    env: 'HOMING_SIDECAR_REGISTER',
    check: text =>
      /^[A-Za-z0-9_-]{1,64}$/.test(text) ? undefined : "is not 1 to 64 letters, digits, '-' and '_'",
    help: 'Register the engine of --worker with all routers that have this name as their --worker-namespace, for as long as the sidecar runs. Needs --event-plane nats.',
  },
  {
    ...etcdSettings.discovery,
    group: 'Listening',
    choices: ['nats', 'etcd'],
    env: 'HOMING_SIDECAR_DISCOVERY_BACKEND',
    help: 'With --register: where. nats: at the broker. etcd: at --etcd; routers need --discovery-backend etcd, too.',
  },
  {
    ...etcdSettings.servers,
    group: 'Listening',
    env: 'HOMING_SIDECAR_ETCD',
    help: `With --discovery-backend etcd: ${ETCD_HELP}`,
  },
  {
    key: 'role',
    name: 'role',
    group: 'Listening',
    kind: 'choice',
    choices: ['both', 'prefill', 'decode'],
    default: 'both',
    env: 'HOMING_SIDECAR_ROLE',
    help: 'With --register: which part of a request the engine takes. prefill: it computes prompts and hands them over. decode: it goes on with such prompts. both: whole requests, unless the engine itself says otherwise.',
  },
  {
    ...shared.requestPlane,
    group: 'Listening',
    env: 'HOMING_SIDECAR_REQUEST_PLANE',
    help: 'With --register: how routers send requests to the engine. http: to the host and port of --worker. nats: over the broker to this sidecar, which passes them on to the engine, so no port of it is open. tcp: over connections of routers to --request-port of this sidecar, likewise. Routers need the same --request-plane.',
  },
  {
    ...shared.port,
    key: 'requestPort',
    name: 'request-port',
    default: 0,
    zeroMeans: 'a free port, which routers are told',
    env: 'HOMING_SIDECAR_REQUEST_PORT',
    help: 'With --request-plane tcp: port on which connections of routers are taken, at the address of --host; routers are told the host of --worker with it.',
  },
  ...tcpServerSettings('Listening', 'HOMING_SIDECAR'),
  {
    key: 'engineUrl',
    name: 'engine-url',
    group: 'Listening',
    kind: 'text',
    placeholder: 'URL',
    default: undefined,
    unsetMeans: 'http://HOST:PORT of --worker',
    env: 'HOMING_SIDECAR_ENGINE_URL',
    check: text =>
      /^https?:\/\/[^/?#@]+(?:\/[^?#]*)?$/.test(text) && URL.canParse(text)
        ? undefined
        : 'is not a URL such as http://127.0.0.1:8000 or http://127.0.0.1:8000/engines/a',
    help: 'With --request-plane nats or tcp: where the engine takes requests from this machine, with the path under which its routes are, if it has one.',
  },
  {
    ...shared.host,
    env: 'HOMING_SIDECAR_HOST',
    help: 'Address on which events, replays and snapshots are offered. 0.0.0.0 is every interface of the machine, the usual default of engines; 127.0.0.1 accepts connections from this machine only. There is no authentication.',
  },
  {
    key: 'eventsPort',
    name: 'events-port',
    group: 'Listening',
    kind: 'integer',
    default: 5657,
    min: 0,
    max: 65_535,
    zeroMeans: 'free ports, named in the ready lines',
    env: 'HOMING_SIDECAR_EVENTS_PORT',
    help: 'First port on which the events are published again; rank r uses this port + r. Routers use it instead of the engine’s port.',
  },
  {
    key: 'replayPort',
    name: 'replay-port',
    group: 'Listening',
    kind: 'integer',
    default: 6657,
    min: 0,
    max: 65_535,
    zeroMeans: 'free ports, named in the ready lines',
    env: 'HOMING_SIDECAR_REPLAY_PORT',
    help: 'First port on which routers ask for missed events and snapshots; rank r uses this port + r.',
  },
  {
    ...shared.shutdownTimeoutMs,
    default: 5 * SECOND_MS,
    zeroMeans: 'cut replays at once',
    env: 'HOMING_SIDECAR_SHUTDOWN_TIMEOUT',
    help: 'After SIGTERM or SIGINT no further event is taken; replays and snapshots that are under way have this long to end.',
  },
  {
    ...shared.detach,
    env: 'HOMING_SIDECAR_DETACH',
    help: 'Keep running when the process that started the sidecar has gone.',
  },
  {
    key: 'bufferBatchesMax',
    name: 'buffer-batches',
    group: 'Memory',
    kind: 'integer',
    default: 10_000,
    min: 1,
    max: 99_999,
    unit: 'batches',
    env: 'HOMING_SIDECAR_BUFFER_BATCHES',
    help: 'Batches of events kept for replays, for each rank; vLLM keeps 10000. A router that starts later than the first of them is sure of the cache only if it asks for a snapshot.',
  },
  {
    key: 'bufferBytesMax',
    name: 'buffer-bytes',
    group: 'Memory',
    kind: 'size',
    default: 64 * MIB,
    min: 1024,
    max: 64 * GIB,
    env: 'HOMING_SIDECAR_BUFFER_BYTES',
    help: 'Most bytes of those batches, for each rank; the oldest are forgotten first.',
  },
  {
    key: 'heldBytesMax',
    name: 'blocks-bytes',
    group: 'Memory',
    kind: 'size',
    default: 256 * MIB,
    min: 1024,
    max: 64 * GIB,
    env: 'HOMING_SIDECAR_BLOCKS_BYTES',
    help: 'Most bytes for the blocks that the engine holds, for each rank. A block takes 160 bytes plus four per token; 256 MiB hold about 1.2 million blocks of 16 tokens. Further blocks are missing in snapshots, which then say so.',
  },
  {
    key: 'queuedMessagesMax',
    name: 'send-queue',
    group: 'Memory',
    kind: 'integer',
    default: 100_000,
    min: 2,
    max: 100_000,
    unit: 'messages',
    env: 'HOMING_SIDECAR_SEND_QUEUE',
    help: 'Most messages that wait for a router that reads too slowly; it loses further ones, sees the gap and asks for them. Must be above --buffer-batches. Replays and snapshots do not wait here: they are sent as they are read.',
  },
  {
    key: 'repliesMax',
    name: 'max-replies',
    group: 'Memory',
    kind: 'integer',
    default: 16,
    min: 1,
    max: 1024,
    unit: 'peers',
    env: 'HOMING_SIDECAR_MAX_REPLIES',
    help: 'Most routers that receive a replay or snapshot at full speed at one time; up to 64 times as many take turns. Further ones ask again, unless one that does not read can make room.',
  },
  {
    key: 'peerBytesMax',
    name: 'peer-bytes',
    group: 'Memory',
    kind: 'size',
    default: GIB,
    min: 1024,
    max: 64 * GIB,
    env: 'HOMING_SIDECAR_PEER_BYTES',
    help: 'Most bytes of replays and snapshots over one connection, read or not; further requests are refused. Routers connect again for each request.',
  },
  {
    ...shared.openRequestsMax,
    group: 'Memory',
    env: 'HOMING_SIDECAR_MAX_OPEN_REQUESTS',
    help: 'With --request-plane nats or tcp: most requests in the sidecar at one time. Further ones are answered with 503, and routers try another worker.',
  },
  {
    ...shared.bodyBytesMax,
    group: 'Memory',
    env: 'HOMING_SIDECAR_MAX_BODY_BYTES',
    help: 'With --request-plane nats or tcp: largest request body. A longer one is answered with 413. Routers have the same setting.',
  },
  {
    ...shared.bodiesBytesMax,
    group: 'Memory',
    env: 'HOMING_SIDECAR_MAX_BODIES_BYTES',
    help: 'With --request-plane nats or tcp: most bytes of request bodies in memory at one time, each until its request has ended. A request that finds no room is answered with 503, and routers try another worker.',
  },
  {
    ...shared.bodyTimeoutMs,
    group: 'Memory',
    min: SECOND_MS,
    env: 'HOMING_SIDECAR_BODY_TIMEOUT',
    help: 'With --request-plane nats or tcp: longest pause between two pieces of a request body; after it, up to a second later, the request is answered with 408.',
  },
  ...brokerSettings,
  {
    ...shared.logLevel,
    env: 'HOMING_SIDECAR_LOG_LEVEL',
    help: 'How much is logged, on standard error. warn reports lost events, and an engine that restarted or cannot be reached.',
  },
  shared.logFormat,
] as const satisfies readonly SettingDescriptor[]

/** The settings of `homing sidecar`: times in milliseconds, sizes in bytes. */
export type SidecarSettings = SettingsOf<typeof sidecarSettings>

/** `homing sidecar`. */
export const sidecarCommand: Command<typeof sidecarSettings> = {
  name: 'sidecar',
  summary: 'Republishes the KV events of an engine, with the replay and the snapshots that the engine lacks.',
  settings: sidecarSettings,
  examples: [
    {
      does: 'Beside an engine that publishes on port 5557 of this machine:',
      line: 'homing sidecar --events tcp://127.0.0.1:5557',
    },
    {
      does: 'Beside a TensorRT-LLM server with blocks of 32 tokens:',
      line: 'homing sidecar --poll http://127.0.0.1:8000 --block-size 32',
    },
    {
      does: 'The same without open ports, for routers with --event-plane nats:',
      line: 'homing sidecar --events tcp://127.0.0.1:5557 --event-plane nats --nats nats://10.0.0.9:4222 --worker 10.0.0.1:8000',
    },
    {
      does: 'A router that takes its events from the sidecar, on the same host as the engine:',
      line: "homing router --worker 'http://ENGINE:8000?events=5657&replay=6657'",
    },
  ],
  rules: [faultOfEngine, faultOfRanks, faultOfPorts, faultOfSubject, faultOfSendQueue, faultOfRequests],
}

type Facts = RuleFacts<SidecarSettings>

function faultOfEngine({ settings: { engineEvents, poll } }: Facts): string | undefined {
  if (engineEvents !== undefined && poll !== undefined) {
    return '--events and --poll name two engines: start a sidecar for each'
  }
  if (engineEvents !== undefined || poll !== undefined) return undefined
  return '--events is missing: name the endpoint on which the engine publishes, such as --events tcp://127.0.0.1:5557, or a TensorRT-LLM server with --poll'
}

function faultOfSubject({
  settings: {
    eventPlane,
    natsSubject,
    worker,
    poll,
    register,
    requestPlane,
    engineUrl,
    role,
    durableKvEvents,
  },
}: Facts): string | undefined {
  if (durableKvEvents && eventPlane === 'zmq')
    return '--router-durable-kv-events has no effect without --event-plane nats: give it, or leave it out'
  if (requestPlane !== 'http' && register === undefined)
    return `--request-plane ${requestPlane} needs --register: give the name under which routers look for workers, or leave it out`
  if (requestPlane === 'http' && engineUrl !== undefined)
    return '--engine-url has no effect without --request-plane nats or tcp: give one of them, or leave it out'
  if (role !== 'both' && register === undefined)
    return '--role needs --register: routers that are told of the engine in another way read role= in its URL'
  if (register !== undefined && (eventPlane === 'zmq' || worker === undefined))
    return '--register needs --event-plane nats, and --worker with host and port of the engine'
  if (eventPlane === 'zmq')
    return natsSubject === undefined && worker === undefined
      ? undefined
      : '--nats-subject and --worker have no effect without --event-plane nats: give it, or leave them out'
  if (natsSubject !== undefined || worker !== undefined || poll !== undefined) return undefined
  return '--worker is missing: with --event-plane nats, give host and port under which routers reach the engine, such as --worker 10.0.0.1:8000, or a subject with --nats-subject'
}

const REQUEST_LIMITS = [
  ['openRequestsMax', '--max-open-requests'],
  ['bodyBytesMax', '--max-body-bytes'],
  ['bodiesBytesMax', '--max-bodies-bytes'],
  ['bodyTimeoutMs', '--body-timeout'],
] as const

function faultOfRequests(facts: Facts): string | undefined {
  const { requestPlane } = facts.settings
  const [, given] = REQUEST_LIMITS.find(([key]) => facts.isGiven(key)) ?? []
  if (requestPlane === 'http' && given !== undefined)
    return `${given} has no effect without --request-plane nats or tcp: give one of them, or leave it out`
  return faultOfTcpServer(requestPlane, facts.isGiven) ?? faultOfBodies(facts)
}

function faultOfWorker(text: string): string | undefined {
  return /^(\[[^\]]+\]|[^[\]:/\s]+):\d{1,5}(\/[A-Za-z0-9._~-]+)*$/.test(text)
    ? undefined
    : "is not 'host:port' or 'host:port/path'; write it as routers have it, without http://"
}

function faultOfRanks({ settings: { engineEvents, ranks } }: Facts): string | undefined {
  if (ranks === 1 || engineEvents === undefined) return undefined
  if (engineEvents.startsWith('ipc:')) {
    return `--ranks ${ranks} needs ports to count from, and --events ${engineEvents} has none; start a sidecar for each rank`
  }
  const port = Number(engineEvents.slice(engineEvents.lastIndexOf(':') + 1))
  return port + ranks - 1 > 65_535
    ? `--ranks ${ranks} goes past port 65535 from --events ${engineEvents}`
    : undefined
}

function faultOfPorts({ settings: { eventsPort, replayPort, ranks } }: Facts): string | undefined {
  if (eventsPort === 0 || replayPort === 0) return undefined
  if (Math.max(eventsPort, replayPort) + ranks - 1 > 65_535) {
    return `--ranks ${ranks} goes past port 65535 from --events-port ${eventsPort} and --replay-port ${replayPort}`
  }
  if (Math.abs(eventsPort - replayPort) >= ranks) return undefined
  return `the ports of --events-port ${eventsPort} and --replay-port ${replayPort} overlap with --ranks ${ranks}`
}

function faultOfSendQueue({ settings: { queuedMessagesMax, bufferBatchesMax } }: Facts): string | undefined {
  if (queuedMessagesMax > bufferBatchesMax) return undefined
  return `--send-queue ${queuedMessagesMax} must be above --buffer-batches ${bufferBatchesMax}, or a replay would be cut`
}

function faultOfUrl(text: string): string | undefined {
  const url = URL.parse(text)
  if (url === null || url.hostname === '' || url.protocol !== 'http:') {
    return 'is not a URL such as http://127.0.0.1:8000'
  }
  if (url.username !== '' || url.password !== '') return 'must not have a user name or password'
  if (/\/v1\/?$/.test(url.pathname)) return `has the path ${url.pathname}; leave out /v1`
  return url.search === '' && url.hash === '' ? undefined : 'must end with the path'
}

function faultOfEndpoint(text: string): string | undefined {
  if (/^ipc:\/\/./.test(text)) return undefined
  const match = /^tcp:\/\/(\[[^\]]+\]|[^[\]:/]+):(\d{1,5})$/.exec(text)
  if (match === null) return 'is not an endpoint; use tcp://HOST:PORT or ipc://PATH'
  if (match[1] === '*' || match[1] === '0.0.0.0') {
    return 'names every interface, which is for binding; name the host of the engine, such as tcp://127.0.0.1:5557'
  }
  const port = Number(match[2])
  return port < 1 || port > 65_535 ? 'has a port out of range 1 … 65535' : undefined
}
