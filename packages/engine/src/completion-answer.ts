/**
 * The answer to one completion request, as vLLM writes it: a JSON body, or SSE chunks while tokens come.
 *
 *   chat stream   role chunk with the first token, one chunk per token, the last one with its finish reason,
 *                 a chunk without choices when usage was asked for, [DONE]
 *
 * Where fingerprint and usage stand is the engine's manner (`AnswerForm`). Answers of /v1/responses and
 * /v1/messages have a form of their own: typed-answer.ts.
 *
 * Text that could be the beginning of a stop text is held back until it is clear. Log probabilities have the
 * right shape and a constant value. Cost: one small JSON per token.
 */

import type { CompletionRequest } from './completion-request.ts'
import type { TokenTexts } from './engine-tokenizer.ts'
import {
  type TypedEnd,
  type TypedHead,
  typedBody,
  typedDelta,
  typedStart,
  typedStreamEnd,
} from './typed-answer.ts'

/**
 * Where a stream has its fingerprint and its usage.
 *
 *   vllm            fingerprint in the last chunk of a choice, or in the event with usage if requested
 *   openai          fingerprint in every chunk; `usage: null` in every chunk if usage is requested
 *   usage-in-chunks usage unasked in every chunk and in an event of its own, which has the fingerprint, as
 *                   vLLM writes it with --enable-force-include-usage
 *   usage-at-end    fingerprint in every chunk, and usage unasked in an event of its own
 */
export const ANSWER_FORMS = ['vllm', 'openai', 'usage-in-chunks', 'usage-at-end'] as const
export type AnswerForm = (typeof ANSWER_FORMS)[number]

export type FinishReason = 'length' | 'stop' | 'abort'

/** What a token did to its choice: 'stopped' asks the caller to abort the sequence. */
export type ChoiceState = 'open' | 'ended' | 'stopped'

interface Choice {
  readonly index: number
  readonly promptIndex: number
  readonly tokenIds: number[]
  text: string
  /** Text that may begin a stop text. */
  held: string
  finishReason: FinishReason | undefined
  stopReason: string | number | null
  hasRole: boolean
}

/** Any value: constant, since only the shape matters. */
const LOGPROB = -0.5

export interface CompletionAnswerOptions {
  readonly id: string
  readonly request: CompletionRequest
  readonly texts: TokenTexts
  /** Seconds since 1970. */
  readonly createdSeconds: number
  readonly form: AnswerForm
  readonly fingerprint: string
}

export class CompletionAnswer {
  readonly #request: CompletionRequest
  readonly #texts: TokenTexts
  readonly #id: string
  readonly #createdSeconds: number
  readonly #form: AnswerForm
  readonly #fingerprint: string
  /** Undefined for completions. */
  readonly #typed: TypedHead | undefined
  readonly #choices: Choice[] = []
  #openChoices: number
  #transferParams: object | undefined
  /** Cached tokens of each prompt; the largest of its choices, because they hit each other. */
  readonly #cachedTokens: number[]

