/** Settings of `homing router`: how prompts are read and requests are relayed. */

import type { SettingDescriptor } from '../descriptor.ts'
import { modelAliasFault } from '../model-alias.ts'
import { relayRouteFault } from '../relay-route.ts'
import { GIB, HOUR_MS, KIB, MIB, MINUTE_MS } from '../units.ts'

export const requestSettings = [
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
    key: 'chatTemplates',
    name: 'chat-template',
    group: 'Tokenizing',
    kind: 'list',
    placeholder: '[MODEL=]FILE',
    separator: 'comma',
    unsetMeans: 'the template of the tokenizer directory',
    check: faultOfChatTemplate,
    help: 'Chat template in place of that of the tokenizer directory, as engines take one with --chat-template; for one model or, without MODEL=, for all models that have none of their own.',
  },
  {
    key: 'chatTemplateContentFormats',
    name: 'chat-template-content-format',
    group: 'Tokenizing',
    kind: 'list',
    placeholder: '[MODEL=]FORMAT',
    separator: 'comma',
    unsetMeans: 'as engines detect it from the template',
    check: faultOfContentFormat,
    help: 'How engines were told to give the content of messages to the template (--chat-template-content-format of vLLM): auto, string or openai (a list of parts).',
  },
  {
    key: 'defaultChatTemplateKwargs',
    name: 'default-chat-template-kwargs',
    group: 'Tokenizing',
    kind: 'list',
    placeholder: '[MODEL=]JSON',
    separator: 'line',
    unsetMeans: 'none',
    check: faultOfTemplateKwargs,
    help: `Variables of the template that requests do not set, as engines take them with --default-chat-template-kwargs, such as '{"enable_thinking": false}'. In a variable, each on a line of its own.`,
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
    key: 'tokenizeHedgeMs',
    name: 'tokenize-hedge',
    group: 'Tokenizing',
    kind: 'duration',
    default: 100,
    min: 0,
    max: 10_000,
    zeroMeans: 'one engine at a time',
    help: 'Wait for one engine that is asked to tokenize (/tokenize), or twice what that usually takes, if that is longer; then another engine is asked as well, and the first answer counts. An engine that stays silent is not asked for a while.',
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
    help: 'Further workers that are tried when one fails before the first byte of its answer. After the first byte --migration-limit holds.',
  },
  {
    key: 'retryBudget',
    name: 'retry-budget',
    group: 'Relaying',
    kind: 'number',
    default: 0.2,
    min: 0,
    max: 1,
    help: 'Requests that may be placed again after a worker failed them, as a share of all requests, beyond the first 32. One whose worker died before its first byte, or that a worker had when it began to answer 5xx, is not counted the first time. It keeps a failing fleet from getting its traffic several times.',
  },
  {
    key: 'migrationsMax',
    name: 'migration-limit',
    envAliases: [{ name: 'DYN_MIGRATION_LIMIT' }],
    group: 'Relaying',
    kind: 'integer',
    default: 1,
    min: 0,
    max: 16,
    unit: 'workers',
    zeroMeans: 'a stream ends with the worker that it has',
    help: 'Workers that may go on, one after the other, with the stream of a chat or completion whose worker fails in the middle: the client sees one answer. What cannot be continued (several choices, guided decoding, tools, logprobs, penalties) ends with an error, as docs/reliability.md says.',
  },
  {
    key: 'migrationTokensMax',
    name: 'migration-max-seq-len',
    envAliases: [{ name: 'DYN_MIGRATION_MAX_SEQ_LEN' }],
    group: 'Relaying',
    kind: 'integer',
    default: 2 ** 32 - 1,
    min: 1,
    max: 2 ** 32 - 1,
    unit: 'tokens',
    help: 'Streams with more tokens than this, prompt and answer together, are not continued: another worker would have to compute them.',
  },
  {
    key: 'migrationBytesMax',
    name: 'migration-memory',
    group: 'Relaying',
    kind: 'size',
    default: 64 * 2 ** 20,
    min: 0,
    max: 2 ** 40,
    help: 'What all open streams together keep of their text, or of their token ids, to be continued elsewhere; a token takes about 5 bytes. A stream for which there is no room ends with its worker.',
  },
  {
    key: 'hedgeAfterMs',
    name: 'hedge-after',
    group: 'Relaying',
    kind: 'duration',
    default: 0,
    min: 0,
    max: HOUR_MS,
    zeroMeans: 'one worker at a time',
    help: 'A stream of a chat or completion whose first token has not come after so long is asked of a second worker as well; the first token of the two counts, and the other worker is left. Within --retry-budget, and never at a worker that would compute much of the prompt beside other requests. docs/reliability.md says when it pays.',
  },
  {
    key: 'hedgeRule',
    name: 'hedge-rule',
    group: 'Relaying',
    kind: 'choice',
    choices: ['auto', 'fixed'],
    default: 'auto',
    help: 'With --hedge-after: auto waits for as long as 95 of 100 of the last streams took, beyond what their prompts took to compute, and at least --hedge-after; until 32 streams were seen no second worker is asked. fixed waits --hedge-after.',
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
    help: 'Longest wait for the next byte of an answer, including the first; comments before the first event of a stream are none. After it a worker counts as hung and is given up; an answer that is not a stream comes in one piece, so allow for the longest.',
  },
  {
    key: 'stallTimeoutMs',
    name: 'stall-timeout',
    group: 'Relaying',
    kind: 'duration',
    default: 10_000,
    min: 0,
    max: HOUR_MS,
    zeroMeans: 'only --silence-timeout counts',
    help: 'A worker that gives a request nothing for so long, while other workers answer theirs, is left for another one. It is waited for at least 10 times as long as the slowest of the last answers took to begin, and a millisecond for each token of the prompt. A worker that is down by its probes is left after so much silence also in the middle of an answer.',
  },
  {
    key: 'streamKeepAliveMs',
    name: 'stream-keep-alive',
    group: 'Relaying',
    envAliases: [{ name: 'DYN_HTTP_SSE_KEEP_ALIVE_INTERVAL_MS', suffix: 'ms' }],
    kind: 'duration',
    default: 0,
    min: 0,
    max: HOUR_MS,
    zeroMeans: 'no comments',
    help: 'For proxies that cut silent connections: a client of a stream that waits in the queue or for its first token gets a comment (": keep-alive") after so much silence, looked at once a second. The first one brings the head with status 200, so the headers of the decision are left out and an error is an event of the stream. The request may still be tried on other workers.',
  },
  {
    key: 'nextTurnsMax',
    name: 'speculative-prefill-max',
    group: 'Relaying',
    kind: 'integer',
    default: 16,
    min: 0,
    max: 10_000,
    unit: 'requests',
    zeroMeans: 'the hint does nothing',
    help: 'Chats whose client sends nvext.agent_hints.speculative_prefill: when the answer is over, the conversation with it is sent once more, for one token, so that the next turn finds it in the cache. Most of these at a time; further ones are skipped.',
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
    key: 'modelAliases',
    name: 'model-alias',
    group: 'Relaying',
    kind: 'list',
    separator: 'comma',
    placeholder: "'NAME=MODEL[|MODEL…]'",
    unsetMeans: 'a request names the model that serves it',
    check: modelAliasFault,
    help: "A name that clients use for a model, such as 'claude-haiku-4-5=qwen-small' for the small model of an agent: the request goes to the workers of that model, and its body names the model. Of several models the first one that a worker which is up serves is taken, so 'large=large|small' falls back. A name that ends in * stands for all that begin so and that no worker lists; the longest one counts. Answers name the model that served.",
  },
  {
    key: 'unlistedAdaptersOf',
    name: 'unlisted-adapters-of',
    group: 'Relaying',
    kind: 'text',
    placeholder: 'MODEL',
    default: undefined,
    unsetMeans: 'a name that no worker lists is answered with 404',
    help: 'Base model whose workers also get requests for models that no worker lists, as adapters of it. For engines that load an adapter when a request names it (the LoRA resolvers of vLLM). The engine answers 404 where there is no such adapter.',
  },
  {
    key: 'trustTokenData',
    name: 'trust-token-data',
    group: 'Relaying',
    kind: 'flag',
    default: false,
    help: 'Take nvext.token_data for the token ids of the prompt, instead of reading the prompt of the body. For clients that tokenize themselves, and as the engines do: the engine gets the body, so a client that names other tokens is placed wrongly. Such a prompt counts as at least half of the tokens that its text looks like, and its answer is not compared with the prediction.',
  },
] as const satisfies readonly SettingDescriptor[]

