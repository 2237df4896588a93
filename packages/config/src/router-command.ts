/**
 * The settings of `homing router`. Every one of them does something; what a later version will know is
 * not here, so that nobody sets it in vain.
 *
 * Source   names and older spellings: the options and `DYN_*` variables that operators of KV-aware
 *          routers know. Defaults are ours where theirs do not suit a router that stands alone.
 */

import type { Command, RuleFacts, SettingDescriptor, SettingsOf } from './descriptor.ts'

const SECOND_MS = 1000
const MINUTE_MS = 60_000
const HOUR_MS = 3_600_000
const MIB = 2 ** 20
const GIB = 2 ** 30

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'silent'] as const

const routerSettings = [
  {
    key: 'host',
    name: 'host',
    group: 'Listening',
    kind: 'text',
    placeholder: 'ADDRESS',
    default: '0.0.0.0',
    aliases: ['http-host'],
    envAliases: [{ name: 'DYN_HTTP_HOST' }],
    help: 'Address to listen on. 0.0.0.0 is every interface of the machine, as engines do by default; 127.0.0.1 keeps the router to this machine. There is no authentication.',
  },
  {
    key: 'port',
    name: 'port',
    group: 'Listening',
    kind: 'integer',
    default: 8000,
    min: 0,
    max: 65_535,
    zeroMeans: 'a free port, told in the ready line',
    aliases: ['http-port'],
    envAliases: [{ name: 'DYN_HTTP_PORT' }],
    help: 'Port of the OpenAI-compatible API, /metrics, /workers and /decisions.',
  },
  {
    key: 'bodyBytesMax',
    name: 'max-body-bytes',
    group: 'Listening',
    kind: 'size',
    default: 64 * MIB,
    min: 1024,
    max: GIB,
    envAliases: [{ name: 'DYN_HTTP_BODY_LIMIT_MB', suffix: 'MiB' }],
    help: 'Largest request body. A longer one is answered with 413 and not read to its end.',
  },
  {
    key: 'bodiesBytesMax',
    name: 'max-bodies-bytes',
    group: 'Listening',
    kind: 'size',
    default: GIB,
    min: 1024,
    max: 1024 * GIB,
    help: 'Most bytes of request bodies in memory at one time, those that are still arriving included; a body is kept until its request has ended, for another try. A request that finds no room is answered with 503 at once. 1 GiB is 256 KiB, some 60,000 tokens of text, for each of 4096 requests. Bodies lie outside the JavaScript heap; while prompts are read, copies take up to as much again.',
  },
  {
    key: 'bodyTimeoutMs',
    name: 'body-timeout',
    group: 'Listening',
    kind: 'duration',
    default: 60 * SECOND_MS,
    min: 100,
    max: 24 * HOUR_MS,
    help: 'Longest pause between two pieces of a request body. After it the request is answered with 408 and its connection closed.',
  },
  {
    key: 'clientStallTimeoutMs',
    name: 'client-stall-timeout',
    group: 'Listening',
    kind: 'duration',
    default: 120 * SECOND_MS,
    min: 100,
    max: 24 * HOUR_MS,
    help: 'How long an answer may wait for a client that takes none of its bytes. Then the connection is cut, the request aborted at its engine and its load taken off. A client that reads slowly is left alone; since the operating system passes on what it takes in large pieces, leave room for slow ones.',
  },
  {
    key: 'openRequestsMax',
    name: 'max-open-requests',
    group: 'Listening',
    kind: 'integer',
    default: 4096,
    min: 1,
    max: 1_000_000,
    unit: 'requests',
    help: 'Requests that may be in the router at one time. One more is answered with 503 at once, instead of making all the others slower.',
  },
  {
    key: 'shutdownTimeoutMs',
    name: 'shutdown-timeout',
    group: 'Listening',
    kind: 'duration',
    default: 30 * SECOND_MS,
    min: 0,
    max: HOUR_MS,
    zeroMeans: 'cut open requests at once',
    envAliases: [{ name: 'DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS' }],
    help: 'After SIGTERM or SIGINT no new request is taken; those that are open have this long to end.',
  },
  {
    key: 'detach',
    name: 'detach',
    group: 'Listening',
    kind: 'flag',
    default: false,
    help: 'Keep running when the process that started the router has gone. Without it, a killed npx or pnpm takes the router with it, drained.',
  },

  {
    key: 'workers',
    name: 'worker',
    group: 'Workers',
    kind: 'list',
    placeholder: 'URL',
    separator: 'comma or space',
    aliases: ['workers'],
    unsetMeans: 'a demo fleet of simulated engines',
    env: 'HOMING_WORKERS',
    check: faultOfWorkerUrl,
    help: 'Base URL of an engine; give it once per engine. What the engine does not tell by itself rides in the query: http://h:8001?events=5557&replay=5558&ranks=2 (also model=, block_size=, max_batched_tokens=, kv_blocks=, taints=, topic=, id=).',
  },
  {
    key: 'probeIntervalMs',
    name: 'probe-interval',
    group: 'Workers',
    kind: 'duration',
    default: 5 * SECOND_MS,
    min: 100,
    max: HOUR_MS,
    help: 'Pause between two probes of a worker. A worker that went down takes requests again after the first probe that it answers.',
  },
  {
    key: 'probeTimeoutMs',
    name: 'probe-timeout',
    group: 'Workers',
    kind: 'duration',
    default: 2 * SECOND_MS,
    min: 10,
    max: 10 * SECOND_MS,
    help: 'How long a worker has to answer one question of a probe before it counts as down. After a miss it is given twice as long each time, up to 10s.',
  },
  {
    key: 'workerSlotsMax',
    name: 'worker-slots-max',
    group: 'Workers',
    kind: 'integer',
    default: 1024,
    min: 1,
    max: 16_384,
    unit: 'worker keys',
    help: 'Worker keys (workers times their data-parallel ranks) that the index and the load tables have room for.',
  },

  {
    key: 'routerMode',
    name: 'router-mode',
    group: 'Routing',
    kind: 'choice',
    choices: ['kv', 'random', 'round-robin', 'least-loaded'],
    default: 'kv',
    envAliases: [{ name: 'DYN_ROUTER_MODE' }],
    help: 'How a worker is chosen. kv weighs what each worker has cached of the prompt against what it is busy with; the others are for comparison and for engines without a prefix cache.',
  },
  {
    key: 'overlapScoreWeight',
    name: 'kv-overlap-score-weight',
    group: 'Routing',
    kind: 'number',
    default: 1,
    min: 0,
    max: 1000,
    aliases: ['router-kv-overlap-score-weight', 'overlap-score-weight'],
    envAliases: [{ name: 'DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT' }, { name: 'DYN_KV_OVERLAP_SCORE_WEIGHT' }],
    help: 'What a block that must be prefilled costs, when a block in use by running requests costs 1. Higher favours cache hits and a short time to the first token; lower spreads load and steadies the tokens after it; 0 ignores the cache.',
  },
  {
    key: 'temperature',
    name: 'router-temperature',
    group: 'Routing',
    kind: 'number',
    default: 0,
    min: 0,
    max: 1000,
    zeroMeans: 'the cheapest worker always wins',
    envAliases: [{ name: 'DYN_ROUTER_TEMPERATURE' }],
    help: 'Above 0 the worker is drawn by softmax over the costs; higher is closer to uniform. A little helps where several routers share one fleet and would all pick the same worker.',
  },
  {
    key: 'activeRequestExpiryMs',
    name: 'active-request-expiry-secs',
    group: 'Routing',
    kind: 'duration',
    default: 300 * SECOND_MS,
    min: SECOND_MS,
    max: 24 * HOUR_MS,
    aliases: ['router-active-request-expiry-secs'],
    envAliases: [{ name: 'DYN_ROUTER_ACTIVE_REQUEST_EXPIRY_SECS' }],
    help: 'Load of a request that nobody has touched for this long is taken off its worker. A stream that still sends tokens is not inactive, however old it is.',
  },
  {
    key: 'decisionsKept',
    name: 'decisions-kept',
    group: 'Routing',
    kind: 'integer',
    default: 1000,
    min: 0,
    max: 1_000_000,
    unit: 'receipts',
    help: 'Receipts that GET /decisions can show, newest first.',
  },
  {
    key: 'decisionRowsKept',
    name: 'decision-rows-kept',
    group: 'Routing',
    kind: 'integer',
    default: 100_000,
    min: 1000,
    max: 100_000_000,
    unit: 'rows',
    help: 'Candidates and excluded workers in all receipts together, at some 200 bytes each. Above it the oldest receipts are shortened to the worker chosen, the runner-up and the cheapest others, eight in all, and say how many were left out; where that is not enough, the oldest go.',
  },
  {
    key: 'audit',
    name: 'audit',
    group: 'Routing',
    kind: 'flag',
    default: true,
    help: 'Compare what was predicted to be cached with what engines report (cached_tokens). A stream whose client did not ask for usage is asked for it, and the event that this adds is taken out of the answer again; no other byte changes. With --no-audit streams are sent as they came, and only answers that have usage by themselves are compared.',
  },
  {
    key: 'seed',
    name: 'seed',
    group: 'Routing',
    kind: 'integer',
    default: undefined,
    min: 0,
    max: 2 ** 32 - 1,
    unsetMeans: 'drawn anew at every start',
    help: 'Seed of every draw the router makes (ties, temperature), so that a run can be repeated.',
  },

  {
    key: 'kvEvents',
    name: 'kv-events',
    group: 'KV events and index',
    kind: 'flag',
    default: true,
    aliases: ['router-kv-events', 'use-kv-events'],
    envAliases: [{ name: 'DYN_ROUTER_USE_KV_EVENTS' }],
    help: 'Subscribe to the KV events of the workers. With --no-kv-events what was sent to a worker is taken to be cached there (trust approximate), as it is for workers that publish none.',
  },
  {
    key: 'predictionTtlMs',
    name: 'router-ttl-secs',
    group: 'KV events and index',
    kind: 'duration',
    default: 120 * SECOND_MS,
    min: 100,
    max: 24 * HOUR_MS,
    aliases: ['router-ttl'],
    envAliases: [{ name: 'DYN_ROUTER_TTL_SECS' }, { name: 'DYN_ROUTER_TTL' }],
    help: 'How long what was sent to a worker is taken to be cached there, where no KV events tell. Sent again, it lasts as long anew. Lower it where caches turn over faster.',
  },
  {
    key: 'predictionBlocksMax',
    name: 'router-max-tree-size',
    group: 'KV events and index',
    kind: 'integer',
    default: 2 ** 20,
    min: 1,
    max: 2 ** 26,
    unit: 'blocks',
    envAliases: [{ name: 'DYN_ROUTER_MAX_TREE_SIZE' }],
    help: 'Most blocks that are taken to be cached at one worker because they were sent there; fewer where the worker says that its cache holds fewer. All workers of an event thread together have a block for every 128 bytes of its part of --index-bytes.',
  },
  {
    key: 'pruneTargetRatio',
    name: 'router-prune-target-ratio',
    group: 'KV events and index',
    kind: 'number',
    default: 0.8,
    min: 0,
    max: 1,
    envAliases: [{ name: 'DYN_ROUTER_PRUNE_TARGET_RATIO' }],
    help: 'When what was sent to a worker has become too much, what expires first is forgotten until this share is left.',
  },
  {
    key: 'predictedTtlMs',
    name: 'router-predicted-ttl-secs',
    group: 'KV events and index',
    kind: 'duration',
    default: 0,
    min: 0,
    max: HOUR_MS,
    zeroMeans: 'events alone count where there are any',
    envAliases: [{ name: 'DYN_ROUTER_PREDICTED_TTL_SECS' }],
    help: 'How long what was sent to a worker with KV events is taken to be cached there until its events say so. A few seconds let requests that arrive together share a prompt that is still being computed.',
  },
  {
    key: 'hostCacheHitWeight',
    name: 'router-host-cache-hit-weight',
    group: 'KV events and index',
    kind: 'number',
    default: 0.75,
    min: 0,
    max: 1,
    envAliases: [{ name: 'DYN_ROUTER_HOST_CACHE_HIT_WEIGHT' }],
    help: "What a block in the memory of a worker's host counts for, when one on the device counts 1.",
  },
  {
    key: 'diskCacheHitWeight',
    name: 'router-disk-cache-hit-weight',
    group: 'KV events and index',
    kind: 'number',
    default: 0.25,
    min: 0,
    max: 1,
    envAliases: [{ name: 'DYN_ROUTER_DISK_CACHE_HIT_WEIGHT' }],
    help: 'What a block on disk, or in a store outside the worker, counts for, when one on the device counts 1.',
  },
  {
    key: 'blockSizeTokens',
    name: 'kv-cache-block-size',
    group: 'KV events and index',
    kind: 'integer',
    default: undefined,
    min: 1,
    max: 65_536,
    unit: 'tokens',
    unsetMeans: 'what each worker reports, or its first event shows',
    aliases: ['block-size', 'router-block-size'],
    envAliases: [{ name: 'DYN_KV_CACHE_BLOCK_SIZE' }],
    help: 'Tokens in a block of the KV cache. It must be what the engines run with, or no prefix is ever found; set it only for engines that do not say.',
  },
  {
    key: 'eventThreads',
    name: 'router-event-threads',
    group: 'KV events and index',
    kind: 'integer',
    default: {
      says: 'min(4, cores − 1), at least 1',
      of: machine => Math.max(1, Math.min(4, machine.cores - 1)),
    },
    min: 1,
    max: 64,
    unit: 'threads',
    envAliases: [{ name: 'DYN_ROUTER_EVENT_THREADS' }],
    help: 'Threads that receive KV events, each with one shard of the index. More help when the events of many workers are more than one thread can apply.',
  },
  {
    key: 'indexBytes',
    name: 'index-bytes',
    group: 'KV events and index',
    kind: 'size',
    default: 256 * MIB,
    min: MIB,
    max: 64 * GIB,
    help: 'Memory that the whole index may take, divided evenly among its shards. It never grows past this; blocks that find no room are left out and counted.',
  },
  {
    key: 'replayTimeoutMs',
    name: 'replay-timeout',
    group: 'KV events and index',
    kind: 'duration',
    default: 5 * SECOND_MS,
    min: 10,
    max: 10 * MINUTE_MS,
    help: 'How long a worker may be silent while it replays past events before it is asked again. Meanwhile its cache is trusted less.',
  },
  {
    key: 'checkpointDirectory',
    name: 'checkpoint-dir',
    group: 'KV events and index',
    kind: 'text',
    placeholder: 'DIRECTORY',
    default: undefined,
    unsetMeans: 'none are kept',
    help: 'Where to keep checkpoints: what the index holds of each source of events, so that after a restart it goes on where it was, also where the engine no longer repeats its whole history. A checkpoint counts only when the engine repeats the batch that it ends with.',
  },
  {
    key: 'checkpointIntervalMs',
    name: 'checkpoint-interval',
    group: 'KV events and index',
    kind: 'duration',
    default: MINUTE_MS,
    min: 100,
    max: 24 * HOUR_MS,
    help: 'How often the checkpoint of each source is written, where something has changed. They are also written at a graceful stop. While one is taken, events of its shard wait: about 0.3 ms per thousand blocks; a source with more than four million gets none.',
  },

  {
    key: 'tokenizers',
    name: 'tokenizer',
    group: 'Tokenizing',
    kind: 'list',
    placeholder: '[MODEL=]DIR',
    separator: 'comma',
    aliases: ['tokenizers', 'model-path'],
    env: 'HOMING_TOKENIZERS',
    unsetMeans: 'a worker is asked to tokenize',
    check: faultOfTokenizer,
    help: 'Directory with tokenizer.json and tokenizer_config.json, for one model or, without MODEL=, for all that have none of their own. The router then tokenizes by itself, which saves each request a round trip.',
  },
  {
    key: 'tokenizerThreads',
    name: 'tokenizer-threads',
    group: 'Tokenizing',
    kind: 'integer',
    default: {
      says: 'min(4, cores − 1), at least 1',
      of: machine => Math.max(1, Math.min(4, machine.cores - 1)),
    },
    min: 1,
    max: 64,
    unit: 'threads',
    help: 'Threads that read, render, tokenize and hash prompts. More help when prompts are long and the tokenizing shows in the time to the first token.',
  },

  {
    key: 'retries',
    name: 'retries',
    group: 'Relaying',
    kind: 'integer',
    default: 2,
    min: 0,
    max: 16,
    unit: 'attempts',
    help: 'Further workers that are tried when one fails before the first byte of its answer. After the first byte a request is never sent again.',
  },
  {
    key: 'requestTimeoutMs',
    name: 'request-timeout',
    group: 'Relaying',
    kind: 'duration',
    default: 0,
    min: 0,
    max: 24 * HOUR_MS,
    zeroMeans: 'no limit',
    help: 'Longest time from a request to the end of its answer. Long outputs take minutes: set it only where clients would not wait longer.',
  },
  {
    key: 'silenceTimeoutMs',
    name: 'silence-timeout',
    group: 'Relaying',
    kind: 'duration',
    default: 10 * MINUTE_MS,
    min: 100,
    max: 24 * HOUR_MS,
    help: 'Longest wait for the next byte of an answer, the first included. A worker that hangs is given up after it; an answer that is not a stream comes in one piece, so leave room for the longest.',
  },

  {
    key: 'demoEngines',
    name: 'demo-engines',
    group: 'Demo fleet (where no worker is named)',
    kind: 'integer',
    default: 4,
    min: 1,
    max: 32,
    unit: 'engines',
    help: 'Simulated engines, each on a thread of its own, with real HTTP and real ZeroMQ between them and the router.',
  },
  {
    key: 'demoSpeed',
    name: 'demo-speed',
    group: 'Demo fleet (where no worker is named)',
    kind: 'number',
    default: 1,
    min: 0.01,
    max: 1000,
    help: 'Divides every duration that the simulated engines pretend to need.',
  },

  {
    key: 'logLevel',
    name: 'log-level',
    group: 'Logging',
    kind: 'choice',
    choices: LOG_LEVELS,
    default: 'info',
    envAliases: [{ name: 'DYN_LOG', read: levelOfFilter }],
    help: 'Logs are JSON lines on standard error. info tells of starts, stops and trust; debug of every request; trace of every event.',
  },
] as const satisfies readonly SettingDescriptor[]

