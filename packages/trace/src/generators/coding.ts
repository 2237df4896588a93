/**
 * Coding agents, as a closed loop: one tool prompt of 15 k tokens that all share, then call after call with a
 * growing context.
 *
 * A task has 10 to 80 calls. Each adds 300 to 4,000 tokens: the call and its result, not the reasoning of the
 * model, so an answer longer than that adds no more. Answers have 80 tokens in the median and 445 in the
 * mean; between calls a tool runs for 0.2 to 10 s. One task of 15 is a long one that reads whole files; the
 * others read little. This gives the prompts the distribution of agents: mean about 34 k tokens, median 20 k,
 * 90th percentile 88 k. A task ends at 200 k tokens.
 */

import type { Random } from '@homing/base'
import { tokensDraw, uniformDraw } from './draws.ts'
import type { PlannedTurn, PlannedUser } from './multi-turn.ts'

const TOOL_PROMPT_TOKENS = 15_000
const CONTEXT_TOKENS_MAX = 200_000
const ADDED_TOKENS_MIN = 300
const ADDED_TOKENS_MAX = 4000
const OUTPUT_TOKENS_MAX = 32_000
const TOOL_MS_MIN = 200
const TOOL_MS_MAX = 10_000
/** exp(sigma² / 2) is the mean over the median: 445 ÷ 80. */
const OUTPUT_SIGMA = Math.sqrt(2 * Math.log(445 / 80))

const SHORT = { callsMin: 10, callsMax: 20, addedTokens: 400 }
const LONG = { callsMin: 40, callsMax: 80, addedTokens: 2000 }
const ADDED_SIGMA = 0.6
const TASKS_PER_LONG_ONE = 15

/** Calls of a task in the mean. */
export const CODING_CALLS_MEAN = 18

/** Draws tasks. Of every 15, one is long, so that a short trace has its share of them. */
export function codingUsers(): (random: Random) => PlannedUser {
  let number = 0
  let longOne = 0
  return random => {
    const place = number++ % TASKS_PER_LONG_ONE
    if (place === 0) longOne = random.below(TASKS_PER_LONG_ONE)
    const { callsMin, callsMax, addedTokens } = place === longOne ? LONG : SHORT
    const turns: PlannedTurn[] = []
    const calls = uniformDraw(random, callsMin, callsMax)
    for (let tokens = TOOL_PROMPT_TOKENS; turns.length < calls; ) {
      const added = tokensDraw(random, addedTokens, ADDED_SIGMA, ADDED_TOKENS_MIN, ADDED_TOKENS_MAX)
      tokens += added
      if (tokens > CONTEXT_TOKENS_MAX) break
      turns.push({
        addedTokens: added,
        outputTokens: tokensDraw(random, 80, OUTPUT_SIGMA, 1, OUTPUT_TOKENS_MAX),
        // All magnitudes alike: most tools answer at once, some run for seconds.
        thinkMs: TOOL_MS_MIN * (TOOL_MS_MAX / TOOL_MS_MIN) ** random.next(),
      })
    }
    return { opening: { name: 'tools', tokens: TOOL_PROMPT_TOKENS }, turns, keepsAnswers: false }
  }
}
