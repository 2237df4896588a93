import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { parseExactJson, parseWideJson, tryBits64, tryUnsigned64, wideJson } from '../src/index.ts'

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

/** Looks at the source of every value. */
function naiveParse(text: string): unknown {
  const quote = (_: string, value: unknown, context: { readonly source?: string }): unknown =>
    typeof value === 'number' && /^-?\d{16,}$/.test(context.source!) ? context.source : value
  return JSON.parse(text, quote as (key: string, value: unknown) => unknown)
}

/** JSON in which numbers and strings of every form stand where they may. */
const texts = fc.letrec<{ readonly value: string }>(tie => {
  const spaces = fc.constantFrom('', ' ', '\n')
  const numbers = fc
    .tuple(
      fc.constantFrom('', '-'),
      fc.bigInt({ min: 0n, max: 10n ** 22n }),
      fc.constantFrom('', '.5', '.00000000000000001', 'e1', 'E-2', '.12345678901234567e+1'),
    )
    .map(parts => parts.join(''))
  const strings = fc
    .array(fc.constantFrom('a', '12345678901234567', '"', '\\', '\n', '{', ',', ':', '-1234567890123456789'))
    .map(parts => JSON.stringify(parts.join('')))
  const lists = fc.array(
    fc.tuple(spaces, tie('value'), spaces).map(parts => parts.join('')),
    { maxLength: 4 },
  )
  const fields = fc.array(
    fc.tuple(spaces, strings, spaces, fc.constant(':'), spaces, tie('value')).map(parts => parts.join('')),
    { maxLength: 4 },
  )
  return {
    value: fc.oneof(
      { depthSize: 'small' },
      fc.oneof(numbers, strings, fc.constantFrom('true', 'false', 'null')),
      lists.map(parts => `[${parts.join()}]`),
      fields.map(parts => `{${parts.join()}}`),
    ),
  }
}).value

t.test('it is read as by who looks at the source of every value', async t => {
  const agree = fc.property(fc.oneof(texts, fc.json()), text => {
    assert.deepEqual(parseWideJson(text), naiveParse(text))
  })
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 1000 }))
})

t.test('what is no JSON is refused, with or without long integers', async t => {
  const broken = fc.property(
    texts,
    fc.nat(),
    fc.constantFrom('', '"', '\\', '}', '-', '0'),
    (text, at, put) => {
      const cut = at % (text.length + 1)
      const changed = text.slice(0, cut) + put + text.slice(cut + 1)
      for (const each of [changed, `[1234567890123456,${changed}]`]) {
        let expected: unknown
        try {
          expected = naiveParse(each)
        } catch {
          assert.throws(() => parseWideJson(each), SyntaxError)
          continue
        }
        assert.deepEqual(parseWideJson(each), expected)
      }
    },
  )
  t.doesNotThrow(() => fc.assert(broken, { numRuns: 1000 }))
  for (const text of ['{1234567890123456: 1}', '[00000000000000001]', '[12345678901234567 8]', '-', ''])
    t.throws(() => parseWideJson(text), SyntaxError, text)
})

t.test('a text as large as a body may be is read, whatever is in it', async t => {
  const size = 8 << 20
  const long = '1234567890123456'
  const open = `{"x":${long},"y":"`
  t.throws(() => parseWideJson(open + '\\"'.repeat(size / 2)), SyntaxError, 'a string without an end')
  t.throws(() => parseWideJson(`[${long},${'"'.repeat(size)}`), SyntaxError)
  t.throws(() => parseWideJson(`${long}${'-'.repeat(size)}`), SyntaxError)
  t.throws(() => parseWideJson(`[${long},${'['.repeat(size)}`), SyntaxError)
  const read = parseWideJson(`${open}${'\\"'.repeat(size / 2)}"}`) as { x: unknown; y: string }
  t.strictSame([read.x, read.y.length], [long, size / 2])
  t.equal(parseWideJson('9'.repeat(size)), '9'.repeat(size))
  const depth = 1 << 20
  t.throws(() => parseWideJson(`[${long},${'['.repeat(depth)}${']'.repeat(depth)}]`), SyntaxError, 'too deep')
})

t.test('exact numbers are those that a look at the source of each finds', async t => {
  const naive = (text: string): unknown => {
    const exact = (_: string, value: unknown, { source }: { readonly source?: string }): unknown => {
      if (typeof value !== 'number' || Number.isSafeInteger(value) || !/^-?\d+$/.test(source!)) return value
      const whole = BigInt(source!)
      return whole < -(1n << 63n) || whole >= 1n << 64n ? value : whole
    }
    return JSON.parse(text, exact as (key: string, value: unknown) => unknown)
  }
  const agree = fc.property(texts, text => assert.deepEqual(parseExactJson(text), naive(text)))
  t.doesNotThrow(() => fc.assert(agree))
  t.strictSame(parseExactJson('{"a":[0.5,18446744073709551615,-9223372036854775809,-0]}'), {
    a: [0.5, 18446744073709551615n, Number('-9223372036854775809'), -0],
  })
})

t.test('bigints are numbers where Node has no JSON.rawJSON', async t => {
  const descriptor = Object.getOwnPropertyDescriptor(JSON, 'rawJSON')!
  t.teardown(() => Object.defineProperty(JSON, 'rawJSON', descriptor))
  Reflect.deleteProperty(JSON, 'rawJSON')
  const url = new URL('../src/wide-json.ts?without', import.meta.url).href
  const without = (await import(url)) as { readonly wideJson: typeof wideJson }
  const value = { a: [18446744073709551615n, -1n, '18446744073709551615'], b: { c: 0n }, d: null }
  t.equal(
    without.wideJson(value),
    '{"a":[18446744073709551615,-1,"18446744073709551615"],"b":{"c":0},"d":null}',
  )
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
