/**
 * Continued request: the request with which another engine goes on where one broke off. It is a completion of
 * token ids, those of the prompt and those that were delivered, with the client's own sampling members.
 *
 *   POST /v1/chat/completions {"messages": …, "max_tokens": 9, "top_p": 0.9}      4 tokens were delivered
 *   POST /v1/completions      {"top_p": 0.9, "prompt": [… ids], "max_tokens": 5}
 *
 * Refused is what would come out otherwise than in one piece: several answers, a grammar that counts from the
 * first token, calls of tools, logprobs, penalties that count what was generated and not what was prompted.
 *
 * Source: the members of vLLM 0.32, SGLang 0.5 and TensorRT-LLM 1.2 as they are in 2026.
 */

import { parseJson } from '@homing/base'
import { editMembers } from './edit-members.ts'
import { scanRequest } from './scan.ts'
import type { RequestScan } from './types.ts'

/** Why no other engine can go on with an answer to this request. */
export type UnfitRequest =
  | 'choices'
  | 'guided'
  | 'tools'
  | 'logprobs'
  | 'penalties'
  | 'reasoning'
  | 'ids'
  | 'tied'
  | 'stops'
  | 'no_limit'

/** Limits of an answer, in tokens; undefined: not given. */
export interface AnswerLimits {
  readonly tokensMax: number | undefined
  readonly tokensMin: number | undefined
}

type Members = (name: string) => unknown

const GUIDES = [
  ...['guided_json', 'guided_regex', 'guided_choice', 'guided_grammar', 'structured_outputs'],
  ...['json_schema', 'regex', 'ebnf', 'structural_tag', 'grammar'],
]
const TIES = [
  ...['kv_transfer_params', 'bootstrap_host', 'bootstrap_port', 'bootstrap_room', 'disaggregated_params'],
  ...['input_embeds', 'prompt_embeds', 'session_params', 'return_hidden_states', 'audio'],
  // What these do, an engine knows.
  ...['vllm_xargs', 'custom_params', 'extra_args', 'thinking_token_budget'],
]
/** They look back at what was generated, or may. */
const LOOKING_BACK = [
  ...['no_repeat_ngram_size', 'custom_logit_processor', 'logits_processors', 'dry_multiplier', 'bad_words'],
  'repetition_detection',
]
/** False: the client gets no reasoning, or gets it later, so what it got is not all that was generated. */
const REASONING = ['include_reasoning', 'stream_reasoning']
/** Members that the prompt of token ids stands for, that are set anew, or that only a chat has. */
const CUT = [
  ...['messages', 'prompt', 'max_tokens', 'max_completion_tokens', 'min_tokens', 'stream', 'n', 'best_of'],
  ...['tools', 'tool_choice', 'parallel_tool_calls', 'functions', 'function_call', 'response_format'],
  ...['chat_template', 'chat_template_kwargs', 'add_generation_prompt', 'continue_final_message'],
  ...['add_special_tokens', 'documents', 'reasoning_effort', 'include_reasoning', 'separate_reasoning'],
  ...['stream_reasoning', 'reasoning', 'modalities', 'mm_processor_kwargs', 'media_io_kwargs'],
  ...['logprobs', 'top_logprobs', 'prompt_logprobs', 'echo', 'suffix', 'store', 'metadata', 'prediction'],
  ...['verbosity', 'web_search_options', 'truncate_prompt_tokens', 'min_completion_tokens'],
]
/** Of a completion that says nothing else. */
const COMPLETION_TOKENS = 16

/** Undefined: another engine can go on with it. `body`: as the worker got it. */
export function unfitRequest(body: Uint8Array): UnfitRequest | undefined {
  const memberOf = membersOf(body, scanRequest(body))
  const isGiven = (name: string): boolean => isSet(memberOf(name))
  if (['n', 'best_of'].some(name => (memberOf(name) ?? 1) !== 1)) return 'choices'
  if (isGiven('use_beam_search') || isListOfPrompts(memberOf('prompt'))) return 'choices'
  const format = memberOf('response_format') as { readonly type?: unknown } | undefined
  if (GUIDES.some(isGiven) || (isSet(format) && format?.type !== 'text')) return 'guided'
  const hasTools = (isGiven('tools') && memberOf('tool_choice') !== 'none') || isGiven('functions')
  if (hasTools) return 'tools'
  const logprobs = memberOf('logprobs')
  if (logprobs === true || typeof logprobs === 'number' || isGiven('prompt_logprobs')) return 'logprobs'
  if (isGiven('return_tokens_as_token_ids')) return 'ids'
  if (['presence_penalty', 'frequency_penalty'].some(isGiven) || LOOKING_BACK.some(isGiven))
    return 'penalties'
  if (isGiven('repetition_penalty') && memberOf('repetition_penalty') !== 1) return 'penalties'
  if (REASONING.some(name => memberOf(name) === false)) return 'reasoning'
  if (TIES.some(isGiven) || isGiven('echo') || isGiven('suffix') || isGiven('truncate_prompt_tokens'))
    return 'tied'
  return undefined
}

