/**
 * The settings of `homing router`. Each of them has an effect; settings of later versions are
 * not here, so that nobody sets them in vain.
 *
 * Source   names and older spellings: the options and `DYN_*` variables that operators of KV-aware
 *          routers know. Defaults are ours where theirs do not suit a standalone router.
 */

import type { Command, RuleFacts, SettingDescriptor, SettingsOf } from './descriptor.ts'
import { relayRouteFault } from './relay-route.ts'
import { hostWithoutBrackets } from './setting-value.ts'

const SECOND_MS = 1000
const MINUTE_MS = 60_000
const HOUR_MS = 3_600_000
const KIB = 2 ** 10
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
    read: hostWithoutBrackets,
    help: 'Address to listen on. 0.0.0.0 is every interface of the machine, the usual default of engines; 127.0.0.1 accepts connections from this machine only. There is no authentication.',
  },
  {
    key: 'port',
    name: 'port',
    group: 'Listening',
    kind: 'integer',
    default: 8000,
    min: 0,
    max: 65_535,
    zeroMeans: 'a free port, named in the ready line',
    aliases: ['http-port'],
    envAliases: [{ name: 'DYN_HTTP_PORT' }],
    help: 'Port of the OpenAI-compatible API and, without --admin-port, of the operator routes.',
  },
  {
    key: 'adminPort',
    name: 'admin-port',
    group: 'Listening',
    kind: 'integer',
    default: undefined,
    min: 0,
    max: 65_535,
    zeroMeans: 'a free port, named below the ready line',
    unsetMeans: 'the operator routes are on --port',
    help: 'Separate port, at the same --host, for the operator routes: /metrics, /workers, /queue, /decisions, /route, /actors, /dump and /. Then --port serves only the API, the relayed routes, /health and /ready; everything else there is 404. Neither port has authentication: keep clients away from this one with a firewall.',
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
    help: 'Most bytes of request bodies in memory at one time, including bodies that are still arriving; a body is kept until its request has ended, for a retry, and its prompt has been read. A request that finds no room is answered with 503 at once. 1 GiB is 256 KiB, about 60,000 tokens of text, for each of 4096 requests. Bodies are outside the JavaScript heap; while prompts are read, copies take up to the same amount again.',
  },
  {
    key: 'bodyTimeoutMs',
    name: 'body-timeout',
    group: 'Listening',
    kind: 'duration',
    default: 60 * SECOND_MS,
    min: 100,
    max: 24 * HOUR_MS,
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
    help: 'How long an answer may wait for a client that takes none of its bytes. Then the connection is cut, the request is aborted at its engine and its load is freed. A client that reads slowly is not cut; but the operating system passes on its reads in large pieces, so leave some margin for slow clients.',
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
    help: 'Most requests in the router at one time. Further ones are answered with 503 at once, instead of slowing down all others. Each request takes two sockets, which count as open files: if the limit of open files (ulimit -n) allows fewer requests, the router takes fewer, and the log says so.',
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
    help: 'After SIGTERM or SIGINT no new request is taken; open requests have this long to end.',
  },
  {
    key: 'detach',
    name: 'detach',
    group: 'Listening',
    kind: 'flag',
    default: false,
    help: 'Keep running when the process that started the router has gone. Without it, the router drains and ends when npx or pnpm is killed.',
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
    mustNameOne: true,
    env: 'HOMING_WORKERS',
    check: faultOfWorkerUrl,
    help: 'Base URL of an engine; give it once per engine. Put what the engine does not report itself into the query: http://h:8001?events=5557&replay=6557&ranks=2 (also model=, block_size=, max_batched_tokens=, kv_blocks=, taints=, topic=, id=).',
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
    help: 'How long a worker has to answer one request of a probe before it counts as down. The time doubles after each miss, up to 10s.',
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
    help: 'Most worker keys (workers times their data-parallel ranks) in the index and the load tables.',
  },

  {
    key: 'routerMode',
    name: 'router-mode',
    group: 'Routing',
    kind: 'choice',
    choices: ['kv', 'random', 'round-robin', 'least-loaded', 'power-of-two', 'direct'],
    default: 'kv',
    envAliases: [{ name: 'DYN_ROUTER_MODE' }],
    help: 'How a worker is chosen. kv weighs the cached part of the prompt at each worker against its load, by the rule of --router-policy. The others do not look at the cache: least-loaded takes the worker with the fewest requests, power-of-two the one with fewer requests of two that it draws, and direct the worker that the request names (nvext.backend_instance_id).',
  },
  {
    key: 'routerPolicy',
    name: 'router-policy',
    group: 'Routing',
    kind: 'choice',
    choices: ['auto', 'linear', 'product', 'est-ttft', 'threshold'],
    default: 'auto',
    help: 'What mode kv compares (docs/policies.md). If --kv-overlap-score-weight, --router-temperature or --router-decode-active-request-weight is given and this is not, it is linear. auto: what a placement costs the request, those that are there and those that come, in milliseconds that it learns from each worker; it has no knobs. linear: blocks to prefill, weighed by --kv-overlap-score-weight, plus blocks in use. product: tokens to prefill times requests; it needs no weight. est-ttft: estimated milliseconds to the first token; give it the figures of your engines. threshold: most of the prompt cached, unless the fleet is out of balance.',
  },
  {
    key: 'guardShare',
    name: 'router-guard-share',
    group: 'Routing',
    kind: 'number',
    default: 0.01,
    min: 0,
    max: 0.5,
    zeroMeans: 'nothing is tried, so nobody notices a policy that does harm',
    help: 'Policy auto: share of its decisions that go by least-loaded instead, to see whether following the caches pays (docs/policies.md). Where it does not, fewer decisions follow them, until it pays again.',
  },
  {
    key: 'selectionModule',
    name: 'selection-module',
    group: 'Routing',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'the policy chooses',
    help: 'JavaScript or TypeScript module whose default export takes the place of --router-policy: filter, score and pick, functions of your own (docs/policies.md). It is loaded once, at the start, and runs inside the router: use only code that you trust.',
  },
  {
    key: 'overlapWeight',
    name: 'kv-overlap-score-weight',
    group: 'Routing',
    kind: 'number',
    default: 1,
    min: 0,
    max: 1000,
    aliases: ['router-kv-overlap-score-weight', 'overlap-score-weight', 'router-prefill-load-scale'],
    envAliases: [
      { name: 'DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT' },
      { name: 'DYN_KV_OVERLAP_SCORE_WEIGHT' },
      { name: 'DYN_ROUTER_PREFILL_LOAD_SCALE' },
    ],
    help: 'Policy linear: cost of a block that must be prefilled, when a block in use by running requests costs 1. Higher values favour cache hits and a short time to the first token; lower values spread load and steady the tokens after it. 0 ignores the cache, under every policy.',
  },
  {
    key: 'overlapCredit',
    name: 'router-kv-overlap-score-credit',
    group: 'Routing',
    kind: 'number',
    default: 1,
    min: 0,
    max: 1000,
    aliases: ['kv-overlap-score-credit'],
    envAliases: [{ name: 'DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT' }],
    help: 'What a cached block on the device counts for, in blocks that need no prefill. Below 1 the cache counts less than it saves; above 1 a worker that holds the prompt is also forgiven some of its queue.',
  },
  {
    key: 'creditDecay',
    name: 'router-kv-overlap-score-credit-decay',
    group: 'Routing',
    kind: 'number',
    default: 0,
    min: 0,
    max: 1000,
    zeroMeans: 'no decay',
    envAliases: [{ name: 'DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY' }],
    help: 'How fast that credit falls with the queue of a worker: it is divided by 1 + this · the prompts of this length that are queued there beyond the least busy worker. It spreads a popular prompt over more workers.',
  },
  {
    key: 'activeRequestWeight',
    name: 'router-decode-active-request-weight',
    group: 'Routing',
    kind: 'number',
    default: 0,
    min: 0,
    max: 100_000,
    envAliases: [{ name: 'DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT' }],
    help: 'Policy linear: cost in blocks of each request that is active at a worker. Raise it if requests are short and many, so that their number slows an engine down more than their blocks.',
  },
  {
    key: 'prefillMsPerToken',
    name: 'est-ttft-ms-per-token',
    group: 'Routing',
    kind: 'number',
    default: 0.023,
    min: 0,
    max: 1000,
    unit: 'ms',
    help: 'Policy est-ttft: time of an engine for each token of a prompt, without attention. The default is that of an H100 with an 8B model in BF16; four H100 with a 70B model need 0.068. To measure it, divide the time to the first token of a prompt of about 2,000 tokens by its length.',
  },
  {
    key: 'attentionMsPerMillionPairs',
    name: 'est-ttft-attention-ms-per-million-pairs',
    group: 'Routing',
    kind: 'number',
    default: 0.96,
    min: 0,
    max: 100_000,
    unit: 'ms',
    help: 'Policy est-ttft: time for the attention between tokens, for a million pairs of a new token and a token before it: what makes long prompts cost more than their length. The default is that of an H100 with an 8B model; four H100 with a 70B model need 1.2.',
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
    help: 'Above 0 the worker is drawn by softmax over the costs; higher values are closer to uniform. A small value helps when several routers share one fleet and would all pick the same worker.',
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
    help: 'After this long without a sign of life from a request, its load is taken off its worker. A stream that still sends tokens is alive, however old it is.',
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
    help: 'Candidates and excluded workers in all receipts together, at about 200 bytes each. Beyond this the oldest receipts are shortened to the chosen worker, the runner-up and the cheapest others, eight in all, and say how many were left out; if that is not enough, the oldest receipts are dropped.',
  },
  {
    key: 'audit',
    name: 'audit',
    group: 'Routing',
    kind: 'flag',
    default: true,
    help: 'Compare predicted cached tokens with those that engines report (cached_tokens). If a client did not ask for the usage of a stream, the router asks for it and undoes what this changes in the answer: the client gets the same as without a router. With --no-audit streams are sent as they came, and only answers that already contain usage are compared.',
  },
  {
    key: 'seed',
    name: 'seed',
    group: 'Routing',
    kind: 'integer',
    default: undefined,
    min: 0,
    max: 2 ** 32 - 1,
    unsetMeans: 'a new one at every start',
    help: 'Seed of all random choices of the router (ties, temperature), so that a run can be repeated.',
  },

  {
    key: 'queueThreshold',
    name: 'router-queue-threshold',
    group: 'Queue',
    kind: 'text',
    placeholder: 'none|auto|NUMBER',
    default: 'none',
    envAliases: [{ name: 'DYN_ROUTER_QUEUE_THRESHOLD' }],
    check: faultOfQueueThreshold,
    read: text => text.toLowerCase(),
    help: 'When requests wait in the router instead of at an engine (docs/queue.md). A number: while every worker that could take them has more prefill tokens under way than this many times its max_num_batched_tokens. auto: under --router-policy auto, while at each of them a step or more of prefill is queued by what it has learned; under every other policy 2. none: never, apart from policy classes with a threshold of their own.',
  },
  {
    key: 'queueOrder',
    name: 'router-queue-policy',
    group: 'Queue',
    kind: 'choice',
    choices: ['auto', 'fcfs', 'lcfs', 'wspt', 'wspt-total', 'response-ratio'],
    default: 'auto',
    envAliases: [{ name: 'DYN_ROUTER_QUEUE_POLICY' }],
    help: 'Which of the waiting requests of a tenant goes next. fcfs: the oldest. lcfs: the newest. wspt: the one with the fewest uncached tokens; wspt-total: with the fewest tokens. response-ratio: the one that has waited longest for its uncached tokens. auto: response-ratio under --router-policy auto, else fcfs. Head starts and strict priorities of requests come before it, and so does --router-queue-aging, except under lcfs.',
  },
  {
    key: 'policyClassFile',
    name: 'router-policy-config',
    group: 'Queue',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'one class for all requests',
    envAliases: [{ name: 'DYN_ROUTER_POLICY_CONFIG' }],
    help: 'YAML file with policy classes: shares, orders, thresholds and limits for kinds of requests, which clients name with the header x-homing-policy-class or x-dynamo-meta-policy-class.',
  },
  {
    key: 'queueTimeoutMs',
    name: 'router-queue-timeout',
    group: 'Queue',
    kind: 'duration',
    default: 5 * MINUTE_MS,
    min: 1,
    max: 24 * HOUR_MS,
    help: 'Longest wait for room. A request that still waits then is answered with 503, code deadline. A client can ask for less, with the header x-homing-queue-timeout-ms.',
  },
  {
    key: 'queueAgingMs',
    name: 'router-queue-aging',
    group: 'Queue',
    kind: 'duration',
    default: 60 * SECOND_MS,
    min: 1,
    max: 24 * HOUR_MS,
    help: 'Requests that have waited this long go before all others of their tenant and class, whatever the order, except under lcfs.',
  },
  {
    key: 'queueRequestsMax',
    name: 'router-queue-max-requests',
    group: 'Queue',
    kind: 'integer',
    default: 100_000,
    min: 0,
    max: 10_000_000,
    unit: 'requests',
    zeroMeans: 'who would have to wait is refused',
    help: 'Most requests that wait at one time. Further ones are answered with 503, code queue_full, and with Retry-After by how fast the queue drains. --max-open-requests bounds them as well.',
  },
  {
    key: 'queueTokensMax',
    name: 'router-queue-max-tokens',
    group: 'Queue',
    kind: 'integer',
    default: 2 ** 31,
    min: 0,
    max: 2 ** 52,
    unit: 'tokens',
    help: 'Most tokens of the prompts that wait.',
  },
  {
    key: 'queueBytesMax',
    name: 'router-queue-max-bytes',
    group: 'Queue',
    kind: 'size',
    default: GIB,
    min: 0,
    max: 1024 * GIB,
    help: 'Most bytes of the bodies that wait.',
  },

  {
    key: 'kvEvents',
    name: 'kv-events',
    group: 'KV events and index',
    kind: 'flag',
    default: true,
    aliases: ['router-kv-events', 'use-kv-events'],
    envAliases: [{ name: 'DYN_ROUTER_USE_KV_EVENTS' }],
    help: 'Subscribe to the KV events of the workers. With --no-kv-events, prompts count as cached where they were sent (trust approximate), as for workers that publish no events.',
  },
  {
    key: 'guessTtlWithoutEventsMs',
    name: 'router-ttl-secs',
    group: 'KV events and index',
    kind: 'duration',
    default: 120 * SECOND_MS,
    min: 100,
    max: 24 * HOUR_MS,
    aliases: ['router-ttl'],
    envAliases: [{ name: 'DYN_ROUTER_TTL_SECS' }, { name: 'DYN_ROUTER_TTL' }],
    help: 'How long a prompt counts as cached at the worker that it was sent to, if there are no KV events. Sending it again renews the time. Lower this if caches turn over faster.',
  },
  {
    key: 'guessBlocksMax',
    name: 'router-max-tree-size',
    group: 'KV events and index',
    kind: 'integer',
    default: 2 ** 20,
    min: 1,
    max: 2 ** 26,
    unit: 'blocks',
    envAliases: [{ name: 'DYN_ROUTER_MAX_TREE_SIZE' }],
    help: 'Most blocks that count as cached at one worker because they were sent there; fewer if the worker reports a smaller cache. All workers of an event thread together have room for one block per 128 bytes of its part of --index-bytes.',
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
    help: 'When too many blocks were sent to a worker, those that expire first are forgotten until this share is left.',
  },
  {
    key: 'guessTtlUntilEventsMs',
    name: 'router-predicted-ttl-secs',
    group: 'KV events and index',
    kind: 'duration',
    default: 0,
    min: 0,
    max: HOUR_MS,
    zeroMeans: 'only events count where there are any',
    envAliases: [{ name: 'DYN_ROUTER_PREDICTED_TTL_SECS' }],
    help: 'How long a prompt counts as cached at a worker with KV events before its events confirm it. A few seconds let requests that arrive together share a prompt that is still being computed.',
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
    help: "Weight of a block in the memory of a worker's host, when one on the device counts 1.",
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
    help: 'Weight of a block on disk, or in a store outside the worker, when one on the device counts 1.',
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
    help: 'Tokens in a block of the KV cache. It must match the engines, or no prefix is ever found; set it only for engines that do not report it.',
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
    help: 'Threads that receive KV events, each with one shard of the index. Use more when one thread cannot apply the events of all workers.',
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
    help: 'How long a worker may be silent during a replay of past events before it is asked again. Meanwhile its cache is trusted less.',
  },
  {
    key: 'checkpointDirectory',
    name: 'checkpoint-dir',
    group: 'KV events and index',
    kind: 'text',
    placeholder: 'DIRECTORY',
    default: undefined,
    unsetMeans: 'none are kept',
    help: 'Directory for checkpoints: the index content of each event source. After a restart the index continues from there, even if the engine no longer repeats its whole history. A checkpoint counts only when the engine repeats the batches that it ends with.',
  },
  {
    key: 'checkpointIntervalMs',
    name: 'checkpoint-interval',
    group: 'KV events and index',
    kind: 'duration',
    default: MINUTE_MS,
    min: 100,
    max: 24 * HOUR_MS,
    help: 'How often the checkpoint of each source is written, if something has changed. Checkpoints are also written at a graceful stop. While one is taken, events of its shard wait: about 0.3 ms per thousand blocks; a source with more than four million blocks gets none.',
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
    help: 'Directory with tokenizer.json and tokenizer_config.json, for one model or, without MODEL=, for all models that have none of their own. The router then tokenizes by itself, which saves each request a round trip.',
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
    help: 'Threads that read, render, tokenize and hash prompts. Use more when prompts are long and tokenizing delays the first token.',
  },
  {
    key: 'promptCacheBytes',
    name: 'prompt-cache-bytes',
    group: 'Tokenizing',
    kind: 'size',
    default: 256 * MIB,
    min: 0,
    max: 64 * GIB,
    help: 'Memory for the beginnings of earlier requests and their tokens, over all threads that read requests. Of a conversation that goes on, only what is new is then read and tokenized; a token takes about 25 bytes. 0 switches it off.',
  },
  {
    key: 'wordTableBytes',
    name: 'word-table-bytes',
    group: 'Tokenizing',
    kind: 'size',
    default: 8 * MIB,
    min: 64 * KIB,
    max: GIB,
    help: 'Memory for words that were seen and their tokens: for each tokenizer, on each thread that reads requests. A word that is not there is tokenized anew, which costs some 2 µs instead of 0.05.',
  },
  {
    key: 'inlineBodyBytesMax',
    name: 'inline-body-bytes',
    group: 'Tokenizing',
    kind: 'size',
    default: 16 * KIB,
    min: 0,
    max: MIB,
    help: 'Request bodies up to this size are read and tokenized where they arrive, which is cheaper than handing them to a tokenizer thread. Longer ones would hold up other requests. 0 gives every body to a thread.',
  },
  {
    key: 'tokenizeCheckEvery',
    name: 'tokenize-check-every',
    group: 'Tokenizing',
    kind: 'integer',
    default: 10_000,
    min: 0,
    max: 1_000_000_000,
    unit: 'prompts',
    help: 'The router also gives one in N of the prompts that it tokenizes to an engine (/tokenize) and compares the ids. If they differ, engines tokenize for that model from then on. 0 switches it off.',
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
    help: 'Longest time from a request to the end of its answer. Long outputs take minutes: set it only if clients would not wait longer.',
  },
  {
    key: 'silenceTimeoutMs',
    name: 'silence-timeout',
    group: 'Relaying',
    kind: 'duration',
    default: 10 * MINUTE_MS,
    min: 100,
    max: 24 * HOUR_MS,
    help: 'Longest wait for the next byte of an answer, including the first. After it a worker counts as hung and is given up; an answer that is not a stream comes in one piece, so allow for the longest.',
  },
  {
    key: 'relayRoutes',
    name: 'relay-route',
    group: 'Relaying',
    kind: 'list',
    separator: 'comma',
    placeholder: "'[METHOD ]PATH'",
    unsetMeans: 'the inference routes of engines (docs/requests.md)',
    check: relayRouteFault,
    help: "A further route of the engines that clients may use through the router, such as 'GET /v1/files/*' or '/v1/load_lora_adapter': * stands for one segment, and without a method any method is passed on. A request goes to the worker with the least load that serves the model of its body, or to the worker that it is pinned to. All clients of the router can use this route: add no route that changes an engine unless you trust them.",
  },

  {
    key: 'decisionLogFile',
    name: 'decision-log',
    group: 'Decision log',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'none is written',
    help: 'File for one JSON line per settled request: arrival, lengths, numbers of its blocks, worker, policy, predicted and delivered cached tokens, times. It is a trace that homing simulate reads (docs/decision-log.md). There is no text and no token id in it. Give each router a file of its own.',
  },
  {
    key: 'decisionLogBytesMax',
    name: 'decision-log-bytes',
    group: 'Decision log',
    kind: 'size',
    default: 64 * MIB,
    min: 4 * KIB,
    max: 64 * GIB,
    help: 'Size at which a file of the decision log is full: it becomes FILE.1, the one before FILE.2, and so on, and a new one is begun. A prompt of 10,000 tokens takes about 4 KiB.',
  },
  {
    key: 'decisionLogFilesMax',
    name: 'decision-log-files',
    group: 'Decision log',
    kind: 'integer',
    default: 8,
    min: 1,
    max: 1000,
    unit: 'files',
    help: 'Files of the decision log that are kept, the one being written included. The oldest is removed.',
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
    help: 'Logs are JSON lines on standard error. info reports starts, stops and trust; debug every request; trace every batch of KV events.',
  },
] as const satisfies readonly SettingDescriptor[]

