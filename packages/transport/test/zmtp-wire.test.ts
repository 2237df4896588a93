import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import {
  checkGreeting,
  encodeCommand,
  encodeMessage,
  greeting,
  readProperties,
  ready,
  ZmtpError,
  ZmtpParser,
} from '../src/zmtp/wire.ts'

type Seen = { readonly frames: Uint8Array[] } | { readonly command: string; readonly data: Uint8Array }

function parse(chunks: readonly Uint8Array[]): Seen[] {
  const seen: Seen[] = []
  const parser = new ZmtpParser({
    message: frames => seen.push({ frames }),
    command: (command, data) => seen.push({ command, data }),
  })
  for (const chunk of chunks) parser.push(chunk)
  return seen
}

const frame = fc.oneof(
  fc.uint8Array(),
  fc.nat(70_000).map(size => new Uint8Array(size).fill(size)),
)
const message = fc.array(frame, { minLength: 1, maxLength: 5 })
const command = fc.record({ command: fc.stringMatching(/^[A-Z]{1,10}$/), data: fc.uint8Array() })

t.test('what is written is read back, however the network cuts it', async t => {
  const agree = fc.property(
    fc.array(
      fc.oneof(
        message.map(frames => ({ frames })),
        command,
      ),
      { maxLength: 6 },
    ),
    fc.array(fc.nat(100_000), { maxLength: 20 }),
    (sent, cuts) => {
      const stream = Buffer.concat(
        sent.flatMap(item =>
          'frames' in item ? encodeMessage(item.frames) : [encodeCommand(item.command, item.data)],
        ),
      )
      const places = [0, ...cuts.map(cut => cut % (stream.length + 1)), stream.length].sort((a, b) => a - b)
      const chunks = places.slice(1).map((end, i) => stream.subarray(places[i], end))
      assert.deepEqual(parse(chunks), sent.map(plain))
    },
  )
  t.doesNotThrow(() => fc.assert(agree))
})

t.test('whatever bytes come, the parser says so or goes on', async t => {
  const holds = fc.property(fc.array(fc.uint8Array({ maxLength: 50 })), chunks => {
    try {
      parse(chunks)
    } catch (error) {
      assert.ok(error instanceof ZmtpError)
    }
  })
  t.doesNotThrow(() => fc.assert(holds, { numRuns: 2000 }))
})

t.test('a frame that claims too much is refused before it is there', async t => {
  const claim = Uint8Array.of(2, 0, 0, 0, 1, 0, 0, 0, 0)
  t.throws(() => parse([claim]), /more than 268435456 bytes/)
  const many = Buffer.concat(new Array(2000).fill(Uint8Array.of(1, 0)))
  t.throws(() => parse([many]), /more than 1024 frames/)
  t.throws(() => parse([Uint8Array.of(0x80, 0)]), /frame flags 128/)
  t.throws(() => parse([Uint8Array.of(4, 1, 9)]), /command is cut short/)
})

t.test('greetings of others are refused with the reason', async t => {
  t.doesNotThrow(() => checkGreeting(greeting()))
  const changed = (at: number, byte: number): Uint8Array => {
    const bytes = greeting()
    bytes[at] = byte
    return bytes
  }
  t.doesNotThrow(() => checkGreeting(changed(11, 1)), 'a newer minor version')
  t.throws(
    () => checkGreeting(new TextEncoder().encode('HTTP/1.1 400 Bad Request'.padEnd(64))),
    /does not speak ZMTP/,
  )
  t.throws(() => checkGreeting(changed(10, 2)), /speaks ZMTP 2/)
  t.throws(() => checkGreeting(changed(12, 0x43)), /wants the mechanism CULL/)
})

t.test('properties are read, and cut short they are refused', async t => {
  const [seen] = parse([ready('DEALER')])
  assert.ok(seen !== undefined && 'command' in seen)
  const properties = readProperties(seen.data)
  t.equal(new TextDecoder().decode(properties.get('socket-type')), 'DEALER')
  t.equal(properties.get('identity')?.length, 0)
  for (let size = 1; size < seen.data.length; size++) {
    try {
      readProperties(seen.data.subarray(0, size))
    } catch (error) {
      assert.ok(error instanceof ZmtpError)
    }
  }
  t.throws(() => readProperties(seen.data.subarray(0, 5)), /cut short/)
})

/** As fresh arrays, which deepEqual compares by content. */
function plain(item: Seen): Seen {
  return 'frames' in item
    ? { frames: item.frames.map(bytes => Uint8Array.from(bytes)) }
    : { command: item.command, data: Uint8Array.from(item.data) }
}
