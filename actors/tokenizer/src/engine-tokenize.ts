/**
 * An engine's `/tokenize`: asked over HTTP, and its ids read.
 *
 * An engine that cannot be reached or answers 5xx, as one that starts again, is no reason to know a prompt as
 * text only: another one is asked in what is left of the time. One that never answers takes all of it.
 */

import type { ActorContext } from '@homing/actor'
import { InvalidRequestError, parseTokenIds, scanRequest } from '@homing/openai'
import { transportCapability } from '@homing/transport'
import type { TokenizerMessage } from './messages.ts'

/** Two million ids as JSON. */
const REPLY_BYTES_MAX = 16 * 2 ** 20
const ENGINES_ASKED_MAX = 2

export interface TokenizeQuestion {
  /** Engines that can be asked; one is drawn, and if that fails the next. */
  readonly origins: readonly string[]
  readonly tokenizeBody: Uint8Array
}

/** The body of the reply. Rejects with one line that names the engine. `timeoutMs`: the longest wait. */
export async function askToTokenize(
  context: ActorContext<TokenizerMessage>,
  { origins, tokenizeBody }: TokenizeQuestion,
  timeoutMs: number,
): Promise<Uint8Array> {
  const first = context.random.below(origins.length)
  const endMs = context.clock.nowMs() + timeoutMs
  for (let asked = 1; ; asked++) {
    const origin = origins[(first + asked - 1) % origins.length]
    if (origin === undefined) throw new Error('no engine can be asked to tokenize')
    const leftMs = endMs - context.clock.nowMs()
    const answer = await ask(context, origin, tokenizeBody, asked === 1 ? timeoutMs : leftMs)
    if (!('why' in answer)) return answer.body
    const isLast = asked >= Math.min(ENGINES_ASKED_MAX, origins.length)
    if (isLast || !answer.isEnginesFault || context.clock.nowMs() >= endMs)
      throw new Error(answer.why, { cause: answer.cause })
  }
}

interface NoTokens {
  readonly why: string
  readonly cause?: unknown
  /** Another engine may answer. */
  readonly isEnginesFault: boolean
}

async function ask(
  context: ActorContext<TokenizerMessage>,
  origin: string,
  body: Uint8Array,
  timeoutMs: number,
): Promise<{ readonly body: Uint8Array } | NoTokens> {
  const headers = { 'content-type': 'application/json' }
  const request = { origin, method: 'POST', path: '/tokenize', headers, body }
  try {
    const reply = await context
      .use(transportCapability)
      .http.fetch(request, { timeoutMs, maxBytes: REPLY_BYTES_MAX })
    if (reply.status === 200) return { body: reply.body }
    const why = `${origin}/tokenize answered ${reply.status}`
    return { why, isEnginesFault: reply.status >= 500 }
  } catch (thrown) {
    const why = `${origin}/tokenize: ${(thrown as Error).message}`
    return { why, cause: thrown, isEnginesFault: true }
  }
}

/** Throws MalformedJsonError or InvalidRequestError. */
export function idsOfReply(body: Uint8Array): Int32Array {
  const tokens = scanRequest(body).byName.get('tokens')
  if (tokens === undefined) throw new InvalidRequestError('tokens', '(missing)', 'the reply of /tokenize')
  return parseTokenIds(body, tokens.value, 'tokens')
}
