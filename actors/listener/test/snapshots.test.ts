/**
 * Publishers that offer snapshots: their snapshots are applied, and so is their word about how much they
 * know.
 */

import assert from 'node:assert/strict'
import type { KeyImage } from '@homing/actors/indexer'
import { recordingLog } from '@homing/base'
import { decodeKvBatch, encodeKvBatch, encodeSnapshotReply, type SnapshotForm } from '@homing/protocol'
import { HeldBlocks } from '@homing/publisher'
import t from 'tap'
import { LISTENER_LIMITS } from '../src/index.ts'
import { listenerWorld, type WorldOptions } from './listener-world.ts'
import { answerSnapshots, isTrue, loseStores } from './lives-world.ts'

/** A publisher beside an engine: its own numbers, replays and snapshots. */
async function sidecarWorld(t: Parameters<typeof listenerWorld>[0], options: WorldOptions = {}) {
  const world = await listenerWorld(t, options)
  const snapshot = {
    isWhole: false,
    refuses: 0,
    cutAfter: Number.POSITIVE_INFINITY,
    requests: 0,
    asked: [] as SnapshotForm[],
    offersHashes: false,
    answersHashes: true,
    parts: (batches: readonly Uint8Array[], _form: SnapshotForm): readonly Uint8Array[] => batches,
    publisherId: '0123456789abcdef',
  }
  world.answerSnapshot = (send, form) => {
    snapshot.requests++
    snapshot.asked.push(form)
    if (form === 'hashes' && !snapshot.answersHashes) return
    const { offersHashes, publisherId } = snapshot
    const nextSequence = world.source.lastSequence + 1
    const header = { publisherId, nextSequence, mayBeStale: false, form, offersHashes }
    if (snapshot.refuses-- > 0) {
      send(encodeSnapshotReply({ ...header, part: 0, parts: 0, isWhole: false }, new Uint8Array(0)))
      return
    }
    const batches = snapshot.parts(world.source.snapshot(), form)
    for (const [part, payload] of batches.entries()) {
      if (part >= snapshot.cutAfter) return
      send(
        encodeSnapshotReply({ ...header, part, parts: batches.length, isWhole: snapshot.isWhole }, payload),
      )
    }
  }
  return { world, snapshot }
}

t.test('a snapshot is taken over, and its word for how much it knows', async t => {
  for (const isWhole of [true, false]) {
    const { world, snapshot } = await sidecarWorld(t)
    snapshot.isWhole = isWhole
    for (let i = 0; i < 30; i++) world.source.publish()
    world.source.publishStore()
    world.startListener()
    await world.system.settle()
    t.strictSame(await world.held(), world.cached())
    t.match(world.trust(), isWhole ? /^exact/ : /^partial: .*has not seen its whole history/)
    world.publish(5)
    await world.system.settle()
    t.strictSame(await world.held(), world.cached())
    t.match(await world.status(), { state: 'live', gaps: 0, restarts: 0, lastSequence: 35 })
  }
})

t.test('asked for a snapshot, a listener says that the publisher gives them, if that knows all', async t => {
  for (const isWhole of [true, false]) {
    const { world, snapshot } = await sidecarWorld(t)
    snapshot.isWhole = isWhole
    for (let i = 0; i < 5; i++) world.source.publishStore()
    world.startListener()
    await world.system.settle()
    const answer = world.listener!.ask({ type: 'snapshot' }, { timeout: 1000 })
    await world.system.settle()
    t.equal(await answer, isWhole ? 'ofPublisher' : undefined)
  }
})

