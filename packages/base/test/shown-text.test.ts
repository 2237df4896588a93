import t from 'tap'
import {
  CodedError,
  fromErrorRecord,
  MESSAGE_CHARACTERS_MAX,
  shownText,
  toErrorRecord,
} from '../src/index.ts'

class NoSeatError extends CodedError {
  readonly code = 'HOMING_TEST_NO_SEAT'
}

const MEGABYTE = 'x'.repeat(1024 * 1024)

t.test('a foreign text is shown by its beginning', async t => {
  t.equal(shownText('llama-3'), 'llama-3')
  t.equal(shownText(MEGABYTE), `${'x'.repeat(100)}…`)
  t.equal(shownText(MEGABYTE, 3), 'xxx…')
})

t.test('what steers a terminal or a reader is not shown', async t => {
  for (const unit of ['\x1b', '\n', '\0', '\x9b', '\u202e', '\u2028', '\ud800'])
    t.equal(shownText(`a${unit}b`), 'a\ufffdb')
  t.equal(shownText('ab😀', 3), 'ab\ufffd…', 'half of a pair is not shown')
})

t.test('no error has more than a thousand characters, and it keeps its remedy', async t => {
  const error = new NoSeatError(`cannot seat ${MEGABYTE}: use a shorter name`, { name: MEGABYTE, row: 7 })
  for (const one of [error, fromErrorRecord(toErrorRecord(error))]) {
    t.ok(one.message.length <= MESSAGE_CHARACTERS_MAX)
    t.match(one.message, /^cannot seat x+ … x+: use a shorter name$/)
    t.ok(String(one.details['name']).length <= MESSAGE_CHARACTERS_MAX)
    t.equal(one.details['row'], 7)
  }
  t.ok(toErrorRecord(new TypeError(MEGABYTE)).message.length <= MESSAGE_CHARACTERS_MAX)
})
