/**
 * The word table against a Map: what it finds is right, whatever it has forgotten, and it stays within its
 * bound.
 */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { WORD_UNITS_MAX, WordTable } from '../../src/encoder/word-table.ts'

/** Room behind a word: the table may read it. */
function unitsOf(word: string): Uint16Array {
  const units = new Uint16Array(word.length + 8).fill(0x7a)
  for (let i = 0; i < word.length; i++) units[i] = word.charCodeAt(i)
  return units
}

function found(table: WordTable, word: string): readonly number[] | undefined {
  const count = table.find(unitsOf(word), 0, word.length, 0)
  return count === 0 ? undefined : Array.from(table.foundIds.subarray(table.foundAt, table.foundAt + count))
}

function add(table: WordTable, word: string, ids: readonly number[]): void {
  table.add(unitsOf(word), 0, word.length, 0, Int32Array.from(ids), 0, ids.length)
}

const words = fc.oneof(
  fc.string({ minLength: 1, maxLength: 10 }),
  fc.string({ minLength: 7, maxLength: 12, unit: fc.constantFrom('a', 'b') }),
  fc.string({ minLength: 1, maxLength: 40, unit: 'binary' }),
  fc.constantFrom('a', 'aa', 'a\0', 'a\0\0', 'aaaaaaaa', 'aaaaaaaa\0', 'aaaaaaaaa'),
)

t.test('what is found is what was added, for every order of words and every bound', async t => {
  const agrees = fc.property(
    fc.array(fc.tuple(words, fc.array(fc.nat(300_000), { minLength: 1, maxLength: 5 })), { maxLength: 400 }),
    fc.constantFrom(0, 3000, 20_000, 1_000_000),
    (entries, bytesMax) => {
      const table = new WordTable(bytesMax)
      const model = new Map<string, readonly number[]>()
      for (const [word, ids] of entries) {
        const kept = found(table, word)
        if (kept !== undefined) assert.deepEqual(kept, model.get(word))
        else {
          model.set(word, ids)
          add(table, word, ids)
        }
        if (bytesMax >= 3000) assert.ok(table.stats.bytes <= bytesMax, `${table.stats.bytes} bytes`)
      }
      if (bytesMax === 1_000_000)
        for (const [word, ids] of model) assert.deepEqual(found(table, word), ids, JSON.stringify(word))
    },
  )
  t.doesNotThrow(() => fc.assert(agrees, { numRuns: 200 }))
})

t.test('a text of junk costs one generation, and words in use stay', async t => {
  const table = new WordTable(1 << 16)
  add(table, 'kept', [1, 2, 3])
  for (let i = 0; i < 20_000; i++) {
    add(table, `junk ${i}`, [i])
    if (i % 50 === 0) {
      const kept = found(table, 'kept')
      if (kept === undefined) t.fail(`forgotten at ${i}`)
    }
  }
  t.ok(table.stats.resets > 10)
  t.ok(table.stats.bytes <= 1 << 16)
  t.equal(found(table, 'junk 1'), undefined)
})

t.test('words that are made for one place of the table cost a bounded number of probes', async t => {
  // Short words whose hash has the same low bits, found by trying.
  const table = new WordTable(1 << 20)
  const same: string[] = []
  for (let i = 0; same.length < 200 && i < 3_000_000; i++) {
    const word = i.toString(36)
    if ((hashOfShort(word) & 0x3ff) === 7) same.push(word)
  }
  t.equal(same.length, 200)
  for (const [i, word] of same.entries()) {
    add(table, word, [i])
    const ids = found(table, word)
    if (ids !== undefined && ids[0] !== i) t.fail(word)
  }
})

t.test('words of all lengths stay while the table doubles', async t => {
  const table = new WordTable(8 << 20)
  const idsOf = (i: number) => Array.from({ length: 1 + (i % 4) }, (_, k) => i * 4 + k)
  const wordOf = (i: number) => (i % 3 === 0 ? `a long word, number ${i}` : `w${i}`)
  let lost = 0
  for (let i = 0; i < 20_000; i++) {
    add(table, wordOf(i), idsOf(i))
    if ((i & (i + 1)) !== 0 && i + 1 !== 20_000) continue
    lost = 0
    for (let k = 0; k <= i; k++) {
      const ids = found(table, wordOf(k))
      if (ids === undefined) lost++
      else assert.deepEqual(ids, idsOf(k), wordOf(k))
    }
    // A word is given up where sixteen others lie before a free slot.
    t.ok(lost * 500 < i + 500, `${lost} of ${i + 1} are lost`)
  }
  t.equal(table.stats.entries, 20_000 - lost)
  t.equal(table.stats.resets, 0)
})

t.test('words that go on from the end of the slots at their begin stay while the table doubles', async t => {
  const slots = 2048
  const table = new WordTable(1 << 20)
  const atEnd: string[] = []
  // In the table twice as large, some of them lie at its end, and some in its middle.
  for (let i = 0; atEnd.length < 12; i++)
    if ((hashOfShort(`e${i}`) & (slots - 1)) >= slots - 2) atEnd.push(`e${i}`)
  for (const [i, word] of atEnd.entries()) add(table, word, [i])
  for (let i = 0; i < slots; i++) add(table, `other ${i}`, [i])
  t.ok(table.young.mask + 1 > slots)
  for (const [i, word] of atEnd.entries()) t.strictSame(found(table, word), [i], word)
})

t.test('words that are too long are not kept', async t => {
  const table = new WordTable(1 << 20)
  add(table, 'a'.repeat(WORD_UNITS_MAX), [1])
  add(table, 'a'.repeat(WORD_UNITS_MAX + 1), [2])
  t.strictSame(found(table, 'a'.repeat(WORD_UNITS_MAX)), [1])
  t.equal(found(table, 'a'.repeat(WORD_UNITS_MAX + 1)), undefined)
})

/** As word-table.ts; a change there makes the test above weaker, not wrong. */
function hashOfShort(word: string): number {
  const pairs = [0, 0, 0, 0]
  for (let i = 0; i < word.length; i++) pairs[i >> 1]! |= word.charCodeAt(i) << ((i & 1) << 4)
  const [a, b, c, d] = pairs as [number, number, number, number]
  const first = Math.imul(a, 0x9e3779b1) ^ Math.imul(c, 0x85ebca6b)
  const second = Math.imul(b, 0xc2b2ae35) ^ Math.imul(d, 0x27d4eb2f)
  const hash = Math.imul(first ^ (first >>> 15) ^ ((second << 11) | (second >>> 21)), 0x2c1b3c6d)
  return hash ^ (hash >>> 15)
}