t.test('a publisher that offers hashes is asked for them, once', async t => {
  const { world, snapshot } = await sidecarWorld(t)
  Object.assign(snapshot, { isWhole: true, offersHashes: true })
  for (let i = 0; i < 30; i++) world.source.publishStore()
  world.startListener()
  await world.system.settle()
  t.match(world.trust(), /^exact/)
  t.strictSame(await world.held(), world.cached())
  t.strictSame(snapshot.asked, ['tokens', 'hashes'])
  world.listener!.tell({ type: 'resync', cause: 'lost', reason: 'the index was reset' })
  await world.system.advance('20s')
  t.match(world.trust(), /^exact/)
  t.strictSame(await world.held(), world.cached())
  t.strictSame(snapshot.asked, ['tokens', 'hashes', 'hashes'])
})

t.test('on the last attempt a snapshot by tokens is taken, since there is none left for hashes', async t => {
  const { world, snapshot } = await sidecarWorld(t, { limits: { replayAttemptsTotalMax: 1 } })
  Object.assign(snapshot, { isWhole: true, offersHashes: true })
  for (let i = 0; i < 30; i++) world.source.publishStore()
  world.startListener()
  await world.system.settle()
  t.match(world.trust(), /^exact/)
  t.strictSame(await world.held(), world.cached())
  t.strictSame(snapshot.asked, ['tokens'])
})

t.test('batches are asked for behind the last part, since another question ends the answer', async t => {
  const { world, snapshot } = await sidecarWorld(t)
  snapshot.isWhole = true
  for (let i = 0; i < 30; i++) world.source.publishStore()
  world.startListener()
  await world.system.settle()
  t.match(world.trust(), /^exact/)
  for (let i = 0; i < 5; i++) world.send(world.source.publishStore())
  await world.system.settle()
  const answer = world.answerSnapshot!
  let last: (() => void) | undefined
  world.answerSnapshot = (send, form) => {
    const replies: Parameters<typeof send>[0][] = []
    answer(reply => replies.push(reply), form)
    for (const reply of replies.slice(0, -1)) send(reply)
    last = () => send(replies.at(-1)!)
  }
  const before = world.replayRequests.length
  world.listener!.tell({ type: 'resync', cause: 'lost', reason: 'the index was reset' })
  await world.system.advance(LISTENER_LIMITS.resyncMsMin)
  t.ok(last)
  t.equal(world.replayRequests.length, before)
  last!()
  await world.system.settle()
  t.equal(world.replayRequests.length, before + 1)
  await world.system.advance('2s')
  t.match(world.trust(), /^exact/)
  t.strictSame(await world.held(), world.cached())
})

t.test('one that offers hashes and does not answer is asked for tokens again', async t => {
  const { world, snapshot } = await sidecarWorld(t)
  Object.assign(snapshot, { isWhole: true, offersHashes: true, answersHashes: false })
  for (let i = 0; i < 30; i++) world.source.publishStore()
  world.startListener()
  await world.system.advance('20s')
  t.match(world.trust(), /^exact/)
  t.strictSame(await world.held(), world.cached())
  t.strictSame(snapshot.asked.slice(0, 3), ['tokens', 'hashes', 'tokens'])
  t.equal(snapshot.asked.filter(form => form === 'hashes').length, 1)
})

/** The same parts, as a publisher writes them by hashes. */
function hashedParts(parts: readonly Uint8Array[]): Uint8Array[] {
  const held = new HeldBlocks({ bytesMax: 2 ** 24 })
  for (const part of parts) for (const event of decodeKvBatch(part).events) held.apply(event)
  const frozen = held.freeze()
  const stores = [...frozen.runs(0, frozen.size, 3, 'hashes')]
  frozen.release()
  return stores.map(store => {
    assert.ok(store.localHashes !== undefined && store.tokens.length === 0)
    return encodeKvBatch({ timestampSeconds: 1, rank: undefined, events: [store] }, 'vllm-map')
  })
}

