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
  const sorts = fc.property(fc.array(u64, { maxLength: 12 }), values => {
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
