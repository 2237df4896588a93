/** The file of what was learned: its bytes, and how the tracker reads and writes it. */

import { mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createTestSystem } from '@homing/actor/testing'
import { recordingLog, SimulatedClock, seededRandom, silentLog } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import { EngineBook, LearnedValues } from '@homing/load'
import t, { type Test } from 'tap'
import {
  decodeLearned,
  encodeLearned,
  type LearnedImage,
  learnedStore,
  prepareLearnedFile,
  tracker,
} from '../src/index.ts'

const ASK = { timeout: '1s' } as const
const PATH = '/state/learned'
const LIFE = { joinedMs: 1000, promptsEpoch: 1, processStartSeconds: 77 }

function imageOf(workers: number): LearnedImage {
  const learned = new LearnedValues()
  const book = new EngineBook({ workerSlotsMax: workers, learned })
  for (let i = 0; i < 20 * workers; i++) {
    const nowMs = 3000 * i
    book.sent(`${i}`, i % workers, { promptTokens: 1000, newTokens: 1000, nowMs })
    book.firstToken(`${i}`, nowMs + 100 * (1 + (i % workers)))
    book.ended(`${i}`, nowMs + 2000, 100, 0)
  }
  return {
    fleet: { takenMs: 5000, image: learned.fleetImage() },
    workers: Array.from({ length: workers }, (_, slot) => ({
      ...LIFE,
      worker: `${'abc'[slot]}/0`,
      takenMs: 5000,
      image: learned.workerImage(slot)!,
    })),
  }
}

const bytesOf = (image: LearnedImage): Buffer => Buffer.concat(encodeLearned(image))

t.test('what is written is read', async t => {
  const image = imageOf(3)
  t.strictSame(decodeLearned(bytesOf(image), 3), image)
  const unknown = { ...image, workers: image.workers.map(w => ({ ...w, processStartSeconds: undefined })) }
  t.strictSame(decodeLearned(bytesOf(unknown), 3), unknown)
})

t.test('a file that is cut, changed or too large is refused, with the reason', async t => {
  const bytes = bytesOf(imageOf(2))
  const refused = (given: Uint8Array, workersMax = 2): string => {
    try {
      decodeLearned(given, workersMax)
      return 'it was read'
    } catch (error) {
      t.match(error, { code: 'HOMING_TRACKER_UNUSABLE_LEARNED_FILE' })
      return (error as Error).message
    }
  }
  for (let length = 0; length < bytes.length; length += 97)
    t.match(refused(bytes.subarray(0, length)), /it has \d+ bytes|bytes of \d+ are there/, `${length} bytes`)
  for (let at = 0; at < bytes.length; at += 131) {
    const changed = Buffer.from(bytes)
    changed[at]! ^= 1
    t.not(refused(changed), 'it was read', `a bit of byte ${at}`)
  }
  t.match(refused(bytes, 1), /it has 1 workers at most/)
  const image = imageOf(1)
  const decode = Float64Array.from(image.workers[0]!.image.decode!, () => Number.NaN)
  const broken = { ...image.workers[0]!, image: { ...image.workers[0]!.image, decode } }
  t.match(refused(bytesOf({ ...image, workers: [broken] })), /its decoding is no fit/)
})

/** As much of a fleet as the tracker looks at. */
function fleetOf(processStartSeconds: number): Fleet {
  const keys = [{ key: 'a/0', workerSlot: 0 }]
  const worker = { id: 'a', state: 'up', models: [], taints: [], joinedMs: 9000 }
  return {
    version: 1,
    workers: [{ ...worker, processStartSeconds, keys }],
  } as unknown as Fleet
}