t.test('parts by hashes give the index the blocks that parts by tokens give it', async t => {
  const images = []
  for (const offersHashes of [false, true]) {
    const { world, snapshot } = await sidecarWorld(t)
    Object.assign(snapshot, { isWhole: true, offersHashes })
    snapshot.parts = (batches, form) => (form === 'hashes' ? hashedParts(batches) : batches)
    for (let i = 0; i < 60; i++) world.source.publish()
    for (let i = 0; i < 20; i++) world.source.publishStore()
    world.startListener()
    await world.system.settle()
    t.strictSame(snapshot.asked, offersHashes ? ['tokens', 'hashes'] : ['tokens'])
    t.match(world.trust(), /^exact/)
    t.strictSame(await world.held(), world.cached())
    images.push(blocksOf(await imageOf(world)))
    world.publish(20)
    await world.system.settle()
    t.strictSame(await world.held(), world.cached())
    images.push(blocksOf(await imageOf(world)))
  }
  const [byTokens, later, byHashes, laterByHashes] = images
  t.ok(byTokens!.length > 10)
  t.strictSame(byHashes, byTokens, 'the same local hashes above the same ones')
  t.strictSame(laterByHashes, later, 'and what followed stands on them')
})

async function imageOf(world: Awaited<ReturnType<typeof listenerWorld>>): Promise<KeyImage | undefined> {
  const answer = world.indexer.ask({ type: 'image', workerSlot: 0 }, { timeout: 1000 })
  await world.system.settle()
  return answer
}

/** Each block as the local hashes from the beginning of its prompt to itself. */
function blocksOf(image: KeyImage | undefined): string[] {
  const paths: string[] = []
  const { localHashes = new Int32Array(0), parents = new Int32Array(0) } = image ?? {}
  for (const [i, parent] of parents.entries())
    paths.push(`${parent === 0 ? '' : paths[parent - 1]}/${localHashes[2 * i]},${localHashes[2 * i + 1]}`)
  assert.ok(paths.every(path => path.startsWith('/')))
  return paths.sort()
}

t.test('an attempt that something else ended says nothing of whether hashes are answered', async t => {
  const { world, snapshot } = await sidecarWorld(t)
  Object.assign(snapshot, { isWhole: true, offersHashes: true, answersHashes: false })
  for (let i = 0; i < 30; i++) world.source.publishStore()
  world.startListener()
  await world.system.settle()
  t.strictSame(snapshot.asked, ['tokens', 'hashes'])
  snapshot.answersHashes = true
  world.listener!.tell({ type: 'engineRestarted', startSeconds: undefined })
  await world.system.settle()
  t.strictSame(snapshot.asked, ['tokens', 'hashes', 'hashes'])
  t.match(world.trust(), /^exact/)
  t.strictSame(await world.held(), world.cached())
})

t.test('parts by hashes that cannot be read are asked for by tokens, and that is said once', async t => {
  const log = recordingLog()
  const { world, snapshot } = await sidecarWorld(t, { log })
  Object.assign(snapshot, { isWhole: true, offersHashes: true })
  snapshot.parts = (batches, form) => (form === 'hashes' ? [Uint8Array.of(1, 2, 3)] : batches)
  for (let i = 0; i < 30; i++) world.source.publishStore()
  world.startListener()
  await world.system.advance('1s')
  t.strictSame(snapshot.asked, ['tokens', 'hashes', 'tokens'])
  t.match(world.trust(), /^exact/)
  t.strictSame(await world.held(), world.cached())
  // Another one, with the same fault.
  snapshot.publisherId = 'fedcba9876543210'
  world.listener!.tell({ type: 'resync', cause: 'lost', reason: 'the index was reset' })
  await world.system.advance('20s')
  t.match(world.trust(), /^exact/)
  t.strictSame(snapshot.asked, ['tokens', 'hashes', 'tokens', 'tokens', 'hashes', 'tokens'])
  t.equal(log.lines.filter(({ text }) => text.includes('by hashes')).length, 1)
})

