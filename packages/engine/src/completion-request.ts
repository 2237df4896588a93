/**
 * Reads a body of a completion, a response or a message as vLLM does, and refuses what vLLM refuses, in its
 * words.
 *
 * Fields that steer sampling (temperature, top_p, penalties, seed, response_format, tools, …) are accepted;
 * the output does not depend on them. Tools reach the chat template. Unknown fields are ignored, as vLLM
 * ignores them.
 */

import {
  chatOfMessages,
  chatOfResponses,
  dumpJson,
  type PythonDict,
  RenderingRefusedError,
  tryParseJson,
} from '@homing/tokenization'
import type { EngineTokenizer } from './engine-tokenizer.ts'
import type { HandoverWish } from './handover-settings.ts'
import { naturalOutputTokens } from './output.ts'
import type { TypedKind } from './typed-answer.ts'

/** An answer that is an error: vLLM's `{error: {message, type, param, code}}`. */
export class RefusedRequest extends Error {
  readonly status: number
  readonly type: string
  readonly param: string | null

  constructor(status: number, type: string, message: string, param: string | null = null) {
    super(message)
    this.status = status
    this.type = type
    this.param = param
  }

  body(): Uint8Array {
    const error = { message: this.message, type: this.type, param: this.param, code: this.status }
    return new TextEncoder().encode(JSON.stringify({ error }))
  }
}

export type CompletionKind = 'chat' | 'text' | TypedKind

/** What one HTTP request asks for. */
export interface CompletionRequest {
  readonly kind: CompletionKind
  /** As the request named it. */
  readonly model: string
  readonly loraName: string | undefined
  /** One for chat; one per element of a list prompt. */
  readonly prompts: readonly Int32Array[]
  /** Choices per prompt, n. */
  readonly choicesCount: number
  /** Tokens to generate, for each prompt. */
  readonly outputTokens: readonly number[]
  /** Why a choice that reaches its `outputTokens` ends. */
  readonly finishReason: 'length' | 'stop'
  readonly isStream: boolean
  readonly includesUsage: boolean
  /** Usage on every chunk. */
  readonly hasContinuousUsage: boolean
  readonly returnsTokenIds: boolean
  readonly hasLogprobs: boolean
  readonly stopTexts: readonly string[]
  readonly stopTokenIds: readonly number[]
  readonly cacheSalt: string | undefined
  readonly sessionId: string | undefined
  readonly reportsFull: boolean
  /** Undefined: it has no part in a hand-over. */
  readonly handover?: HandoverWish | undefined
}

/** What the engine brings to the reading of a request. */
export interface CompletionContext {
  readonly model: string
  readonly adapters: readonly string[]
  readonly contextTokensMax: number
  /** The ids that it may emit. */
  readonly vocabulary: Int32Array
  readonly tokenizer: EngineTokenizer
  readonly seed: number
}

type Body = Readonly<Record<string, unknown>>

/** Of a completion that says nothing. */
const COMPLETION_TOKENS = 16

