/** The forms of a 64-bit hash at the edges, and its arithmetic, against BigInt. */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import {
  addHashes,
  bigintToHash,
  formatHash,
  formatHashNumber,
  hashToBigInt,
  mediaByBlock,
  mediaHashOf,
  mediaOfBlocks,
  mediaPadToken,
  parseHash,
  sortHashes,
  tryHashNumber,
  tryMediaDigest,
} from '../src/index.ts'

const u64 = fc.bigInt({ min: 0n, max: 0xffff_ffff_ffff_ffffn })

t.test('every form reads back as the same hash', async t => {
  const same = fc.property(u64, value => {
    const hash = bigintToHash(value)
    assert.equal(hash.lo, hash.lo | 0)
    assert.equal(hash.hi, hash.hi | 0)
    assert.equal(hashToBigInt(hash.lo, hash.hi), value)
    assert.equal(formatHash(hash.lo, hash.hi), value.toString(16).padStart(16, '0'))
    assert.deepEqual(parseHash(formatHash(hash.lo, hash.hi)), hash)
    assert.equal(formatHashNumber(hash.lo, hash.hi), value.toString())
    assert.deepEqual(tryHashNumber(value.toString()), hash)
    assert.deepEqual(tryHashNumber(BigInt.asIntN(64, value).toString()), hash)
    assert.deepEqual(bigintToHash(BigInt.asIntN(64, value)), hash)
  })
  t.doesNotThrow(() => fc.assert(same))
})

t.test('a number that is no 64-bit integer is refused', async t => {
  for (const text of ['18446744073709551616', '-9223372036854775809', '1.0', '1e3', '', '-', ' 1', '0x1']) {
    t.equal(tryHashNumber(text), undefined, text)
  }
  t.strictSame(tryHashNumber('-1'), { lo: -1, hi: -1 })
  t.throws(() => parseHash('123'), RangeError)
  t.throws(() => parseHash('000000000000000g'), RangeError)
})

t.test('sums wrap as 64-bit integers do', async t => {
  const wraps = fc.property(u64, u64, (a, b) => {
    assert.deepEqual(addHashes(bigintToHash(a), bigintToHash(b)), bigintToHash(a + b))
  })
  t.doesNotThrow(() => fc.assert(wraps))
})

t.test('lists sort as unsigned numbers', async t => {
  const sorts = fc.property(fc.array(u64, { maxLength: 90 }), values => {
    const words = Int32Array.from(values.flatMap(value => [bigintToHash(value).lo, bigintToHash(value).hi]))
    sortHashes(words)
    const sorted = values.slice().sort((a, b) => (a < b ? -1 : a > b ? 1 : 0))
    assert.deepEqual(
      Array.from(sorted, (_, i) => hashToBigInt(words[i * 2]!, words[i * 2 + 1]!)),
      sorted,
    )
  })
  t.doesNotThrow(() => fc.assert(sorts))
})

t.test('a digest of 64 digits gives its first eight bytes, any other identifier is hashed', async t => {
  const digest = `0123456789abcdef${'f'.repeat(48)}`
  t.strictSame(mediaHashOf(digest), parseHash('0123456789abcdef'))
  t.strictSame(mediaHashOf(digest.toUpperCase()), parseHash('0123456789abcdef'))
  t.strictSame(mediaHashOf('adapter-a'), bigintToHash(8842669519798866845n))
  t.equal(mediaHashOf(''), undefined)
  t.equal(tryMediaDigest('adapter-a'), undefined)
  t.equal(tryMediaDigest(`${digest}0`), undefined)
})

t.test('the objects of a block are those that have a name', async t => {
  const [one, two] = [mediaHashOf('one')!, mediaHashOf('two')!]
  t.strictSame(mediaOfBlocks([[{ id: 'one' }, { id: '' }, { id: 'two' }], [], [{ id: '' }]]), [
    Int32Array.of(one.lo, one.hi, two.lo, two.hi),
    undefined,
    undefined,
  ])
  t.equal(mediaOfBlocks(undefined), undefined)
})

t.test('the pad token of an object keeps 30 bits of its hash', async t => {
  t.equal(mediaPadToken(parseHash('0123456789abcdef')), 163254319)
})

t.test('an object counts once in every block that it overlaps', async t => {
  const hash = { lo: 1, hi: -1 }
  const other = { lo: 2, hi: 0 }
  t.strictSame(
    mediaByBlock(
      [
        {
          hash,
          ranges: [
            [3, 5],
            [6, 7],
          ],
        },
        { hash: other, ranges: [[4, 8]] },
        { hash: other, ranges: [[4, 4]] },
        { hash: other, ranges: [[40, 50]] },
      ],
      4,
      3,
    ),
    [Int32Array.of(1, -1), Int32Array.of(2, 0, 1, -1), undefined],
  )
})

t.test('a block has the objects whose tokens it has, however the ranges lie', async t => {
  const range = fc.tuple(fc.nat(40), fc.nat(40))
  const object = fc.record({ hash: fc.nat(9), ranges: fc.array(range, { maxLength: 6 }) })
  const agree = fc.property(
    fc.array(object, { maxLength: 5 }),
    fc.integer({ min: 1, max: 7 }),
    (list, size) => {
      const objects = list.map(({ hash, ranges }) => ({ hash: { lo: hash, hi: 0 }, ranges }))
      const seen = mediaByBlock(objects, size, 5)
      const naive = Array.from({ length: 5 }, (_, block) =>
        list
          .filter(({ ranges }) =>
            ranges.some(([start, end]) => start < end && start < (block + 1) * size && end > block * size),
          )
          .map(({ hash }) => hash)
          .sort((a, b) => a - b),
      )
      assert.deepEqual(
        seen.map(words => [...(words ?? [])].filter((_, i) => i % 2 === 0)),
        naive,
      )
    },
  )
  t.doesNotThrow(() => fc.assert(agree))
})

t.test(
  'ranges on top of each other, and objects that share a block, cost no more than their number',
  async t => {
    // One by one these would be forty thousand million steps, and a thousand million.
    const count = 200_000
    const whole = Array.from({ length: count }, () => [0, count] as const)
    const seen = mediaByBlock([{ hash: { lo: 1, hi: 0 }, ranges: whole }], 1, count)
    t.equal(seen.length, count)
    t.strictSame(seen.at(-1), Int32Array.of(1, 0))
    const objects = Array.from({ length: count }, (_, i) => ({
      hash: { lo: count - i, hi: 0 },
      ranges: [[0, 1]] as const,
    }))
    t.strictSame(mediaByBlock(objects, 4, 1)[0]!.subarray(0, 4), Int32Array.of(1, 0, 2, 0))
  },
)
