/**
 * Checkpoints: a router that restarts continues where it was if the engine proves that it can, and otherwise
 * says why not.
 */

import { mkdir, mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { SimulatedClock, seededRandom, silentLog } from '@homing/base'
import fc from 'fast-check'
import t from 'tap'
import { decodeCheckpoint, encodeCheckpoint } from '../src/checkpoint.ts'
import {
  CheckpointDirectoryError,
  checkpointFiles,
  prepareCheckpointDirectory,
  saveCheckpoints,
  savingMs,
  UnusableCheckpointError,
} from '../src/index.ts'
import { CHECKPOINT_INTERVAL_MS, ListenerWorld, MemoryStore, type WorldOptions } from './listener-world.ts'

const wanted = () => true
const SOURCE = 'tcp://10.0.0.1:5557 0'

/** A world whose engine has published more than it keeps, all of it seen. */
async function seasoned(t: Tap.Test, options: WorldOptions = {}) {
  const store = new MemoryStore()
  const world = new ListenerWorld({ store, keptMax: 20, ...options })
  t.teardown(() => world.stop())
  await world.startEngine()
  world.startListener()
  await world.system.settle()
  // No clears: with one in what is kept, the history would be whole without a checkpoint.
  for (let i = 0; i < 50; i++) world.send(world.source.publishStore())
  await world.system.settle()
  return { world, store }
}

/** Batches that the router does not get. */
function loseStores(world: ListenerWorld, count: number): void {
  for (let i = 0; i < count; i++) world.source.publishStore()
}

declare namespace Tap {
  interface Test {
    teardown(callback: () => unknown): void
  }
}

t.test('a router that begins anew is exact though the engine no longer repeats its history', async t => {
  const { world } = await seasoned(t)
  t.equal(await world.save(), 'saved')
  t.equal(await world.save(), 'unchanged')
  loseStores(world, 4)
  await world.restartRouter()
  t.equal(world.replayRequests.at(-1), 34, 'its last 16 batches are asked for, as its proof')
  t.match(world.trust(), /^exact: every batch since the engine started is applied/)
  t.strictSame(await world.held(), world.cached())
  t.match(await world.status(), { lastSequence: 53, checkpoint: { resumedSequence: 49, refusal: undefined } })
  world.publish(5)
  await world.system.settle()
  t.strictSame(await world.held(), world.cached())
})

t.test('nothing of a checkpoint counts before the engine has proven it', async t => {
  const { world } = await seasoned(t)
  await world.save()
  world.replayAnswers = false
  await world.restartRouter()
  t.match(world.trust(), /^none/)
  t.strictSame(await world.held(), [])
})

t.test('without a checkpoint the same router knows only what the engine repeats', async t => {
  const { world, store } = await seasoned(t)
  store.files.clear()
  await world.restartRouter()
  t.match(world.trust(), /^partial/)
})

for (const [what, happen, refusal] of [
  [
    'the engine keeps less',
    (world: ListenerWorld) => loseStores(world, 30),
    'the engine no longer keeps batch 49',
  ],
  [
    'the engine has restarted and is behind',
    (world: ListenerWorld) => {
      world.source.restart()
      loseStores(world, 3)
    },
    'the engine has published less since',
  ],
  [
    'the engine has restarted and reached the same sequence',
    (world: ListenerWorld) => {
      world.source.restart()
      loseStores(world, 60)
    },
    'the engine has restarted since',
  ],
] as const) {
  t.test(`${what}: the checkpoint is not used, and what is replayed counts`, async t => {
    const { world } = await seasoned(t)
    await world.save()
    happen(world)
    await world.restartRouter()
    const { checkpoint } = await world.status()
    t.match(checkpoint, { resumedSequence: undefined, refusal })
    t.ok((await world.held()).every(hash => world.source.cached.has(hash)))
    world.publish(1)
    await world.system.settle()
    t.ok((await world.held()).every(hash => world.source.cached.has(hash)))
  })
}

t.test('a replay socket that is silent delays, and no more', async t => {
  const { world } = await seasoned(t, { limits: { replayTimeoutMs: 100 } })
  await world.save()
  world.replayAnswers = false
  await world.restartRouter()
  await world.system.advance(10_000)
  t.match((await world.status()).checkpoint.refusal, 'the replay socket does not answer')
  world.publish(2)
  await world.system.settle()
  t.match(world.trust(), /^partial/)
})

t.test('they are written now and then, and only where something has changed', async t => {
  const { world, store } = await seasoned(t)
  await world.system.advance(CHECKPOINT_INTERVAL_MS)
  t.equal(store.files.size, 1)
  await world.system.advance(5 * CHECKPOINT_INTERVAL_MS)
  t.match((await world.status()).checkpoint, { saves: 1, savedSequence: 49 })
  world.publish(1)
  await world.system.advance(CHECKPOINT_INTERVAL_MS)
  t.match((await world.status()).checkpoint, { saves: 2, savedSequence: 50, savedAgeMs: Number })
})

t.test('one that is true is kept alive, and one that answers contradict is removed', async t => {
  const { world, store } = await seasoned(t)
  t.equal(await world.save(), 'saved')
  t.equal(await world.save(), 'unchanged')
  t.equal(store.touches, 1)
  world.listener!.tell({ type: 'audited', isContradicted: true })
  await world.system.settle()
  t.equal(store.files.size, 0)
  world.send(world.source.publishStore())
  await world.system.settle()
  t.equal(await world.save(), 'unsettled')
  world.listener!.tell({ type: 'audited', isContradicted: false })
  t.equal(await world.save(), 'saved')
})

t.test('where nothing could be proven later, nothing is written', async t => {
  const { world, store } = await seasoned(t, { hasReplay: false })
  t.equal(await world.save(), 'unsettled')
  t.equal(store.files.size, 0)
})

t.test('what a disk refuses is told, and nothing else fails', async t => {
  const { world, store } = await seasoned(t)
  store.fault = 'no space left on device'
  t.equal(await world.save(), 'failed')
  await world.restartRouter()
  t.match((await world.status()).checkpoint.refusal, /no space left/)
  store.fault = undefined
  world.publish(1)
  await world.system.settle()
  t.equal(await world.save(), 'saved')
})

t.test('a checkpoint cut short or altered anywhere is refused', async t => {
  const { world, store } = await seasoned(t)
  await world.save()
  const whole = store.files.get(SOURCE)!
  t.strictSame(Buffer.concat(encodeCheckpoint(decodeCheckpoint(whole))), whole)
  const faultOf = (bytes: Uint8Array): unknown => {
    try {
      decodeCheckpoint(bytes)
    } catch (error) {
      return error instanceof UnusableCheckpointError ? error.details.fault : error
    }
    return 'none'
  }
  for (let length = 0; length < whole.length; length++) {
    if (faultOf(whole.subarray(0, length)) !== 'truncated') t.fail(`${length} bytes of it`)
  }
  const altered = fc.property(fc.nat(whole.length - 1), fc.integer({ min: 1, max: 255 }), (at, flip) => {
    const bytes = Uint8Array.from(whole)
    bytes[at]! ^= flip
    return ['altered', 'version', 'truncated'].includes(faultOf(bytes) as string)
  })
  t.doesNotThrow(() => fc.assert(altered, { numRuns: 500 }))
  t.equal(faultOf(Buffer.concat([whole, Buffer.of(0)])), 'altered')
  t.equal(faultOf(Buffer.from('something else altogether')), 'version')

  store.files.set(SOURCE, whole.subarray(0, whole.length - 1))
  await world.restartRouter()
  t.match((await world.status()).checkpoint.refusal, /^cannot use a checkpoint: \d+ bytes of \d+ are there/)
  t.match(world.trust(), /^partial/)
})

t.test(
  'files: whole or not at all, forgotten after a week, and a directory that cannot be used is told',
  async t => {
    const directory = await mkdtemp(join(tmpdir(), 'homing-checkpoints-'))
    t.teardown(() => rm(directory, { recursive: true }))
    const clock = new SimulatedClock()
    const store = checkpointFiles.create({ clock, log: silentLog, random: seededRandom(1) })
    const inside = join(directory, 'made', 'here')
    await prepareCheckpointDirectory(inside, 0, [])
    t.equal(await store.read(inside, SOURCE), undefined)
    await store.write(inside, SOURCE, [Buffer.from('one '), Buffer.from('two')], wanted)
    await store.write(inside, `${SOURCE}1`, [Buffer.from('other')], wanted)
    t.equal(Buffer.from((await store.read(inside, SOURCE))!).toString(), 'one two')
    const names = await readdir(inside)
    t.equal(names.length, 2)
    t.ok(names.every(name => /^tcp_10\.0\.0\.1_5557_01?-[0-9a-f]{16}\.checkpoint$/.test(name)))

    // Neither of others nor one that is looked after is forgotten.
    const others = ['notes.txt', 'llama-70b.checkpoint', 'download.part']
    for (const name of others) await writeFile(join(inside, name), 'not ours')
    await mkdir(join(inside, 'step-0123456789abcdef.checkpoint'))
    for (const name of await readdir(inside)) await utimes(join(inside, name), 1000, 1000)
    await writeFile(join(inside, `${names[0]}.0123456789ab.part`), 'cut off')
    await utimes(join(inside, `${names[0]}.0123456789ab.part`), 1000, 1000)
    clock.advance(8 * 24 * 3_600_000)
    await store.touch(inside, `${SOURCE}1`)
    await store.touch(inside, 'of none')
    await prepareCheckpointDirectory(inside, clock.wallMs(), [])
    const kept = names.find(name => name.startsWith('tcp_10.0.0.1_5557_01'))!
    t.strictSame((await readdir(inside)).sort(), [kept, ...others, 'step-0123456789abcdef.checkpoint'].sort())
    await store.remove(inside, `${SOURCE}1`)
    t.equal(await store.read(inside, `${SOURCE}1`), undefined)

    const texts = Array.from({ length: 20 }, (_, i) => `writer ${i} `.repeat(1000))
    const written = texts.map(text =>
      store.write(inside, SOURCE, [Buffer.from(text), Buffer.from(text)], wanted),
    )
    await Promise.all(written)
    const whole = Buffer.from((await store.read(inside, SOURCE))!).toString()
    t.ok(
      texts.some(text => whole === text + text),
      'of writers at the same time one wins',
    )

    const file = join(directory, 'file')
    await writeFile(file, '')
    await t.rejects(prepareCheckpointDirectory(file, 0, []), CheckpointDirectoryError)
    await t.rejects(store.write(join(file, 'below'), SOURCE, [Buffer.of(1)], wanted))
    t.equal((await readFile(file)).length, 0)
  },
)

t.test('a disk that is slow at a stop has what is left of the grace, at least four seconds', async t => {
  for (const { graceMs, writeMs, report } of [
    { graceMs: 30_000, writeMs: 10_000, report: { saved: 1, late: 0 } },
    { graceMs: 0, writeMs: 3000, report: { saved: 1, late: 0 } },
    { graceMs: 0, writeMs: 10_000, report: { saved: 0, late: 1 } },
  ]) {
    const { world, store } = await seasoned(t)
    const { clock } = world
    const slow = Promise.withResolvers<void>()
    store.writing = slow.promise
    clock.after(writeMs, slow.resolve)
    const saving = saveCheckpoints([world.listener!], savingMs(clock.nowMs() + graceMs, clock.nowMs()), clock)
    await world.system.settle()
    await world.system.advance(writeMs)
    t.match(await saving, report, `grace ${graceMs} ms, write ${writeMs} ms`)
  }
})

t.test('a source that asks its engine for what was lost at a stop is saved once it has it', async t => {
  const { world } = await seasoned(t, { limits: { replayTimeoutMs: 100 } })
  const { clock, listener } = world
  world.replayAnswers = false
  loseStores(world, 1)
  world.send(world.source.publishStore())
  await world.system.settle()
  const asked = listener!.ask({ type: 'save' }, { timeout: 1000 })
  await world.system.settle()
  t.equal(await asked, 'unsettled')
  world.replayAnswers = true
  const saving = saveCheckpoints([listener!], savingMs(clock.nowMs(), clock.nowMs()), clock)
  await world.system.settle()
  await world.system.advance(2000)
  t.match(await saving, { saved: 1, unsettled: 0 })
})
