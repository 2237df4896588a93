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
    key: 'retryBudget',
    name: 'retry-budget',
    group: 'Relaying',
    kind: 'number',
    default: 0.2,
    min: 0,
    max: 1,
    help: 'Requests that may be placed again after a worker failed them, as a share of all requests, beyond the first 32. It keeps a failing fleet from getting its traffic several times.',
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
] as const satisfies readonly SettingDescriptor[]

function faultOfTokenizer(text: string): string | undefined {
  const directory = text.slice(text.indexOf('=') + 1)
  if (directory === '') return 'names no directory; use DIR or MODEL=DIR'
  if (text.startsWith('=')) return 'names no model before the =; use DIR or MODEL=DIR'
  return undefined
}
