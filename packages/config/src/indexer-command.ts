/**
 * The settings of `homing indexer`.
 *
 * Source   names: the options that operators of such an index service know; the bounds are ours.
 */

import type { Command, RuleFacts, SettingDescriptor, SettingsOf } from './descriptor.ts'
import { LOG_LEVELS } from './log-levels.ts'
import { hostWithoutBrackets } from './setting-value.ts'
import { GIB, HOUR_MS, KIB, MIB, MINUTE_MS, SECOND_MS } from './units.ts'

const indexerSettings = [
  {
    key: 'host',
    name: 'host',
    group: 'Listening',
    kind: 'text',
    placeholder: 'ADDRESS',
    default: '0.0.0.0',
    env: 'HOMING_INDEXER_HOST',
    read: hostWithoutBrackets,
    help: 'Address to listen on. 0.0.0.0 is every interface of the machine; 127.0.0.1 accepts connections from this machine only. There is no authentication.',
  },
  {
    key: 'port',
    name: 'port',
    group: 'Listening',
    kind: 'integer',
    default: 8090,
    min: 0,
    max: 65_535,
    zeroMeans: 'a free port, named in the ready line',
    env: 'HOMING_INDEXER_PORT',
    help: 'Port of the HTTP routes; GET / lists them.',
  },
  {
    key: 'bodyBytesMax',
    name: 'max-body-bytes',
    group: 'Listening',
    kind: 'size',
    default: 8 * MIB,
    min: KIB,
    max: GIB,
    env: 'HOMING_INDEXER_MAX_BODY_BYTES',
    help: 'Largest request body. A longer one is answered with 413 and not read to its end. 8 MiB hold a query of about a million tokens.',
  },
  {
    key: 'bodiesBytesMax',
    name: 'max-bodies-bytes',
    group: 'Listening',
    kind: 'size',
    default: 256 * MIB,
    min: KIB,
    max: 1024 * GIB,
    env: 'HOMING_INDEXER_MAX_BODIES_BYTES',
    help: 'Most bytes of request bodies in memory at one time. A request that finds no room is answered with 503 at once.',
  },
  {
    key: 'bodyTimeoutMs',
    name: 'body-timeout',
    group: 'Listening',
    kind: 'duration',
    default: 60 * SECOND_MS,
    min: 100,
    max: 24 * HOUR_MS,
    env: 'HOMING_INDEXER_BODY_TIMEOUT',
    help: 'Longest pause between two pieces of a request body. After it the request is answered with 408 and its connection is closed.',
  },
  {
    key: 'clientStallTimeoutMs',
    name: 'client-stall-timeout',
    group: 'Listening',
    kind: 'duration',
    default: 120 * SECOND_MS,
    min: 100,
    max: 24 * HOUR_MS,
    env: 'HOMING_INDEXER_CLIENT_STALL_TIMEOUT',
    help: 'How long an answer, such as a dump, may wait for a client that takes none of its bytes. Then the connection is cut.',
  },
  {
    key: 'openRequestsMax',
    name: 'max-open-requests',
    group: 'Listening',
    kind: 'integer',
    default: 1024,
    min: 1,
    max: 1_000_000,
    unit: 'requests',
    env: 'HOMING_INDEXER_MAX_OPEN_REQUESTS',
    help: 'Most requests that may be open at one time. Further ones are answered with 503 at once.',
  },
  {
    key: 'shutdownTimeoutMs',
    name: 'shutdown-timeout',
    group: 'Listening',
    kind: 'duration',
    default: 10 * SECOND_MS,
    min: 0,
    max: HOUR_MS,
    zeroMeans: 'cut open requests at once',
    env: 'HOMING_INDEXER_SHUTDOWN_TIMEOUT',
    help: 'After SIGTERM or SIGINT no new request is taken; open requests have this long to end.',
  },
  {
    key: 'detach',
    name: 'detach',
    group: 'Listening',
    kind: 'flag',
    default: false,
    env: 'HOMING_INDEXER_DETACH',
    help: 'Keep running when the process that started the indexer has gone.',
  },

  {
    key: 'workers',
    name: 'workers',
    group: 'Workers',
    kind: 'list',
    placeholder: 'ID[:RANK]=ENDPOINT',
    separator: 'comma',
    aliases: ['worker'],
    unsetMeans: 'none: they are registered over HTTP',
    env: 'HOMING_INDEXER_WORKERS',
    help: 'Ranks to follow from the start, separated by commas or given one by one: 7=tcp://10.0.0.1:5557 or, with rank and replay port, 7:1=tcp://10.0.0.1:5558?replay=6558. An engine without replay is known only from the first event that is seen.',
  },
  {
    key: 'blockSizeTokens',
    name: 'block-size',
    group: 'Workers',
    kind: 'integer',
    default: undefined,
    min: 1,
    max: 65_536,
    unit: 'tokens',
    unsetMeans: 'none: it must be given with --workers',
    env: 'HOMING_INDEXER_BLOCK_SIZE',
    help: 'Tokens in a block of the KV cache of the --workers. It must match the engines.',
  },
  {
    key: 'modelName',
    name: 'model-name',
    group: 'Workers',
    kind: 'text',
    placeholder: 'NAME',
    default: 'default',
    env: 'HOMING_INDEXER_MODEL_NAME',
    help: 'Model of the --workers, under which they are queried.',
  },
  {
    key: 'routingGroup',
    name: 'routing-group',
    group: 'Workers',
    kind: 'text',
    placeholder: 'NAME',
    default: 'default',
    check: faultOfGroup,
    env: 'HOMING_INDEXER_ROUTING_GROUP',
    help: 'Routing group of the --workers: one model may have several, each with its own engines.',
  },
  {
    key: 'workerSlotsMax',
    name: 'worker-slots-max',
    group: 'Workers',
    kind: 'integer',
    default: 1024,
    min: 1,
    max: 16_384,
    unit: 'ranks',
    env: 'HOMING_INDEXER_WORKER_SLOTS_MAX',
    help: 'Most ranks that may be registered at one time, over all models and groups. Further ones are answered with 503.',
  },
  {
    key: 'replayTimeoutMs',
    name: 'replay-timeout',
    group: 'Workers',
    kind: 'duration',
    default: 5 * SECOND_MS,
    min: 10,
    max: 10 * MINUTE_MS,
    env: 'HOMING_INDEXER_REPLAY_TIMEOUT',
    help: 'How long an engine may be silent during a replay of past events before it is asked again.',
  },
  {
    key: 'checkpointDirectory',
    name: 'checkpoint-dir',
    group: 'Workers',
    kind: 'text',
    placeholder: 'DIRECTORY',
    default: undefined,
    unsetMeans: 'none are kept',
    env: 'HOMING_INDEXER_CHECKPOINT_DIR',
    help: 'Directory for checkpoints: the index content of each rank. After a restart the index continues from there, even if the engine no longer repeats its whole history. A checkpoint counts only when the engine repeats the batches that it ends with.',
  },
  {
    key: 'checkpointIntervalMs',
    name: 'checkpoint-interval',
    group: 'Workers',
    kind: 'duration',
    default: MINUTE_MS,
    min: 100,
    max: 24 * HOUR_MS,
    env: 'HOMING_INDEXER_CHECKPOINT_INTERVAL',
    help: 'How often the checkpoint of each rank is written, if something has changed. Checkpoints are also written at a graceful stop. While one is taken, events of its shard wait: about 0.3 ms per thousand blocks; a rank with more than four million blocks gets none.',
  },

  {
    key: 'threads',
    name: 'threads',
    group: 'Index',
    kind: 'integer',
    default: {
      says: 'min(4, cores − 1), at least 1',
      of: machine => Math.max(1, Math.min(4, machine.cores - 1)),
    },
    min: 1,
    max: 64,
    unit: 'threads',
    env: 'HOMING_INDEXER_THREADS',
    help: 'Threads that receive KV events, each with one shard of the index. Use more when one thread cannot apply the events of all engines.',
  },
  {
    key: 'indexBytes',
    name: 'index-bytes',
    group: 'Index',
    kind: 'size',
    default: 256 * MIB,
    min: MIB,
    max: 64 * GIB,
    env: 'HOMING_INDEXER_INDEX_BYTES',
    help: 'Memory that the whole index may take, divided evenly among its threads. It never grows past this; blocks that find no room are left out and counted. With --peers and --workers a quarter of it is for blocks known from peers.',
  },

  {
    key: 'peers',
    name: 'peers',
    group: 'Peers',
    kind: 'list',
    placeholder: 'URL',
    separator: 'comma',
    aliases: ['peer'],
    unsetMeans: 'none: the index begins empty',
    env: 'HOMING_INDEXER_PEERS',
    help: 'Other indexers that follow the same --workers, such as http://10.0.0.2:8090. At the start the indexer asks them in this order for their dump; it believes the first answer until the engines’ own replays are complete. An engine without replay stays at trust approximate.',
  },
  {
    key: 'peersMax',
    name: 'peers-max',
    group: 'Peers',
    kind: 'integer',
    default: 64,
    min: 1,
    max: 10_000,
    unit: 'peers',
    env: 'HOMING_INDEXER_PEERS_MAX',
    help: 'Most peers that may be registered at one time.',
  },
  {
    key: 'peerWaitMs',
    name: 'peer-wait',
    group: 'Peers',
    kind: 'duration',
    default: SECOND_MS,
    min: 0,
    max: MINUTE_MS,
    env: 'HOMING_INDEXER_PEER_WAIT',
    help: 'How long connections to the engines have to come up before peers are asked, because changes after a peer’s answer must arrive here. An engine that is not connected by then takes nothing from a peer.',
  },
  {
    key: 'peerTimeoutMs',
    name: 'peer-timeout',
    group: 'Peers',
    kind: 'duration',
    default: 10 * SECOND_MS,
    min: 10,
    max: 10 * MINUTE_MS,
    env: 'HOMING_INDEXER_PEER_TIMEOUT',
    help: 'How long a peer has to send its whole dump before the next one is asked.',
  },
  {
    key: 'peerDumpBytesMax',
    name: 'peer-dump-bytes',
    group: 'Peers',
    kind: 'size',
    default: 256 * MIB,
    min: KIB,
    max: 4 * GIB,
    env: 'HOMING_INDEXER_PEER_DUMP_BYTES',
    help: 'Largest dump that is taken from a peer; a block takes about 80 bytes. While a dump is read, it needs several times as much memory.',
  },

  {
    key: 'accessLog',
    name: 'access-log',
    group: 'Logging',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'none',
    env: 'HOMING_INDEXER_ACCESS_LOG',
    help: 'File to which one JSON line per request is appended; - is standard output. After you move it away, a new one is begun within a second, or at once with POST /reopen_logs.',
  },
  {
    key: 'traceIdHeader',
    name: 'trace-id-header',
    group: 'Logging',
    kind: 'text',
    placeholder: 'NAME',
    default: 'x-trace-id',
    env: 'HOMING_INDEXER_TRACE_ID_HEADER',
    help: 'Request header whose value the access log shows as trace_id.',
  },
  {
    key: 'logLevel',
    name: 'log-level',
    group: 'Logging',
    kind: 'choice',
    choices: LOG_LEVELS,
    default: 'info',
    env: 'HOMING_INDEXER_LOG_LEVEL',
    help: 'Logs are JSON lines on standard error. info reports registrations and trust; trace every batch of KV events.',
  },
] as const satisfies readonly SettingDescriptor[]

