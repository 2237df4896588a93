/** The settings of `homing load`. */

import type { Command, RuleFacts, SettingDescriptor, SettingsOf } from './descriptor.ts'
import { shared } from './shared-settings.ts'
import { HOUR_MS, MINUTE_MS, SECOND_MS } from './units.ts'

/** Requests in a block of a comparison whose length nothing else says. */
const BLOCK_REQUESTS = 50

const loadSettings = [
  {
    key: 'urls',
    name: 'url',
    group: 'Fleet',
    kind: 'list',
    placeholder: 'URL',
    separator: 'comma or space',
    aliases: ['target', 'base-url'],
    env: 'HOMING_LOAD_URL',
    check: faultOfUrl,
    help: 'What gets the requests: a router, a load balancer or an engine, as http://HOST:PORT or https://HOST. The word behind the options is the URL too.',
  },
  {
    key: 'against',
    name: 'against',
    group: 'Fleet',
    kind: 'text',
    placeholder: 'URL',
    default: undefined,
    unsetMeans: 'nothing is compared',
    env: 'HOMING_LOAD_AGAINST',
    check: faultOfUrl,
    help: 'A second URL: both get the same requests in turns, block by block, and each figure gets the difference of the two with its interval.',
  },
  {
    key: 'model',
    name: 'model',
    group: 'Fleet',
    kind: 'text',
    placeholder: 'NAME',
    default: undefined,
    unsetMeans: 'the first that GET /v1/models names, or what the bodies of a trace name',
    env: 'HOMING_LOAD_MODEL',
    help: 'Model of all requests.',
  },
  {
    key: 'endpoint',
    name: 'endpoint-type',
    group: 'Fleet',
    kind: 'choice',
    choices: ['chat', 'completions'],
    default: 'chat',
    env: 'HOMING_LOAD_ENDPOINT_TYPE',
    help: 'chat sends to /v1/chat/completions, completions to /v1/completions. The bodies of a trace go where they belong.',
  },
  {
    key: 'keyFile',
    name: 'api-key-file',
    group: 'Fleet',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'the variable HOMING_LOAD_API_KEY, else no key is sent',
    env: 'HOMING_LOAD_API_KEY_FILE',
    help: 'File with the API key that is sent to URL, as authorization: Bearer KEY. It is in no output.',
  },
  {
    key: 'againstKeyFile',
    name: 'against-api-key-file',
    group: 'Fleet',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'the variable HOMING_LOAD_AGAINST_API_KEY, else the key of URL',
    env: 'HOMING_LOAD_AGAINST_API_KEY_FILE',
    help: 'File with the API key that is sent to the URL of --against.',
  },
  {
    key: 'caFile',
    name: 'ca-file',
    group: 'Fleet',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'the certificates of Node and of the system',
    env: 'HOMING_LOAD_CA_FILE',
    help: 'PEM file with certificates that are believed for https, besides those of Node and of the system.',
  },
  {
    key: 'ratePerS',
    name: 'rate',
    group: 'Load',
    kind: 'number',
    default: undefined,
    unsetMeans: 'the times of a trace, or as many at one time as --concurrency says',
    min: 0.001,
    max: 100_000,
    unit: 'requests/s',
    aliases: ['request-rate'],
    env: 'HOMING_LOAD_RATE',
    help: 'Open loop: requests per second, whatever becomes of those before. Latencies count from the instant when a request was due.',
  },
  {
    key: 'arrival',
    name: 'arrival-pattern',
    group: 'Load',
    kind: 'choice',
    choices: ['poisson', 'constant'],
    default: 'poisson',
    aliases: ['request-rate-mode'],
    env: 'HOMING_LOAD_ARRIVAL_PATTERN',
    help: 'With --rate: poisson draws the time between two requests (exponential, as of many users who do not know of each other), constant keeps it.',
  },
  {
    key: 'concurrency',
    name: 'concurrency',
    group: 'Load',
    kind: 'integer',
    default: undefined,
    unsetMeans: '8 where neither --rate nor the times of a trace are there',
    min: 1,
    max: 100_000,
    unit: 'requests',
    aliases: ['max-concurrency'],
    env: 'HOMING_LOAD_CONCURRENCY',
    help: 'Alone: closed loop, this number of requests at one time, each followed by the next. It slows down with the fleet, so it says what the fleet can do and not what users would feel. With --rate: the most that are open at one time; further ones wait, which counts in their latency.',
  },
  {
    key: 'openMax',
    name: 'max-open-requests',
    group: 'Load',
    kind: 'integer',
    default: 1024,
    min: 1,
    max: 100_000,
    unit: 'requests',
    env: 'HOMING_LOAD_MAX_OPEN_REQUESTS',
    help: 'With --rate or the times of a trace: most requests, each on a connection, that are open at one time. Further ones wait, which counts in their latency.',
  },
  {
    key: 'waitingMax',
    name: 'max-waiting',
    group: 'Load',
    kind: 'integer',
    default: 10_000,
    min: 0,
    max: 10_000_000,
    unit: 'requests',
    zeroMeans: 'none may wait',
    env: 'HOMING_LOAD_MAX_WAITING',
    help: 'With --rate or the times of a trace: most requests that wait because as many as may be open are. More are not sent, and count as errors.',
  },
  {
    key: 'requests',
    name: 'requests',
    group: 'Load',
    kind: 'integer',
    default: undefined,
    unsetMeans: `until --duration has passed or the trace has ended; ${BLOCK_REQUESTS} a block where requests are compared without --rate`,
    min: 1,
    max: 1_000_000_000,
    unit: 'requests',
    aliases: ['num-prompts', 'request-count', 'max-requests'],
    env: 'HOMING_LOAD_REQUESTS',
    help: 'Requests in all, with those of --warmup; with --against for each side.',
  },
  {
    key: 'durationMs',
    name: 'duration',
    group: 'Load',
    kind: 'duration',
    default: 30 * SECOND_MS,
    min: 100,
    max: 168 * HOUR_MS,
    aliases: ['benchmark-duration', 'max-seconds'],
    env: 'HOMING_LOAD_DURATION',
    help: 'How long requests are sent; with --against to each side. Without it a trace, or the number of --requests, is sent to its end. What is open then is awaited.',
  },
  {
    key: 'warmup',
    name: 'warmup-request-count',
    group: 'Load',
    kind: 'integer',
    default: undefined,
    unsetMeans: 'a tenth of the requests where their number is known, else as many as are open at one time',
    min: 0,
    max: 1_000_000_000,
    unit: 'requests',
    aliases: ['warmup', 'num-warmups'],
    env: 'HOMING_LOAD_WARMUP_REQUEST_COUNT',
    help: 'This number of requests at the beginning of each block is sent and not counted: caches are cold, connections are made. They belong to --requests.',
  },
  {
    key: 'timeoutMs',
    name: 'timeout',
    group: 'Load',
    kind: 'duration',
    default: 5 * MINUTE_MS,
    min: 100,
    max: 24 * HOUR_MS,
    env: 'HOMING_LOAD_TIMEOUT',
    help: 'Longest time of a request, from when it was due to the end of its answer. After it the request has failed.',
  },
  {
    key: 'trace',
    name: 'trace',
    group: 'Requests',
    kind: 'text',
    placeholder: 'FILE|generator:NAME',
    default: undefined,
    unsetMeans: 'chats made of words, see below',
    env: 'HOMING_LOAD_TRACE',
    help: 'Requests of your own: a .jsonl or .jsonl.gz file with the bodies that clients sent, each with a timestamp in ms beside its members; a decision log of the router; a trace with timestamp, input_length, output_length and hash_ids; or traffic of a generator of homing simulate, as in generator:coding?requests=500&rate=2. Where a line has lengths and ids only, words stand for its tokens: equal beginnings where ids are equal. They are sent at their times; --rate or --concurrency sends them in their order instead.',
  },
  {
    key: 'speed',
    name: 'speed',
    group: 'Requests',
    kind: 'number',
    default: 1,
    min: 0.001,
    max: 100_000,
    unit: 'times',
    env: 'HOMING_LOAD_SPEED',
    help: 'The times of --trace are divided by it: 2 is twice the load, and half the time between two uses of a prefix.',
  },
  {
    key: 'seed',
    name: 'seed',
    group: 'Requests',
    kind: 'integer',
    default: 1,
    min: 0,
    max: 4_294_967_295,
    aliases: ['random-seed'],
    env: 'HOMING_LOAD_SEED',
    help: 'Words, conversations and times between requests are a function of it. The words before all prompts (--salt) are not: a second run with the same seed finds nothing of the first in the caches.',
  },
  {
    key: 'inputTokens',
    name: 'input-tokens',
    group: 'Requests',
    kind: 'integer',
    default: 200,
    min: 1,
    max: 1_000_000,
    unit: 'tokens',
    aliases: ['isl', 'random-input-len', 'prompt-tokens'],
    env: 'HOMING_LOAD_INPUT_TOKENS',
    help: 'Tokens of new words, about, that each turn of a conversation adds.',
  },
  {
    key: 'outputTokens',
    name: 'output-tokens',
    group: 'Requests',
    kind: 'integer',
    default: 64,
    min: 1,
    max: 1_000_000,
    unit: 'tokens',
    aliases: ['osl', 'random-output-len'],
    env: 'HOMING_LOAD_OUTPUT_TOKENS',
    help: 'max_tokens of each request; of a trace where it does not say it. The next turn of a conversation has as many words in place of the answer.',
  },
  {
    key: 'prefixTokens',
    name: 'prefix-tokens',
    group: 'Requests',
    kind: 'integer',
    default: 1000,
    min: 0,
    max: 1_000_000,
    unit: 'tokens',
    zeroMeans: 'conversations share nothing',
    aliases: ['prefix-prompt-length', 'prefix-repetition-prefix-len'],
    env: 'HOMING_LOAD_PREFIX_TOKENS',
    help: 'Length of the system prompts that conversations share.',
  },
  {
    key: 'prefixes',
    name: 'prefixes',
    group: 'Requests',
    kind: 'integer',
    default: 8,
    min: 1,
    max: 100_000,
    unit: 'prompts',
    aliases: ['num-prefix-prompts', 'prefix-repetition-num-prefixes'],
    env: 'HOMING_LOAD_PREFIXES',
    help: 'Number of different system prompts; each conversation begins with one of them, all alike.',
  },
  {
    key: 'sessions',
    name: 'sessions',
    group: 'Requests',
    kind: 'integer',
    default: 32,
    min: 1,
    max: 1_000_000,
    unit: 'conversations',
    env: 'HOMING_LOAD_SESSIONS',
    help: 'Conversations that go on at one time. Each request is the next turn of one of them, drawn at random.',
  },
  {
    key: 'turns',
    name: 'turns',
    group: 'Requests',
    kind: 'integer',
    default: 4,
    min: 1,
    max: 10_000,
    unit: 'turns',
    aliases: ['conversation-turn-mean'],
    env: 'HOMING_LOAD_TURNS',
    help: 'Turns of a conversation; then another one begins in its place. 1: no prompt goes on with another one.',
  },
  {
    key: 'stream',
    name: 'stream',
    group: 'Requests',
    kind: 'flag',
    default: true,
    aliases: ['streaming'],
    env: 'HOMING_LOAD_STREAM',
    help: 'Ask for streams. Without them there is no TTFT and no ITL.',
  },
  {
    key: 'ignoresEos',
    name: 'ignore-eos',
    group: 'Requests',
    kind: 'flag',
    default: true,
    env: 'HOMING_LOAD_IGNORE_EOS',
    help: 'Ask for all of max_tokens (ignore_eos of vLLM and SGLang), so that answers have the same length on both sides. --no-ignore-eos for servers that refuse the field. Bodies of a trace stay as they are.',
  },
  {
    key: 'salt',
    name: 'salt',
    group: 'Requests',
    kind: 'choice',
    choices: ['block', 'side', 'none'],
    default: 'block',
    env: 'HOMING_LOAD_SALT',
    help: 'Six words that no other run has, in front of every prompt: caches begin without it. block: others for each block and each side. side: caches stay from block to block, as in a long run. none: prompts as they are, for two fleets that share no engine.',
  },
  {
    key: 'blocks',
    name: 'blocks',
    group: 'Result',
    kind: 'integer',
    default: 10,
    min: 3,
    max: 1000,
    unit: 'blocks',
    env: 'HOMING_LOAD_BLOCKS',
    help: 'With --against: blocks for each side, in turns (AB BA AB …). More make the intervals narrower. --requests and --duration are divided by it.',
  },
  {
    key: 'errorShareMax',
    name: 'max-error-rate',
    group: 'Result',
    kind: 'number',
    default: 0.01,
    min: 0,
    max: 1,
    zeroMeans: 'none may fail',
    env: 'HOMING_LOAD_MAX_ERROR_RATE',
    help: 'Share of the requests that may fail. Past it the result is marked invalid and the exit code is 1: the latencies of those that were served say little.',
  },
  {
    key: 'issueLagMsMax',
    name: 'max-issue-lag',
    group: 'Result',
    kind: 'duration',
    default: 50,
    min: 1,
    max: HOUR_MS,
    env: 'HOMING_LOAD_MAX_ISSUE_LAG',
    help: 'How late homing load itself may be, at p99, with what is due and what has come. Past it this machine is the limit and not the fleet: the result is marked invalid and the exit code is 1.',
  },
  {
    key: 'blockSizeTokens',
    name: shared.blockSizeTokens.name,
    group: 'Result',
    kind: 'integer',
    default: undefined,
    unsetMeans: 'what GET /workers of the router tells, if it does',
    min: shared.blockSizeTokens.min,
    max: shared.blockSizeTokens.max,
    unit: 'tokens',
    aliases: ['block-size'],
    env: 'HOMING_LOAD_KV_CACHE_BLOCK_SIZE',
    help: 'Tokens of a block in x-homing-overlap-blocks, for the hit rate that the router predicts.',
  },
  {
    key: 'json',
    name: 'json',
    group: 'Result',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'not written',
    env: 'HOMING_LOAD_JSON',
    help: 'One JSON object with settings, figures and blocks. -: as the last line of standard output.',
  },
  {
    key: 'report',
    name: 'report',
    group: 'Result',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'not written',
    env: 'HOMING_LOAD_REPORT',
    help: 'A page with charts, figures and settings; one file that needs no network and no script.',
  },
] as const satisfies readonly SettingDescriptor[]

