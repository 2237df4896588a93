/** A checkpoint belongs to one life of an engine, and is kept as long as somebody may ask for it. */

import { mkdtemp, readdir, rm, utimes } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { SimulatedClock, seededRandom, silentLog } from '@homing/base'
import t, { type Test } from 'tap'
import { checkpointFiles, prepareCheckpointDirectory } from '../src/index.ts'
import { ListenerWorld, MemoryStore } from './listener-world.ts'
import type { PublishedBatch, SimulatedSource } from './simulated-source.ts'

const WEEK_MS = 7 * 24 * 3_600_000

/** A router that has seen 50 batches, and written a checkpoint. `startSeconds`: of the engine's process. */
async function saved(t: Test, startSeconds?: number) {
  const store = new MemoryStore()
  const world = new ListenerWorld({ store, keptMax: 20 })
  t.teardown(() => world.stop())
  await world.startEngine()
  world.startListener({ processStartSeconds: startSeconds })
  await world.system.settle()
  for (let i = 0; i < 50; i++) world.send(world.source.publishStore())
  await world.system.settle()
  t.equal(await world.save(), 'saved')
  return { world, store }
}

/** An engine that repeats these batches. */
function repeating(batches: readonly PublishedBatch[]): SimulatedSource {
  return {
    replay: (from: number) => batches.filter(({ sequence }) => sequence >= from),
  } as Partial<SimulatedSource> as SimulatedSource
}

t.test('a batch that is equal by chance proves nothing where those before it differ', async t => {
  const { world } = await saved(t)
  const own = world.source.replay(30)
  world.source.restart()
  for (let i = 0; i < 50; i++) world.source.publishStore()
  const other = world.source.replay(30)
  world.replaySource = repeating([...other.slice(0, -1), own.at(-1)!])
  await world.restartRouter()
  t.match((await world.status()).checkpoint, {
    resumedSequence: undefined,
    refusal: 'the engine has restarted since',
  })
  t.notMatch(world.trust(), /^exact/)
})

t.test(
  'an engine that keeps less than the batches asked for goes on from it, and is not exact until it has repeated all',
  async t => {
    const { world } = await saved(t)
    world.replaySource = repeating(world.source.replay(48))
    await world.restartRouter()
    t.match((await world.status()).checkpoint, { resumedSequence: 49, refusal: undefined })
    t.match(
      world.trust(),
      /^partial: blocks may be of an earlier life of the engine: the engine repeats 2 of the last 16 batches/,
    )
    t.match(world.directory.waiting.at(-1), { isSuffix: false }, 'no answers make up for that')
    t.strictSame(await world.held(), world.cached())
    world.replaySource = world.source
    world.publish(1)
    await world.system.advance('61s')
    t.match(await world.status(), { restarts: 0, lastSequence: 50 })
    t.match(world.trust(), /^exact/)
    t.strictSame(await world.held(), world.cached())
  },
)

t.test('a checkpoint of two lives that were taken for one is not exact', async t => {
  const store = new MemoryStore()
  const world = new ListenerWorld({ store })
  t.teardown(() => world.stop())
  await world.startEngine()
  world.startListener()
  await world.system.settle()
  for (let i = 0; i < 5; i++) world.send(world.source.publishStore())
  await world.system.settle()
  // It goes on with its numbers, and repeats nothing of the life before.
  world.source.restart({ nextSequence: 5, hasNewHashes: false })
  for (let i = 0; i < 3; i++) world.send(world.source.publishStore())
  await world.system.settle()
  t.equal(await world.save(), 'saved')
  await world.restartRouter()
  t.match((await world.status()).checkpoint, { resumedSequence: 7, refusal: undefined })
  t.match(world.trust(), /^partial: .* the engine repeats 3 of the last 8 batches of the checkpoint/)
  t.equal(await world.save(), 'saved')
  world.send(world.source.publishStore())
  await world.system.advance('61s')
  t.match(world.trust(), /^partial/, 'time is no proof')
  await world.restartRouter()
  t.match(world.trust(), /^partial/, 'nor is another checkpoint')
  world.send(world.source.publishClear())
  await world.system.settle()
  t.match(world.trust(), /^exact/)
})