t.test('a publisher with another name in each answer is asked twice in a rebuild', async t => {
  const { world, snapshot } = await sidecarWorld(t)
  Object.assign(snapshot, { isWhole: true, offersHashes: true })
  for (let i = 0; i < 30; i++) world.source.publishStore()
  const answer = world.answerSnapshot!
  world.answerSnapshot = send => {
    snapshot.publisherId = snapshot.requests.toString(16).padStart(16, '0')
    if (snapshot.requests < 50) answer(send, 'tokens')
  }
  world.startListener()
  await world.system.settle()
  t.equal(snapshot.requests, 2)
  t.match(world.trust(), /^exact/)
  t.strictSame(await world.held(), world.cached())
})

t.test('behind a refused snapshot the batches are asked for at once', async t => {
  const { world, snapshot } = await sidecarWorld(t)
  snapshot.isWhole = true
  world.startListener()
  await world.system.settle()
  for (let i = 0; i < 5; i++) world.send(world.source.publishStore())
  await world.system.settle()
  const before = world.replayRequests.length
  snapshot.refuses = 1
  world.listener!.tell({ type: 'resync', cause: 'lost', reason: 'the index was reset' })
  await world.system.advance(LISTENER_LIMITS.resyncMsMin)
  t.equal(world.replayRequests.length, before + 1)
  t.equal((await world.status()).state, 'live', 'without a silence')
  t.match(world.trust(), /^partial/)
  await world.system.advance('20s')
  t.match(world.trust(), /^exact/)
  t.strictSame(await world.held(), world.cached())
})

t.test(
  'of a publisher that offers snapshots neither the number 0 nor a withdrawal says that nothing else is held',
  async t => {
    const { world, snapshot } = await sidecarWorld(t)
    snapshot.isWhole = true
    world.startListener()
    await world.system.settle()
    t.match(world.trust(), /^exact/, 'as the snapshot says, before anything was published')
    snapshot.isWhole = false
    const { epoch } = world.directory.waiting.at(-1)!
    world.send(world.source.publishWithdrawal(), world.source.publishStore())
    await world.system.settle()
    t.match(world.trust(), /^partial: .*withdrew its earlier events/)
    t.equal(
      world.directory.waiting.at(-1)!.epoch,
      epoch + 1,
      'answers of before say nothing of what is known now',
    )
    snapshot.isWhole = true
    await world.system.advance(LISTENER_LIMITS.resyncMsMin)
    t.match(world.trust(), /^exact/, 'the clear was of the engine, says the next snapshot')
    t.strictSame(await world.held(), world.cached())
  },
)

t.test('behind another process of the engine a snapshot counts once its publisher has withdrawn', async t => {
  const { world, snapshot } = await sidecarWorld(t)
  snapshot.isWhole = true
  world.startListener()
  await world.system.settle()
  const probe = (startSeconds: number, isOther = false) =>
    world.listener!.tell({ type: isOther ? 'engineRestarted' : 'process', startSeconds })
  probe(100)
  for (let i = 0; i < 5; i++) world.send(world.source.publishStore())
  await world.system.advance('6s')
  t.match(world.trust(), /^exact/)

  probe(100)
  probe(200, true)
  await world.system.advance('20s')
  t.match(world.trust(), /^partial: .*has not confirmed that it knows/)
  t.strictSame(await world.held(), [], 'of the process before')

  world.send(world.source.publishWithdrawal(), world.source.publishClear(), world.source.publishStore())
  await world.system.advance('6s')
  t.match(world.trust(), /^exact/)
  t.strictSame(await world.held(), world.cached())

  probe(200)
  world.send(world.source.publishWithdrawal())
  world.send(world.source.publishStore())
  await world.system.settle()
  probe(300, true)
  await world.system.advance('6s')
  t.match(world.trust(), /^exact/, 'it had noticed first')
  t.strictSame(await world.held(), world.cached())
})

