import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import {
  encodeEventFrames,
  encodeReplayEnd,
  encodeReplayReply,
  MalformedEventFramesError,
  parseEventFrames,
  parseReplayReply,
  parseReplayRequest,
  replayRequestFrames,
} from '../src/index.ts'

/** Frames from hex, '|' between frames. */
function frames(text: string): Uint8Array[] {
  return text.split('|').map(hex => Uint8Array.from(Buffer.from(hex.trim(), 'hex')))
}

const PAYLOAD = Uint8Array.of(0x92)

t.test('published frames are read and written as engines do', async t => {
  for (const [text, topic, sequence] of [
    ['|0000000000000005|92', '', 5],
    ['6b76|0000000000000000|92', 'kv', 0],
    ['6b76|001fffffffffffff|92', 'kv', 2 ** 53 - 1],
  ] as const) {
    t.strictSame(parseEventFrames(frames(text)), { topic, sequence, payload: PAYLOAD })
    t.strictSame(encodeEventFrames(topic, sequence, PAYLOAD), frames(text))
  }
})

t.test('frames of something else are an error of that message', async t => {
  for (const text of ['', '|0000000000000005', '|05|92', '|0020000000000000|92', '|0000000000000005|92|00']) {
    t.throws(() => parseEventFrames(frames(text)), MalformedEventFramesError, text)
  }
  t.throws(() => parseEventFrames(frames('|05|92')), { code: 'HOMING_PROTOCOL_BAD_FRAMES' })
  for (const sequence of [-1, 1.5, 2 ** 53, Number.NaN]) {
    t.throws(() => encodeEventFrames('', sequence, PAYLOAD), RangeError)
  }
})

t.test('replay requests are read as engines read them', async t => {
  t.strictSame(replayRequestFrames(1), frames('|0000000000000001'))
  for (const [text, start] of [
    ['|0000000000000001', 1],
    ['|00000100', 256],
    ['|ffffffffffffffff', Number.MAX_SAFE_INTEGER],
    ['0000000000000001', undefined],
    ['00|0000000000000001', undefined],
    ['|', undefined],
    ['|000000000000000001', undefined],
    ['||0000000000000001', undefined],
  ] as const) {
    t.equal(parseReplayRequest(frames(text)), start, text)
  }
})

t.test('replies are read in both framings', async t => {
  for (const [text, expected] of [
    ['|0000000000000001|92', { kind: 'batch', topic: '', sequence: 1, payload: PAYLOAD }],
    ['|ffffffffffffffff|', { kind: 'end' }],
    ['|6b76|0000000000000001|92', { kind: 'batch', topic: 'kv', sequence: 1, payload: PAYLOAD }],
    ['||0000000000000001|92', { kind: 'batch', topic: '', sequence: 1, payload: PAYLOAD }],
    ['||ffffffffffffffff|', { kind: 'end' }],
    ['|6b76|ffffffffffffffff|', { kind: 'end' }],
    ['|ffffffffffffffff|92', { kind: 'malformed' }],
    ['|01|92', { kind: 'malformed' }],
    ['00|0000000000000001|92', { kind: 'malformed' }],
    ['|0000000000000001', { kind: 'malformed' }],
    ['||||', { kind: 'malformed' }],
  ] as const) {
    t.match(parseReplayReply(frames(text)), expected, text)
  }
})

t.test('what is written is read back', async t => {
  const agree = fc.property(
    fc.constantFrom('topic' as const, 'plain' as const),
    fc.string(),
    fc.nat({ max: Number.MAX_SAFE_INTEGER }),
    fc.uint8Array(),
    (form, topic, sequence, payload) => {
      assert.equal(parseReplayRequest(replayRequestFrames(sequence)), sequence)
      assert.deepEqual(parseEventFrames(encodeEventFrames(topic, sequence, payload)), {
        topic,
        sequence,
        payload,
      })
      assert.deepEqual(parseReplayReply(encodeReplayReply(form, topic, sequence, payload)), {
        kind: 'batch',
        topic: form === 'topic' ? topic : '',
        sequence,
        payload,
      })
      assert.deepEqual(parseReplayReply(encodeReplayEnd(form)), { kind: 'end' })
    },
  )
  t.doesNotThrow(() => fc.assert(agree))
})
