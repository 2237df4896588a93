/** Blocks, local hashes and chains: the public vectors, and a naive model over BigInt. */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import {
  type BlockOptions,
  bigintToHash,
  chainSequence,
  DEFAULT_SEED,
  fullBlocks,
  hashBlocks,
  hashLocals,
  hashToBigInt,
  mediaByBlock,
  namespaceSeed,
} from '../src/index.ts'
import { slowXxh3 } from './slow-xxh3.ts'

function bigints(pairs: Int32Array): bigint[] {
  return Array.from({ length: pairs.length / 2 }, (_, i) => hashToBigInt(pairs[i * 2]!, pairs[i * 2 + 1]!))
}

function pairs(...values: bigint[]): Int32Array {
  return Int32Array.from(values.flatMap(value => [bigintToHash(value).lo, bigintToHash(value).hi]))
}

function locals(
  tokens: number[],
  blockSizeTokens: number,
  seed = DEFAULT_SEED,
  options: BlockOptions = {},
): bigint[] {
  return bigints(hashBlocks(Uint32Array.from(tokens), blockSizeTokens, seed, options).local)
}

const upTo = (count: number) => Array.from({ length: count }, (_, i) => i)

t.test('blocks of four tokens hash and chain as every other implementation does', async t => {
  const tokens = Int32Array.of(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
  const hashes = hashBlocks(tokens, 4, DEFAULT_SEED)
  t.equal(hashes.count, 3)
  t.strictSame(bigints(hashes.local), [14643705804678351452n, 16777012769546811212n, 483935686894639516n])
  t.strictSame(bigints(hashes.sequence), [14643705804678351452n, 4945711292740353085n, 12583592247330656132n])
})

t.test('the trailing partial block is not hashed', async t => {
  t.strictSame(locals([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 4), [14643705804678351452n, 16777012769546811212n])
  t.strictSame(locals([1, 2, 3], 4), [])
  t.strictSame(locals([1, 2, 3], 0), [])
  t.equal(fullBlocks(10, 4), 2)
  t.equal(fullBlocks(10, 0), 0)
  t.equal(fullBlocks(0, 4, true), 0)
})

t.test('blocks of two tokens hash and chain as every other implementation does', async t => {
  const hashes = hashBlocks(Uint32Array.of(0, 1, 2, 3, 4, 5), 2, DEFAULT_SEED)
  t.strictSame(bigints(hashes.local), [10918435022357402928n, 10731123482949079648n, 12189426826560619506n])
  t.strictSame(bigints(hashes.sequence), [10918435022357402928n, 7454852371412049951n, 6095362907158782976n])
})

t.test('blocks of every usual size cross the length regimes of the hash', async t => {
  t.strictSame(locals(upTo(16), 16), [15310707395893867146n])
  t.strictSame(locals(upTo(64), 64), [3480597578098033343n])
  t.strictSame(locals(upTo(128), 128), [9509643624113304476n])
  t.strictSame(locals(upTo(256), 256), [13509048708924160886n])
})

t.test('a token is 32 unsigned bits, whichever array carries it', async t => {
  t.strictSame(locals([0, 1, 2, 4294967295], 4), [16040985008377181294n])
  t.strictSame(bigints(hashBlocks(Int32Array.of(0, 1, 2, -1), 4, DEFAULT_SEED).local), [
    16040985008377181294n,
  ])
})

t.test('an adapter and a salt change the local hashes through the seed', async t => {
  const adapter = namespaceSeed({ loraName: 'adapter-a' })
  const salt = namespaceSeed({ cacheSalt: 'tenant-a' })
  const both = namespaceSeed({ loraName: 'adapter-a', cacheSalt: 'tenant-a' })
  t.equal(hashToBigInt(adapter.lo, adapter.hi), 8842669519798868182n)
  t.equal(hashToBigInt(salt.lo, salt.hi), 1948188790972764086n)
  t.equal(hashToBigInt(both.lo, both.hi), 10790858310771630931n)
  t.strictSame(locals([1, 2, 3, 4], 4, adapter), [11381080598872079209n])
  t.strictSame(locals([1, 2, 3, 4], 4, salt), [5738685477468498325n])
  t.strictSame(locals([1, 2, 3, 4], 4, both), [9967753091837871098n])
  t.strictSame(namespaceSeed({ loraName: '', cacheSalt: '' }), DEFAULT_SEED)
  t.strictSame(namespaceSeed(), DEFAULT_SEED)
  t.notSame(namespaceSeed({ loraName: 'x' }), namespaceSeed({ cacheSalt: 'x' }))
})

t.test('media hashes follow the tokens of their block in ascending order', async t => {
  t.strictSame(locals([1, 2, 3, 4], 4, DEFAULT_SEED, { media: [pairs(7n, 42n)] }), [6295130183325757331n])
  t.strictSame(locals([1, 2, 3, 4], 4, DEFAULT_SEED, { media: [pairs(42n, 7n)] }), [6295130183325757331n])
  t.strictSame(locals([1, 2, 3, 4], 4, DEFAULT_SEED, { media: [pairs(42n)] }), [14000361058806882387n])
  t.strictSame(
    locals([1, 2, 3, 4, 5, 6, 7, 8], 4, DEFAULT_SEED, { media: [undefined, pairs()] }),
    [14643705804678351452n, 16777012769546811212n],
    'blocks without media are unchanged',
  )
})

t.test('media change the sequence hashes of their block and of all after it', async t => {
  const tokens = Uint32Array.from(upTo(16))
  const object = { hash: { lo: 42, hi: 0 }, ranges: [[5, 7]] as [number, number][] }
  const plain = bigints(hashBlocks(tokens, 4, DEFAULT_SEED).sequence)
  const media = mediaByBlock([object], 4, 4)
  const withMedia = bigints(hashBlocks(tokens, 4, DEFAULT_SEED, { media }).sequence)
  t.strictSame(
    plain.map((hash, i) => hash === withMedia[i]),
    [true, false, false, false],
  )
})

t.test('the window of a speculative engine is one token longer than a block', async t => {
  t.strictSame(locals([1, 2, 3, 4, 5], 4, DEFAULT_SEED, { eagle: true }), [1914873892905420881n])
  t.equal(hashBlocks(Int32Array.from(upTo(6)), 2, DEFAULT_SEED, { eagle: true }).count, 2)
  t.equal(hashBlocks(Int32Array.from(upTo(6)), 2, DEFAULT_SEED).count, 3)
})

t.test('local hashes are written where the caller wants them, and nowhere else', async t => {
  const target = new Int32Array(8).fill(9)
  t.equal(hashLocals(Int32Array.of(1, 2, 3, 4, 5), 4, DEFAULT_SEED, target, 4), 1)
  t.strictSame(bigints(target.subarray(4, 6)), [14643705804678351452n])
  t.strictSame([...target.subarray(0, 4), ...target.subarray(6)], [9, 9, 9, 9, 9, 9])
  t.throws(() => hashLocals(Int32Array.from(upTo(8)), 4, DEFAULT_SEED, target, 6), RangeError)
})

t.test('every prompt hashes as the naive model does', async t => {
  const prompt = fc.record({
    tokens: fc.uint32Array({ maxLength: 400, size: 'max' }),
    blockSizeTokens: fc.constantFrom(1, 2, 3, 4, 5, 16, 32, 33, 64, 100),
    seed: fc.bigInt({ min: 0n, max: 0xffff_ffff_ffff_ffffn }),
    eagle: fc.boolean(),
    objects: fc.array(
      fc.record({
        hash: fc.bigInt({ min: 0n, max: 0xffff_ffff_ffff_ffffn }),
        start: fc.nat(400),
        length: fc.nat(40),
      }),
      { maxLength: 4 },
    ),
  })
  const agree = fc.property(prompt, ({ tokens, blockSizeTokens, seed, eagle, objects }) => {
    const count = fullBlocks(tokens.length, blockSizeTokens, eagle)
    const media = mediaByBlock(
      objects.map(({ hash, start, length }) => ({
        hash: bigintToHash(hash),
        ranges: [[start, start + length]] as [number, number][],
      })),
      blockSizeTokens,
      count,
    )
    const naive: bigint[] = []
    for (let i = 0; i < count; i++) {
      const start = i * blockSizeTokens
      const window = [...tokens.subarray(start, start + blockSizeTokens + (eagle ? 1 : 0))]
      const bytes = Buffer.alloc(window.length * 4)
      for (const [k, token] of window.entries()) bytes.writeUInt32LE(token, k * 4)
      const inside = objects
        .filter(object => object.length > 0 && object.start < start + blockSizeTokens)
        .filter(object => object.start + object.length > start)
        .map(object => object.hash)
        .sort((a, b) => (a < b ? -1 : a > b ? 1 : 0))
      const mediaBytes = Buffer.alloc(inside.length * 8)
      for (const [k, hash] of inside.entries()) mediaBytes.writeBigUInt64LE(hash, k * 8)
      naive.push(slowXxh3(Buffer.concat([bytes, mediaBytes]), seed))
    }
    const hashes = hashBlocks(tokens, blockSizeTokens, bigintToHash(seed), { media, eagle })
    assert.equal(hashes.count, count)
    assert.deepEqual(bigints(hashes.local), naive)
    assert.deepEqual(bigints(hashes.sequence), naiveChain(naive))
  })
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 200 }))
})