for (const [what, before, after, isTaken] of [
  ['of the same process', 1000, 1000.4, true],
  ['of another process', 1000, 1060, false],
  ['of a process that did not say when it began', undefined, 1060, true],
  ['of one that does not say so any more', 1000, undefined, true],
] as const) {
  t.test(
    `a checkpoint ${what} is ${isTaken ? 'taken over' : 'not used, whatever the engine repeats'}`,
    async t => {
      const { world } = await saved(t, before)
      await world.restartRouter({ processStartSeconds: after })
      const { checkpoint } = await world.status()
      t.match(
        checkpoint,
        isTaken
          ? { resumedSequence: 49, refusal: undefined }
          : { resumedSequence: undefined, refusal: 'the engine runs as another process now' },
      )
    },
  )
}

t.test('a probe that finds another process later takes back what was taken over', async t => {
  const { world } = await saved(t, 1000)
  await world.restartRouter()
  t.match((await world.status()).checkpoint, { resumedSequence: 49 })
  world.listener!.tell({ type: 'process', startSeconds: 1000.5 })
  await world.system.settle()
  t.match(await world.status(), { restarts: 0 })
  world.listener!.tell({ type: 'process', startSeconds: 1060 })
  await world.system.settle()
  t.match(await world.status(), { restarts: 1, lastSequence: 49 })
  t.match(world.trust(), /^partial/, 'what the engine repeats does not reach back')
})

t.test('what answers contradict is not written by a save that was under way', async t => {
  for (const isConfirmedBefore of [false, true]) {
    const { world, store } = await saved(t)
    let written = (): void => {}
    store.writing = new Promise(resolve => {
      written = resolve
    })
    world.send(world.source.publishStore())
    await world.system.settle()
    const saving = world.listener!.ask({ type: 'save' }, { timeout: 1000 })
    await world.system.settle()
    world.listener!.tell({ type: 'audited', isContradicted: true })
    if (isConfirmedBefore) world.listener!.tell({ type: 'audited', isContradicted: false })
    await world.system.settle()
    t.equal(store.files.size, 0, 'a router that is killed now finds none')
    written()
    store.writing = undefined
    await world.system.settle()
    t.equal(await saving, 'unsettled')
    t.equal(store.files.size, 0, 'neither that nor the one before')
    t.match((await world.status()).checkpoint, { savedSequence: undefined })
    world.listener!.tell({ type: 'audited', isContradicted: false })
    t.equal(await world.save(), 'saved')
    t.equal(store.files.size, 1)
  }
})

t.test('after a week files go, but not those of workers that are configured', async t => {
  const directory = await mkdtemp(join(tmpdir(), 'homing-checkpoints-'))
  t.teardown(() => rm(directory, { recursive: true }))
  const { store: memory } = await saved(t)
  const [[source, bytes]] = [...memory.files] as [[string, Uint8Array]]
  const store = checkpointFiles.create({
    clock: new SimulatedClock(),
    log: silentLog,
    random: seededRandom(1),
  })
  await store.write(directory, source, [bytes], () => true)
  await store.write(directory, 'of one that cannot be read', [Buffer.from('x')], () => true)
  await store.write(directory, 'of one that is not wanted', [bytes], () => false)
  t.equal((await readdir(directory)).length, 2, 'nor is anything left of what is not wanted')
  for (const name of await readdir(directory)) await utimes(join(directory, name), 1000, 1000)
  // What the test world calls its worker is engine:8000/0.
  await prepareCheckpointDirectory(directory, 10 * WEEK_MS, ['other:8000', 'engine:8000'])
  t.strictSame(await store.read(directory, source), Buffer.from(bytes))
  t.equal((await readdir(directory)).length, 1)
  await prepareCheckpointDirectory(directory, 10 * WEEK_MS, ['engine:80', 'other:8000'])
  t.strictSame(await readdir(directory), [])
})
