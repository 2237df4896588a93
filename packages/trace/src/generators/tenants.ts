/**
 * Traffic of several tenants with fixed times: a chat beside a flood of long prompts, and tenants who all
 * want the same.
 */

import { type Random, seededRandom } from '@homing/base'
import type { TraceRequest } from '../trace-request.ts'
import { poissonGapMs, tokensDraw } from './draws.ts'
import { GrowingPrompt, PrefixIds } from './growing-prompt.ts'

export const CHAT_TENANT = 'chat'
export const FLOOD_TENANT = 'flood'

const TENANT_CHAT_TOKENS_MEDIAN = 800
const FLOOD_TOKENS = 60_000
const FLOOD_OUTPUT_TOKENS = 100

/**
 * The tenant `chat` sends short prompts, `chatsPerSecond`; the tenant `flood` sends prompts of 60,000 tokens,
 * `floodsPerSecond`, 0 for none. They share nothing. The chats of a seed do not depend on the flood.
 */
export function* floodTraffic(
  random: Random,
  chatsPerSecond: number,
  floodsPerSecond: number,
): Generator<TraceRequest> {
  const ids = new PrefixIds()
  const ofFlood = seededRandom(random.below(2 ** 31))
  const nextFlood = (fromMs: number): number =>
    floodsPerSecond > 0 ? fromMs + poissonGapMs(ofFlood, floodsPerSecond) : Number.POSITIVE_INFINITY
  let floodMs = nextFlood(0)
  for (let chatMs = poissonGapMs(random, chatsPerSecond); ; chatMs += poissonGapMs(random, chatsPerSecond)) {
    for (; floodMs < chatMs; floodMs = nextFlood(floodMs)) {
      yield requestOf(ids, FLOOD_TENANT, floodMs, FLOOD_TOKENS, FLOOD_OUTPUT_TOKENS)
    }
    const inputTokens = tokensDraw(random, TENANT_CHAT_TOKENS_MEDIAN, 0.7, 16, 4000)
    yield requestOf(ids, CHAT_TENANT, chatMs, inputTokens, tokensDraw(random, 150, 0.5, 1, 1000))
  }
}

/** `tenants` tenants, called t1, t2, …, with equal demand; they share nothing. */
export function* tenantsTraffic(random: Random, perSecond: number, tenants: number): Generator<TraceRequest> {
  const ids = new PrefixIds()
  for (let nowMs = 0; ; ) {
    nowMs += poissonGapMs(random, perSecond)
    const tenant = `t${1 + random.below(tenants)}`
    yield requestOf(
      ids,
      tenant,
      nowMs,
      tokensDraw(random, 2000, 0.6, 16, 8000),
      tokensDraw(random, 50, 0.5, 1, 500),
    )
  }
}

function requestOf(
  ids: PrefixIds,
  tenant: string,
  timestampMs: number,
  inputTokens: number,
  outputTokens: number,
): TraceRequest {
  const prompt = new GrowingPrompt(ids)
  prompt.add(inputTokens)
  return { timestampMs, inputTokens, outputTokens, hashIds: prompt.hashIds(), tenant }
}
