/** The settings of `homing simulate`. */

import type { Command, RuleFacts, SettingDescriptor, SettingsOf } from './descriptor.ts'
import {
  faultOfIdleWeights,
  faultOfQueueThreshold,
  faultOfTenantWeight,
  QUEUE_THRESHOLD_UNSET,
  UNNAMED_TENANTS,
} from './router/queue-settings.ts'
import { GIB, HOUR_MS, MIB, SECOND_MS } from './units.ts'

const SPEED_MAX = 100_000
const LOAD_PERCENT_MAX = 1000

const simulateSettings = [
  {
    key: 'traces',
    name: 'trace',
    group: 'Traffic',
    kind: 'list',
    placeholder: 'FILE|generator:NAME',
    separator: 'comma or space',
    mustNameOne: true,
    unsetMeans: 'generator:sessions',
    env: 'HOMING_SIMULATE_TRACE',
    help: 'Requests to replay: a .jsonl or .jsonl.gz file whose lines have timestamp (ms), input_length, output_length and hash_ids (one prefix id per 512 tokens), or traffic from a seed: generator:sessions, coding, groups, rag, unique, hot, adversarial, flood (one tenant who chats, one who floods the fleet) or tenants, with parameters as in generator:sessions?requests=5000&rate=20. sessions and coding are closed loops: a turn waits for the answer before it; loop=open gives them fixed times. Each trace gets its own tables. Files of a decision log of the router (--decision-log) are one trace, in any order, and say which fleet it was: workers, blocks and caches default to those of the log.',
  },
  {
    key: 'requestsMax',
    name: 'requests',
    group: 'Traffic',
    kind: 'integer',
    default: undefined,
    unsetMeans: 'all',
    min: 1,
    max: 1_000_000_000,
    unit: 'requests',
    env: 'HOMING_SIMULATE_REQUESTS',
    help: 'Only the first so many requests of each trace, for a quick look. A short run says little about caches: they fill in the first minutes.',
  },
  {
    key: 'speeds',
    name: 'speeds',
    group: 'Traffic',
    kind: 'list',
    placeholder: 'N,…',
    separator: 'comma or space',
    unsetMeans: 'the operating points of the fleet',
    env: 'HOMING_SIMULATE_SPEEDS',
    check: faultOfSpeeds,
    help: 'All times of a trace are divided by the speed: 2 is twice the load, and half the time between two uses of a block, which is kinder to caches than more users would be. For more users, see --copies.',
  },
  {
    key: 'loads',
    name: 'loads',
    group: 'Traffic',
    kind: 'list',
    placeholder: 'PERCENT,…',
    separator: 'comma or space',
    unsetMeans: 'speeds are used',
    env: 'HOMING_SIMULATE_LOADS',
    check: faultOfLoads,
    help: 'Loads instead of speeds, in per cent of the highest capacity that any of the policies has on that trace (at tier standard, or that of --capacity), which is searched first: 50,85,110 is light, busy and too much.',
  },
  {
    key: 'copies',
    name: 'copies',
    group: 'Traffic',
    kind: 'integer',
    default: undefined,
    unsetMeans: 'those of the fleet: 16 for F1000, else 1',
    min: 1,
    max: 1000,
    unit: 'copies',
    env: 'HOMING_SIMULATE_COPIES',
    help: 'So many copies of the trace at once, 0.37s apart, that share nothing: more users and as many times the blocks, while times of re-use stay.',
  },
  {
    key: 'stretch',
    name: 'stretch',
    group: 'Traffic',
    kind: 'integer',
    default: 1,
    min: 1,
    max: 1000,
    unit: 'times',
    env: 'HOMING_SIMULATE_STRETCH',
    help: 'Makes every prompt so many times as long: the same tree of prefixes with more blocks.',
  },
  {
    key: 'spread',
    name: 'spread',
    group: 'Traffic',
    kind: 'text',
    placeholder: 'auto|off|TIME',
    default: 'auto',
    env: 'HOMING_SIMULATE_SPREAD',
    check: faultOfSpread,
    help: 'Spreads requests with the same timestamp over this time. auto does it over 3s if all timestamps are multiples of 3s, as in the Mooncake conversation trace, which would else be a burst of ten every three seconds.',
  },
  {
    key: 'anyway',
    name: 'anyway',
    group: 'Traffic',
    kind: 'flag',
    default: false,
    env: 'HOMING_SIMULATE_ANYWAY',
    help: 'With a decision log: show tables also if the simulation of what really happened does not agree with the log, by more than 15 % of the mean time to the first token or 3 points of the hit rate. Without it nothing is concluded from such a simulation.',
  },
  {
    key: 'fleet',
    name: 'fleet',
    group: 'Fleet',
    kind: 'choice',
    choices: ['F8', 'F8-70', 'F64', 'F1000'],
    default: 'F8',
    env: 'HOMING_SIMULATE_FLEET',
    help: 'F8: eight H100 with Llama-3.1-8B. F8-70: eight workers of four H100 with Llama-3.1-70B. F64 and F1000: 64 and 1000 as in F8; F1000 replays 16 copies. The options below change parts of it.',
  },
  {
    key: 'workers',
    name: 'workers',
    group: 'Fleet',
    kind: 'integer',
    default: undefined,
    unsetMeans: 'those of the fleet',
    min: 1,
    max: 10_000,
    unit: 'workers',
    env: 'HOMING_SIMULATE_WORKERS',
    help: 'Number of workers.',
  },
  {
    key: 'profile',
    name: 'profile',
    group: 'Fleet',
    kind: 'text',
    placeholder: 'NAME|FILE',
    default: undefined,
    unsetMeans: 'that of the fleet',
    env: 'HOMING_SIMULATE_PROFILE',
    help: 'How long a step of an engine takes: h100-8b, h100-70b-tp4, mock-poly (the mock engine of Dynamo), mock-simple (the mock worker of SMG), or a JSON or YAML file with overheadMs, weightsMs, msPerToken, msPerTokenContext, msPerDecodeContext, kvCapacityTokens, stepTokensMax and sequencesMax. docs/simulator.md says what they mean and how to measure them.',
  },
  {
    key: 'kvTokens',
    name: 'kv-tokens',
    group: 'Fleet',
    kind: 'integer',
    default: undefined,
    unsetMeans: 'those of the profile',
    min: 1,
    max: 1_000_000_000_000,
    unit: 'tokens',
    env: 'HOMING_SIMULATE_KV_TOKENS',
    help: 'Size of the cache of each worker: what would more memory bring?',
  },
  {
    key: 'blockSizeTokens',
    name: 'block-size',
    group: 'Fleet',
    kind: 'integer',
    default: 512,
    min: 1,
    max: 512,
    unit: 'tokens',
    env: 'HOMING_SIMULATE_BLOCK_SIZE',
    help: 'Block size of the engines; it must divide 512, which is what an id of a trace stands for. Smaller blocks find a little more re-use and take longer to simulate.',
  },
  {
    key: 'slowShare',
    name: 'slow-share',
    group: 'Fleet',
    kind: 'number',
    default: 0,
    min: 0,
    max: 1,
    zeroMeans: 'all are alike',
    env: 'HOMING_SIMULATE_SLOW_SHARE',
    help: 'Share of the workers that are slower by --slow-factor: mixed hardware, or noisy neighbours.',
  },
  {
    key: 'slowFactor',
    name: 'slow-factor',
    group: 'Fleet',
    kind: 'number',
    default: 1.3,
    min: 1,
    max: 100,
    unit: 'times',
    env: 'HOMING_SIMULATE_SLOW_FACTOR',
    help: 'How many times as long a step takes on them.',
  },
  {
    key: 'deaths',
    name: 'death',
    group: 'Fleet',
    kind: 'list',
    placeholder: 'WORKER@TIME',
    separator: 'comma or space',
    env: 'HOMING_SIMULATE_DEATH',
    check: faultOfChange,
    help: 'A worker dies at this simulated time, with its cache and its requests: 3@90s is the fourth worker after a minute and a half.',
  },
  {
    key: 'joins',
    name: 'join',
    group: 'Fleet',
    kind: 'list',
    placeholder: 'WORKER@TIME',
    separator: 'comma or space',
    env: 'HOMING_SIMULATE_JOIN',
    check: faultOfChange,
    help: 'A worker is absent until this simulated time, and joins with an empty cache.',
  },
  {
    key: 'policies',
    name: 'policies',
    group: 'Routing',
    kind: 'list',
    placeholder: 'NAME,…',
    separator: 'comma or space',
    mustNameOne: true,
    unsetMeans: 'round-robin, power-of-two, least-loaded, session, threshold, linear, product, est-ttft',
    env: 'HOMING_SIMULATE_POLICIES',
    help: 'What chooses the worker, side by side: the policies of the router (auto, linear, product, est-ttft, threshold), modes that ignore caches (random, round-robin, power-of-two, least-loaded), and for comparison session (hash of the session) and overlap (longest prefix, load ignored). linear:8 has an overlap weight of 8; product@oracle sees the true state of the engines. least-loaded is the one to beat; with it, every other policy is compared to it.',
  },
  {
    key: 'temperature',
    name: 'temperature',
    group: 'Routing',
    kind: 'number',
    default: 0,
    min: 0,
    max: 100,
    env: 'HOMING_SIMULATE_TEMPERATURE',
    help: 'Softmax temperature of the policies of mode kv; 0 takes the cheapest worker.',
  },
  {
    key: 'queueThreshold',
    name: 'router-queue-threshold',
    group: 'Routing',
    kind: 'text',
    placeholder: 'none|auto|NUMBER',
    default: undefined,
    unsetMeans: QUEUE_THRESHOLD_UNSET,
    env: 'HOMING_SIMULATE_QUEUE_THRESHOLD',
    check: faultOfQueueThreshold,
    read: text => text.toLowerCase(),
    help: 'As the option of the router of that name: when requests wait in the router instead of at an engine. Where some do, there is a table of what waited.',
  },
  {
    key: 'queueOrder',
    name: 'router-queue-policy',
    group: 'Routing',
    kind: 'choice',
    choices: ['auto', 'fcfs', 'lcfs', 'wspt', 'wspt-total', 'response-ratio'],
    default: 'auto',
    env: 'HOMING_SIMULATE_QUEUE_POLICY',
    help: 'As the option of the router of that name: which of the waiting requests of a tenant goes next.',
  },
  {
    key: 'tenantWeights',
    name: 'router-tenant-weight',
    group: 'Routing',
    kind: 'list',
    placeholder: 'TENANT=WEIGHT',
    separator: 'comma',
    env: 'HOMING_SIMULATE_TENANT_WEIGHTS',
    unsetMeans: 'all tenants have the weight 1',
    check: faultOfTenantWeight,
    help: 'As the option of the router of that name: share of a tenant in what is placed of all that waits. A trace names the tenant of each request as tenant.',
  },
  {
    key: 'unnamedTenants',
    name: 'router-unnamed-tenants',
    group: 'Routing',
    kind: 'choice',
    choices: UNNAMED_TENANTS,
    default: 'shared',
    env: 'HOMING_SIMULATE_UNNAMED_TENANTS',
    help: 'As the option of the router of that name: what tenants have that --router-tenant-weight does not name.',
  },
  {
    key: 'routers',
    name: 'routers',
    group: 'Routing',
    kind: 'integer',
    default: 1,
    min: 1,
    max: 8,
    unit: 'routers',
    env: 'HOMING_SIMULATE_ROUTERS',
    help: 'Routers side by side; each request goes to one of them at random. They do not know of each other unless --router-replica-sync is given.',
  },
  {
    key: 'replicaSync',
    name: 'router-replica-sync',
    group: 'Routing',
    kind: 'flag',
    default: false,
    env: 'HOMING_SIMULATE_REPLICA_SYNC',
    help: 'As the option of the router of that name: several --routers tell each other what they send, and what comes back.',
  },
  {
    key: 'replicaDelayMs',
    name: 'replica-delay',
    group: 'Routing',
    kind: 'duration',
    default: 5,
    min: 0,
    max: HOUR_MS,
    env: 'HOMING_SIMULATE_REPLICA_DELAY',
    help: 'With --router-replica-sync: from what a router does to the others, who know of it then. It stands for the time of the network, and for that which a router gathers bookings: none after a pause, else up to --router-replica-delay.',
  },
  {
    key: 'view',
    name: 'view',
    group: 'Routing',
    kind: 'choice',
    choices: ['exact', 'late', 'guessed', 'text', 'none'],
    default: 'late',
    env: 'HOMING_SIMULATE_VIEW',
    help: 'What routers know of the caches. exact: KV events at once. late: KV events after --event-delay. guessed: no events; a prompt counts as held where it was sent. text: the same, from texts instead of tokens. none: load alone.',
  },
  {
    key: 'eventDelayMs',
    name: 'event-delay',
    group: 'Routing',
    kind: 'duration',
    default: 20,
    min: 0,
    max: HOUR_MS,
    env: 'HOMING_SIMULATE_EVENT_DELAY',
    help: 'With --view late: from a change of a cache to the routers. Up to a second costs little; tens of seconds cost half of the hits.',
  },
  {
    key: 'signalDelayMs',
    name: 'signal-delay',
    group: 'Routing',
    kind: 'duration',
    default: 2,
    min: 0,
    max: HOUR_MS,
    env: 'HOMING_SIMULATE_SIGNAL_DELAY',
    help: 'From a first token or the end of an answer to the router that sent the request.',
  },
  {
    key: 'eventLossShare',
    name: 'event-loss',
    group: 'Routing',
    kind: 'number',
    default: 0,
    min: 0,
    max: 1,
    env: 'HOMING_SIMULATE_EVENT_LOSS',
    help: 'Share of the batches of KV events that never arrive.',
  },
  {
    key: 'guessTtlMs',
    name: 'guess-ttl',
    group: 'Routing',
    kind: 'duration',
    default: 120 * SECOND_MS,
    min: 1,
    max: 24 * HOUR_MS,
    env: 'HOMING_SIMULATE_GUESS_TTL',
    help: 'With --view guessed or text: how long a prompt counts as held where it was sent.',
  },
  {
    key: 'knowsOutput',
    name: 'knows-output',
    group: 'Routing',
    kind: 'flag',
    default: false,
    env: 'HOMING_SIMULATE_KNOWS_OUTPUT',
    help: 'Policies that count output know how long each answer will be. No router does; it shows what a better guess could bring.',
  },
  {
    key: 'seeds',
    name: 'seeds',
    group: 'Statistics',
    kind: 'integer',
    default: 5,
    min: 1,
    max: 1000,
    unit: 'seeds',
    env: 'HOMING_SIMULATE_SEEDS',
    help: 'Each cell is run with so many seeds (ties, offsets of arrivals, generated traffic), the same for all policies; tables have the mean and its 95 % interval. 1 is quick, and says nothing about chance.',
  },
  {
    key: 'firstSeed',
    name: 'seed',
    group: 'Statistics',
    kind: 'integer',
    default: 1,
    min: 0,
    max: 1_000_000_000,
    env: 'HOMING_SIMULATE_SEED',
    help: 'The first seed; the others follow it.',
  },
  {
    key: 'warmupShare',
    name: 'warmup',
    group: 'Statistics',
    kind: 'number',
    default: 0.1,
    min: 0,
    max: 0.9,
    env: 'HOMING_SIMULATE_WARMUP',
    help: 'Share of the requests at the beginning that latencies, goodput and hit rate leave out, because caches are cold. The JSON has the figures with them too.',
  },
  {
    key: 'capacity',
    name: 'capacity',
    group: 'Statistics',
    kind: 'choice',
    choices: ['none', 'interactive', 'standard', 'long-context'],
    default: 'none',
    env: 'HOMING_SIMULATE_CAPACITY',
    help: 'Searches the highest speed at which 95 % of the requests are inside a tier: interactive is TTFT ≤ 2s and ITL ≤ 50ms, standard 5s and 100ms, long-context 30s and 200ms. About eleven runs for each policy and seed.',
  },
  {
    key: 'json',
    name: 'json',
    group: 'Output',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'not written',
    env: 'HOMING_SIMULATE_JSON',
    help: 'Every cell with its spec and all of its figures, and the summary. The same command gives the same bytes.',
  },
  {
    key: 'html',
    name: 'html',
    group: 'Output',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'not written',
    env: 'HOMING_SIMULATE_HTML',
    help: 'A page with curves and tables; one file that needs no network. Give several --speeds or --loads to see curves.',
  },
  {
    key: 'threads',
    name: 'threads',
    group: 'Running',
    kind: 'integer',
    default: { says: 'the number of cores', of: ({ cores }) => cores },
    min: 1,
    max: 1024,
    unit: 'threads',
    env: 'HOMING_SIMULATE_THREADS',
    help: 'Cells that run at the same time. Each needs the memory of its fleet: tens of MiB for F8, up to 2 GiB for F1000.',
  },
  {
    key: 'cache',
    name: 'cache',
    group: 'Running',
    kind: 'flag',
    default: true,
    env: 'HOMING_SIMULATE_CACHE',
    help: 'Keep the results of cells, and use those of earlier runs: a command that is given again, or with one more policy, runs only what is new. A changed trace, option or version of the code makes other cells.',
  },
  {
    key: 'cacheDir',
    name: 'cache-dir',
    group: 'Running',
    kind: 'text',
    placeholder: 'FOLDER',
    default: undefined,
    unsetMeans: 'homing/simulate in $XDG_CACHE_HOME or ~/.cache',
    env: 'HOMING_SIMULATE_CACHE_DIR',
    help: 'Where results are kept.',
  },
  {
    key: 'cacheBytesMax',
    name: 'cache-size',
    group: 'Running',
    kind: 'size',
    default: 256 * MIB,
    min: MIB,
    max: 1024 * GIB,
    env: 'HOMING_SIMULATE_CACHE_SIZE',
    help: 'Most bytes of results that are kept; those not used for the longest time go first. A result takes about 3 KiB.',
  },
] as const satisfies readonly SettingDescriptor[]

