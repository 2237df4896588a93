/** The asks in messages: found by their reply function, rejected when no actor will answer them. */

import type { Message } from '../values/message.ts'
import { type AskOwner, askOf, type OpenAsk, type ReplyFunction } from './asks.ts'

/** The unanswered ask that a message carries. */
export function openAskOf(message: Message | undefined): OpenAsk | undefined {
  const reply = (message as { reply?: ReplyFunction } | undefined)?.reply
  const ask = typeof reply === 'function' ? reply[askOf] : undefined
  return ask !== undefined && 'fail' in ask ? ask : undefined
}

/** Fails the asks that a lost instance of `owner` had taken and not answered; those that wait stay. */
export function failTakenAsks(owner: AskOwner, waitingMessages: () => Iterable<Message>): void {
  if (owner.firstAsk === undefined) return
  const waiting = new Set<OpenAsk>()
  for (const message of waitingMessages()) {
    const ask = openAskOf(message)
    if (ask !== undefined) waiting.add(ask)
  }
  for (let ask: OpenAsk | undefined = owner.firstAsk; ask !== undefined; ) {
    const { next }: OpenAsk = ask
    if (!waiting.has(ask)) ask.fail('terminated')
    ask = next
  }
}
