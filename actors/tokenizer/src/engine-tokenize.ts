/** An engine's `/tokenize`: asked over HTTP, and its ids read. */

import type { ActorContext } from '@homing/actor'
import { InvalidRequestError, parseTokenIds, scanRequest } from '@homing/openai'
import { transportCapability } from '@homing/transport'
import type { TokenizerMessage } from './messages.ts'

/** Two million ids as JSON. */
const REPLY_BYTES_MAX = 16 * 2 ** 20

export interface TokenizeQuestion {
  /** Engines that can be asked; one is drawn. */
  readonly origins: readonly string[]
  readonly tokenizeBody: Uint8Array
}

/** The body of the reply. Rejects with one line that names the engine. `timeoutMs`: the longest wait. */
export async function askToTokenize(
  context: ActorContext<TokenizerMessage>,
  { origins, tokenizeBody }: TokenizeQuestion,
  timeoutMs: number,
): Promise<Uint8Array> {
  const origin = origins[context.random.below(origins.length)]
  if (origin === undefined) throw new Error('no engine can be asked to tokenize')
  const request = {
    origin,
    method: 'POST',
    path: '/tokenize',
    headers: { 'content-type': 'application/json' },
    body: tokenizeBody,
  }
  let reply: { readonly status: number; readonly body: Uint8Array }
  try {
    reply = await context
      .use(transportCapability)
      .http.fetch(request, { timeoutMs, maxBytes: REPLY_BYTES_MAX })
  } catch (thrown) {
    throw new Error(`${origin}/tokenize: ${(thrown as Error).message}`, { cause: thrown })
  }
  if (reply.status !== 200) throw new Error(`${origin}/tokenize answered ${reply.status}`)
  return reply.body
}

/** Throws MalformedJsonError or InvalidRequestError. */
export function idsOfReply(body: Uint8Array): Int32Array {
  const tokens = scanRequest(body).byName.get('tokens')
  if (tokens === undefined) throw new InvalidRequestError('tokens', '(missing)', 'the reply of /tokenize')
  return parseTokenIds(body, tokens.value, 'tokens')
}