t.test(
  'what a publisher told between two restarts of the engine does not count behind the second, which it did not notice',
  async t => {
    const { world, snapshot } = await sidecarWorld(t)
    snapshot.isWhole = true
    world.startListener()
    await world.system.settle()
    const probe = (startSeconds: number, isOther = false) =>
      world.listener!.tell({ type: isOther ? 'engineRestarted' : 'process', startSeconds })
    probe(100)
    world.send(world.source.publishStore())
    await world.system.settle()
    // It noticed the first one, and what it has told since is older than the process that the probe finds.
    world.send(world.source.publishWithdrawal(), world.source.publishClear(), world.source.publishStore())
    await world.system.settle()
    t.match(world.trust(), /^exact/)
    probe(5000, true)
    await world.system.advance('20s')
    t.match(world.trust(), /^partial: .*has not confirmed that it knows/)
    t.strictSame(await world.held(), [], 'of the process before')
    world.source.moveClock(10_000)
    world.send(world.source.publishWithdrawal(), world.source.publishClear(), world.source.publishStore())
    await world.system.advance('6s')
    t.match(world.trust(), /^exact/)
    t.strictSame(await world.held(), world.cached())
    probe(9000, true)
    await world.system.advance('20s')
    t.match(world.trust(), /^exact/, 'it is younger')
    t.strictSame(await world.held(), world.cached())
  },
)

t.test('a snapshot that is refused or cut short is asked for again', async t => {
  const { world, snapshot } = await sidecarWorld(t)
  snapshot.isWhole = true
  snapshot.refuses = 1
  snapshot.cutAfter = 1
  for (let i = 0; i < 30; i++) world.source.publishStore()
  world.startListener()
  await world.system.settle()
  snapshot.cutAfter = Number.POSITIVE_INFINITY
  await world.system.advance('10s')
  t.strictSame(await world.held(), world.cached())
  t.match(world.trust(), /^exact/)
  t.ok(snapshot.requests >= 2)
})

t.test('a snapshot of nothing that does not know all is asked for again with the first batch', async t => {
  const { world, snapshot } = await sidecarWorld(t)
  world.startListener()
  await world.system.settle()
  t.match(world.trust(), /^partial/)
  const { epoch } = await world.status()
  await world.system.advance(10 * LISTENER_LIMITS.resyncMsMin)
  t.equal(snapshot.requests, 1, 'not before: it has nothing to tell')
  t.match(await world.status(), { epoch }, 'and nothing is forgotten meanwhile')
  world.publish(3)
  snapshot.isWhole = true
  await world.system.advance(LISTENER_LIMITS.resyncMsMin)
  t.match(world.trust(), /^exact/)
  t.strictSame(await world.held(), world.cached())
})

t.test('a live batch that a snapshot holds already is no restart', async t => {
  const world = await listenerWorld(t)
  answerSnapshots(world)
  loseStores(world, 10)
  const late = world.source.publishStore()
  world.startListener()
  await world.system.settle()
  world.send(late)
  await world.system.advance('10s')
  t.match(await world.status(), { restarts: 0, lastSequence: 10 })
  t.match(world.trust(), /^exact/)
  await isTrue(t, world)
})

for (const [what, says, isSuffix] of [
  ['has not seen the beginning: answers may make up for it', { isWhole: false }, true],
  [
    'could not read all: no answers make up for what may be stale',
    { isWhole: false, mayBeStale: true },
    false,
  ],
] as const) {
  t.test(`a snapshot of a publisher that ${what}`, async t => {
    const world = await listenerWorld(t)
    answerSnapshots(world, says)
    loseStores(world, 10)
    world.startListener()
    await world.system.settle()
    t.match(world.trust(), /^partial/)
    t.match(world.directory.waiting.at(-1), { isSuffix })
  })
}

t.test('a snapshot of a publisher that restarted in place since is taken anew', async t => {
  const world = await listenerWorld(t)
  answerSnapshots(world)
  loseStores(world, 10)
  world.startListener()
  await world.system.settle()
  world.source.restart()
  world.publish(3)
  await world.system.advance('10s')
  t.match(world.trust(), /^exact/)
  await isTrue(t, world)
})
