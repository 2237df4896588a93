/**
 * The settings of `homing indexer`.
 *
 * Source   names: the options that operators of such an index service know; the bounds are ours.
 */

import type { Command, RuleFacts, SettingDescriptor, SettingsOf } from './descriptor.ts'
import { faultOfBodies, faultOfLabels, faultOfShards, shared } from './shared-settings.ts'
import { GIB, KIB, MIB, MINUTE_MS, SECOND_MS } from './units.ts'

const indexerSettings = [
  {
    ...shared.host,
    env: 'HOMING_INDEXER_HOST',
    help: 'Address to listen on. 0.0.0.0 is every interface of the machine; 127.0.0.1 accepts connections from this machine only. There is no authentication.',
  },
  {
    ...shared.hostNames,
    env: 'HOMING_INDEXER_HOST_NAMES',
    help: 'A further name under which this indexer is called by browsers, or through a proxy on this machine. Such a request for a name that is not known is refused with 403, because a page of another site may have its own name resolve to this machine. Programs on other machines may use any name.',
  },
  {
    ...shared.port,
    default: 8090,
    env: 'HOMING_INDEXER_PORT',
    help: 'Port of the HTTP routes; GET / lists them.',
  },
  {
    ...shared.bodyBytesMax,
    default: 8 * MIB,
    env: 'HOMING_INDEXER_MAX_BODY_BYTES',
    help: 'Largest request body. A longer one is answered with 413 and not read to its end. 8 MiB hold a query of about a million tokens.',
  },
  {
    ...shared.bodiesBytesMax,
    default: 256 * MIB,
    env: 'HOMING_INDEXER_MAX_BODIES_BYTES',
    help: 'Most bytes of request bodies in memory at one time. A request that finds no room is answered with 503 at once.',
  },
  {
    ...shared.bodyTimeoutMs,
    env: 'HOMING_INDEXER_BODY_TIMEOUT',
  },
  {
    ...shared.clientStallTimeoutMs,
    env: 'HOMING_INDEXER_CLIENT_STALL_TIMEOUT',
    help: 'How long an answer, such as a dump, may wait for a client that takes none of its bytes. Then the connection is cut.',
  },
  {
    ...shared.keepAliveTimeoutMs,
    env: 'HOMING_INDEXER_KEEP_ALIVE_TIMEOUT',
  },
  {
    ...shared.openRequestsMax,
    default: 1024,
    env: 'HOMING_INDEXER_MAX_OPEN_REQUESTS',
    help: 'Most requests that may be open at one time. Further ones are answered with 503 at once.',
  },
  {
    ...shared.openOperatorRequestsMax,
    env: 'HOMING_INDEXER_MAX_OPEN_OPERATOR_REQUESTS',
    help: 'Most requests besides queries (/workers, /dump, /register and so on) at one time, apart from --max-open-requests. A request counts until its client has taken the answer, and one address has half of the places at most. Further ones are answered with 503 at once; /health and /metrics have 8 places of their own.',
  },
  {
    ...shared.shutdownTimeoutMs,
    default: 10 * SECOND_MS,
    env: 'HOMING_INDEXER_SHUTDOWN_TIMEOUT',
  },
  {
    ...shared.detach,
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
    ...shared.blockSizeTokens,
    name: 'block-size',
    group: 'Workers',
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
    ...shared.workerSlotsMax,
    unit: 'ranks',
    env: 'HOMING_INDEXER_WORKER_SLOTS_MAX',
    help: 'Most ranks that may be registered at one time, over all models and groups. Further ones are answered with 503.',
  },
  {
    ...shared.replayTimeoutMs,
    group: 'Workers',
    env: 'HOMING_INDEXER_REPLAY_TIMEOUT',
    help: 'How long an engine may be silent during a replay of past events before it is asked again.',
  },
  {
    ...shared.checkpointDirectory,
    group: 'Workers',
    env: 'HOMING_INDEXER_CHECKPOINT_DIR',
    help: 'Directory for checkpoints: the index content of each rank. After a restart the index continues from there, even if the engine no longer repeats its whole history. A checkpoint counts only when the engine repeats the batches that it ends with.',
  },
  {
    ...shared.checkpointIntervalMs,
    group: 'Workers',
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
    ...shared.indexBytes,
    group: 'Index',
    env: 'HOMING_INDEXER_INDEX_BYTES',
    help: 'Memory that the whole index may take, divided evenly among its threads. It never grows past this; blocks that find no room are left out and counted. With --peers and --workers a quarter of it is for blocks known from peers.',
  },
  {
    ...shared.labelBytes,
    group: 'Index',
    env: 'HOMING_INDEXER_LABEL_BYTES',
    help: 'Memory for labels of blocks (experts of MoE models, states in pooled memory), divided evenly among the threads. Labels that find no room are left out and counted. 0 keeps none. With --peers and --workers a quarter of it is for labels known from peers.',
  },
  {
    ...shared.labelRecordsPerBlock,
    group: 'Index',
    env: 'HOMING_INDEXER_LABEL_RECORDS_PER_BLOCK',
    help: 'Worker keys that say something of one labelled block, on the average: --label-bytes is divided by it. More for fleets that share prompts, where homing_index_label_records_used_ratio is near 1 before that of blocks.',
  },
  {
    ...shared.labelWorkersShare,
    group: 'Index',
    env: 'HOMING_INDEXER_LABEL_WORKERS_SHARE',
    help: 'Part of --label-bytes for lists of workers that reach pooled blocks, each different list once (homing_index_label_workers_used_ratio). A pooled block whose list finds no room is reached by its own worker alone. Half of it at most is for members of labels that are not known.',
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
    ...shared.accessLog,
    group: 'Logging',
    unsetMeans: 'none',
    env: 'HOMING_INDEXER_ACCESS_LOG',
    help: 'File to which one JSON line per request is appended; - is standard output. After you move it away, a new one is begun within a second, or at once with POST /reopen_logs.',
  },
  {
    ...shared.traceIdHeader,
    env: 'HOMING_INDEXER_TRACE_ID_HEADER',
  },
  {
    ...shared.logLevel,
    env: 'HOMING_INDEXER_LOG_LEVEL',
    help: 'How much is logged, on standard error. info reports registrations and trust; trace every batch of KV events.',
  },
  shared.logFormat,
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
  rules: [faultOfMissingBlockSize, faultOfBodies, faultOfIndexBytes],
}

type Facts = RuleFacts<IndexerSettings>

function faultOfGroup(text: string): string | undefined {
  return text.includes(':') ? 'must not contain a colon, which separates model and group in dumps' : undefined
}

function faultOfMissingBlockSize({ settings: { workers, blockSizeTokens } }: Facts): string | undefined {
  if (workers.length === 0 || blockSizeTokens !== undefined) return undefined
  return '--workers need --block-size: the tokens in a block of their KV cache, such as --block-size 16'
}

/** Blocks known from peers take a quarter of each shard. */
const INHERITED_PARTS = 4

function faultOfIndexBytes({ settings }: Facts): string | undefined {
  const { indexBytes, labelBytes, threads, workerSlotsMax, peers, workers } = settings
  const isInheriting = peers.length > 0 && workers.length > 0
  const fault = faultOfShards({
    ...{ indexBytes, workerSlotsMax, threads, threadsOption: '--threads' },
    ...(isInheriting ? { parts: INHERITED_PARTS, partsWords: ' and peers' } : {}),
  })
  return fault ?? faultOfLabels(labelBytes, threads, '--threads')
}
