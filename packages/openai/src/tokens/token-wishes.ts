/**
 * Token wishes: what a completion or chat asks of a worker that takes token ids, and what its client wants to
 * see of the answer.
 *
 *   stop, max_tokens, ignore_eos, …        the conditions at which the answer ends
 *   stream, stream_options, …              the form of the answer
 *   temperature, seed, response_format, …  as they are, to the worker
 *
 * Refused is what neither the router nor such a worker does: several answers, log probabilities, calls of
 * tools, echoes, prompts of which a completion has several.
 */

import { parseJson } from '@homing/base'
import type { DeliveredForm } from '../delivered-stream.ts'
import { InvalidRequestError } from '../errors.ts'
import { scanRequest } from '../scan.ts'

export interface TokenWishes {
  readonly form: DeliveredForm
  readonly model: string
  readonly isStream: boolean
  /** An event with the usage at the end of a stream. */
  readonly wantsUsage: boolean
  /** `token_ids` in each choice. */
  readonly wantsIds: boolean
  /** Undefined: as many as the model takes. */
  readonly maxTokens: number | undefined
  readonly minTokens: number
  readonly stop: readonly string[]
  readonly stopTokenIds: readonly number[]
  readonly ignoresEos: boolean
  /** The string at which the answer ended is a part of it. */
  readonly includesStop: boolean
  readonly skipsSpecial: boolean
  readonly cacheSalt: string | undefined
  readonly sampling: Readonly<Record<string, unknown>>
}

/** Of a completion that says nothing else. */
const COMPLETION_TOKENS = 16
const STOPS_MAX = 64
const STOP_CHARACTERS_MAX = 4096
const TOKEN_ID_MAX = 0xffff_ffff
const COUNT_MAX = 2 ** 31 - 1
/** Enough to see with what a list begins. */
const PROMPT_BYTES_LOOKED_AT = 64

/** Long, and not for the worker: the token ids stand for them. */
const UNREAD = new Set(['messages', 'prompt', 'tools', 'documents', 'prediction', 'metadata', 'nvext'])
/** Members that are read here, or that only the making of the prompt needs. */
const CUT = new Set([
  ...[
    'model',
    'stream',
    'stream_options',
    'max_tokens',
    'max_completion_tokens',
    'min_tokens',
    'n',
    'best_of',
  ],
  ...['stop', 'stop_token_ids', 'ignore_eos', 'include_stop_str_in_output', 'skip_special_tokens', 'user'],
  ...['spaces_between_special_tokens', 'return_token_ids', 'cache_salt', 'tool_choice', 'functions', 'store'],
  ...['function_call', 'parallel_tool_calls', 'chat_template', 'chat_template_kwargs', 'request_id', 'echo'],
  ...['add_generation_prompt', 'continue_final_message', 'add_special_tokens', 'logprobs', 'top_logprobs'],
  ...['prompt_logprobs', 'suffix', 'priority', 'modalities', 'truncate_prompt_tokens', 'use_beam_search'],
])

/** Throws InvalidRequestError and MalformedJsonError. */
export function readTokenWishes(body: Uint8Array, form: DeliveredForm): TokenWishes {
  const { byName } = scanRequest(body)
  const members = new Map<string, unknown>()
  for (const [name, { value }] of byName) {
    const bytes = Buffer.from(body.buffer, body.byteOffset + value.start, value.end - value.start)
    if (name === 'prompt') refuseSeveral(bytes)
    if (UNREAD.has(name)) continue
    members.set(name, parseJson(bytes.toString()))
  }
  const given = (name: string): unknown => members.get(name) ?? undefined
  refuseOthers(given, byName.has('tools'))
  const asked = given('max_completion_tokens') ?? given('max_tokens')
  const maxTokens = count('max_tokens', asked, 1) ?? (form === 'completions' ? COMPLETION_TOKENS : undefined)
  const options = given('stream_options') as { readonly include_usage?: unknown } | undefined
  const [salt, model] = [given('cache_salt'), given('model')]
  return {
    form,
    model: typeof model === 'string' ? model : '',
    isStream: flag('stream', given('stream')) ?? false,
    wantsUsage: options?.include_usage === true,
    wantsIds: flag('return_token_ids', given('return_token_ids')) ?? false,
    maxTokens,
    minTokens: count('min_tokens', given('min_tokens'), 0) ?? 0,
    stop: stopsOf(given('stop')),
    stopTokenIds: idsOf(given('stop_token_ids')),
    ignoresEos: flag('ignore_eos', given('ignore_eos')) ?? false,
    includesStop: flag('include_stop_str_in_output', given('include_stop_str_in_output')) ?? false,
    skipsSpecial: flag('skip_special_tokens', given('skip_special_tokens')) ?? true,
    cacheSalt: typeof salt === 'string' && salt !== '' ? salt : undefined,
    sampling: Object.fromEntries([...members].filter(([name, value]) => !CUT.has(name) && value !== null)),
  }
}

