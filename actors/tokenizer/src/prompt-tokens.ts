/** Token ids of a prompt by the tokenizer of its model, or its text, on a pool thread. */

import type { RoutingRequest } from '@homing/openai'
import { PromptTokenizer } from '@homing/tokenization'
import type { ModelEntry } from './model-table.ts'

export type Prompt =
  | { readonly kind: 'tokens'; readonly ids: Int32Array; readonly by: 'router' | 'client' }
  | { readonly kind: 'ask-engine'; readonly why: string }
  | { readonly kind: 'unknown'; readonly reason: string }

/** Loaded at first use, by directory and dialect: one per model, so their number is bounded by the fleet. */
const loaded = new Map<string, Promise<PromptTokenizer | string>>()

/** What templates that print the date are told; set before each rendering, which does not wait. */
let renderedAtMs = 0

/**
 * `body`: the JSON text as it arrived; parsing it twice would lose numbers and the order of keys.
 * `wallMs`: Unix milliseconds, by the clock of the actor: threads of the pool have none of their own.
 */
export async function promptTokens(
  body: Uint8Array,
  request: RoutingRequest,
  entry: ModelEntry,
  wallMs: number,
): Promise<Prompt> {
  const { tokenizerDirectory, dialect } = entry
  if (tokenizerDirectory === undefined) {
    return { kind: 'ask-engine', why: `no tokenizer directory for ${entry.base}` }
  }
  const tokenizer = await load(tokenizerDirectory, dialect)
  if (typeof tokenizer === 'string') return { kind: 'ask-engine', why: tokenizer }
  renderedAtMs = wallMs
  if (request.promptShape === 'messages') {
    const answer = tokenizer.encodeChat(body)
    if (answer.kind === 'tokens') return { kind: 'tokens', ids: answer.tokens, by: 'router' }
    return refusal(answer.kind, answer.reason)
  }
  const answer = tokenizer.encodeCompletion(body)
  if (answer.kind !== 'tokens') return refusal(answer.kind, answer.reason)
  // Several prompts in one request go to one worker: the first decides.
  const [first] = answer.prompts
  return first === undefined
    ? { kind: 'unknown', reason: 'the request has no prompt' }
    : { kind: 'tokens', ids: first, by: 'router' }
}

/** The rendered text of a chat where its template can be used; undefined: its messages must do. */
export async function renderedText(
  body: Uint8Array,
  entry: ModelEntry,
  wallMs: number,
): Promise<string | undefined> {
  const { tokenizerDirectory, dialect } = entry
  if (tokenizerDirectory === undefined) return undefined
  const tokenizer = await load(tokenizerDirectory, dialect)
  if (typeof tokenizer === 'string') return undefined
  renderedAtMs = wallMs
  const answer = tokenizer.renderChat(body)
  return answer.kind === 'text' ? answer.text + answer.textAfter : undefined
}

function refusal(kind: 'delegate' | 'unsupported', reason: string): Prompt {
  return kind === 'delegate' ? { kind: 'ask-engine', why: reason } : { kind: 'unknown', reason }
}

/** The tokenizer, or why it cannot be loaded; a failed load is not tried again. */
function load(directory: string, dialect: ModelEntry['dialect']): Promise<PromptTokenizer | string> {
  const name = `${dialect} ${directory}`
  let loading = loaded.get(name)
  if (loading === undefined) {
    const now = () => new Date(renderedAtMs)
    loading = PromptTokenizer.load(directory, { dialect, now }).catch(
      (thrown: unknown) => (thrown as Error).message,
    )
    loaded.set(name, loading)
  }
  return loading
}
