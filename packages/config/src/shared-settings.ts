/**
 * Settings that several commands have, and the rules over several of them. A command adds its own variable
 * and help, and may change the default or the heading.
 */

import { LOG_LEVELS } from '@homing/base'
import type { RuleFacts } from './descriptor.ts'
import { hostWithoutBrackets } from './setting-value.ts'
import { GIB, HOUR_MS, KIB, MIB, MINUTE_MS, SECOND_MS } from './units.ts'

export const shared = {
  host: {
    key: 'host',
    name: 'host',
    group: 'Listening',
    kind: 'text',
    placeholder: 'ADDRESS',
    default: '0.0.0.0',
    read: hostWithoutBrackets,
  },
  hostNames: {
    key: 'hostNames',
    name: 'host-name',
    group: 'Listening',
    kind: 'list',
    placeholder: 'NAME',
    separator: 'comma or space',
    unsetMeans: 'addresses, localhost, the name of the machine and that of --host',
    check: faultOfHostName,
  },
  port: {
    key: 'port',
    name: 'port',
    group: 'Listening',
    kind: 'integer',
    min: 0,
    max: 65_535,
    zeroMeans: 'a free port, named in the ready line',
  },
  bodyBytesMax: {
    key: 'bodyBytesMax',
    name: 'max-body-bytes',
    group: 'Listening',
    kind: 'size',
    default: 64 * MIB,
    min: KIB,
    max: GIB,
  },
  bodiesBytesMax: {
    key: 'bodiesBytesMax',
    name: 'max-bodies-bytes',
    group: 'Listening',
    kind: 'size',
    default: GIB,
    min: KIB,
    max: 1024 * GIB,
  },
  bodyTimeoutMs: {
    key: 'bodyTimeoutMs',
    name: 'body-timeout',
    group: 'Listening',
    kind: 'duration',
    default: 60 * SECOND_MS,
    min: 100,
    max: 24 * HOUR_MS,
    help: 'Longest pause between two pieces of a request body. After it the request is answered with 408 and its connection is closed.',
  },
  clientStallTimeoutMs: {
    key: 'clientStallTimeoutMs',
    name: 'client-stall-timeout',
    group: 'Listening',
    kind: 'duration',
    default: 120 * SECOND_MS,
    min: 100,
    max: 24 * HOUR_MS,
  },
  keepAliveTimeoutMs: {
    key: 'keepAliveTimeoutMs',
    name: 'keep-alive-timeout',
    group: 'Listening',
    kind: 'duration',
    default: 75 * SECOND_MS,
    min: 100,
    max: 24 * HOUR_MS,
    help: 'How long a connection of a client is kept without a request. Let it be longer than the idle timeout of what is in front (60s at most load balancers): the side that closes first must not be this one, or a request may be lost on its way.',
  },
  connectionsMax: {
    key: 'connectionsMax',
    name: 'max-connections',
    group: 'Listening',
    kind: 'integer',
    default: 8192,
    min: 1,
    max: 10_000_000,
    unit: 'connections',
  },
  openRequestsMax: {
    key: 'openRequestsMax',
    name: 'max-open-requests',
    group: 'Listening',
    kind: 'integer',
    default: 4096,
    min: 1,
    max: 1_000_000,
    unit: 'requests',
  },
  openOperatorRequestsMax: {
    key: 'openOperatorRequestsMax',
    name: 'max-open-operator-requests',
    group: 'Listening',
    kind: 'integer',
    default: 64,
    min: 1,
    max: 10_000,
    unit: 'requests',
  },
  shutdownTimeoutMs: {
    key: 'shutdownTimeoutMs',
    name: 'shutdown-timeout',
    group: 'Listening',
    kind: 'duration',
    min: 0,
    max: HOUR_MS,
    zeroMeans: 'cut open requests at once',
    help: 'After SIGTERM or SIGINT no new request is taken; open requests have this long to end.',
  },
  detach: {
    key: 'detach',
    name: 'detach',
    group: 'Listening',
    kind: 'flag',
    default: false,
  },
  engineKeyFile: {
    key: 'engineKeyFile',
    name: 'engine-api-key-file',
    group: 'Workers',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'the variable HOMING_ENGINE_API_KEY, else engines want no key',
  },
  engineCaFile: {
    key: 'engineCaFile',
    name: 'engine-ca-file',
    group: 'Workers',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'the certificates of Node and of the system',
  },
  requestPlane: {
    key: 'requestPlane',
    name: 'request-plane',
    kind: 'choice',
    choices: ['http', 'nats', 'tcp'],
    default: 'http',
  },
  eventPlane: {
    key: 'eventPlane',
    name: 'event-plane',
    kind: 'choice',
    choices: ['zmq', 'nats'],
    default: 'zmq',
  },
  blockSizeTokens: {
    key: 'blockSizeTokens',
    name: 'kv-cache-block-size',
    kind: 'integer',
    default: undefined,
    min: 1,
    max: 65_536,
    unit: 'tokens',
  },
  workerSlotsMax: {
    key: 'workerSlotsMax',
    name: 'worker-slots-max',
    group: 'Workers',
    kind: 'integer',
    default: 1024,
    min: 1,
    max: 16_384,
  },
  replayTimeoutMs: {
    key: 'replayTimeoutMs',
    name: 'replay-timeout',
    kind: 'duration',
    default: 5 * SECOND_MS,
    min: 10,
    max: 10 * MINUTE_MS,
  },
  checkpointDirectory: {
    key: 'checkpointDirectory',
    name: 'checkpoint-dir',
    kind: 'text',
    placeholder: 'DIRECTORY',
    default: undefined,
    unsetMeans: 'none are kept',
  },
  checkpointIntervalMs: {
    key: 'checkpointIntervalMs',
    name: 'checkpoint-interval',
    kind: 'duration',
    default: MINUTE_MS,
    min: 100,
    max: 24 * HOUR_MS,
  },
  indexBytes: {
    key: 'indexBytes',
    name: 'index-bytes',
    kind: 'size',
    default: 256 * MIB,
    min: MIB,
    max: 64 * GIB,
  },
  labelBytes: {
    key: 'labelBytes',
    name: 'label-bytes',
    kind: 'size',
    default: 32 * MIB,
    min: 0,
    max: 4 * GIB,
  },
  labelRecordsPerBlock: {
    key: 'labelRecordsPerBlock',
    name: 'label-records-per-block',
    kind: 'integer',
    default: 2,
    min: 1,
    max: 16,
    unit: 'worker keys',
  },
  labelWorkersShare: {
    key: 'labelWorkersShare',
    name: 'label-workers-share',
    kind: 'number',
    default: 0.0625,
    min: 0.01,
    max: 0.5,
  },
  accessLog: {
    key: 'accessLog',
    name: 'access-log',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
  },
  traceIdHeader: {
    key: 'traceIdHeader',
    name: 'trace-id-header',
    group: 'Logging',
    kind: 'text',
    placeholder: 'NAME',
    default: 'x-trace-id',
    help: 'Request header whose value the access log shows as trace_id.',
  },
  logLevel: {
    key: 'logLevel',
    name: 'log-level',
    group: 'Logging',
    kind: 'choice',
    choices: LOG_LEVELS,
    default: 'info',
  },
  /** One variable for all commands: what a terminal shows is a matter of taste, not of the command. */
  logFormat: {
    key: 'logFormat',
    name: 'log-format',
    group: 'Logging',
    kind: 'choice',
    choices: ['auto', 'text', 'json'],
    default: 'auto',
    env: 'HOMING_LOG_FORMAT',
    help: 'How a line of the log is written. text: for people, time of day, level, actor, text and fields. json: for programs, one JSON object. auto: text where standard error is a terminal, else json. Colours only on a terminal, and none where the variable NO_COLOR is set.',
  },
} as const