/** The limits of the answer to this request; a completion has one in any case. */
export function answerLimits(body: Uint8Array, isChat: boolean): AnswerLimits {
  const memberOf = membersOf(body, scanRequest(body))
  const given = (isChat ? memberOf('max_completion_tokens') : undefined) ?? memberOf('max_tokens')
  const hasMember = memberOf('max_tokens') !== undefined
  const tokensMax = typeof given === 'number' ? given : isChat || hasMember ? undefined : COMPLETION_TOKENS
  const tokensMin = memberOf('min_tokens')
  return { tokensMax, tokensMin: typeof tokensMin === 'number' && tokensMin > 0 ? tokensMin : undefined }
}

/**
 * Whether what was delivered ends as a stop string begins: an engine that gets it as a part of its prompt
 * would not see that string.
 */
export function endsInStop(body: Uint8Array, text: string): boolean {
  return stopsOf(body).some(stop => {
    for (let length = Math.min(stop.length - 1, text.length); length > 0; length--)
      if (text.endsWith(stop.slice(0, length))) return true
    return false
  })
}

/**
 * Whether an engine may have sent the ids of a text, and not yet the text, because a stop string may begin
 * with it. Engines hold back as many characters as the longest one has, but one.
 */
export function mayHoldText(body: Uint8Array): boolean {
  return stopsOf(body).some(stop => stop.length > 1)
}

function stopsOf(body: Uint8Array): readonly string[] {
  const given = membersOf(body, scanRequest(body))('stop')
  return (Array.isArray(given) ? given : [given]).filter(stop => typeof stop === 'string')
}

/** Whether the client asked for the usage of its stream. */
export function wantsUsage(body: Uint8Array): boolean {
  const options = membersOf(body, scanRequest(body))('stream_options') as
    | { readonly include_usage?: unknown }
    | null
    | undefined
  return options?.include_usage === true
}

/**
 * `tokenIds`: those of the prompt and of what was delivered; `limits`: of what is left; `hasIds`: the stream
 * has ids. An engine may ignore that they were asked for: then its client gets none of the rest, either.
 */
export function continuedRequest(
  body: Uint8Array,
  tokenIds: Int32Array,
  limits: AnswerLimits,
  hasIds: boolean,
): Uint8Array {
  const set: Record<string, string> = {
    prompt: `[${tokenIds.join(',')}]`,
    max_tokens: String(limits.tokensMax ?? null),
    stream: 'true',
  }
  if (limits.tokensMin !== undefined) set['min_tokens'] = String(limits.tokensMin)
  const cut = hasIds ? CUT : [...CUT, 'return_token_ids']
  return editMembers(body, scanRequest(body), { set, cut })
}

/** A body whose prompt is this text, to have it tokenized as a part of an answer. */
export function textRequest(model: string, text: string): Uint8Array {
  return Buffer.from(JSON.stringify({ model, prompt: text, add_special_tokens: false, max_tokens: 1 }))
}

function membersOf(body: Uint8Array, { byName }: RequestScan): Members {
  return name => {
    const value = byName.get(name)?.value
    // Prompts are long, and how they begin says enough.
    if (value === undefined) return undefined
    const end = name === 'prompt' ? Math.min(value.end, value.start + BEGINNING_BYTES) : value.end
    const text = Buffer.from(body.buffer, body.byteOffset + value.start, end - value.start).toString()
    return name === 'prompt' ? text : parseJson(text)
  }
}

const BEGINNING_BYTES = 64

/** A list of texts, or of lists. */
function isListOfPrompts(beginning: unknown): boolean {
  return typeof beginning === 'string' && /^\[\s*["[]/.test(beginning)
}

/** Whether a member says anything: not null, false, 0, an empty text or an empty list. */
function isSet(value: unknown): boolean {
  if (Array.isArray(value)) return value.length > 0
  return value !== undefined && value !== null && value !== false && value !== 0 && value !== ''
}
