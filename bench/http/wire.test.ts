import t from 'tap'
import { fieldOf, MessageReader } from './wire.ts'

interface Message {
  head: string
  body: string
}

function read(pieces: readonly Buffer[]): Message[] {
  const messages: Message[] = []
  let open: Message | undefined
  const reader = new MessageReader({
    head: head => {
      open = { head, body: '' }
    },
    body: piece => {
      open!.body += piece.toString('latin1')
    },
    end: () => {
      messages.push(open!)
    },
  })
  for (const piece of pieces) reader.push(piece)
  return messages
}

const LENGTH = 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello'
const CHUNKS =
  'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nA;x=1\r\n0123456789\r\n0\r\n\r\n'
const EMPTY = 'HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n'
const ASKED = 'GET /health HTTP/1.1\r\nhost: x\r\n\r\n'

t.test('messages are the same however their bytes come', async t => {
  const bytes = Buffer.from(LENGTH + CHUNKS + EMPTY + ASKED + LENGTH, 'latin1')
  const expected = ['hello', 'hello0123456789', '', '', 'hello']
  t.strictSame(
    read([bytes]).map(({ body }) => body),
    expected,
  )
  for (let at = 1; at < bytes.length; at++) {
    const halves = read([bytes.subarray(0, at), bytes.subarray(at)])
    if (halves.map(({ body }) => body).join() !== expected.join()) t.fail(`cut at ${at}`)
  }
  t.strictSame(read(Array.from(bytes, byte => Buffer.of(byte))).length, expected.length)
})

t.test('fields are found whatever their case, and only as a whole', async t => {
  const [{ head }] = read([Buffer.from(LENGTH)]) as [Message]
  t.equal(fieldOf(head, 'content-length'), '5')
  t.equal(fieldOf(head, 'length'), undefined)
  t.equal(fieldOf(head, 'connection'), undefined)
})

t.test('what is not of the supported kind is refused', async t => {
  const refused: readonly (readonly [string, RegExp])[] = [
    ['HTTP/1.1 200 OK\r\n\r\n', /an answer without a length: HTTP\/1.1 200 OK/],
    ['HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n', /no length: many/],
    ['HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n', /no size of a chunk: zz/],
    ['HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc', /does not end where it should/],
    [`HTTP/1.1 200 OK\r\nx: ${'y'.repeat(70_000)}`, /more than 65536 bytes/],
  ]
  for (const [text, reason] of refused) t.throws(() => read([Buffer.from(text)]), { message: reason })
})
