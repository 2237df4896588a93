import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { parseWideJson, tryBits64, tryUnsigned64, wideJson } from '../src/wide-json.ts'

t.test('long integers are read as text, and nothing else is changed', async t => {
  t.strictSame(
    parseWideJson(
      '{"a": 18446744073709551615, "b": [-9223372036854775808, 12], "1234567890123456": 0.12345678901234567, "c": "x\\"12345678901234567", "d": 1234567890123456789e3}',
    ),
    {
      a: '18446744073709551615',
      b: ['-9223372036854775808', 12],
      1234567890123456: Number('0.12345678901234567'),
      c: 'x"12345678901234567',
      d: Number('1234567890123456789e3'),
    },
  )
})

t.test('JSON without long integers is what JSON.parse makes of it', async t => {
  const agree = fc.property(fc.jsonValue(), value => {
    const text = JSON.stringify(value)
    const hasLong = /\d{16}/.test(text)
    if (!hasLong) assert.deepEqual(parseWideJson(text), JSON.parse(text))
    else assert.doesNotThrow(() => parseWideJson(text))
  })
  t.doesNotThrow(() => fc.assert(agree))
})

t.test('every integer of 64 bits comes back as it was', async t => {
  const agree = fc.property(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), value => {
    const { id } = parseWideJson(wideJson({ id: value })) as { id: unknown }
    assert.equal(tryUnsigned64(id), value)
    assert.equal(tryBits64(id), value)
    assert.equal(tryBits64(BigInt.asIntN(64, value).toString()), value)
  })
  t.doesNotThrow(() => fc.assert(agree))
})

t.test('what is no integer of 64 bits is none', async t => {
  for (const value of [-1, 1.5, 2 ** 60, '18446744073709551616', '1e3', '', 'x', null, true, [], {}]) {
    t.equal(tryUnsigned64(value), undefined, JSON.stringify(value))
  }
  for (const value of ['-9223372036854775809', '18446744073709551616', 0.5])
    t.equal(tryBits64(value), undefined)
})