/** The settings of `homing simulate`: times in milliseconds, sizes in bytes. */
export type SimulateSettings = SettingsOf<typeof simulateSettings>

/** `homing simulate`. */
export const simulateCommand: Command<typeof simulateSettings> = {
  name: 'simulate',
  summary: 'Replays traffic against a simulated fleet, with one routing policy beside the other.',
  settings: simulateSettings,
  examples: [
    {
      does: 'All policies on generated chats, eight workers, five seeds, at four speeds:',
      line: 'homing simulate',
    },
    {
      does: 'A quick look at a trace of your own, two policies, one seed:',
      line: 'homing simulate --trace trace.jsonl --policies least-loaded,product --speeds 1,2,4 --seeds 1',
    },
    {
      does: 'The same with curves to look at in a browser, at half, most and more than all of what the fleet can do:',
      line: 'homing simulate --trace trace.jsonl --loads 50,85,110 --html report.html',
    },
    {
      does: 'How much load can twelve workers of mine carry, and what if events were lost or late?',
      line: 'homing simulate --trace trace.jsonl --workers 12 --profile gpu.yaml --capacity standard --view late --event-delay 2s --event-loss 0.01',
    },
    {
      does: 'What would six workers, or no KV events, have done with the requests that my router has logged?',
      line: 'homing simulate --trace decisions.jsonl --workers 6 --view guessed --policies linear,product',
    },
  ],
  rules: [faultOfLoad, faultOfBlockSize, faultOfWorkers, faultOfWeights],
}