  constructor(options: CompletionAnswerOptions) {
    this.#request = options.request
    this.#texts = options.texts
    this.#id = options.id
    this.#createdSeconds = options.createdSeconds
    this.#form = options.form
    this.#fingerprint = options.fingerprint
    const { kind, model } = options.request
    const { id, createdSeconds } = options
    this.#typed = kind === 'chat' || kind === 'text' ? undefined : { kind, id, model, createdSeconds }
    const { prompts, choicesCount } = options.request
    this.#cachedTokens = prompts.map(() => 0)
    for (let promptIndex = 0; promptIndex < prompts.length; promptIndex++) {
      for (let n = 0; n < choicesCount; n++) {
        this.#choices.push({
          index: this.#choices.length,
          promptIndex,
          tokenIds: [],
          text: '',
          held: '',
          finishReason: undefined,
          stopReason: null,
          hasRole: false,
        })
      }
    }
    this.#openChoices = this.#choices.length
  }

  /** Every choice has ended by its limit: so the prompt is worth handing over. */
  get isCutShort(): boolean {
    return this.#choices.every(({ finishReason }) => finishReason === 'length')
  }

  /** The whole body says where the blocks of the prompt are. */
  handsOver(params: object): void {
    this.#transferParams = params
  }

  /** True when every choice has ended. */
  get isComplete(): boolean {
    return this.#openChoices === 0
  }

  get outputTokens(): number {
    let total = 0
    for (const choice of this.#choices) total += choice.tokenIds.length
    return total
  }

  get promptTokens(): number {
    let total = 0
    for (const prompt of this.#request.prompts) total += prompt.length
    return total
  }

  get cachedTokens(): number {
    let total = 0
    for (const tokens of this.#cachedTokens) total += tokens
    return total
  }

  /** Takes one token in; `emit` gets the SSE text to write, in streams only. */
  push(
    index: number,
    token: { readonly tokenId: number; readonly isLast: boolean; readonly cachedTokens: number },
    emit: (text: string) => void,
  ): ChoiceState {
    const choice = this.#choices[index]!
    if (choice.finishReason !== undefined) return 'ended'
    const { request } = this
    if (choice.tokenIds.length === 0) {
      const known = this.#cachedTokens[choice.promptIndex]!
      this.#cachedTokens[choice.promptIndex] = Math.max(known, token.cachedTokens)
    }
    choice.tokenIds.push(token.tokenId)
    let delta = choice.held + this.#texts.textOf(token.tokenId)
    choice.held = ''

    const isStopped = this.#stop(choice, token.tokenId, delta)
    if (isStopped !== undefined) {
      delta = isStopped
    } else if (token.isLast) {
      choice.finishReason = request.finishReason
    } else if (request.stopTexts.length > 0) {
      choice.held = delta.slice(delta.length - heldLength(delta, request.stopTexts))
      delta = delta.slice(0, delta.length - choice.held.length)
    }
    choice.text += delta
    if (choice.finishReason !== undefined) this.#openChoices--
    if (request.isStream) emit(this.#chunks(choice, token.tokenId, delta))
    if (choice.finishReason === undefined) return 'open'
    return token.isLast ? 'ended' : 'stopped'
  }

  /** What ends a complete stream. */
  streamEnd(): string {
    if (this.#typed !== undefined) return typedStreamEnd(this.#typed, this.#typedEnd())
    const isAtEnd = this.#form === 'usage-at-end' || this.#form === 'usage-in-chunks'
    if (!this.request.includesUsage && !isAtEnd) return 'data: [DONE]\n\n'
    const event = {
      ...this.#head(),
      choices: [],
      usage: this.#usage(),
      system_fingerprint: this.#fingerprint,
    }
    return `data: ${JSON.stringify(event)}\n\ndata: [DONE]\n\n`
  }

  /** The whole body of an answer that is not a stream. */
  body(): Uint8Array {
    const { request } = this
    if (this.#typed !== undefined) {
      const typed = typedBody(this.#typed, this.#typedEnd())
      const params = this.#transferParams === undefined ? {} : { kv_transfer_params: this.#transferParams }
      return new TextEncoder().encode(JSON.stringify({ ...typed, ...params }))
    }
    const isChat = request.kind === 'chat'
    const value = {
      ...this.#head(),
      object: isChat ? 'chat.completion' : 'text_completion',
      choices: this.#choices.map(choice => ({
        index: choice.index,
        ...(isChat
          ? {
              message: {
                role: 'assistant',
                content: choice.text,
                refusal: null,
                tool_calls: [],
                reasoning: null,
              },
            }
          : { text: choice.text }),
        logprobs: request.hasLogprobs ? this.#logprobs(choice.tokenIds) : null,
        finish_reason: choice.finishReason ?? 'abort',
        stop_reason: choice.stopReason,
        token_ids: request.returnsTokenIds ? choice.tokenIds : null,
        ...(isChat ? {} : { prompt_logprobs: null, prompt_token_ids: this.#promptIds(choice.promptIndex) }),
      })),
      service_tier: null,
      system_fingerprint: this.#fingerprint,
      usage: this.#usage(),
      ...(isChat ? { prompt_logprobs: null, prompt_token_ids: this.#promptIds(0) } : {}),
      kv_transfer_params: this.#transferParams ?? null,
    }
    return new TextEncoder().encode(JSON.stringify(value))
  }

  get request(): CompletionRequest {
    return this.#request
  }

  /** The text that is left of `delta` when the choice stops here; undefined when it goes on. */
  #stop(choice: Choice, tokenId: number, delta: string): string | undefined {
    const { stopTexts, stopTokenIds } = this.request
    if (stopTokenIds.includes(tokenId)) {
      choice.finishReason = 'stop'
      choice.stopReason = tokenId
      return delta
    }
    let first = -1
    for (const text of stopTexts) {
      const at = delta.indexOf(text)
      if (at < 0 || (first >= 0 && at >= first)) continue
      first = at
      choice.finishReason = 'stop'
      choice.stopReason = text
    }
    return first < 0 ? undefined : delta.slice(0, first)
  }

  #chunks(choice: Choice, tokenId: number, delta: string): string {
    const { request } = this
    if (this.#typed !== undefined) return this.#typedChunks(this.#typed, choice, delta)
    const isChat = request.kind === 'chat'
    let text = ''
    if (isChat && !choice.hasRole) {
      choice.hasRole = true
      text += this.#chunk(
        {
          index: choice.index,
          delta: { role: 'assistant', content: '' },
          logprobs: null,
          finish_reason: null,
        },
        request.returnsTokenIds && choice.index === 0 ? { prompt_token_ids: this.#promptIds(0) } : {},
        0,
      )
    }
    const isFirst = choice.tokenIds.length === 1
    const body = {
      index: choice.index,
      ...(isChat ? { delta: { content: delta } } : { text: delta }),
      logprobs: request.hasLogprobs ? this.#logprobs([tokenId]) : null,
      finish_reason: choice.finishReason ?? null,
      ...(isChat && choice.finishReason === undefined ? {} : { stop_reason: choice.stopReason }),
      ...(request.returnsTokenIds
        ? {
            ...(isChat || !isFirst ? {} : { prompt_token_ids: this.#promptIds(choice.promptIndex) }),
            token_ids: [tokenId],
          }
        : {}),
    }
    return text + this.#chunk(body, {}, choice.tokenIds.length)
  }

  #typedChunks(head: TypedHead, choice: Choice, delta: string): string {
    const isFirst = choice.tokenIds.length === 1
    return (isFirst ? typedStart(head, this.promptTokens) : '') + typedDelta(head, delta)
  }

  #typedEnd(): TypedEnd {
    const [choice] = this.#choices
    return {
      text: choice!.text,
      finishReason: choice!.finishReason ?? 'abort',
      promptTokens: this.promptTokens,
      cachedTokens: this.cachedTokens,
      outputTokens: this.outputTokens,
    }
  }

  #chunk(choice: Readonly<Record<string, unknown>>, more: object, completionTokens: number): string {
    const { includesUsage, hasContinuousUsage } = this.request
    const chunk: Record<string, unknown> = { ...this.#head(), choices: [choice] }
    const form = this.#form
    if (hasContinuousUsage || form === 'usage-in-chunks') chunk['usage'] = this.#usage(completionTokens)
    else if (form === 'openai' && includesUsage) chunk['usage'] = null
    const isEverywhere = form === 'openai' || form === 'usage-at-end'
    const isHere = form === 'vllm' && !includesUsage && choice['finish_reason'] !== null
    if (isEverywhere || isHere) chunk['system_fingerprint'] = this.#fingerprint
    return `data: ${JSON.stringify({ ...chunk, ...more })}\n\n`
  }

  #head() {
    return {
      id: this.#id,
      object: this.request.kind === 'chat' ? 'chat.completion.chunk' : 'text_completion',
      created: this.#createdSeconds,
      model: this.request.model,
    }
  }

  #usage(completionTokens = this.outputTokens) {
    const promptTokens = this.promptTokens
    return {
      prompt_tokens: promptTokens,
      total_tokens: promptTokens + completionTokens,
      completion_tokens: completionTokens,
      prompt_tokens_details: { cached_tokens: this.cachedTokens },
    }
  }

  #promptIds(promptIndex: number): number[] | null {
    return this.request.returnsTokenIds ? Array.from(this.request.prompts[promptIndex]!) : null
  }

  #logprobs(tokenIds: readonly number[]) {
    const tokens = tokenIds.map(tokenId => this.#texts.textOf(tokenId))
    if (this.request.kind === 'chat') {
      return {
        content: tokens.map(token => ({
          token,
          logprob: LOGPROB,
          bytes: Array.from(new TextEncoder().encode(token)),
          top_logprobs: [],
        })),
      }
    }
    let offset = 0
    return {
      text_offset: tokens.map(token => {
        offset += token.length
        return offset - token.length
      }),
      token_logprobs: tokens.map(() => LOGPROB),
      tokens,
      top_logprobs: tokens.map(token => ({ [token]: LOGPROB })),
    }
  }
}

/** Characters at the end of `text` that may begin one of the stop texts. */
function heldLength(text: string, stopTexts: readonly string[]): number {
  let held = 0
  for (const stop of stopTexts) {
    for (let length = Math.min(stop.length - 1, text.length); length > held; length--) {
      if (text.endsWith(stop.slice(0, length))) held = length
    }
  }
  return held
}
