/**
 * Conversations: chats of words that share system prompts and grow from turn to turn.
 *
 * Each request is the next turn of one of `sessions` conversations, drawn at random: in a fixed order a
 * round-robin balancer could send all turns of a conversation to one worker by luck. In place of the model's
 * answer, words of its length stand in the next turn. So requests are a function of the seed, whatever was
 * answered and when, and two fleets get the same ones.
 */

import { type Random, seededRandom } from '@homing/base'
import { type Endpoint, type LoadRequest, type Message, type RequestSource, salted } from './load-request.ts'
import { numberedText, wordsText } from './words.ts'

export interface ConversationOptions {
  readonly endpoint: Endpoint
  readonly seed: number
  readonly inputTokens: number
  readonly outputTokens: number
  readonly prefixTokens: number
  readonly prefixes: number
  readonly sessions: number
  readonly turns: number
  readonly ignoresEos: boolean
}

interface Conversation {
  readonly messages: Message[]
  turn: number
}

export function conversationSource(options: ConversationOptions): RequestSource {
  const { seed, inputTokens, outputTokens, prefixTokens, prefixes, sessions, turns } = options
  const shared =
    prefixTokens === 0 ? 'no shared prefix' : `${prefixes} shared prefixes of about ${prefixTokens} tokens`
  return {
    description: `${sessions} conversations of ${turns} turns at one time, each turn about ${inputTokens} tokens more and ${outputTokens} of answer, ${shared}, seed ${seed}`,
    hasTimes: false,
    count: undefined,
    async *block(block) {
      yield* turnsOf(options, seededRandom(seed + Math.imul(block, 0x9e3779b1)))
    },
  }
}

function* turnsOf(options: ConversationOptions, random: Random): Generator<LoadRequest, never> {
  const live: Conversation[] = Array.from({ length: options.sessions }, () => begin(options, random))
  for (;;) {
    const position = random.below(live.length)
    const conversation = live[position]!
    conversation.messages.push({ role: 'user', content: wordsText(random, options.inputTokens) })
    yield requestOf(options, conversation.messages.slice())
    conversation.messages.push({ role: 'assistant', content: wordsText(random, options.outputTokens) })
    if (++conversation.turn === options.turns) live[position] = begin(options, random)
  }
}

function begin({ seed, prefixTokens, prefixes }: ConversationOptions, random: Random): Conversation {
  if (prefixTokens === 0) return { messages: [], turn: 0 }
  const content = numberedText(seed * 1_000_003 + random.below(prefixes), prefixTokens)
  return { messages: [{ role: 'system', content }], turn: 0 }
}

function requestOf(
  { endpoint, outputTokens, ignoresEos }: ConversationOptions,
  messages: readonly Message[],
): LoadRequest {
  return {
    atMs: undefined,
    endpoint,
    body: salt =>
      salted(
        {
          ...(endpoint === 'chat'
            ? { messages }
            : { prompt: messages.map(({ content }) => content).join('\n\n') }),
          max_tokens: outputTokens,
          ...(ignoresEos && { ignore_eos: true }),
        },
        salt,
      ),
  }
}