/** The settings of `homing router` as its actors are given them: times in milliseconds, sizes in bytes. */
export type RouterSettings = SettingsOf<typeof routerSettings>

/** Settings that tune the linear rule: where one of them is given and no policy is, that rule is meant. */
const LINEAR_ONLY = ['overlapWeight', 'temperature', 'activeRequestWeight'] as const

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
      does: 'Two engines of your own; they report their event and replay ports:',
      line: 'homing router --worker http://10.0.0.1:8001 --worker http://10.0.0.2:8001 --tokenizer ./model',
    },
  ],
  implied: ({ isGiven }) =>
    LINEAR_ONLY.some(isGiven) && !isGiven('routerPolicy') ? { routerPolicy: 'linear' } : {},
  rules: [
    ({ settings, isGiven }) =>
      settings.overlapWeight > 0 && isGiven('overlapWeight') && settings.routerPolicy === 'auto'
        ? '--kv-overlap-score-weight has no effect on --router-policy auto: leave it out, or use linear'
        : undefined,
    ({ settings, isGiven }) =>
      settings.workers.length > 0 && (isGiven('demoEngines') || isGiven('demoSpeed'))
        ? '--demo-engines and --demo-speed have no effect when workers are named: leave them out, or leave out --worker'
        : undefined,
    faultOfShardSize,
    faultOfEstimate,
    ({ settings, isGiven }) =>
      isGiven('activeRequestWeight') && settings.routerPolicy !== 'linear'
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
    ({ settings: { port, adminPort } }) =>
      adminPort === port && port > 0
        ? `--admin-port ${adminPort} is the same as --port: choose another, or leave it out`
        : undefined,
    ({ settings }) =>
      settings.guessTtlUntilEventsMs > 0 && !settings.kvEvents
        ? '--router-predicted-ttl-secs covers the time until KV events come, but --no-kv-events disables them: use --router-ttl-secs'
        : undefined,
    ({ settings }) =>
      settings.bodiesBytesMax < settings.bodyBytesMax
        ? `--max-bodies-bytes ${settings.bodiesBytesMax} is less than one body of --max-body-bytes ${settings.bodyBytesMax}: raise the first or lower the second`
        : undefined,
  ],
}

/**
 * Least bytes of a shard: the fixed-size tables of packages/index need about 72 bytes per
 * worker key with its layers, and 30 KiB; twice that leaves room for blocks.
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

function faultOfQueueThreshold(text: string): string | undefined {
  if (['none', 'auto'].includes(text.toLowerCase())) return undefined
  return /^(\d+(\.\d*)?|\.\d+)$/.test(text) && Number(text) > 0 && Number(text) <= 1e6
    ? undefined
    : 'is not none, auto or a number above 0'
}

function faultOfWorkerUrl(text: string): string | undefined {
  const url = URL.parse(text)
  if (url === null || url.hostname === '') return 'is not a URL such as http://10.0.0.1:8001'
  if (url.protocol !== 'http:') return `has the scheme ${url.protocol.slice(0, -1)}; use http`
  if (url.username !== '' || url.password !== '') return 'must not carry a user name or password'
  return undefined
}

/**
 * The level of a filter such as 'info,hyper=warn': that of its last directive without a target. Directives with a
 * target are about modules that we do not have.
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
