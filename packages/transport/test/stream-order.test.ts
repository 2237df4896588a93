/**
 * Batches of a stream in which packs are late, twice, in parts, missing, of an earlier life or of another
 * program: where one is found, and in which order they are told.
 */

import assert from 'node:assert/strict'
import { encodeEventFrames } from '@homing/protocol'
import fc from 'fast-check'
import t from 'tap'
import { encodeMessage, encodePack, Parts } from '../src/nats/payload.ts'
import { StreamOrder } from '../src/nats/stream-order.ts'
import { batchesOf, DISORDER_BATCHES_MAX, positionOf, purgeableBefore } from '../src/nats/stream-position.ts'
import { PACK_MESSAGES_MAX, type StreamMessage, UNDER_WAY_MAX } from '../src/nats/streams.ts'
import { bytes } from './inbox.ts'

const LIFE = 'a'.repeat(16)
const RUNS = Number(process.env.HOMING_STREAM_RUNS ?? 300)

const payloadsOf = (sequence: number, life: string, partBytes = 2 ** 16): readonly Uint8Array[] =>
  encodeMessage(
    encodeEventFrames('kv', sequence, bytes(`batch ${sequence} ${life}`)),
    { life, connection: 1 },
    partBytes,
  )

const packs = fc.array(
  fc.record({
    batches: fc.integer({ min: 1, max: PACK_MESSAGES_MAX }),
    /** Later packs before it. */
    late: fc.oneof(
      { weight: 4, arbitrary: fc.constant(0) },
      { weight: 1, arbitrary: fc.integer({ min: 1, max: UNDER_WAY_MAX - 1 }) },
    ),
    kind: fc.constantFrom('pack', 'pack', 'pack', 'pack', 'parts', 'twice', 'lost'),
    noise: fc.boolean(),
    gap: fc.nat(3),
  }),
  { minLength: 1, maxLength: 40 },
)

interface World {
  readonly messages: readonly StreamMessage[]
  /** What is in the stream, at all. */
  readonly there: ReadonlySet<number>
  readonly published: number
}

function streamOf(
  drawn: typeof packs extends fc.Arbitrary<infer T> ? T : never,
  lives: readonly string[],
): World {
  const payloads: { readonly payload: Uint8Array; readonly gap: number }[] = []
  for (const life of lives.slice(0, -1))
    for (let i = 0; i < 20; i++) payloads.push({ payload: payloadsOf(i, life)[0]!, gap: 0 })
  const there = new Set<number>()
  let published = 0
  const units = drawn.map(({ batches, kind, late, noise, gap }) => {
    const count = kind === 'parts' ? 1 : batches
    const sequences = Array.from({ length: count }, () => published++)
    if (kind !== 'lost') for (const sequence of sequences) there.add(sequence)
    const whole = sequences.map(sequence => payloadsOf(sequence, LIFE)[0]!)
    const stored =
      kind === 'lost'
        ? []
        : kind === 'parts'
          ? payloadsOf(sequences[0]!, LIFE, 30)
          : [whole.length === 1 ? whole[0]! : encodePack(whole, LIFE)]
    const all = [
      ...(noise ? [bytes('{"event": 1}')] : []),
      ...stored,
      ...(kind === 'twice' ? stored : []),
    ].map(payload => ({ payload, gap }))
    // Parts are never mixed with others.
    return { all, late: kind === 'parts' ? 0 : late }
  })
  const order = units.map(({ all, late }, at) => ({ all, at: at + late + (late > 0 ? 0.5 : 0) }))
  for (const { all } of order.toSorted((a, b) => a.at - b.at)) payloads.push(...all)
  let position = 0
  const messages = payloads.map(({ payload, gap }) => {
    position += 1 + gap
    return { position, payload }
  })
  return { messages, there, published }
}

const readerOf = ({ messages }: World) => ({
  next: async (_: string, __: string, from: number) => messages.find(({ position }) => position >= from),
  last: async () => messages.at(-1),
})

/** Told up to a hole, or the end; reading begins at a position. */
function tell({ messages }: World, position: number, from: number) {
  const order = new StreamOrder(from)
  const parts = new Parts()
  const told: number[] = []
  const drain = (): number | undefined => {
    for (let batch = order.take(); batch !== undefined; batch = order.take()) told.push(batch.sequence)
    return order.behindHole?.sequence
  }
  for (const one of messages) {
    if (one.position < position) continue
    assert.equal(order.add(batchesOf(one.payload, LIFE, parts)), undefined)
    const hole = drain()
    if (hole !== undefined) return { told, hole }
  }
  order.end()
  return { told, hole: drain() }
}

const seek = (from: number) => ({ stream: 's', subject: 'x', life: LIFE, from })

t.test(
  'whatever is late, twice or missing: batches are told in order, up to a hole and behind it',
  async () => {
    const agree = fc.asyncProperty(packs, fc.nat(200), fc.boolean(), async (drawn, asked, hasLifeBefore) => {
      const world = streamOf(drawn, hasLifeBefore ? ['b'.repeat(16), LIFE] : [LIFE])
      const from = asked % (world.published + 2)
      const told: number[] = []
      let next = from
      for (;;) {
        const position = (await positionOf(readerOf(world), seek(next))) ?? 1
        const answer = tell(world, position, next)
        told.push(...answer.told)
        if (answer.hole === undefined) break
        assert.ok(answer.hole > next)
        next = answer.hole
      }
      const expected = [...world.there].filter(sequence => sequence >= from).sort((a, b) => a - b)
      assert.deepEqual(told, expected)
    })
    await fc.assert(agree, { numRuns: RUNS })
  },
)

t.test('what is purged has no batch that is to stay, and all before it but a few', async () => {
  const agree = fc.asyncProperty(packs, fc.nat(200), async (drawn, asked) => {
    const world = streamOf(drawn, [LIFE])
    const from = asked % (world.published + 2)
    const before = await purgeableBefore(readerOf(world), seek(from))
    if (before === undefined) return
    const kept = { ...world, messages: world.messages.filter(({ position }) => position >= before) }
    const parts = new Parts()
    const has = new Set(
      kept.messages.flatMap(({ payload }) => batchesOf(payload, LIFE, parts)).map(one => one.sequence),
    )
    for (const sequence of world.there) if (sequence >= from) assert.ok(has.has(sequence), String(sequence))
    // Of what was late, and of the pack at its beginning.
    const surplus = [...has].filter(sequence => sequence < from).length
    assert.ok(surplus <= DISORDER_BATCHES_MAX || before === world.messages.at(-1)?.position, String(surplus))
  })
  await fc.assert(agree, { numRuns: RUNS })
})

t.test('an engine that restarted under one life is told from one whose packs are late', async t => {
  const batch = (sequence: number, text: string) => ({
    sequence,
    frames: encodeEventFrames('kv', sequence, bytes(text)),
  })
  const order = new StreamOrder(30)
  for (let i = 20; i < 50; i++) t.equal(order.add([batch(i, 'first')]), undefined)
  while (order.take() !== undefined);
  t.equal(order.next, 50)
  t.equal(order.add([batch(10, 'late')]), undefined)
  t.equal(order.add([batch(20, 'first')]), undefined, 'once more')
  t.equal(order.add([batch(21, 'second')]), 21)
})

t.test('a batch whose number none can have is passed over', async t => {
  const frames = [bytes('kv'), new Uint8Array(8).fill(0xff), bytes('x')]
  const [payload] = encodeMessage(frames, { life: LIFE, connection: 1 }, 2 ** 16)
  t.strictSame(batchesOf(payload!, LIFE, new Parts()), [])
})
