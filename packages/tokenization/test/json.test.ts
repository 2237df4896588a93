/** JSON to Python values: nothing is lost, and nothing invalid is taken. */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import {
  dumpJson,
  fromParsedJson,
  PythonFloat,
  type PythonValue,
  RenderingRefusedError,
  toRepr,
  tryParseJson,
} from '../src/index.ts'

t.test('what JSON.parse reads is read with the same values', async t => {
  const agree = fc.property(fc.json({ maxDepth: 5 }), fc.nat(3), (text, indent) => {
    const spaced = JSON.stringify(JSON.parse(text), null, indent)
    assert.deepEqual(plain(tryParseJson(spaced)), JSON.parse(spaced))
  })
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 300 }))
})

t.test('what JSON.parse refuses is refused', async t => {
  const agree = fc.property(
    fc.string({ maxLength: 12, unit: fc.constantFrom(...'{}[]:,"0123.eE+-\\tfn \n\u0001') }),
    text => {
      let isValid = true
      try {
        JSON.parse(text)
      } catch {
        isValid = false
      }
      assert.equal(tryParseJson(text) !== undefined, isValid)
    },
  )
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 3000 }))
  for (const text of ['', '{', '[1,]', '{"a" 1}', '01', '1.', '"\n"', 'nul', '[1] 2', '"\\x"', 'NaN']) {
    t.equal(tryParseJson(text), undefined, JSON.stringify(text))
  }
})

t.test('numbers and the order of keys print as Python prints them', async t => {
  const text =
    '{"b": 1.0, "2": 1e-7, "1": 12345678901234567890, "x": [1e16, 123456789012345.6, -0.0, -0, 1e22, 5e-324]}'
  t.equal(
    dumpJson(tryParseJson(text)),
    '{"b": 1.0, "2": 1e-07, "1": 12345678901234567890, "x": [1e+16, 123456789012345.6, -0.0, 0, 1e+22, 5e-324]}',
  )
})

t.test('any JSON text printed by json.dumps reads back as the same text', async t => {
  const same = fc.property(fc.json({ maxDepth: 4 }), text => {
    const dumped = dumpJson(tryParseJson(text))
    assert.equal(dumpJson(tryParseJson(dumped)), dumped)
  })
  t.doesNotThrow(() => fc.assert(same))
})

t.test('a float prints with the digits that read back, whatever it is', async t => {
  const same = fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), value => {
    const text = toRepr(new PythonFloat(value))
    assert.equal(Number(text), value)
    assert.match(text, /^-?\d+(?:\.\d+)?(?:e[+-]\d\d+)?$/)
    assert.match(text, /[.e]/)
  })
  t.doesNotThrow(() => fc.assert(same))
})

t.test('a parsed object is taken over where JSON.parse has changed nothing', async t => {
  t.equal(
    dumpJson(fromParsedJson({ b: 1, a: [0.5, null, true, 'x'] })),
    '{"b": 1, "a": [0.5, null, true, "x"]}',
  )
  t.throws(() => fromParsedJson({ 2: 1 }), RenderingRefusedError)
  t.throws(() => fromParsedJson([2 ** 53]), RenderingRefusedError)
  t.throws(() => fromParsedJson(() => 1), RenderingRefusedError)
})

t.test('nesting is bounded', async t => {
  t.throws(() => tryParseJson('['.repeat(100_000)), RenderingRefusedError)
})

function plain(value: PythonValue): unknown {
  if (value instanceof PythonFloat) return value.value
  if (typeof value === 'bigint') return Number(value)
  if (Array.isArray(value)) return value.map(plain)
  if (!(value instanceof Map)) return value
  const object: Record<string, unknown> = {}
  for (const [key, item] of value) {
    Object.defineProperty(object, String(key), {
      value: plain(item),
      enumerable: true,
      configurable: true,
      writable: true,
    })
  }
  return object
}