async function start(t: Test, content: Uint8Array | undefined) {
  const store = { content, fault: '', writes: 0 }
  const log = recordingLog()
  const system = createTestSystem({
    log,
    provide: [
      [
        learnedStore,
        {
          read: async () => store.content,
          write: async (_path: string, pieces: readonly Uint8Array[]) => {
            if (store.fault !== '') throw new Error(store.fault)
            store.writes++
            store.content = Buffer.concat(pieces)
          },
        },
      ],
    ],
  })
  t.teardown(() => system.shutdown())
  const args = { workerSlotsMax: 4, requestsMax: 100, idleMsMax: 60_000, learnedFile: PATH }
  const ref = system.spawn(tracker, { name: 'tracker', args })
  await system.settle()
  const told = (level: string): readonly string[] =>
    log.lines.filter(line => line.level === level).map(({ text }) => text)
  const source = async () => (await ref.ask({ type: 'loads' }, ASK)).rows[0]!.learned.prefill.source
  return { store, system, ref, told, source }
}

t.test('a file counts for a worker of the same process, and a damaged one for none', async t => {
  const bytes = bytesOf(imageOf(2))
  for (const [content, startSeconds, source, warnings] of [
    [bytes, 77, 'worker', 0],
    [bytes, 99, 'prior', 0],
    [undefined, 77, 'prior', 0],
    [bytes.subarray(0, 200), 77, 'prior', 1],
    [Buffer.alloc(2 ** 20), 77, 'prior', 1],
  ] as const) {
    const started = await start(t, content)
    started.ref.tell({ type: 'fleet', fleet: fleetOf(startSeconds) })
    const found = await started.source()
    t.equal(found === 'prior' ? 'prior' : 'worker', source, `${content?.length} bytes, ${startSeconds}`)
    t.equal(started.told('warn').length, warnings)
  }
})

t.test('it is written every minute and when it is asked for; a fault of the disk is told once', async t => {
  const { store, system, ref, told } = await start(t, undefined)
  await system.advance('3m')
  t.equal(store.writes, 3)
  t.equal(await ref.ask({ type: 'saveLearned' }, ASK), true)
  t.equal(store.writes, 4)
  store.fault = 'EROFS: read-only file system'
  await system.advance('3m')
  t.equal(await ref.ask({ type: 'saveLearned' }, ASK), false)
  t.strictSame(told('warn'), ['learned values cannot be saved'])
  store.fault = ''
  await system.advance('2m')
  t.strictSame(told('info').slice(-1), ['learned values are saved again'])
  t.match(await ref.ask({ type: 'loads' }, ASK), { learnedFile: { saves: 6, failedSaves: 4 } })
})

t.test('a place where no file can be written is refused at the start', async t => {
  const directory = await mkdtemp(join(tmpdir(), 'homing-learned-'))
  t.teardown(() => rm(directory, { recursive: true, force: true }))
  const code = 'HOMING_TRACKER_LEARNED_FILE'
  await t.rejects(prepareLearnedFile(directory), { code, message: /is no file/ })
  await t.rejects(prepareLearnedFile(join(directory, 'none', 'learned')), { code, message: /ENOENT/ })
  await prepareLearnedFile(join(directory, 'learned'))
  await writeFile(join(directory, 'learned'), 'old')
  await prepareLearnedFile(join(directory, 'learned'))
})

t.test('on a disk it is replaced as a whole, for its user only, and read up to a bound', async t => {
  const directory = await mkdtemp(join(tmpdir(), 'homing-learned-'))
  t.teardown(() => rm(directory, { recursive: true, force: true }))
  const path = join(directory, 'learned')
  const store = learnedStore.create({
    clock: new SimulatedClock(),
    log: silentLog,
    random: seededRandom(1),
  })
  t.equal(await store.read(path, 10), undefined)
  await store.write(path, [Buffer.from('hello '), Buffer.from('world')])
  await store.write(path, [Buffer.from('hello '), Buffer.from('again')])
  t.equal(String(await store.read(path, 100)), 'hello again')
  t.equal((await store.read(path, 4))!.length, 5)
  t.equal((await stat(path)).mode & 0o777, 0o600)
  t.strictSame(await readdir(directory), ['learned'])
  await t.rejects(store.read(directory, 10), { code: 'EISDIR' })
})