t.test('a chain cut anywhere goes on from the sequence hash before the cut', async t => {
  const whole = hashBlocks(Int32Array.from(upTo(12 * 4)), 4, DEFAULT_SEED)
  for (let cut = 1; cut < 12; cut++) {
    const [lo, hi] = whole.sequence.subarray(cut * 2 - 2, cut * 2) as unknown as [number, number]
    const rest = chainSequence(whole.local.subarray(cut * 2), 12 - cut, { lo, hi })
    t.strictSame(rest, whole.sequence.slice(cut * 2))
  }
  t.equal(chainSequence(whole.local, 0).length, 0)
})

t.test('prompts longer than one piece of memory hash as their blocks one by one', async t => {
  for (const [count, blockSizeTokens] of [
    [9000, 2],
    [1100, 16],
    [40, 1000],
    [3, 100_000],
  ] as const) {
    const tokens = Int32Array.from({ length: count * blockSizeTokens + 1 }, (_, i) =>
      Math.imul(i, 0x9e3779b1),
    )
    for (const eagle of [false, true]) {
      const hashes = hashBlocks(tokens, blockSizeTokens, DEFAULT_SEED, { eagle })
      t.equal(hashes.count, count)
      const single = new Int32Array(count * 2)
      for (let i = 0; i < count; i++) {
        const start = i * blockSizeTokens
        const window = tokens.subarray(start, start + blockSizeTokens + (eagle ? 1 : 0))
        hashLocals(window, blockSizeTokens, DEFAULT_SEED, single, i * 2, { eagle })
      }
      t.strictSame(hashes.local, single)
      t.strictSame(bigints(hashes.sequence).at(-1), naiveChain(bigints(single)).at(-1))
    }
  }
})

t.test('results are not touched by later calls', async t => {
  const first = hashBlocks(Int32Array.from(upTo(8)), 4, DEFAULT_SEED)
  const copy = { local: first.local.slice(), sequence: first.sequence.slice() }
  hashBlocks(Int32Array.from(upTo(64)), 4, DEFAULT_SEED)
  t.strictSame({ local: first.local, sequence: first.sequence }, copy)
})

function naiveChain(hashes: bigint[]): bigint[] {
  const chain: bigint[] = []
  for (const local of hashes) {
    const before = chain.at(-1)
    const bytes = Buffer.alloc(16)
    bytes.writeBigUInt64LE(before ?? 0n, 0)
    bytes.writeBigUInt64LE(local, 8)
    chain.push(before === undefined ? local : slowXxh3(bytes, 1337n))
  }
  return chain
}
