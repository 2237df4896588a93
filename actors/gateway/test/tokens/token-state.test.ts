/** Where an answer of token ids ends, and its text, depend on the ids alone. */

import assert from 'node:assert/strict'
import { fileURLToPath } from 'node:url'
import type { TokenWishes } from '@homing/openai'
import { loadDecoder, TokenTexts } from '@homing/tokenization'
import fc from 'fast-check'
import t from 'tap'
import { TokenState } from '../../src/tokens/token-state.ts'

const TINY = fileURLToPath(new URL('../fixtures/tiny', import.meta.resolve('@homing/tokenization')))
const END_ID = 1458
const texts = new TokenTexts(await loadDecoder(TINY))
const WISHES: TokenWishes = {
  ...{ form: 'chat', model: 'm', isStream: true, wantsUsage: false, wantsIds: false, cacheSalt: undefined },
  ...{ maxTokens: undefined, minTokens: 0, stop: [], stopTokenIds: [], ignoresEos: false },
  ...{ includesStop: false, skipsSpecial: true, sampling: {} },
}

function stateOf(wishes: Partial<TokenWishes>, maxTokens?: number, take = (_: number) => true): TokenState {
  return new TokenState({ wishes: { ...WISHES, ...wishes }, texts, maxTokens, take }, 'id', 0)
}

/** What came of these pieces, up to the end. */
function run(state: TokenState, pieces: readonly (readonly number[])[]) {
  let text = ''
  const ids: number[] = []
  for (const piece of pieces) {
    const step = state.take(piece, undefined, undefined)
    text += step.text
    ids.push(...step.tokenIds)
    if (step.end !== undefined) return { text, ids, end: step.end }
  }
  const { text: rest } = state.take([], 'stop', undefined)
  return { text: text + rest, ids, end: undefined }
}

t.test('however the ids are cut, text and end are the same', async t => {
  const wishes = fc.record({
    stop: fc.array(fc.string({ unit: fc.constantFrom('a', 'e', 'n', ' '), maxLength: 3 }), { maxLength: 3 }),
    stopTokenIds: fc.array(fc.nat(40), { maxLength: 2 }),
    minTokens: fc.nat(6),
    ignoresEos: fc.boolean(),
    includesStop: fc.boolean(),
  })
  const id = fc.oneof(fc.nat(120), fc.constant(END_ID))
  const agree = fc.property(
    wishes,
    fc.array(fc.array(id, { maxLength: 4 }), { maxLength: 12 }),
    fc.option(fc.integer({ min: 1, max: 30 }), { nil: undefined }),
    (given, pieces, maxTokens) => {
      const single = pieces.flat().map(one => [one])
      assert.deepEqual(run(stateOf(given, maxTokens), pieces), run(stateOf(given, maxTokens), single))
    },
  )
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 500 }))
})

t.test('each end has its reason, and its token counts', async t => {
  const end = (wishes: Partial<TokenWishes>, ids: readonly number[], maxTokens?: number) => {
    const state = stateOf(wishes, maxTokens)
    return [run(state, [ids]).end, state.ending]
  }
  const counted = (completionTokens: number) => ({ completionTokens, cachedTokens: undefined })
  t.strictSame(end({}, [5, END_ID, 6]), [
    { finishReason: 'stop', stopReason: undefined, ...counted(2) },
    'model',
  ])
  t.strictSame(end({ stopTokenIds: [6] }, [5, 6, 7]), [
    { finishReason: 'stop', stopReason: 6, ...counted(2) },
    'stop_id',
  ])
  t.strictSame(end({}, [5, 6, 7], 2), [
    { finishReason: 'length', stopReason: undefined, ...counted(2) },
    'limit',
  ])
  t.strictSame(end({ minTokens: 3 }, [END_ID, END_ID, END_ID]), [
    { finishReason: 'stop', stopReason: undefined, ...counted(3) },
    'model',
  ])
})

t.test('ids without room are not kept, and the answer goes on', async t => {
  let left = 64
  const state = stateOf({}, undefined, () => left-- === 64)
  for (let i = 0; i < 100; i++) state.take([i % 50], undefined, undefined)
  t.equal(state.ids, undefined, 'no other worker can go on with it')
  t.equal(state.count, 100)
  const whole = stateOf({})
  whole.take([7, 8, 9_000_000], undefined, undefined)
  t.strictSame(whole.ids, [7, 8, 9_000_000])
  t.equal(whole.unknownCount, 1)
})
