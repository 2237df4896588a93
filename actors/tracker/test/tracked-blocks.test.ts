/** What of a request counts as load: blocks, new blocks, prefill, output. */

import { figureOf } from '@homing/load'
import type { RequestTracking } from '@homing/placement'
import t from 'tap'
import { ASK, BOOKED, GATEWAY, PROMPT, start } from './tracker-world.ts'

t.test('a projection counts what is new on each worker and changes nothing', async t => {
  const { system, ref, book, load } = await start()
  t.teardown(() => system.shutdown())
  await book('r1', 0)
  const projection = await ref.ask(
    { type: 'project', workerSlots: Int32Array.of(1, 0), sequenceHashes: PROMPT, wantsEngines: false },
    ASK,
  )
  t.strictSame([...projection.activeBlocks], [0, 4])
  t.strictSame([...projection.newBlocks], [4, 0])
  t.strictSame([...projection.activePrefillTokens], [0, 70])
  t.strictSame([...projection.activeRequests], [0, 1])
  t.strictSame(await load('a/0'), [4, 70, 1])
})

t.test('blocks that are not tracked do not count, and neither does prefill that is not', async t => {
  const noBlocks = await start(60_000, { activeBlocks: false })
  t.teardown(() => noBlocks.system.shutdown())
  await noBlocks.book('r1', 0)
  t.strictSame(await noBlocks.load('a/0'), [0, 70, 1])
  const noPrefill = await start(60_000, { prefillTokens: false })
  t.teardown(() => noPrefill.system.shutdown())
  await noPrefill.book('r1', 0)
  t.strictSame(await noPrefill.load('a/0'), [4, 0, 1])
})

t.test('without reuse each request has blocks of its own, and all go with it', async t => {
  for (const [assumesReuse, blocks] of [
    [true, 4],
    [false, 8],
  ] as const) {
    const { system, ref, book, load } = await start(60_000, { assumesReuse })
    t.teardown(() => system.shutdown())
    await book('r1', 0)
    const project = { type: 'project', workerSlots: Int32Array.of(0), sequenceHashes: PROMPT } as const
    const { newBlocks } = await ref.ask({ ...project, wantsEngines: false }, ASK)
    t.strictSame([...newBlocks], [assumesReuse ? 0 : 4])
    await book('r2', 0)
    t.strictSame(await load('a/0'), [blocks, 140, 2])
    for (const decisionId of ['r1', 'r2']) ref.tell({ type: 'free', decisionId })
    t.strictSame(await load('a/0'), [0, 0, 0])
  }
})

t.test('a request can say for itself what of it counts, whatever the settings are', async t => {
  for (const assumesReuse of [true, false]) {
    const { system, ref, book, load } = await start(60_000, { assumesReuse, prefillTokens: false })
    t.teardown(() => system.shutdown())
    const shared = { assumesReuse: true, prefillTokens: undefined }
    const alone = { assumesReuse: false, prefillTokens: true }
    const newBlocks = async (tracking: RequestTracking | undefined): Promise<readonly number[]> => {
      const project = { type: 'project', workerSlots: Int32Array.of(0), sequenceHashes: PROMPT } as const
      const asked = await ref.ask({ ...project, tracking, wantsEngines: false }, ASK)
      return [...asked.newBlocks]
    }
    await book('r1', 0, GATEWAY, { tracking: shared })
    t.strictSame(await load('a/0'), [4, 0, 1])
    t.strictSame(await newBlocks(shared), [0])
    t.strictSame(await newBlocks(alone), [4])
    t.strictSame(await newBlocks(undefined), [assumesReuse ? 0 : 4], 'as the setting has it')
    await book('r2', 0, GATEWAY, { tracking: shared })
    t.strictSame(await load('a/0'), [4, 0, 2], 'both share')
    await book('r3', 0, GATEWAY, { tracking: alone })
    t.strictSame(await load('a/0'), [8, 70, 3], 'blocks and prefill of its own')
    for (const decisionId of ['r1', 'r2', 'r3']) ref.tell({ type: 'free', decisionId })
    t.strictSame(await load('a/0'), [0, 0, 0])
  }
})

t.test('a long answer counts for what it has sent in the steps of its worker', async t => {
  const { system, ref, book } = await start()
  t.teardown(() => system.shutdown())
  const held = async (): Promise<number> => {
    const workerSlots = Int32Array.of(0)
    const asked = await ref.ask(
      { type: 'project', workerSlots, sequenceHashes: PROMPT, wantsEngines: true },
      ASK,
    )
    return figureOf(asked.engines!, 0, 'contextTokens')
  }
  await book('r1', 0)
  ref.tell({ type: 'prefillComplete', decisionId: 'r1' })
  t.equal(await held(), 170, 'the prompt, and half of the mean answer')
  ref.tell({ type: 'touch', decisionId: 'r1', outputTokens: 5000 })
  t.equal(await held(), 5070)
  ref.tell({ type: 'touch', decisionId: 'r1' })
  t.equal(await held(), 5070, 'how much it is cannot be seen')
})