/** Throws RefusedRequest. */
export function readCompletionRequest(
  kind: CompletionKind,
  bytes: Uint8Array,
  context: CompletionContext,
  sessionHeader: string | undefined,
): CompletionRequest {
  const body = parseObject(bytes)
  const model = body['model'] === undefined || body['model'] === null ? context.model : body['model']
  const loraName = readModel(model, context)
  const prompts = promptsOf(kind, body, bytes, context.tokenizer)
  for (const prompt of prompts) {
    if (prompt.length === 0) {
      throw bad(
        kind === 'text' ? 'The decoder prompt cannot be empty' : 'The rendered prompt is empty',
        'prompt',
      )
    }
    const unknown = prompt.find(id => id < 0 || id >= context.tokenizer.vocabularySize)
    if (unknown !== undefined) throw bad(`Token id ${unknown} is out of vocabulary`, 'prompt')
  }
  const given = outputTokensGiven(body)
  // All the room that there is limits nothing.
  const isWholeRoom = prompts.every(({ length }) => given === context.contextTokensMax - length)
  const hasLimit = given === undefined ? kind === 'text' : !isWholeRoom
  const outputTokens = prompts.map(prompt => {
    const room = context.contextTokensMax - prompt.length
    if (room < 1) {
      throw bad(
        `This model's maximum context length is ${context.contextTokensMax} tokens. However, your request has ${prompt.length} input tokens. Please reduce the length of the input messages.`,
        'input_tokens',
      )
    }
    if (!hasLimit) return naturalOutputTokens(prompt, context.seed, context.vocabulary, room)
    const wanted = given ?? COMPLETION_TOKENS
    if (wanted > room) {
      throw bad(
        `This model's maximum context length is ${context.contextTokensMax} tokens. However, you requested ${wanted} output tokens and your prompt contains at least ${prompt.length} input tokens, for a total of at least ${wanted + prompt.length} tokens. Please reduce the length of the input prompt or the number of requested output tokens.`,
        'input_tokens',
      )
    }
    return wanted
  })
  const isStream = body['stream'] === true
  const streamOptions = objectOf(body['stream_options'])
  if (!isStream && body['stream_options'] !== undefined && body['stream_options'] !== null) {
    throw bad('Stream options can only be defined when `stream=True`.', 'stream_options')
  }
  return {
    kind,
    model: String(model),
    loraName,
    prompts,
    choicesCount: integerField(body, 'n', 1, 128) ?? 1,
    outputTokens,
    finishReason: hasLimit ? 'length' : 'stop',
    isStream,
    includesUsage: streamOptions['include_usage'] === true,
    hasContinuousUsage:
      streamOptions['include_usage'] === true && streamOptions['continuous_usage_stats'] === true,
    returnsTokenIds: body['return_token_ids'] === true,
    hasLogprobs: kind === 'chat' ? body['logprobs'] === true : typeof body['logprobs'] === 'number',
    stopTexts: stopTexts(body['stop']),
    stopTokenIds: isIntegers(body['stop_token_ids']) ? body['stop_token_ids'] : [],
    cacheSalt: cacheSalt(body['cache_salt']),
    sessionId: typeof body['session_id'] === 'string' ? body['session_id'] : sessionHeader,
    reportsFull: objectOf(body['vllm_xargs'])['kv_cache_report_mode'] === 'full',
  }
}

function promptsOf(
  kind: CompletionKind,
  body: Body,
  bytes: Uint8Array,
  tokenizer: EngineTokenizer,
): Int32Array[] {
  if (kind === 'text') return textPrompts(body, tokenizer)
  if (kind === 'chat') return [chatPrompt(body, bytes, tokenizer)]
  const chat = chatBytes(kind, body, bytes)
  return [chatPrompt(parseObject(chat), chat, tokenizer)]
}

/**
 * As vLLM makes a chat of it. What the library will not vouch for is served all the same, as a plainer chat.
 */
function chatBytes(kind: 'responses' | 'messages', body: Body, bytes: Uint8Array): Uint8Array {
  const plain = kind === 'responses' ? plainChatOfResponses(body) : plainChatOfMessages(body)
  const encoded = (text: string): Uint8Array => new TextEncoder().encode(text)
  try {
    const values = tryParseJson(new TextDecoder().decode(bytes)) as PythonDict
    const chat = kind === 'responses' ? chatOfResponses(values, 'vllm') : chatOfMessages(values, 'vllm', true)
    return encoded(dumpJson(chat))
  } catch (thrown) {
    if (!(thrown instanceof RenderingRefusedError)) throw thrown
    return encoded(JSON.stringify(plain))
  }
}

/** A text, or a list of messages; `instructions` go before them. */
function plainChatOfResponses({ input, instructions }: Body): Body {
  const messages = typeof input === 'string' ? [{ role: 'user', content: input }] : input
  if (!Array.isArray(messages)) throw bad('input must be a string or a list', 'input')
  return typeof instructions === 'string'
    ? { messages: [{ role: 'system', content: instructions }, ...messages] }
    : { messages }
}

function plainChatOfMessages({ messages, system }: Body): Body {
  if (!Array.isArray(messages)) throw bad('messages must be a list of objects', 'messages')
  return typeof system === 'string'
    ? { messages: [{ role: 'system', content: system }, ...messages] }
    : { messages }
}

/** The ids that /tokenize answers for either of its forms. Throws RefusedRequest. */
export function readTokenizeRequest(bytes: Uint8Array, context: CompletionContext): Int32Array {
  const body = parseObject(bytes)
  if (body['model'] !== undefined && body['model'] !== null) readModel(body['model'], context)
  if (body['messages'] !== undefined) return chatPrompt(body, bytes, context.tokenizer)
  if (typeof body['prompt'] !== 'string') throw bad('prompt must be a string', 'prompt')
  return context.tokenizer.encodeText(body['prompt'], body['add_special_tokens'] !== false)
}

