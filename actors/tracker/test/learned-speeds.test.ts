/** What the tracker learns of workers from their answers, and what teaches nothing. */

import type { Fleet } from '@homing/fleet'
import { figuresOf } from '@homing/load'
import t from 'tap'
import { ASK, BOOKED, GATEWAY, PLAIN, PROMPT, start } from './tracker-world.ts'

t.test('the speed of a worker is learned from its first tokens', async t => {
  const { system, ref, book } = await start()
  t.teardown(() => system.shutdown())
  const learned = async () => (await ref.ask({ type: 'loads' }, ASK)).rows[0]!.learned.prefill
  t.match(await learned(), { source: 'prior', observations: 0 })
  await book('r1', 0)
  await system.advance('1s')
  ref.tell({ type: 'prefillComplete', decisionId: 'r1' })
  ref.tell({ type: 'free', decisionId: 'r1', cachedShare: 0 })
  const { source, observations } = await learned()
  t.ok(observations > 0 && source !== 'prior', `${observations} observations, source ${source}`)
})

t.test('a projection has what is before each worker in milliseconds, if that is asked for', async t => {
  const { system, ref, book } = await start()
  t.teardown(() => system.shutdown())
  await book('r1', 0)
  const ask = {
    type: 'project',
    workerSlots: Int32Array.of(1, 0),
    sequenceHashes: PROMPT,
    wantsEngines: true,
  } as const
  const queued = await ref.ask(ask, ASK)
  t.equal(queued.engines!.count, 2)
  t.match(figuresOf(queued.engines!, 0), { requests: 0, queuedTokens: 0 })
  t.match(figuresOf(queued.engines!, 1), { requests: 1, queuedTokens: 70, decoding: 0 })
  ref.tell({ type: 'prefillComplete', decisionId: 'r1' })
  const decoding = await ref.ask(ask, ASK)
  t.match(figuresOf(decoding.engines!, 1), { requests: 1, queuedTokens: 0, decoding: 1 })
  ref.tell({ type: 'free', decisionId: 'r1', outputTokens: 30, cachedShare: 0.9 })
  const idle = await ref.ask(ask, ASK)
  t.equal(idle.engines!.outputTokensExpected, 30)
  t.match(figuresOf(idle.engines!, 1), { requests: 0, decoding: 0, receivedTokens: 7 })
})

t.test('the prefill of an answer that does not stream ends by estimate, without a message', async t => {
  const { system, ref, book, load } = await start(60_000)
  t.teardown(() => system.shutdown())
  await book('whole', 0, GATEWAY, { isStream: false, promptTokens: 700, prefillTokens: 700 })
  await book('stream', 0, GATEWAY, { promptTokens: 700, prefillTokens: 700 })
  t.equal((await load('a/0'))?.[1], 1400)
  await system.advance('2s')
  ref.tell({ type: 'touch', decisionId: 'whole' })
  t.equal((await load('a/0'))?.[1], 700, 'the one that streams waits for its first token')
  ref.tell({ type: 'prefillComplete', decisionId: 'whole' })
  ref.tell({ type: 'prefillComplete', decisionId: 'stream' })
  t.strictSame((await load('a/0'))?.slice(1), [0, 2])
})

t.test(
  'what was open at a replica when it was heard first teaches nothing of decoding, and leaves nothing',
  async t => {
    const { system, ref, load } = await start(60_000, {}, { replicationMs: 2 })
    t.teardown(() => system.shutdown())
    const learned = async () => (await ref.ask({ type: 'loads' }, ASK)).rows[0]!.learned
    const before = await learned()
    const bookings = Array.from({ length: 20 }, (_, i) => ({ ...BOOKED, id: `${i}`, hasFirstToken: true }))
    ref.tell({ type: 'replicaBookings', replica: 'r', bookings })
    t.strictSame(await load('a/0'), [7, 0, 20])
    await system.advance('100ms')
    const operations = bookings.map(({ id }) => ({
      kind: 'freed' as const,
      id,
      activeBlocks: 7,
      outputTokens: 500,
    }))
    ref.tell({ type: 'replicaOperations', replica: 'r', operations, isLate: false })
    t.strictSame(await load('a/0'), [0, 0, 0], 'without a booking its blocks count no more, whatever it says')
    t.strictSame(await learned(), before)
  },
)

