import fc from 'fast-check'
import t from 'tap'
import { EventData } from '../src/index.ts'

function read(pieces: readonly string[]): string[] {
  const reader = new EventData()
  return [...pieces.flatMap(piece => reader.push(piece)), ...reader.end()]
}

const STREAM = [
  ': a comment',
  'retry: 10',
  'data:one',
  '',
  'event: message',
  'data: {"a":',
  'data: 1}',
  'id: 4',
  '',
  ': ping',
  '',
  'data: [DONE]',
  '',
  '',
]
const EVENTS = ['one', '{"a":\n1}', '[DONE]']

t.test('reads each form of a line end, wherever it is cut', async t => {
  for (const end of ['\n', '\r\n', '\r']) {
    const text = STREAM.join(end)
    t.strictSame(read([text]), EVENTS, JSON.stringify(end))
    t.strictSame(read([...text]), EVENTS, 'each character by itself')
    for (let cut = 0; cut <= text.length; cut++)
      t.strictSame(read([text.slice(0, cut), text.slice(cut)]), EVENTS)
  }
  fc.assert(
    fc.property(fc.array(fc.constantFrom('\n', '\r\n')), fc.nat(), (ends, at) => {
      const text = STREAM.map((line, i) => line + (ends[i % ends.length] ?? '\n')).join('')
      const cut = at % text.length
      t.strictSame(read([text.slice(0, cut), text.slice(cut)]), EVENTS)
    }),
  )
})

t.test('an event comes with its empty line, also where that is a carriage return', async t => {
  const reader = new EventData()
  t.strictSame(reader.push('data: a\r\r'), ['a'])
  t.strictSame(reader.push('\ndata: b\n'), [])
  t.equal(reader.openCharacters, 1)
  t.strictSame(reader.push('\n'), ['b'])
  t.strictSame(reader.push('data: c'), [])
  t.equal(reader.openCharacters, 7)
  t.strictSame(reader.end(), ['c'])
  t.strictSame(reader.end(), [])
})

t.test('a byte order mark before the first line is none of its characters', async t => {
  t.strictSame(read(['', '\ufeff', 'data: a\n\n']), ['a'])
  t.strictSame(read(['\ufeffdata: a\n\n\ufeffdata: b\n\n']), ['a'])
})
