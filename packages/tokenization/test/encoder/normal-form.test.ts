/**
 * Normal forms against String.prototype.normalize, over the characters that the reference knows; and classes
 * against RegExp.
 */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { buildCharTable, CharTable } from '../../src/encoder/char-table.ts'
import { type FormName, NormalForm } from '../../src/encoder/normal-form.ts'
import { CLASS_RUNS, FORM_RUNS } from '../../src/encoder/unicode-data.ts'
import { nodeFlagsOf } from './node-classes.ts'

const table = new CharTable(buildCharTable(FORM_RUNS))
const forms = { NFC: new NormalForm('NFC', table), NFKC: new NormalForm('NFKC', table) } as const

/** What a newer Unicode than the reference's has added: Unicode 10 knew none of these forms. */
function isKnown(point: number): boolean {
  const text = String.fromCodePoint(point)
  const flags = table.flagsAt(unitsOf(text), 0)
  const moves =
    `a${text}\u0334`.normalize('NFD') !== `a${text}\u0334` ||
    `a\u0345${text}`.normalize('NFD') !== `a\u0345${text}`
  if (text.normalize('NFKC') !== text) return (flags & 4) !== 0
  if (text.normalize('NFD') !== text) return (flags & 8) !== 0
  return !moves || (flags & 1) !== 0
}

function unitsOf(text: string): Uint16Array {
  const array = new Uint16Array(text.length + 8)
  for (let i = 0; i < text.length; i++) array[i] = text.charCodeAt(i)
  return array
}

const unknown: number[] = []
for (let point = 0; point < 0x11_0000; point++)
  if ((point < 0xd800 || point > 0xdfff) && !isKnown(point)) unknown.push(point)

t.test(
  'every code point has the form that this Node gives it, but for those newer than the reference',
  async t => {
    const isUnknown = new Set(unknown)
    for (const name of ['NFC', 'NFKC'] as const)
      for (let point = 0; point < 0x11_0000; point++) {
        if (point >= 0xd800 && point <= 0xdfff) continue
        const text = String.fromCodePoint(point)
        const wanted = isUnknown.has(point) ? text : text.normalize(name)
        if (forms[name].apply(text) !== wanted) t.fail(`${name} of ${point.toString(16)}`)
      }
    // 154 marks, 21 that decompose and 171 of compatibility, by the Unicode of Node 24; more in later ones.
    t.ok(unknown.length >= 300 && unknown.length < 1000, `${unknown.length} code points are newer`)
  },
)

const known = (low: number, high: number) =>
  fc
    .integer({ min: low, max: high })
    .filter(point => (point < 0xd800 || point > 0xdfff) && !unknown.includes(point))
    .map(point => String.fromCodePoint(point))
const characters = fc.oneof(
  known(0x20, 0x7e),
  known(0x300, 0x36f),
  known(0xc0, 0x1ff),
  known(0x900, 0xdff),
  known(0x1100, 0x11ff),
  known(0xac00, 0xac80),
  known(0x3040, 0x30ff),
  known(0xf900, 0xffef),
  known(0x1d100, 0x1d1ff),
  fc.constantFrom(
    'e\u0301',
    '\u212b',
    '\u0344',
    '\u0f71\u0f72',
    '\u1025\u102e',
    '\u09c7\u09be',
    '\u{1d15e}',
    'ﬁ',
  ),
)

for (const name of ['NFC', 'NFKC'] as const satisfies readonly FormName[])
  t.test(`${name} of any text is String.prototype.normalize's`, async t => {
    const agrees = fc.property(fc.array(characters, { maxLength: 12 }), parts => {
      const text = parts.join('')
      assert.equal(forms[name].apply(text), text.normalize(name))
    })
    t.doesNotThrow(() => fc.assert(agrees, { numRuns: 4000 }))
  })

t.test('a text is cut only where both halves keep their form together', async t => {
  const agrees = fc.property(
    fc.array(characters, { maxLength: 10 }),
    fc.array(characters, { maxLength: 6 }),
    (a, b) => {
      const text = a.join('')
      const cut = forms.NFC.lastCut(unitsOf(text), 0, text.length)
      const whole = text + b.join('')
      assert.equal(
        text.slice(0, cut).normalize('NFC') + whole.slice(cut).normalize('NFC'),
        whole.normalize('NFC'),
      )
    },
  )
  t.doesNotThrow(() => fc.assert(agrees, { numRuns: 4000 }))
})

t.test('a character with more marks than anyone writes is refused', async t => {
  t.throws(() => forms.NFC.apply(`e${'\u0316\u0301'.repeat(3000)}`), { code: 'HOMING_TOKENIZATION_ENCODE' })
  t.equal(forms.NFC.apply(`e${'\u0301'.repeat(3000)}`).length, 3000)
})

t.test('classes are those of this Node, but for what is newer than the reference', async t => {
  const classes = new CharTable(buildCharTable(CLASS_RUNS))
  const newer: string[] = []
  for (let point = 0; point < 0x11_0000; point++) {
    if (point >= 0xd800 && point <= 0xdfff) continue
    const text = String.fromCodePoint(point)
    const flags = classes.flagsAt(unitsOf(text), 0)
    if (flags === nodeFlagsOf(text)) continue
    if (flags === 0) newer.push(text)
    // U+0295 was a small letter until Unicode 17.
    else if (point !== 0x295) t.fail(`U+${point.toString(16)} has flags ${flags}`)
  }
  t.ok(newer.length > 4000, `${newer.length} code points are newer`)
})