/** What is behind `MODEL=`, and whether the model has a name. */
function ofModel(text: string): { readonly value: string; readonly isNamed: boolean } {
  return { value: text.slice(text.indexOf('=') + 1).trim(), isNamed: !text.startsWith('=') }
}

function faultOfChatTemplate(text: string): string | undefined {
  const { value, isNamed } = ofModel(text)
  return isNamed && value !== '' ? undefined : 'names no file or no model; use FILE or MODEL=FILE'
}

function faultOfContentFormat(text: string): string | undefined {
  const { value, isNamed } = ofModel(text)
  if (isNamed && ['auto', 'string', 'openai'].includes(value)) return undefined
  return 'is no format; use auto, string or openai, or MODEL=auto and so on'
}

function faultOfTemplateKwargs(text: string): string | undefined {
  const open = text.indexOf('{')
  const isNamed = open === 0 || (open > 1 && text[open - 1] === '=')
  try {
    if (isNamed && open >= 0 && typeof JSON.parse(text.slice(open)) === 'object') return undefined
  } catch {
    // The fault below says what would be right.
  }
  return 'is no JSON object; use {"NAME": VALUE} or MODEL={"NAME": VALUE}'
}

function faultOfTokenizer(text: string): string | undefined {
  const directory = text.slice(text.indexOf('=') + 1)
  if (directory === '') return 'names no directory; use DIR or MODEL=DIR'
  if (text.startsWith('=')) return 'names no model before the =; use DIR or MODEL=DIR'
  return undefined
}