/** The numbers of a list whose items may hold several, separated by commas. */
export function numbersOf(items: readonly string[]): readonly number[] {
  return items.flatMap(item => item.split(',').map(text => (text.trim() === '' ? Number.NaN : Number(text))))
}

type Facts = RuleFacts<SimulateSettings>

function faultOfLoad({ settings: { speeds, loads } }: Facts): string | undefined {
  if (speeds.length === 0 || loads.length === 0) return undefined
  return '--speeds and --loads both say how much traffic there is: give one of them'
}

function faultOfWeights({ settings: { tenantWeights, queueThreshold } }: Facts): string | undefined {
  return faultOfIdleWeights(tenantWeights, queueThreshold, false)
}

function faultOfBlockSize({ settings: { blockSizeTokens } }: Facts): string | undefined {
  if (512 % blockSizeTokens === 0) return undefined
  return `--block-size ${blockSizeTokens} does not divide 512, which is what an id of a trace stands for`
}

function faultOfWorkers({ settings: { workers, deaths, joins } }: Facts): string | undefined {
  if (workers === undefined) return undefined
  const stranger = [...deaths, ...joins].find(change => Number(change.split('@', 1)[0]) >= workers)
  return stranger === undefined
    ? undefined
    : `${stranger} names a worker that --workers ${workers} does not have: they are 0 … ${workers - 1}`
}

function faultOfSpeeds(text: string): string | undefined {
  const isGood = numbersOf([text]).every(speed => speed > 0 && speed <= SPEED_MAX)
  return isGood ? undefined : `is not a list of speeds above 0, at most ${SPEED_MAX}, such as 1,2,3.5`
}

function faultOfLoads(text: string): string | undefined {
  const isGood = numbersOf([text]).every(load => load > 0 && load <= LOAD_PERCENT_MAX)
  return isGood
    ? undefined
    : `is not a list of per cents above 0, at most ${LOAD_PERCENT_MAX}, such as 50,85,110`
}

function faultOfSpread(text: string): string | undefined {
  if (text === 'auto' || text === 'off') return undefined
  return /^\d+(\.\d+)?(ms|s|m)$/.test(text) ? undefined : "is neither auto, off nor a time such as '3s'"
}

function faultOfChange(text: string): string | undefined {
  return /^\d+@\d+(\.\d+)?(ms|s|m|h)?$/.test(text) ? undefined : 'is not a worker and a time, such as 3@90s'
}