t.test('an answer that is no success ends a prefill and teaches no speed', async t => {
  const { system, ref, book } = await start()
  t.teardown(() => system.shutdown())
  const learned = async () => (await ref.ask({ type: 'loads' }, ASK)).rows[0]!
  for (let i = 0; i < 40; i++) {
    await book(`refused ${i}`, 0)
    ref.tell({ type: 'prefillComplete', decisionId: `refused ${i}`, teaches: false })
    ref.tell({ type: 'free', decisionId: `refused ${i}` })
  }
  const row = await learned()
  t.equal(row.learned.prefill.observations, 0)
  t.equal(row.activePrefillTokens, 0)
})

t.test('figures that cannot be true are counted and teach nothing', async t => {
  const { system, ref, book } = await start()
  t.teardown(() => system.shutdown())
  const expected = async (): Promise<number> => {
    const workerSlots = Int32Array.of(0)
    const asked = await ref.ask(
      { type: 'project', workerSlots, sequenceHashes: PROMPT, wantsEngines: true },
      ASK,
    )
    return asked.engines!.outputTokensExpected
  }
  const before = await expected()
  const lies = [
    { outputTokensMax: 10, outputTokens: 11 },
    { outputTokensMax: undefined, outputTokens: 4_294_967_296 },
    { outputTokensMax: undefined, outputTokens: 50_000 },
    { outputTokensMax: undefined, outputTokens: Number.NaN },
    { outputTokensMax: undefined, outputTokens: -1 },
    { outputTokensMax: undefined, outputTokens: undefined, cachedShare: 1.5 },
  ]
  for (const [i, { outputTokensMax, ...said }] of lies.entries()) {
    await book(`lie ${i}`, 0, GATEWAY, { outputTokensMax })
    ref.tell({ type: 'prefillComplete', decisionId: `lie ${i}` })
    ref.tell({ type: 'free', decisionId: `lie ${i}`, ...said })
  }
  t.equal(await expected(), before)
  t.equal((await ref.ask({ type: 'loads' }, ASK)).rows[0]!.disbelieved, lies.length)
  await book('true', 0, GATEWAY, { outputTokensMax: 10 })
  ref.tell({ type: 'free', decisionId: 'true', outputTokens: 10 })
  t.not(await expected(), before)
  t.equal((await ref.ask({ type: 'loads' }, ASK)).rows[0]!.disbelieved, lies.length)
})

t.test('what was learned of a worker ends with its process', async t => {
  const { system, ref, book } = await start()
  t.teardown(() => system.shutdown())
  const fleet = (promptsEpoch: number): Fleet =>
    ({
      version: 1,
      workers: [
        { ...PLAIN, id: 'a', promptsEpoch, keys: [{ key: 'a/0', workerSlot: 0 }] },
        { ...PLAIN, id: 'b', keys: [{ key: 'b/0', workerSlot: 1 }] },
      ],
    }) as unknown as Fleet
  ref.tell({ type: 'fleet', fleet: fleet(1) })
  const observations = async () =>
    (await ref.ask({ type: 'loads' }, ASK)).rows.map(({ learned }) => learned.prefill.observations)
  for (let i = 0; i < 20; i++) {
    await book(`${i}`, i % 2)
    await system.advance(30)
    ref.tell({ type: 'prefillComplete', decisionId: `${i}` })
    await system.advance(30)
    ref.tell({ type: 'free', decisionId: `${i}`, outputTokens: 5 })
  }
  const [a, b] = await observations()
  t.ok(a! > 0 && b! > 0)
  ref.tell({ type: 'fleet', fleet: fleet(1) })
  t.strictSame(await observations(), [a, b], 'the same process')
  ref.tell({ type: 'fleet', fleet: fleet(2) })
  t.strictSame(await observations(), [0, b])
})