t.test('output blocks grow with the answer, and fade as it nears its expected end', async t => {
  const { system, ref, book, load } = await start(60_000, { outputBlocks: true })
  t.teardown(() => system.shutdown())
  const blocksAt = async (decisionId: string, outputTokens: number): Promise<number | undefined> => {
    ref.tell({ type: 'touch', decisionId, outputTokens })
    return (await load('a/0'))?.[0]
  }
  await book('r1', 0, GATEWAY, { blockSizeTokens: 16 })
  t.equal(await blocksAt('r1', 10), 4, 'the last block of the prompt has room for ten')
  t.equal(await blocksAt('r1', 11), 5)
  t.equal(await blocksAt('r1', 170), 14)
  ref.tell({ type: 'free', decisionId: 'r1' })
  t.strictSame(await load('a/0'), [0, 0, 0])
  await book('r2', 0, GATEWAY, { blockSizeTokens: 16, expectedOutputTokens: 340 })
  t.equal(await blocksAt('r2', 170), 9, 'four, and half of ten')
  t.equal(await blocksAt('r2', 340), 4, 'its prompt is in use until it has ended')
  t.equal(await blocksAt('r2', 500), 4, 'longer than expected')
  ref.tell({ type: 'free', decisionId: 'r2' })
  t.strictSame(await load('a/0'), [0, 0, 0])
  await book('whole', 0, GATEWAY, { blockSizeTokens: 16, isStream: false })
  t.equal(await blocksAt('whole', 500), 4, 'an answer that does not stream shows nothing')
})

t.test('a projection tells which of the active blocks are of answers', async t => {
  const outputBlocksOf = async (tracking: object): Promise<readonly number[] | undefined> => {
    const { system, ref, book } = await start(60_000, tracking)
    t.teardown(() => system.shutdown())
    await book('r1', 0, GATEWAY, { blockSizeTokens: 16 })
    ref.tell({ type: 'touch', decisionId: 'r1', outputTokens: 170 })
    const workerSlots = Int32Array.of(1, 0)
    const question = { workerSlots, sequenceHashes: PROMPT, wantsEngines: false } as const
    const { outputBlocks } = await ref.ask({ type: 'project', ...question }, ASK)
    return outputBlocks && [...outputBlocks]
  }
  t.strictSame(await outputBlocksOf({ outputBlocks: true }), [0, 10])
  t.equal(await outputBlocksOf({}), undefined, 'they are not counted')
})

t.test('blocks of an answer that its caller counts weigh what it says', async t => {
  const { system, ref, book, load } = await start(60_000)
  t.teardown(() => system.shutdown())
  const outputBlocksOf = async (): Promise<readonly number[] | undefined> => {
    const question = { workerSlots: Int32Array.of(0), sequenceHashes: PROMPT, wantsEngines: false } as const
    const { outputBlocks } = await ref.ask({ type: 'project', ...question }, ASK)
    return outputBlocks && [...outputBlocks]
  }
  await book('r1', 0)
  t.equal(await outputBlocksOf(), undefined, 'no caller counts them')
  ref.tell({ type: 'outputBlocks', decisionId: 'r1', blocks: 4, weight: 1 })
  t.equal((await load('a/0'))?.[0], 8)
  t.strictSame(await outputBlocksOf(), [4])
  ref.tell({ type: 'outputBlocks', decisionId: 'r1', blocks: 6, weight: 0.5 })
  t.equal((await load('a/0'))?.[0], 7)
  ref.tell({ type: 'outputBlocks', decisionId: 'unknown', blocks: 6, weight: 1 })
  t.equal((await load('a/0'))?.[0], 7)
  ref.tell({ type: 'free', decisionId: 'r1' })
  t.strictSame(await load('a/0'), [0, 0, 0])
})

t.test('blocks of replicas are counted up to a bound, and end with those that were booked', async t => {
  const { system, ref, load } = await start(60_000, {}, { replicationMs: 2, requestsMax: 2 })
  t.teardown(() => system.shutdown())
  for (const replica of ['r', 's', 't']) {
    const bookings = [{ ...BOOKED, id: 'x', activeBlocks: 2 ** 30, hasFirstToken: false }]
    ref.tell({ type: 'replicaBookings', replica, bookings })
  }
  t.strictSame(await load('a/0'), [2 ** 30, 20, 2], 'the third found no room')
  for (const replica of ['r', 's', 't'])
    ref.tell({
      type: 'replicaOperations',
      replica,
      operations: [{ kind: 'freed', id: 'x', activeBlocks: 5 }],
      isLate: false,
    })
  t.strictSame(await load('a/0'), [0, 0, 0])
  ref.tell({
    type: 'replicaBookings',
    replica: 'r',
    bookings: [{ ...BOOKED, id: 'x', hasFirstToken: false }],
  })
  ref.tell({
    type: 'replicaBookings',
    replica: 's',
    bookings: [{ ...BOOKED, id: 'x', hasFirstToken: false }],
  })
  t.strictSame(await load('a/0'), [14, 20, 2])
  ref.tell({ type: 'replicasKnown', replicas: ['s'] })
  t.strictSame(await load('a/0'), [7, 10, 1], 'who is not there any more has nothing open')
})