/** `prompt`: its JSON. A list of texts or of lists is several prompts, unless it has one. */
function refuseSeveral(prompt: Buffer): void {
  if (!/^\[\s*["[]/.test(prompt.subarray(0, PROMPT_BYTES_LOOKED_AT).toString())) return
  const { length } = parseJson(prompt.toString()) as readonly unknown[]
  if (length > 1)
    throw new InvalidRequestError(
      'prompt',
      `of ${length} texts`,
      'one: workers of this model answer with token ids, one answer to each request',
    )
}

/** Of what only other workers do. */
function refuseOthers(given: (name: string) => unknown, hasTools: boolean): void {
  const refuse = (name: string, wanted: string): never => {
    throw new InvalidRequestError(name, JSON.stringify(given(name) ?? '…'), wanted)
  }
  const why = ': workers of this model answer with token ids'
  for (const name of ['n', 'best_of'])
    if ((given(name) ?? 1) !== 1) refuse(name, `1${why}, one answer to each request`)
  for (const name of ['logprobs', 'top_logprobs', 'prompt_logprobs', 'echo', 'suffix', 'use_beam_search']) {
    const value = given(name)
    if (value !== undefined && value !== false && value !== 0 && value !== '')
      refuse(name, `no such member${why} alone`)
  }
  const isCalling = hasTools && given('tool_choice') !== 'none'
  if (isCalling) refuse('tools', `tool_choice "none"${why}, and no calls are read out of their text`)
  if (given('functions') !== undefined) refuse('functions', `no such member${why}, and no calls`)
}

function flag(name: string, value: unknown): boolean | undefined {
  if (value === undefined || typeof value === 'boolean') return value
  throw new InvalidRequestError(name, JSON.stringify(value), 'true or false')
}

function count(name: string, value: unknown, min: number): number | undefined {
  if (value === undefined) return undefined
  if (Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= COUNT_MAX)
    return value as number
  throw new InvalidRequestError(name, JSON.stringify(value), `a whole number from ${min}`)
}

function stopsOf(value: unknown): readonly string[] {
  const stops = value === undefined ? [] : Array.isArray(value) ? value : [value]
  const isRight =
    stops.length <= STOPS_MAX &&
    stops.every(stop => typeof stop === 'string' && stop.length <= STOP_CHARACTERS_MAX)
  if (isRight) return stops
  throw new InvalidRequestError(
    'stop',
    JSON.stringify(value),
    `a text, or up to ${STOPS_MAX} in a list, of up to ${STOP_CHARACTERS_MAX} characters each`,
  )
}

function idsOf(value: unknown): readonly number[] {
  const isId = (id: unknown): boolean =>
    Number.isSafeInteger(id) && (id as number) >= 0 && (id as number) <= TOKEN_ID_MAX
  if (value === undefined) return []
  if (Array.isArray(value) && value.length <= STOPS_MAX && value.every(isId)) return value
  throw new InvalidRequestError(
    'stop_token_ids',
    JSON.stringify(value),
    `up to ${STOPS_MAX} whole numbers from 0 to ${TOKEN_ID_MAX} in a list`,
  )
}