/** The settings of `homing indexer`: times in milliseconds, sizes in bytes. */
export type IndexerSettings = SettingsOf<typeof indexerSettings>

/** `homing indexer`. */
export const indexerCommand: Command<typeof indexerSettings> = {
  name: 'indexer',
  summary: 'Runs the prefix index alone, over HTTP: it tells how much of a prompt each engine holds.',
  settings: indexerSettings,
  examples: [
    {
      does: 'An empty index on port 8090; engines are registered with POST /register:',
      line: 'homing indexer',
    },
    {
      does: 'Two engines from the start, with what another indexer knows about them:',
      line: "homing indexer --block-size 16 --workers '1=tcp://10.0.0.1:5557?replay=6557,2=tcp://10.0.0.2:5557?replay=6557' --peers http://10.0.0.9:8090",
    },
  ],
  rules: [faultOfMissingBlockSize, faultOfBodies, faultOfShards],
}

type Facts = RuleFacts<IndexerSettings>

function faultOfGroup(text: string): string | undefined {
  return text.includes(':') ? 'must not contain a colon, which separates model and group in dumps' : undefined
}

function faultOfMissingBlockSize({ settings: { workers, blockSizeTokens } }: Facts): string | undefined {
  if (workers.length === 0 || blockSizeTokens !== undefined) return undefined
  return '--workers need --block-size: the tokens in a block of their KV cache, such as --block-size 16'
}