/** The settings of `homing router` as its actors are given them: times in milliseconds, sizes in bytes. */
export type RouterSettings = SettingsOf<typeof routerSettings>

/** `homing router`. */
export const routerCommand: Command<typeof routerSettings> = {
  name: 'router',
  summary:
    'Routes OpenAI requests to the engine that has most of their prompt cached, weighed against its load.',
  settings: routerSettings,
  examples: [
    {
      does: 'A demo fleet of four simulated engines behind port 8000:',
      line: 'homing router',
    },
    {
      does: 'Two engines of your own, events and replay where the engines say:',
      line: 'homing router --worker http://10.0.0.1:8001 --worker http://10.0.0.2:8001 --tokenizer ./model',
    },
  ],
  rules: [
    ({ settings, isGiven }) =>
      settings.workers.length > 0 && (isGiven('demoEngines') || isGiven('demoSpeed'))
        ? '--demo-engines and --demo-speed have no effect where workers are named: leave them out, or --worker'
        : undefined,
    faultOfShardSize,
    ({ settings }) =>
      settings.predictedTtlMs > 0 && !settings.kvEvents
        ? '--router-predicted-ttl-secs fills the time until KV events come, and --no-kv-events wants none: use --router-ttl-secs'
        : undefined,
    ({ settings }) =>
      settings.bodiesBytesMax < settings.bodyBytesMax
        ? `--max-bodies-bytes ${settings.bodiesBytesMax} is less than one body of --max-body-bytes ${settings.bodyBytesMax}: raise the first or lower the second`
        : undefined,
  ],
}

