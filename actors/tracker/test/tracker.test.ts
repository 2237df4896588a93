import { createTestSystem } from '@homing/actor/testing'
import type { Fleet } from '@homing/directory'
import t from 'tap'
import { tracker } from '../src/index.ts'

const ASK = { timeout: '1s' } as const
const PROMPT = Int32Array.from({ length: 8 }, (_, i) => i + 1)

async function start(idleMsMax = 60_000) {
  const system = await createTestSystem()
  const ref = system.spawn(tracker, {
    name: 'tracker',
    args: { workerSlotsMax: 8, requestsMax: 100, idleMsMax },
  })
  ref.tell({ type: 'fleet', fleet: fleetOf(['a/0', 0], ['b/0', 1]) })
  const book = (requestId: string, workerSlot: number) =>
    ref.ask(
      {
        type: 'book',
        booking: { requestId, workerSlot, sequenceHashes: PROMPT, promptTokens: 70, prefillTokens: 70 },
      },
      ASK,
    )
  const load = async (worker: string) => {
    const { rows } = await ref.ask({ type: 'loads' }, ASK)
    const row = rows.find(candidate => candidate.worker === worker)
    return row && [row.activeBlocks, row.activePrefillTokens, row.activeRequests]
  }
  return { system, ref, book, load }
}

/** As much of a fleet as the tracker looks at. */
function fleetOf(...keys: [key: string, workerSlot: number][]): Fleet {
  const records = keys.map(([key, workerSlot]) => ({ key, workerSlot }))
  return { version: 1, workers: [{ keys: records }] } as unknown as Fleet
}

t.test('a booking counts until its request ends, its prefill until the first token', async t => {
  const { system, ref, book, load } = await start()
  t.teardown(() => system.shutdown())
  t.equal(await book('r1', 0), 'booked')
  t.strictSame(await load('a/0'), [4, 70, 1])
  t.strictSame(await load('b/0'), [0, 0, 0])
  ref.tell({ type: 'prefillComplete', requestId: 'r1' })
  t.strictSame(await load('a/0'), [4, 0, 1])
  ref.tell({ type: 'free', requestId: 'r1' })
  ref.tell({ type: 'free', requestId: 'r1' })
  t.strictSame(await load('a/0'), [0, 0, 0])
})

t.test('a request is booked once', async t => {
  const { system, book, load } = await start()
  t.teardown(() => system.shutdown())
  t.equal(await book('r1', 0), 'booked')
  t.equal(await book('r1', 1), 'duplicate')
  t.strictSame(await load('b/0'), [0, 0, 0])
})

t.test('a projection counts what is new on each worker and changes nothing', async t => {
  const { system, ref, book, load } = await start()
  t.teardown(() => system.shutdown())
  await book('r1', 0)
  const projection = await ref.ask(
    { type: 'project', workerSlots: Int32Array.of(1, 0), sequenceHashes: PROMPT },
    ASK,
  )
  t.strictSame([...projection.activeBlocks], [0, 4])
  t.strictSame([...projection.newBlocks], [4, 0])
  t.strictSame([...projection.activePrefillTokens], [0, 70])
  t.strictSame([...projection.activeRequests], [0, 1])
  t.strictSame(await load('a/0'), [4, 70, 1])
})

t.test('bookings of a worker key that left the fleet are freed', async t => {
  const { system, ref, book, load } = await start()
  t.teardown(() => system.shutdown())
  await book('r1', 0)
  await book('r2', 1)
  ref.tell({ type: 'fleet', fleet: fleetOf(['b/0', 1], ['c/0', 0]) })
  t.strictSame(await load('c/0'), [0, 0, 0], 'another key in the same slot starts with nothing')
  t.strictSame(await load('b/0'), [4, 70, 1])
})

t.test('a booking without a sign of life is freed, a touched one is not', async t => {
  const { system, ref, book, load } = await start(20_000)
  t.teardown(() => system.shutdown())
  await book('lost', 0)
  await book('alive', 1)
  for (let i = 0; i < 6; i++) {
    await system.advance('5s')
    ref.tell({ type: 'touch', requestId: 'alive' })
  }
  t.strictSame(await load('a/0'), [0, 0, 0])
  t.strictSame(await load('b/0'), [4, 70, 1])
  const { stats } = await ref.ask({ type: 'loads' }, ASK)
  t.equal(stats.expiredTotal, 1)
})
