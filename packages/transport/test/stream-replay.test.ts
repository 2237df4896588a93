/** A replay between a publisher and a stream that the test plays: what is late, what is a hole. */

import { SimulatedClock } from '@homing/base'
import {
  encodeEventFrames,
  encodeReplayEnd,
  encodeReplayReply,
  parseReplayReply,
  parseReplayRequest,
  replayRequestFrames,
} from '@homing/protocol'
import t from 'tap'
import { BrokerCounts } from '../src/broker-counts.ts'
import { StreamError } from '../src/errors.ts'
import type { Frames } from '../src/message-types.ts'
import { encodeMessage } from '../src/nats/payload.ts'
import { StreamReplay } from '../src/nats/stream-replay.ts'
import type { BrokerStreams } from '../src/nats/streams.ts'
import { bytes } from './inbox.ts'

const LIFE = 'a'.repeat(16)
const payloadOf = (sequence: number): Uint8Array => bytes(`batch ${sequence}`)

interface Sides {
  /** Batches in the stream, in the order in which they are there. */
  readonly stream: readonly number[]
  /** …and those that the publisher still has. */
  readonly publisher: readonly number[]
  readonly isWhole: boolean
  readonly holeEnd?: number
  readonly isUnreadable?: boolean
}

/** Sequences that are told, and 'end'. */
async function replayed({ stream, publisher, isWhole, holeEnd = 0, isUnreadable = false }: Sides) {
  const clock = new SimulatedClock()
  const messages = stream.map((sequence, i) => ({
    position: i + 1,
    payload: encodeMessage(
      encodeEventFrames('kv', sequence, payloadOf(sequence)),
      { life: LIFE, connection: 1 },
      2 ** 16,
    )[0]!,
  }))
  const streams = {
    next: async (_: string, __: string, from: number) => messages.find(({ position }) => position >= from),
    last: async () => messages.at(-1),
    async *read(_: string, __: string, from: number) {
      if (isUnreadable) throw new StreamError('cannot read the stream', 'the broker is gone')
      yield* messages.filter(({ position }) => position >= from)
    },
  } as unknown as BrokerStreams
  const told: (number | 'end')[] = []
  const holes: number[] = []
  const dial = (answer: (frames: Frames) => void) => ({
    send(frames: Frames) {
      const from = parseReplayRequest(frames)!
      queueMicrotask(() => {
        for (const sequence of publisher.filter(one => one >= from))
          answer(encodeReplayReply('topic', 'kv', sequence, payloadOf(sequence)))
        answer(encodeReplayEnd('topic'))
      })
      return true
    },
    close() {},
  })
  const replay = new StreamReplay({
    stream: { namespace: 'fleet', retentionMs: 1000, bytesMax: 1000 },
    subject: 'homing.kv.one',
    clock,
    counts: new BrokerCounts(),
    log: { warn() {} },
    streams: () => streams,
    followed: () => LIFE,
    isWhole: () => isWhole,
    holeEnd: () => holeEnd,
    noteHole: end => holes.push(end),
    gate: undefined,
    onMessage(frames) {
      const reply = parseReplayReply(frames)
      if (reply.kind !== 'malformed') told.push(reply.kind === 'end' ? 'end' : reply.sequence)
    },
    dial,
  })
  replay.send(replayRequestFrames(0))
  for (let i = 0; i < 20; i++) {
    for (let turn = 0; turn < 100; turn++) await Promise.resolve()
    clock.advance(100)
  }
  replay.close()
  return { told, holes }
}

t.test('a batch that is only late in the stream comes from the publisher, and is no hole', async t => {
  const late = { stream: [0, 1, 3, 4], isWhole: false }
  t.strictSame(await replayed({ ...late, publisher: [2, 3, 4, 5] }), {
    told: [0, 1, 2, 3, 4, 5, 'end'],
    holes: [],
  })
  t.strictSame(await replayed({ ...late, publisher: [3, 4, 5] }), {
    told: [0, 1, 3, 4, 5, 'end'],
    holes: [],
  })
  t.strictSame(
    await replayed({ stream: [0, 1, 3, 4], publisher: [5], isWhole: true }),
    { told: [0, 1, 3], holes: [3] },
    'neither has it',
  )
})

t.test('behind a hole the publisher is asked, too, where the stream cannot be read', async t => {
  const { told } = await replayed({
    stream: [0, 1, 3, 4],
    publisher: [4, 5],
    isWhole: true,
    holeEnd: 3,
    isUnreadable: true,
  })
  t.strictSame(told, [4, 5, 'end'])
})