/**
 * Least bytes of a shard: the tables of packages/index that have a size of their own need about 72 bytes per
 * worker key with its layers and 30 KiB; with twice that, something is left for blocks.
 */
const SHARD_BYTES_MIN = 64 * 1024
const SHARD_BYTES_PER_WORKER_SLOT = 144
/** A shared memory of WebAssembly has 4 GiB, a part of which is for readers. */
const SHARD_BYTES_MAX = 3840 * MIB

function faultOfShardSize({ settings }: RuleFacts<RouterSettings>): string | undefined {
  const { indexBytes, eventThreads, workerSlotsMax } = settings
  const shardBytes = Math.floor(indexBytes / eventThreads)
  const shardBytesMin = SHARD_BYTES_MIN + workerSlotsMax * SHARD_BYTES_PER_WORKER_SLOT
  if (shardBytes < shardBytesMin) {
    return `--index-bytes leaves ${shardBytes} bytes for each of --router-event-threads ${eventThreads}: with --worker-slots-max ${workerSlotsMax} each needs ${shardBytesMin}`
  }
  if (shardBytes > SHARD_BYTES_MAX) {
    return `--index-bytes leaves ${shardBytes} bytes for each of --router-event-threads ${eventThreads}: each can use ${SHARD_BYTES_MAX}, so name more threads`
  }
  return undefined
}

function faultOfWorkerUrl(text: string): string | undefined {
  const url = URL.parse(text)
  if (url === null || url.hostname === '') return 'is not a URL such as http://10.0.0.1:8001'
  if (url.protocol !== 'http:') return `has the scheme ${url.protocol.slice(0, -1)}; use http`
  if (url.username !== '' || url.password !== '') return 'must not carry a user name or password'
  return undefined
}

/**
 * The level of a filter such as 'info,hyper=warn': that of its last directive without a target. Those with one are
 * about modules that we do not have.
 *
 * Source   EnvFilter of the Rust crate tracing-subscriber.
 */
function levelOfFilter(text: string): string | undefined {
  const words = text.split(',').map(directive => directive.trim().toLowerCase())
  return words
    .map(word => (word === 'off' ? 'silent' : word))
    .findLast(word => (LOG_LEVELS as readonly string[]).includes(word))
}

function faultOfTokenizer(text: string): string | undefined {
  const directory = text.slice(text.indexOf('=') + 1)
  if (directory === '') return 'names no directory; use DIR or MODEL=DIR'
  if (text.startsWith('=')) return 'names no model before the =; use DIR or MODEL=DIR'
  return undefined
}
