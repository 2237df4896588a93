/**
 * The prompts of the bench: chats of which three quarters were seen before, chats of new text only, and chats
 * that go on with another turn.
 */

import { fileURLToPath } from 'node:url'
import { type Random, seededRandom } from '@homing/base'
import { WORDS } from '@homing/load-generator'

/** A tokenizer that engines and routers load alike. */
export const TINY_TOKENIZER = fileURLToPath(
  new URL('../fixtures/tiny', import.meta.resolve('@homing/tokenization')),
)
/** The model that engines serve. */
export const MODEL = 'homing-sim'
/** Of the engines. */
export const BLOCK_TOKENS = 16
/** The share of a prompt that was seen before. */
export const SEEN_SHARE = 0.75

export interface PromptOptions {
  readonly seed: number
  readonly promptTokens: number
  readonly outputTokens: number
  /** Conversations that go on; each prompt begins with one of them. */
  readonly conversations: number
  readonly isStream: boolean
}

/** Request bodies for /v1/chat/completions, one after the other; equal options give equal bodies. */
export function* promptBodies(options: PromptOptions): Generator<string, never> {
  const random = seededRandom(options.seed)
  const words = (count: number): string =>
    Array.from({ length: count }, () => WORDS[random.below(WORDS.length)]!).join(' ')
  const seenTokens = Math.round(options.promptTokens * SEEN_SHARE)
  const seen = Array.from({ length: options.conversations }, () => words(seenTokens))
  for (let number = 0; ; number++) {
    yield JSON.stringify({
      model: MODEL,
      messages: [
        { role: 'system', content: seen[number % seen.length]! },
        { role: 'user', content: words(options.promptTokens - seenTokens) },
      ],
      max_tokens: options.outputTokens,
      ignore_eos: true,
      stream: options.isStream,
      ...(options.isStream ? { stream_options: { include_usage: true } } : {}),
    })
  }
}

export interface TurnOptions {
  readonly seed: number
  /** Length of each chat to begin with; it grows from there. */
  readonly promptTokens: number
  readonly outputTokens: number
  readonly conversations: number
}

/** Tokens that a turn adds to its conversation, half of them the answer of the assistant. */
const TURN_TOKENS = 128

/** Request bodies of new text: no two have a message in common but the first. */
export function* newBodies({ seed, promptTokens, outputTokens }: TurnOptions): Generator<string, never> {
  const random = seededRandom(seed)
  for (;;) yield chatBody([SYSTEM, { role: 'user', content: prose(random, promptTokens) }], outputTokens)
}

/**
 * Request bodies of conversations in turn: first each as it begins, then each with an answer and a question
 * more.
 */
export function* nextBodies(options: TurnOptions): Generator<string, never> {
  const { seed, promptTokens, outputTokens, conversations } = options
  const random = seededRandom(seed)
  const chats = Array.from({ length: conversations }, () => [
    SYSTEM,
    { role: 'user', content: prose(random, promptTokens) },
  ])
  for (const chat of chats) yield chatBody(chat, outputTokens)
  for (;;) {
    for (const chat of chats) {
      chat.push({ role: 'assistant', content: prose(random, TURN_TOKENS / 2) })
      chat.push({ role: 'user', content: prose(random, TURN_TOKENS / 2) })
      yield chatBody(chat, outputTokens)
    }
  }
}

interface Message {
  readonly role: string
  readonly content: string
}

const SYSTEM: Message = { role: 'system', content: 'You are a helpful assistant. Answer briefly.' }

function chatBody(messages: readonly Message[], outputTokens: number): string {
  return JSON.stringify({ model: MODEL, messages, max_tokens: outputTokens, ignore_eos: true })
}

/** Sentences in paragraphs, and now and then a line of code: about `tokens` tokens. */
function prose(random: Random, tokens: number): string {
  const pieces: string[] = []
  for (let count = 0; count < tokens; ) {
    const length = 5 + random.below(12)
    const words = Array.from({ length }, () => WORDS[random.below(WORDS.length)]!)
    const isCode = random.below(8) === 0
    if (isCode)
      pieces.push(`\n    ${words[0]}_${words[1]} = ${words[2]}(${words[3]}, "${random.below(1000)}")\n`)
    else pieces.push(`${words.join(' ')}${random.below(6) === 0 ? '.\n\n' : ', '}`)
    count += isCode ? 14 : length + 1
  }
  return pieces.join('')
}

/** What the open loop sends: `kind` of prompts of about `promptTokens` each. */
export interface OpenWorkload {
  /** seen: three quarters came before; new: nothing did; next: a turn more of what came before. */
  readonly kind: 'seen' | 'new' | 'next'
  readonly promptTokens: number
  readonly outputTokens: number
  readonly isStream: boolean
  /** Requests besides warm-up and openings. */
  readonly count: number
  /** Requests that make routers compile their code. */
  readonly warmUp: number
}

/** A conversation grows by turns up to this part of what it was. */
const GROWTH_MAX = 0.25
const SEEN_CONVERSATIONS = 16
const NEXT_CONVERSATIONS_MIN = 4

/** Conversations, and the number of the first body behind warm-up and openings. */
export function outlineOf({ kind, promptTokens, count, warmUp }: OpenWorkload): {
  conversations: number
  first: number
} {
  if (kind !== 'next') return { conversations: SEEN_CONVERSATIONS, first: warmUp }
  const turns = Math.max(2, Math.floor((promptTokens * GROWTH_MAX) / TURN_TOKENS))
  const conversations = Math.max(NEXT_CONVERSATIONS_MIN, Math.ceil(count / turns))
  return { conversations, first: warmUp + conversations }
}

/** Bodies by their number, which each names in `seed`; the same in each process that asks. */
export function openBodies(workload: OpenWorkload): readonly Buffer[] {
  const { kind, promptTokens, outputTokens, isStream, count, warmUp } = workload
  const { conversations, first } = outlineOf(workload)
  const options = { seed: 1, promptTokens, outputTokens, conversations }
  const own =
    kind === 'seen'
      ? promptBodies({ ...options, isStream })
      : kind === 'new'
        ? newBodies(options)
        : nextBodies(options)
  const compiling = compilingBodies(warmUp)
  return Array.from({ length: first + count }, (_, number) => {
    const text = (number < warmUp ? compiling : own).next().value as string
    return Buffer.from(`${text.slice(0, -1)},"seed":${number}}`)
  })
}

/** What makes relays and routers compile their code: new text, and turns that another thread tokenizes. */
export function* compilingBodies(count: number): Generator<string, void> {
  const options = { seed: 2, outputTokens: 8, conversations: 16 }
  const short = newBodies({ ...options, promptTokens: 1000 })
  const long = nextBodies({ ...options, promptTokens: 4000 })
  for (let i = 0; i < count; i++) yield (i % 5 === 4 ? long : short).next().value
}