/** Frozen; durations in milliseconds. */
export type LoadSettings = SettingsOf<typeof loadSettings>

/** `homing load`. */
export const loadCommand: Command<typeof loadSettings> = {
  name: 'load',
  summary:
    'Sends requests to a fleet of yours and measures the answers; two fleets side by side with --against. Exit code 0: measured; 1: the result is invalid; 2: bad usage; 130: stopped before the end.',
  settings: loadSettings,
  operands: 'url',
  examples: [
    {
      does: 'Ten chats per second for a minute:',
      line: 'homing load http://10.0.0.1:8000 --rate 10 --duration 60s',
    },
    {
      does: 'What is the most that the fleet can do with 64 requests at one time?',
      line: 'homing load http://10.0.0.1:8000 --concurrency 64 --requests 2000',
    },
    {
      does: 'The requests of my own log, twice as fast, through homing and through what there was before:',
      line: 'homing load http://10.0.0.1:8000 --against http://10.0.0.2:8000 --trace bodies.jsonl --speed 2 --report ab.html',
    },
  ],
  rules: [faultOfUrls, faultOfSpeed, faultOfClosedBlocks, faultOfFewRequests],
}

type Facts = RuleFacts<LoadSettings>

/** Requests of each side in a comparison whose length nothing says. */
export function comparedRequests(blocks: number): number {
  return blocks * BLOCK_REQUESTS
}