function faultOfHostName(text: string): string | undefined {
  if (/^[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?$/.test(text)) return undefined
  return 'is no name of a host; use a name alone, as in router.example.org, without scheme and port'
}

/** A body must find room among all bodies. */
export function faultOfBodies({
  settings: { bodiesBytesMax, bodyBytesMax },
}: RuleFacts<{ readonly bodiesBytesMax: number; readonly bodyBytesMax: number }>): string | undefined {
  if (bodiesBytesMax >= bodyBytesMax) return undefined
  return `--max-bodies-bytes ${bodiesBytesMax} is less than one body of --max-body-bytes ${bodyBytesMax}: raise the first or lower the second`
}

/**
 * Least bytes of a shard: the fixed-size tables of packages/index need about 72 bytes per
 * worker key with its layers, and 30 KiB; twice that leaves room for blocks.
 */
const SHARD_BYTES_MIN = 64 * KIB
const SHARD_BYTES_PER_WORKER_SLOT = 144
/** A shared memory of WebAssembly has 4 GiB, a part of which is for readers. */
const SHARD_BYTES_MAX = 3840 * MIB

export interface ShardSizes {
  readonly indexBytes: number
  readonly workerSlotsMax: number
  readonly threads: number
  /** The option that sets `threads`. */
  readonly threadsOption: string
  /** Indexes in a shard, each with tables of its own; default 1. */
  readonly parts?: number
  /** What they are for, behind the number of worker slots: ' and peers'. */
  readonly partsWords?: string
}

/** Least bytes of an index of one shard. */
export function indexBytesMin(workerSlotsMax: number): number {
  return Math.max(shared.indexBytes.min, SHARD_BYTES_MIN + workerSlotsMax * SHARD_BYTES_PER_WORKER_SLOT)
}

/** Least bytes of the labels of a shard: packages/index keeps none in less. */
const SHARD_LABEL_BYTES_MIN = 4 * KIB

/** Without labels, or with room for some on each thread. */
export function faultOfLabels(
  labelBytes: number,
  threads: number,
  threadsOption: string,
): string | undefined {
  const shardBytes = Math.floor(labelBytes / threads)
  if (labelBytes === 0 || shardBytes >= SHARD_LABEL_BYTES_MIN) return undefined
  return `--label-bytes leaves ${shardBytes} bytes for each of ${threadsOption} ${threads}: each needs ${SHARD_LABEL_BYTES_MIN}; 0 keeps no labels`
}

/** The memory of the index must suit its threads. */
export function faultOfShards(sizes: ShardSizes): string | undefined {
  const { indexBytes, threads, threadsOption, workerSlotsMax, parts = 1, partsWords = '' } = sizes
  const shardBytes = Math.floor(indexBytes / threads)
  const shardBytesMin = (SHARD_BYTES_MIN + workerSlotsMax * SHARD_BYTES_PER_WORKER_SLOT) * parts
  const head = `--index-bytes leaves ${shardBytes} bytes for each of ${threadsOption} ${threads}:`
  if (shardBytes < shardBytesMin)
    return `${head} with --worker-slots-max ${workerSlotsMax}${partsWords} each needs ${shardBytesMin}`
  if (shardBytes > SHARD_BYTES_MAX) return `${head} each can use ${SHARD_BYTES_MAX}, so name more threads`
  return undefined
}
