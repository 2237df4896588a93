/** Stop strings end a text at the same place, however the text is cut into pieces. */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { StopStrings } from '../../src/index.ts'

interface Ended {
  readonly text: string
  readonly stop: string | undefined
}

/** The naive model: looks at the whole text after each character. */
function naive(text: string, stops: readonly string[], isIncluded: boolean): Ended {
  for (let end = 1; end <= text.length; end++) {
    const ending = stops.filter(stop => stop !== '' && text.slice(0, end).endsWith(stop))
    const longest = ending.toSorted((a, b) => b.length - a.length)[0]
    if (longest !== undefined)
      return { text: text.slice(0, isIncluded ? end : end - longest.length), stop: longest }
  }
  return { text, stop: undefined }
}

function inPieces(pieces: readonly string[], stops: readonly string[], isIncluded: boolean): Ended {
  const strings = new StopStrings(stops, { isIncluded })
  let text = ''
  for (const piece of pieces) {
    const result = strings.push(piece)
    text += result.text
    if (result.stop !== undefined) return { text, stop: result.stop }
  }
  return { text: text + strings.rest(), stop: undefined }
}

const letters = (maxLength: number) => fc.string({ unit: fc.constantFrom('a', 'b', 'c'), maxLength })

t.test('pieces end as the whole text does', async t => {
  const agree = fc.property(
    fc.array(letters(4), { maxLength: 12 }),
    fc.array(letters(4), { maxLength: 4 }),
    fc.boolean(),
    (pieces, stops, isIncluded) => {
      assert.deepEqual(inPieces(pieces, stops, isIncluded), naive(pieces.join(''), stops, isIncluded))
    },
  )
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 2000 }))
})

t.test('no more is held back than may begin a string', async t => {
  const strings = new StopStrings(['STOP', 'END'])
  t.strictSame(strings.push('a S'), { text: 'a ', stop: undefined })
  t.strictSame(strings.push('T'), { text: '', stop: undefined })
  t.strictSame(strings.push('x'), { text: 'STx', stop: undefined })
  t.strictSame(strings.push('EN'), { text: '', stop: undefined })
  t.equal(strings.rest(), 'EN')
})

t.test('a string does not count before it may', async t => {
  const strings = new StopStrings(['ab'])
  t.strictSame(strings.push('ab', false), { text: 'ab', stop: undefined })
  t.strictSame(strings.push('cab'), { text: 'c', stop: 'ab' })
})
