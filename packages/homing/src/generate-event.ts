/** Events of a completion that is streamed with its token ids, as engines and the gateway write them. */

import { parseJson } from '@homing/base'

/** A piece of an answer. */
export interface GenerateOutput {
  /** In order; together they are the answer. */
  readonly tokenIds: readonly number[]
  readonly text: string
  /** `length`, `stop` or what else the engine says; undefined: the answer goes on. */
  readonly finishReason: string | undefined
}

/** Counts of a whole answer, in tokens, as the engine says them. */
export interface GenerateUsage {
  readonly promptTokens: number | undefined
  readonly completionTokens: number | undefined
  /** Tokens of the prompt that it did not compute; undefined: it does not say. */
  readonly cachedTokens: number | undefined
}

export interface GenerateEvent {
  readonly outputs: readonly GenerateOutput[]
  /** Undefined: this event has none. */
  readonly usage: GenerateUsage | undefined
  /** Some text came without its token ids. */
  readonly lacksTokenIds: boolean
  /** Undefined: it is none. */
  readonly error: { readonly message: string; readonly code: string } | undefined
}

/** The data of one event, or the body of an error. Of what is no JSON the text is the error. */
export function readGenerateEvent(text: string): GenerateEvent {
  const chunk = objectOf(parsed(text))
  if (chunk === undefined || (chunk['error'] !== undefined && chunk['error'] !== null)) {
    const error = objectOf(chunk?.['error'])
    const { message, code } = error ?? {}
    const said = { message: textOf(message) ?? text, code: textOf(code) ?? '' }
    return { outputs: [], usage: undefined, lacksTokenIds: false, error: said }
  }
  const outputs: GenerateOutput[] = []
  let lacksTokenIds = false
  for (const given of listOf(chunk['choices'])) {
    const choice = objectOf(given)
    if (choice === undefined) continue
    const { token_ids: ids, text: words, finish_reason: reason } = choice
    const output = {
      tokenIds: listOf(ids).filter(id => typeof id === 'number'),
      text: textOf(words) ?? '',
      finishReason: textOf(reason),
    }
    if (!Array.isArray(ids) && output.text !== '') lacksTokenIds = true
    outputs.push(output)
  }
  const usage = objectOf(chunk['usage'])
  return { outputs, usage: usage && usageOf(usage), lacksTokenIds, error: undefined }
}

function usageOf(usage: Readonly<Record<string, unknown>>): GenerateUsage {
  return {
    promptTokens: numberOf(usage['prompt_tokens']),
    completionTokens: numberOf(usage['completion_tokens']),
    cachedTokens: numberOf(objectOf(usage['prompt_tokens_details'])?.['cached_tokens']),
  }
}

function parsed(text: string): unknown {
  try {
    return parseJson(text)
  } catch {
    return undefined
  }
}

function objectOf(value: unknown): Readonly<Record<string, unknown>> | undefined {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Readonly<Record<string, unknown>>)
    : undefined
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined
}

function numberOf(value: unknown): number | undefined {
  return typeof value === 'number' ? value : undefined
}
