/** Which blocks answers have filled, as later prompts and what engines found of them show it. */

import type { LoggedRequest } from '@homing/trace'
import t from 'tap'
import { answersOf } from '../src/answers-of-log.ts'

const BLOCK = 10

function request(
  timestampMs: number,
  hashIds: readonly number[],
  more: Partial<LoggedRequest> = {},
): LoggedRequest {
  return {
    timestampMs,
    inputTokens: BLOCK * hashIds.length - 5,
    outputTokens: 20,
    blockTokens: BLOCK,
    hashIds,
    sessionId: undefined,
    model: 'm',
    worker: 'a',
    policy: 'auto',
    predictedTokens: 0,
    cachedTokens: 0,
    routerMs: 0,
    firstTokenMs: 10,
    totalMs: 100,
    outcome: 'ok',
    error: undefined,
    attempts: 1,
    wasTaken: true,
    knowledge: 'tokens',
    ...more,
  }
}

/**
 * 25 tokens, an answer of 20, and the next turn of 75: the answer fills blocks 3 and 4, but for its last
 * token.
 */
const FIRST = request(0, [1, 2, 90])
const next = (more: Partial<LoggedRequest> = {}): LoggedRequest =>
  request(200, [1, 2, 3, 4, 5, 6, 7, 91], { cachedTokens: 40, ...more })

t.test('what follows a prompt in the next one is its answer, as far as that was long', async t => {
  const second = next()
  t.strictSame([...answersOf([FIRST, second])], [[FIRST, [3, 4]]])
  const short = request(0, [1, 2, 90], { outputTokens: 6 })
  t.strictSame([...answersOf([short, next({ cachedTokens: 30 })])], [[short, [3]]])
})

t.test('where engines did not find it, it was changed on its way', async t => {
  t.equal(answersOf([FIRST, next({ cachedTokens: 20 })]).size, 0)
  t.equal(answersOf([FIRST, next({ cachedTokens: undefined })]).size, 0, 'nor where nobody says')
  t.equal(answersOf([FIRST, next({ worker: 'b' })]).size, 0, 'nor where it went elsewhere')
})

t.test('what was found of some is believed of all', async t => {
  const other = request(0, [11, 12, 92])
  const elsewhere = request(200, [11, 12, 13, 14, 15, 93], { worker: 'b' })
  const answers = answersOf([FIRST, other, next(), elsewhere])
  t.strictSame(answers.get(other), [13, 14])
})

t.test('a prompt that came before the answer ended, or is no longer, shows nothing', async t => {
  t.equal(answersOf([FIRST, next({ timestampMs: 50 })]).size, 0)
  t.equal(answersOf([FIRST, request(200, [1, 2, 94], { cachedTokens: 20 })]).size, 0)
  t.equal(answersOf([FIRST, request(200, [1, 95, 96, 97], { cachedTokens: 10 })]).size, 0, 'another prompt')
})
