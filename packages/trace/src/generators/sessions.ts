/**
 * Chats over a few shared system prompts, as a closed loop.
 *
 * A system prompt of 1 to 8 k tokens out of 50 by Zipf's law (exponent 1); a first turn of 600 tokens in the
 * median; every further turn adds the answer and 80 tokens in the median; 6 turns in the mean (geometric);
 * answers of 250 tokens and think times of 20 s in the median.
 */

import type { Random } from '@homing/base'
import { logNormalDraw, tokensDraw, uniformDraw, ZipfRanks } from './draws.ts'
import type { PlannedTurn, PlannedUser } from './multi-turn.ts'

const SYSTEM_PROMPTS = 50
const SYSTEM_TOKENS_MIN = 1000
const SYSTEM_TOKENS_MAX = 8000
export const CHAT_TURNS_MEAN = 6
const TURNS_MAX = 100

/** Draws users; the system prompts are drawn once. */
export function chatUsers(random: Random): (random: Random) => PlannedUser {
  const tokens = Array.from({ length: SYSTEM_PROMPTS }, () =>
    uniformDraw(random, SYSTEM_TOKENS_MIN, SYSTEM_TOKENS_MAX),
  )
  const ranks = new ZipfRanks(SYSTEM_PROMPTS, 1)
  return random => {
    const system = ranks.draw(random)
    const turns: PlannedTurn[] = []
    do {
      turns.push({
        addedTokens: tokensDraw(
          random,
          turns.length === 0 ? 600 : 80,
          turns.length === 0 ? 0.8 : 0.6,
          1,
          32_000,
        ),
        outputTokens: tokensDraw(random, 250, 0.7, 1, 8000),
        thinkMs: logNormalDraw(random, 20_000, 0.8),
      })
    } while (random.next() >= 1 / CHAT_TURNS_MEAN && turns.length < TURNS_MAX)
    return { opening: { name: `system ${system}`, tokens: tokens[system]! }, turns, keepsAnswers: true }
  }
}