function faultOfBodies({ settings: { bodiesBytesMax, bodyBytesMax } }: Facts): string | undefined {
  if (bodiesBytesMax >= bodyBytesMax) return undefined
  return `--max-bodies-bytes ${bodiesBytesMax} is less than one body of --max-body-bytes ${bodyBytesMax}: raise the first or lower the second`
}

/** Least bytes of a shard, as for the router: its tables with every layer of every rank, and as much again for blocks. */
const SHARD_BYTES_MIN = 64 * KIB
const SHARD_BYTES_PER_WORKER_SLOT = 144
/** A shared memory of WebAssembly has 4 GiB, a part of which is for readers. */
const SHARD_BYTES_MAX = 3840 * MIB
/** Blocks known from peers take a quarter of each shard. */
const INHERITED_PARTS = 4

function faultOfShards({ settings }: Facts): string | undefined {
  const { indexBytes, threads, workerSlotsMax, peers, workers } = settings
  const parts = peers.length > 0 && workers.length > 0 ? INHERITED_PARTS : 1
  const shardBytes = Math.floor(indexBytes / threads)
  const shardBytesMin = (SHARD_BYTES_MIN + workerSlotsMax * SHARD_BYTES_PER_WORKER_SLOT) * parts
  if (shardBytes < shardBytesMin) {
    return `--index-bytes leaves ${shardBytes} bytes for each of --threads ${threads}: with --worker-slots-max ${workerSlotsMax}${parts > 1 ? ' and peers' : ''} each needs ${shardBytesMin}`
  }
  if (shardBytes > SHARD_BYTES_MAX) {
    return `--index-bytes leaves ${shardBytes} bytes for each of --threads ${threads}: each can use ${SHARD_BYTES_MAX}, so name more threads`
  }
  return undefined
}
