/** A text in pieces against the string that they make. */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { beginningOf, LongText } from '../src/long-text.ts'

/** Some are empty, and some are halves of characters. */
const pieceLists = fc.array(
  fc.oneof(
    fc.string({ maxLength: 6 }),
    fc.constantFrom('', '\ud83d', '\ude00', 'a\ud83d', '\ude00b', '東京'),
  ),
  { maxLength: 30 },
)

t.test('parts in any order are those of the string, of the whole and of its beginnings', async t => {
  const agrees = fc.property(
    pieceLists,
    fc.array(fc.tuple(fc.nat(200), fc.nat(200), fc.nat(200)), { maxLength: 30 }),
    (pieces, parts) => {
      const whole = pieces.join('')
      const text = LongText.of(pieces)
      assert.equal(text.length, whole.length)
      assert.equal(text.slice(0), whole)
      for (const [start, length, first] of parts) {
        assert.equal(text.slice(start, start + length), whole.slice(start, start + length))
        assert.equal(text.slice(start), whole.slice(start))
        const beginning = beginningOf(text, first)
        assert.equal(beginning.length, Math.min(first, whole.length))
        assert.equal(
          beginning.slice(start, start + length),
          whole.slice(0, first).slice(start, start + length),
        )
        assert.equal(beginningOf(whole, first), whole.slice(0, first))
      }
    },
  )
  t.doesNotThrow(() => fc.assert(agrees, { numRuns: 500 }))
})

t.test('it is well-formed where the string is, even if a character lies in two pieces', async t => {
  const agrees = fc.property(pieceLists, pieces => {
    assert.equal(LongText.of(pieces).isWellFormed(), pieces.join('').isWellFormed())
  })
  t.doesNotThrow(() => fc.assert(agrees, { numRuns: 500 }))
})
