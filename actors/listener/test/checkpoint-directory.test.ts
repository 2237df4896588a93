/** The directory of checkpoints: checked before anything starts, and one that fails while the router runs. */

import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { SimulatedClock, seededRandom, silentLog } from '@homing/base'
import t from 'tap'
import { CheckpointDirectoryError, checkpointFiles, prepareCheckpointDirectory } from '../src/index.ts'
import { CHECKPOINT_INTERVAL_MS, ListenerWorld, MemoryStore } from './listener-world.ts'

const wanted = () => true
const LINUX = process.platform === 'linux' ? false : 'only Linux has /proc'

t.test('a directory that is made is empty, and stays usable', async t => {
  const outer = await mkdtemp(join(tmpdir(), 'homing-checkpoints-'))
  t.teardown(() => rm(outer, { recursive: true }))
  const directory = join(outer, 'a', 'b', 'c')
  await prepareCheckpointDirectory(directory, 0, [])
  t.strictSame(await readdir(directory), [], 'what it was tried with is gone')
  await prepareCheckpointDirectory(directory, 0, [])
  await prepareCheckpointDirectory(`${directory}/`, 0, [])
})

t.test('one that cannot be made or written to is refused at once', { skip: LINUX }, async t => {
  const outer = await mkdtemp(join(tmpdir(), 'homing-checkpoints-'))
  t.teardown(() => rm(outer, { recursive: true }))
  const file = join(outer, 'file')
  await writeFile(file, '')
  // Where /proc says that a path is missing, its parent is there: to make the parent again leads nowhere.
  for (const directory of [
    '/proc',
    '/proc/homing',
    '/proc/homing/a/b',
    '/proc/self/fd/x',
    file,
    join(file, 'x'),
  ]) {
    const refused = prepareCheckpointDirectory(directory, 0, [])
    await t.rejects(refused, CheckpointDirectoryError, directory)
    await refused.catch(error => t.match(error.message, `cannot keep checkpoints in ${directory}: `))
  }
})

t.test(
  'a checkpoint is not written for ever where its directory cannot be made',
  { skip: LINUX },
  async t => {
    const store = checkpointFiles.create({
      clock: new SimulatedClock(),
      log: silentLog,
      random: seededRandom(1),
    })
    await t.rejects(store.write('/proc/homing/a', 'tcp://h:1/0', [Buffer.of(1)], wanted), { code: 'ENOENT' })
  },
)

t.test(
  'a directory that fails while the router runs is told once, tried ever more rarely, and told when it is well',
  async t => {
    const store = new MemoryStore()
    const told: string[] = []
    const log = {
      ...silentLog,
      warn: (_: unknown, text: string) => void told.push(text),
      info: (_: unknown, text: string) => void told.push(text),
      child: () => log,
    }
    const world = new ListenerWorld({ store, log })
    t.teardown(() => world.stop())
    await world.startEngine()
    world.publish(20)
    world.startListener()
    await world.system.settle()
    told.length = 0

    store.fault = 'EROFS: read-only file system'
    const checkpoint = async () => (await world.status()).checkpoint
    const failedWithin = async (intervals: number): Promise<number> => {
      const before = (await checkpoint()).failedSaves
      await world.system.advance(intervals * CHECKPOINT_INTERVAL_MS)
      return (await checkpoint()).failedSaves - before
    }
    const early = await failedWithin(16)
    const late = await failedWithin(160)
    t.ok(early >= 3 && early <= 6, `${early} tries in 16 intervals`)
    t.ok(late >= 8 && late <= 12, `${late} tries in 160 intervals`)
    t.strictSame(told, ['checkpoint cannot be written; it is retried at growing intervals'])

    store.fault = undefined
    await world.system.advance(20 * CHECKPOINT_INTERVAL_MS)
    t.match(await checkpoint(), { saves: 1 })
    t.strictSame(told.slice(1), ['checkpoints are written again'])
    for (let i = 0; i < 3; i++) {
      world.publish(1)
      await world.system.advance(CHECKPOINT_INTERVAL_MS)
    }
    t.match(await checkpoint(), { saves: 4 }, 'as often as before')
    t.equal(told.length, 2)

    store.fault = 'EROFS: read-only file system'
    await world.system.advance(40 * CHECKPOINT_INTERVAL_MS)
    t.strictSame(told.slice(2), ['checkpoint cannot be kept or removed; it is retried at growing intervals'])
  },
)