function faultOfUrls({ settings: { urls } }: Facts): string | undefined {
  if (urls.length === 1) return undefined
  if (urls.length === 0) return 'name what gets the requests: homing load http://HOST:PORT'
  return `${urls.length} URLs are given: name one, and the other with --against`
}

function faultOfSpeed({ settings: { trace, ratePerS, concurrency }, isGiven }: Facts): string | undefined {
  if (!isGiven('speed')) return undefined
  if (trace === undefined) return '--speed is for the times of --trace; use --rate'
  const instead = ratePerS !== undefined ? '--rate' : concurrency !== undefined ? '--concurrency' : undefined
  return instead === undefined
    ? undefined
    : `--speed is for the times of --trace, in whose place ${instead} is given: leave one of them out`
}

function faultOfClosedBlocks(facts: Facts): string | undefined {
  const { against, ratePerS, trace, concurrency } = facts.settings
  if (against === undefined || ratePerS !== undefined) return undefined
  // A trace keeps its times.
  if (trace !== undefined && concurrency === undefined) return undefined
  return facts.isGiven('durationMs')
    ? '--duration cannot divide a closed loop into blocks of the same requests: give --requests, or --rate'
    : undefined
}

function faultOfFewRequests({ settings: { against, requests, blocks, warmup } }: Facts): string | undefined {
  if (requests === undefined) return undefined
  const each = against === undefined ? requests : Math.floor(requests / blocks)
  if (each < 2) return `--requests ${requests} leaves ${each} for each of --blocks ${blocks}: at least 2`
  return warmup === undefined || warmup < each
    ? undefined
    : `--warmup-request-count ${warmup} leaves none of the ${each} requests${against === undefined ? '' : ' of a block'} to count`
}

function faultOfUrl(text: string): string | undefined {
  let url: URL
  try {
    url = new URL(text)
  } catch {
    return 'is no URL; use one such as http://HOST:8000'
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') return 'is no http or https URL'
  if (url.username !== '' || url.password !== '')
    return 'has a user or a password; a key goes into --api-key-file'
  if (url.search !== '' || url.hash !== '')
    return 'has a query or a fragment; use one such as http://HOST:8000'
  return undefined
}
