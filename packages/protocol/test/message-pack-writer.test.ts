import assert from 'node:assert/strict'
import { encode } from '@msgpack/msgpack'
import fc from 'fast-check'
import t from 'tap'
import { MessagePackWriter } from '../src/message-pack-writer.ts'

const writer = new MessagePackWriter()

t.test('writes the bytes that the library writes', async t => {
  const scalar = fc.oneof(
    fc.constantFrom(null, undefined, true, false, 0, -0, 127, 128, 255, 256, 65_535, 65_536, -32, -33, -128),
    fc.constantFrom(
      -129,
      -32_768,
      -32_769,
      -(2 ** 31),
      -(2 ** 31) - 1,
      2 ** 32 - 1,
      2 ** 32,
      2 ** 53,
      Number.NaN,
    ),
    fc.integer(),
    fc.double(),
    fc.bigInt({ min: -(2n ** 63n), max: 2n ** 64n - 1n }),
    fc.string({ unit: 'binary', maxLength: 40 }),
    fc.nat(70_000).map(length => 'a'.repeat(length)),
    fc.nat(70_000).map(length => new Uint8Array(length)),
    fc.nat(70_000).map(length => new Array(length).fill(7)),
  )
  const { value } = fc.letrec(tie => ({
    value: fc.oneof({ maxDepth: 4, withCrossShrink: true }, scalar, tie('array'), tie('map')),
    array: fc.array(tie('value'), { maxLength: 20 }),
    map: fc.dictionary(fc.string({ maxLength: 40 }), tie('value'), { maxKeys: 20, noNullPrototype: true }),
  }))
  const agree = fc.property(value, one => {
    assert.deepEqual(writer.encode(one), encode(one, { useBigInt64: true }))
  })
  t.doesNotThrow(() => fc.assert(agree))
})

t.test('writes words and hashes as the numbers that they are', async t => {
  const words = Int32Array.of(0, 127, 128, 255, 256, 65_535, 65_536, -1, 2 ** 31 - 1)
  t.strictSame(
    writer.encode({ writeTo: (to: MessagePackWriter) => to.unsignedWords(words) }),
    encode(Array.from(words, word => word >>> 0)),
  )
  const hash = fc.tuple(fc.integer(), fc.integer(), fc.boolean())
  const agree = fc.property(hash, ([low, high, isSigned]) => {
    const unsigned = (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0)
    const wanted = isSigned ? BigInt.asIntN(64, unsigned) : unsigned
    assert.deepEqual(
      writer.encode({ writeTo: (to: MessagePackWriter) => to.longWord(low, high, isSigned) }),
      encode(wanted, { useBigInt64: true }),
    )
  })
  t.doesNotThrow(() => fc.assert(agree))
})

t.test('a value that cannot be written leaves the writer as it was', async t => {
  t.throws(() => writer.encode([1, () => 2]), { message: 'cannot write a function as MessagePack' })
  t.strictSame(writer.encode([1]), encode([1]))
})
