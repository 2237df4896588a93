import t from 'tap'
import { shownJson } from '../src/index.ts'

t.test('what steers a terminal or a reader is an escape, and means the same', async t => {
  for (const text of ['\x1b[31m', '\x9b31m', '\x7f', 'a\u202eb', '\u2028', '\u00ad', '\u{e0041}', '\n'])
    for (const value of [text, { [text]: [text] }, `grüße 😀 ${text}`]) {
      const json = JSON.stringify(value)
      const shown = shownJson(json)
      t.strictSame(JSON.parse(shown), value)
      t.notMatch(shown, /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u)
    }
})

t.test('all else stays as it is', async t => {
  for (const value of ['llama-3', 'grüße', '模型', '😀', '"\\', 'a\tb'])
    t.equal(shownJson(JSON.stringify(value)), JSON.stringify(value))
})
