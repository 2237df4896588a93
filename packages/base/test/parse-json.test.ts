import t from 'tap'
import { JSON_DEPTH_MAX, parseJson, shownValue } from '../src/index.ts'

const nested = (levels: number): string => '['.repeat(levels) + ']'.repeat(levels)

t.test('levels are bounded, and what is in a text is none', async t => {
  t.ok(Array.isArray(parseJson(nested(JSON_DEPTH_MAX))))
  const tooDeep = { name: 'SyntaxError', message: /more than 256 levels, at position 256/ }
  t.throws(() => parseJson(nested(JSON_DEPTH_MAX + 1)), tooDeep)
  t.throws(() => parseJson('{"a":'.repeat(300)), { name: 'SyntaxError' }, 'one that has no end')
  const text = `${'['.repeat(300)}\\"[`
  t.strictSame(parseJson(`{"${text}":"${text}"}`), { [text.replace('\\', '')]: text.replace('\\', '') })
  t.equal(
    (parseJson(`[${nested(200)},${nested(200)}]`) as unknown[]).length,
    2,
    'what is closed does not count',
  )
  for (const broken of ['"', '{"a', `${']'.repeat(600)}[`, `"\\${'"'.repeat(600)}`])
    t.throws(() => parseJson(broken), { name: 'SyntaxError' })
})

t.test('a reviver sees what it sees in JSON.parse', async t => {
  t.equal(
    parseJson('1', (_, value) => Number(value) + 1),
    2,
  )
})

t.test('a value in an error is no longer than a line', async t => {
  t.equal(shownValue({ a: [1, 'x'] }), '{"a":[1,"x"]}')
  t.equal(shownValue(undefined), 'undefined')
  t.equal(shownValue('x'.repeat(1000)).length, 101)
})
