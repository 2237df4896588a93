/** XXH3-64 against a BigInt model in every length regime, and the committed module against its source. */

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import t from 'tap'
import { bigintToHash, hashToBigInt, INPUT_SIZE_MAX, xxh3 } from '../src/index.ts'
import { slowXxh3 } from './slow-xxh3.ts'

const u64 = fc.bigInt({ min: 0n, max: 0xffff_ffff_ffff_ffffn })

function fast(bytes: Uint8Array, seed: bigint): bigint {
  const { lo, hi } = xxh3(bytes, bigintToHash(seed))
  return hashToBigInt(lo, hi)
}

t.test('the published vectors come out', async t => {
  t.equal(fast(new Uint8Array(0), 1337n), 15128690059815094969n)
  t.equal(fast(Buffer.from('adapter-a'), 0n), 8842669519798866845n)
  // Of the reference implementation in C, version 0.8, over the bytes 0, 1, 2, … modulo 251.
  const bytes = Uint8Array.from({ length: 4096 }, (_, i) => i % 251)
  const vectors: [size: number, unseeded: bigint, seeded: bigint][] = JSON.parse(
    readFileSync(new URL('fixtures/xxh3-vectors.json', import.meta.url), 'utf8'),
    (_, value) => (typeof value === 'string' ? BigInt(value) : value),
  )
  for (const [size, unseeded, seeded] of vectors) {
    t.equal(fast(bytes.subarray(0, size), 0n), unseeded, `${size} bytes, seed 0`)
    t.equal(fast(bytes.subarray(0, size), 0x9e3779b185ebca8dn), seeded, `${size} bytes, another seed`)
  }
})

t.test('every length from 0 to 2048 hashes as the slow model does', async t => {
  const bytes = Buffer.from(Uint8Array.from({ length: 2048 }, (_, i) => (i * 167 + (i >> 3)) & 255))
  t.doesNotThrow(() => {
    for (let size = 0; size <= 2048; size++) {
      const seed = BigInt(size) * 0x1_0000_0001_0007n
      assert.equal(
        fast(bytes.subarray(0, size), seed),
        slowXxh3(bytes.subarray(0, size), seed),
        `${size} bytes`,
      )
    }
  })
})

t.test('any bytes under any seed hash as the slow model does', async t => {
  const agree = fc.property(fc.uint8Array({ maxLength: 2048, size: 'max' }), u64, (bytes, seed) => {
    assert.equal(fast(bytes, seed), slowXxh3(Buffer.from(bytes), seed))
  })
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 300 }))
})

t.test('an input larger than the first memory makes it grow, up to the bound', async t => {
  const bytes = Buffer.from(Uint8Array.from({ length: 700_001 }, (_, i) => (i * 31) & 255))
  t.equal(fast(bytes, 7n), slowXxh3(bytes, 7n))
  t.throws(() => xxh3(new Uint8Array(INPUT_SIZE_MAX + 1), { lo: 0, hi: 0 }), RangeError)
})
