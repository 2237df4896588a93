/**
 * Demo load: a few conversations that never end, on a thread of the demo fleet.
 *
 * Out    chats to the router, one at a time for each talker: the prompt of the turn before, its answer, and a
 *        new question. After TURNS turns the next conversation begins. Talkers of one assistant share its
 *        system prompt, so their prompts begin alike.
 * Owns   the conversations, one for each of TALKERS_COUNT talkers: bounded, since each has a last turn.
 * Fails  an answer that fails ends its conversation; the talker begins another one after its pause, so a
 *        router that is away for a while is not flooded when it is back.
 */

import { defineActor, type Message } from '@homing/actor'
import type { Random } from '@homing/base'
import { type HttpTransport, transportCapability } from '@homing/transport'

const TALKERS_COUNT = 6
const TURNS = [3, 9] as const
const PAUSE_MS = [400, 2600] as const
const ANSWER_TOKENS = [12, 48] as const

export interface DemoLoadArgs {
  /** 'http://host:port' of the router. */
  readonly origin: string
  readonly model: string
}

export type DemoLoadMessage = Message & { readonly type: 'talk'; readonly talker: number }

interface Turn {
  readonly role: 'system' | 'user' | 'assistant'
  readonly content: string
}

interface Conversation {
  readonly turns: Turn[]
  left: number
}

export const demoLoad = defineActor(
  import.meta.url,
  'demoLoad',
)<DemoLoadMessage, DemoLoadArgs>({
  reentrant: true,
  setup(context, args) {
    const { http } = context.use(transportCapability)
    const { random } = context
    const conversations = Array.from({ length: TALKERS_COUNT }, (_, talker) => begin(talker, random))
    const later = (talker: number): void => {
      context.schedule(between(random, PAUSE_MS), { type: 'talk', talker })
    }
    for (let talker = 0; talker < TALKERS_COUNT; talker++) later(talker)
    return {
      async talk({ talker }) {
        const conversation = conversations[talker]!
        conversation.turns.push({ role: 'user', content: question(random) })
        try {
          const answer = await ask(http, args, conversation.turns, between(random, ANSWER_TOKENS))
          conversation.turns.push({ role: 'assistant', content: answer })
          if (--conversation.left === 0) conversations[talker] = begin(talker, random)
        } catch (error) {
          context.log.debug({ reason: String(error) }, 'demo request failed')
          conversations[talker] = begin(talker, random)
        }
        later(talker)
      },
    }
  },
})

function begin(talker: number, random: Random): Conversation {
  const assistant = ASSISTANTS[talker % ASSISTANTS.length]!
  return { turns: [{ role: 'system', content: assistant }], left: between(random, TURNS) }
}

/** The text of the answer, read as a stream. Rejects for everything but 200. */
function ask(
  http: HttpTransport,
  { origin, model }: DemoLoadArgs,
  messages: readonly Turn[],
  maxTokens: number,
): Promise<string> {
  const request = { model, messages, max_tokens: maxTokens, stream: true }
  const body = new TextEncoder().encode(JSON.stringify(request))
  return new Promise((resolve, reject) => {
    const decoder = new TextDecoder()
    let status = 0
    let text = ''
    const call = http.call(
      {
        origin,
        method: 'POST',
        path: '/v1/chat/completions',
        headers: { 'content-type': 'application/json' },
        body,
      },
      {
        head: answered => {
          status = answered
          if (status !== 200) call.abort()
        },
        data: bytes => {
          text += decoder.decode(bytes, { stream: true })
        },
        end: () => (status === 200 ? resolve(textOf(text)) : reject(new Error(`status ${status}`))),
        failed: error => reject(status === 0 ? error : new Error(`status ${status}`)),
      },
    )
  })
}

function textOf(events: string): string {
  return events
    .split('\n\n')
    .filter(event => event.startsWith('data: {'))
    .map(event => {
      const { choices } = JSON.parse(event.slice('data: '.length)) as {
        readonly choices?: readonly { readonly delta?: { readonly content?: string } }[]
      }
      return choices?.[0]?.delta?.content ?? ''
    })
    .join('')
}

function between(random: Random, [low, high]: readonly [number, number]): number {
  return low + random.below(high - low + 1)
}

function question(random: Random): string {
  const words = Array.from({ length: 12 + random.below(40) }, () => WORDS[random.below(WORDS.length)]!)
  return `${words.join(' ')}?`
}

const ASSISTANTS = [
  'You help the keepers of a loft of homing pigeons. Answer in plain words. Say what is known of how they find their way: by the sun, by the field of the earth, by smells of the wind, by rivers and roads that they have seen before. When you do not know, say so. Never send anybody out at night. Birds that are tired rest first. Birds that are ill stay at home. The distance of a flight grows from week to week, and what was learned on the way is not forgotten.',
  'You answer letters of people who look after a library in a small town. Be short and kind. A book that was lent comes back after four weeks. Whoever asks for longer may keep it, if nobody else waits for it. Old maps stay in the reading room. Children read for free, and so does everybody else. If a letter has several questions, answer them one by one, in the order in which they were asked, and sign with the name of the library.',
  'You plan the work of a repair shop for bicycles. A brake that does not hold comes first, then wheels, then lights, then everything else. Tell the price before the work begins. Parts that are not on the shelf come within three days. A bicycle that nobody fetches within a month is put into the cellar, and its owner gets a card. Ask for the number of the frame, and for a telephone number.',
] as const

const WORDS = (
  'how does the way home look when the wind comes from the north and what would you do if nobody had seen it before ' +
  'tell me more about that and why it should be done today or can it wait until next week because we have little time'
).split(' ')