/** A JSON object, or RefusedRequest. */
export function parseObject(bytes: Uint8Array): Body {
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch (error) {
    throw bad(`JSON decode error: ${error instanceof Error ? error.message : String(error)}`)
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw bad('The request body must be a JSON object')
  }
  return value as Body
}

function bad(message: string, param: string | null = null): RefusedRequest {
  return new RefusedRequest(400, 'BadRequestError', message, param)
}

/** The adapter that a model name stands for; undefined is the base model. */
function readModel(model: unknown, context: CompletionContext): string | undefined {
  if (model === context.model) return undefined
  if (typeof model !== 'string') throw bad('model must be a string', 'model')
  if (context.adapters.includes(model)) return model
  throw new RefusedRequest(404, 'NotFoundError', `The model \`${model}\` does not exist.`, 'model')
}

function chatPrompt(body: Body, bytes: Uint8Array, tokenizer: EngineTokenizer): Int32Array {
  const messages = body['messages']
  if (!Array.isArray(messages) || messages.some(message => typeof message !== 'object' || message === null)) {
    throw bad('messages must be a list of objects', 'messages')
  }
  if (messages.length === 0) throw bad('messages must not be empty', 'messages')
  if (body['continue_final_message'] === true && body['add_generation_prompt'] === true) {
    throw bad('Cannot set both `continue_final_message` and `add_generation_prompt` to True.')
  }
  try {
    return tokenizer.encodeChat(body, bytes)
  } catch (error) {
    throw bad(error instanceof Error ? error.message : String(error), 'messages')
  }
}

function textPrompts(body: Body, tokenizer: EngineTokenizer): Int32Array[] {
  const prompt = body['prompt']
  const encode = (text: string): Int32Array => {
    try {
      return tokenizer.encodeText(text, body['add_special_tokens'] !== false)
    } catch (error) {
      throw bad(error instanceof Error ? error.message : String(error), 'prompt')
    }
  }
  if (typeof prompt === 'string') return [encode(prompt)]
  if (isIntegers(prompt)) return [Int32Array.from(prompt)]
  if (Array.isArray(prompt) && prompt.length > 0) {
    const items: readonly unknown[] = prompt
    if (items.every(item => typeof item === 'string')) return items.map(encode)
    if (items.every(isIntegers)) return items.map(item => Int32Array.from(item))
  }
  throw bad('Either prompt or prompt_embeds must be provided and non-empty.', 'prompt')
}

/** The list is not empty: an empty prompt is neither text nor ids. */
function isIntegers(value: unknown): value is readonly number[] {
  return Array.isArray(value) && value.length > 0 && value.every(item => Number.isInteger(item))
}

function outputTokensGiven(body: Body): number | undefined {
  const names = ['max_completion_tokens', 'max_output_tokens', 'max_tokens']
  const name = names.find(each => body[each] !== undefined && body[each] !== null) ?? 'max_tokens'
  return integerField(body, name, 1, 2 ** 31)
}

function integerField(body: Body, name: string, min: number, max: number): number | undefined {
  const value = body[name]
  if (value === undefined || value === null) return undefined
  if (typeof value !== 'number' || !Number.isInteger(value)) throw bad(`${name} must be an integer`, name)
  if (value < min) throw bad(`${name} must be at least ${min}, got ${value}.`, name)
  if (value > max) throw bad(`${name} must be at most ${max}, got ${value}.`, name)
  return value
}

function stopTexts(value: unknown): readonly string[] {
  const texts = typeof value === 'string' ? [value] : Array.isArray(value) ? value : []
  return texts.filter(text => typeof text === 'string' && text !== '')
}

function cacheSalt(value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined
  if (typeof value !== 'string' || value === '') {
    throw bad(
      "Parameter 'cache_salt' must be a non-empty string if provided. (parameter=cache_salt)",
      'cache_salt',
    )
  }
  if (value.length > 128 || /[@/\\\0]/.test(value)) {
    throw bad(
      "Parameter 'cache_salt' must be at most 128 characters and must not contain '@', '/', '\\\\', or NUL. (parameter=cache_salt)",
      'cache_salt',
    )
  }
  return value
}

function objectOf(value: unknown): Body {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Body) : {}
}
