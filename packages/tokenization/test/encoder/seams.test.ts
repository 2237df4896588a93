/** Seams against a search through all tokens: where one could be made across a place, there is no seam. */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { isSeam, SeamBuilder } from '../../src/encoder/seams.ts'

const CHARS = ['a', 'z', 'é', 'ß', '的', '是', '中', 'あ', '한', '。'] as const

/** Whether bytes of a token can lie over the place between two characters. */
function crosses(token: Uint8Array, first: Uint8Array, second: Uint8Array): boolean {
  for (let cut = 1; cut < token.length; cut++) {
    const left = Math.min(cut, first.length)
    const right = Math.min(token.length - cut, second.length)
    const fits =
      Buffer.compare(token.subarray(cut - left, cut), first.subarray(first.length - left)) === 0 &&
      Buffer.compare(token.subarray(cut, cut + right), second.subarray(0, right)) === 0
    if (fits) return true
  }
  return false
}

const tokens = fc
  .tuple(fc.array(fc.constantFrom(...CHARS, '😀'), { minLength: 1, maxLength: 4 }), fc.nat(3), fc.nat(3))
  .map(([chars, from, to]) => {
    const bytes = Buffer.from(chars.join(''))
    return bytes.subarray(Math.min(from, bytes.length - 1), Math.max(from + 1, bytes.length - to))
  })

t.test('no token reaches across a seam', async t => {
  let seams = 0
  const holds = fc.property(
    fc.array(tokens, { maxLength: 12 }),
    fc.constantFrom(...CHARS),
    fc.constantFrom(...CHARS),
    (list, first, second) => {
      const builder = new SeamBuilder()
      for (const token of list) builder.add(token, 0, token.length)
      const isCut = isSeam(builder.build(), Uint16Array.of(first.charCodeAt(0), second.charCodeAt(0)), 1)
      if (!isCut) return
      seams++
      for (const token of list)
        assert.ok(
          !crosses(token, Buffer.from(first), Buffer.from(second)),
          `${token.toString('hex')} over ${first}${second}`,
        )
    },
  )
  t.doesNotThrow(() => fc.assert(holds, { numRuns: 5000 }))
  t.ok(seams > 500, `${seams} seams`)
})

t.test('there is no seam beside a surrogate or between ASCII characters', async t => {
  const none = new SeamBuilder().build()
  const at = (text: string, place: number) =>
    isSeam(
      none,
      Uint16Array.from({ length: text.length }, (_, i) => text.charCodeAt(i)),
      place,
    )
  t.strictSame([at('ab', 1), at('a😀', 1), at('😀', 1), at('😀的', 2)], [false, false, false, false])
  t.strictSame([at('a的', 1), at('的是', 1), at('éa', 1)], [true, true, true])
})
