/** Where slices of a long prompt end. */

import assert from 'node:assert/strict'
import { sliceEnd } from '@homing/placement'
import fc from 'fast-check'
import t from 'tap'

const BLOCK = 16

function endsOf(promptTokens: number, pace: { stepTokens: number; pairRatio: number }, from = 0): number[] {
  const ends: number[] = []
  for (let at: number | undefined = from; at !== undefined; ) {
    at = sliceEnd({ promptTokens, blockSizeTokens: BLOCK }, at, pace)
    if (at !== undefined) ends.push(at)
  }
  return ends
}

/** Prefill time of the tokens from `from` to `to`, in times of one token without others before it. */
function timeOf(from: number, to: number, pairRatio: number): number {
  return to - from + (pairRatio * (to * to - from * from)) / 2
}

t.test('without a known cost of attention all slices are equal', async t => {
  t.strictSame(endsOf(1000, { stepTokens: 320, pairRatio: 0 }), [320, 640, 960])
})

t.test('where attention costs, the first slices are longer and take as long as the last', async t => {
  const pairRatio = 0.96e-6 / 0.023
  const ends = endsOf(60_000, { stepTokens: 7168, pairRatio })
  const equal = endsOf(60_000, { stepTokens: 7168, pairRatio: 0 })
  t.ok(ends.length < equal.length, `${ends.length} < ${equal.length}`)
  const lengths = ends.map((end, i) => end - (ends[i - 1] ?? 0))
  t.strictSame(
    lengths,
    lengths.toSorted((a, b) => b - a),
  )
})

t.test(
  'a slice has a step or more, and takes no longer than a step at the end, whatever was learned',
  async t => {
    const cases = fc.record({
      promptTokens: fc.integer({ min: 100, max: 300_000 }),
      stepTokens: fc.integer({ min: BLOCK, max: 20_000 }),
      pairRatio: fc.oneof(fc.constant(0), fc.double({ min: 1e-9, max: 1e-3, noNaN: true })),
      from: fc.integer({ min: 0, max: 5000 }),
    })
    const holds = fc.property(cases, ({ promptTokens, stepTokens, pairRatio, from }) => {
      const start = Math.min(from, promptTokens)
      const longest = timeOf(promptTokens - Math.min(stepTokens, promptTokens), promptTokens, pairRatio)
      const ends = [...endsOf(promptTokens, { stepTokens, pairRatio }, start), promptTokens]
      for (const [i, end] of ends.entries()) {
        const begin = ends[i - 1] ?? start
        const isRest = i === ends.length - 1
        if (!isRest) assert.ok(end - begin > stepTokens - BLOCK, `${end - begin} tokens`)
        // Of the rest, less than a block was left out of the slice that it would have been.
        if (end - begin > stepTokens + BLOCK)
          assert.ok(
            timeOf(begin, end - (isRest ? BLOCK : 0), pairRatio) <= longest * (1 + 1e-9),
            `${begin} … ${end}`,
          )
      }
    })
    t.doesNotThrow(() => fc.assert(holds))
  },
)
