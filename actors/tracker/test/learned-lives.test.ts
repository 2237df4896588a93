/** What was learned outlives the tracker, as far as the engines are the same. */

import { createTestSystem } from '@homing/actor/testing'
import type { Fleet, WorkerRecord } from '@homing/fleet'
import { EngineBook, LearnedValues } from '@homing/load'
import t, { type Test } from 'tap'
import { type LearnedKeeperMessage, type TrackerArgs, tracker } from '../src/index.ts'
import type { EngineLife, LearnedImage } from '../src/learned-image.ts'
import { LearnedLives } from '../src/learned-lives.ts'
import { TRACK_ALL } from '../src/tracking.ts'

const ASK = { timeout: '1s' } as const
const GATEWAY = { name: 'gateway', life: 'one' }
const LIFE: EngineLife = { joinedMs: 1000, promptsEpoch: 1, processStartSeconds: 77 }

interface FleetWorker extends Partial<Omit<EngineLife, 'processStartSeconds'>> {
  readonly processStartSeconds?: number | undefined
  readonly state?: WorkerRecord['state']
}

/** As much of a fleet as the tracker looks at; workers are a, b, c … in these slots. */
function fleetOf(workers: Readonly<Record<string, FleetWorker>>, firstSlot = 0): Fleet {
  const records = Object.entries(workers).map(([id, worker], at) => ({
    ...{ id, state: 'up', models: [], taints: [], ...LIFE, ...worker },
    keys: [{ key: `${id}/0`, workerSlot: firstSlot + at }],
  }))
  return { version: 1, workers: records } as unknown as Fleet
}

/** What was learned of workers in slots 0 … count − 1, of which the first is slow. */
function taught(count: number): LearnedValues {
  const learned = new LearnedValues()
  const book = new EngineBook({ workerSlotsMax: 8, learned })
  let nowMs = 0
  for (let i = 0; i < 40 * count; i++) {
    const slot = i % count
    book.sent(`${i}`, slot, { promptTokens: 1000, newTokens: 1000, nowMs })
    nowMs += slot === 0 ? 400 : 40
    book.firstToken(`${i}`, nowMs)
    nowMs += 1000
    book.ended(`${i}`, nowMs, 100, 0)
  }
  return learned
}

const areKnown = (learned: LearnedValues, slots: number): readonly boolean[] =>
  Array.from({ length: slots }, (_, slot) => learned.speed(slot).prefill.observations > 0)

function imageOf(life: Partial<FleetWorker>): LearnedImage {
  const before = new LearnedLives(taught(2), 8)
  before.takeFleet(fleetOf({ a: life, b: life }).workers, 0)
  return before.image(5000)
}

t.test('what was learned counts for the same life of an engine only', async t => {
  const none = { processStartSeconds: undefined }
  for (const [source, before, now, isTaken] of [
    ['tracker', {}, {}, true],
    ['tracker', none, none, true],
    ['tracker', {}, none, true],
    ['tracker', {}, { joinedMs: 1001 }, false],
    ['tracker', {}, { promptsEpoch: 2 }, false],
    ['tracker', {}, { processStartSeconds: 99 }, false],
    ['file', {}, {}, true],
    ['file', {}, { joinedMs: 1001, promptsEpoch: 0 }, true],
    ['file', {}, { processStartSeconds: 77.4 }, true],
    ['file', {}, { processStartSeconds: 99 }, false],
    ['file', {}, none, false],
    ['file', none, none, false],
    ['file', none, {}, false],
  ] as const) {
    const learned = new LearnedValues()
    const lives = new LearnedLives(learned, 8)
    lives.offer(imageOf(before), source)
    const taken = lives.takeFleet(fleetOf({ b: now, a: now }, 3).workers, 5000)
    const name = `${source}: ${JSON.stringify(before)}, then ${JSON.stringify(now)}`
    t.strictSame(taken, isTaken ? ['b/0', 'a/0'] : [], name)
    t.strictSame(areKnown(learned, 5), [false, false, false, isTaken, isTaken], name)
    const isFleetKnown = isTaken || source === 'tracker'
    t.equal(learned.settled > 0, isFleetKnown, `${name}: what the fleet knows`)
  }
})

t.test('what was learned of a worker waits until it shows which life it has', async t => {
  const learned = new LearnedValues()
  const lives = new LearnedLives(learned, 8)
  lives.offer(imageOf({}), 'file')
  const probing = { state: 'probing', processStartSeconds: undefined } as const
  t.strictSame(lives.takeFleet(fleetOf({ a: probing }).workers, 6000), [])
  const { workers, fleet } = lives.image(9000)
  t.strictSame(
    workers.map(({ worker, takenMs }) => [worker, takenMs]),
    [
      ['a/0', 5000],
      ['b/0', 5000],
    ],
    'a next life would get it',
  )
  t.equal(fleet.takenMs, 5000)
  t.strictSame(lives.takeFleet(fleetOf({ a: {} }).workers, 7000), ['a/0'])
  t.strictSame(lives.takeFleet(fleetOf({ a: {} }).workers, 8000), [], 'once')
  t.strictSame(
    lives.image(9000).workers.map(({ worker, takenMs }) => [worker, takenMs]),
    [
      ['a/0', 9000],
      ['b/0', 5000],
    ],
  )
})

t.test('no more workers are kept than there are slots', async t => {
  const lives = new LearnedLives(new LearnedValues(), 1)
  lives.offer(imageOf({}), 'file')
  t.equal(lives.image(0).workers.length, 1)
})

async function start(t: Test, more: Partial<TrackerArgs> = {}) {
  const system = await createTestSystem()
  t.teardown(() => system.shutdown())
  const keeper = system.probe<LearnedKeeperMessage>('keeper')
  const args = { workerSlotsMax: 8, requestsMax: 100, idleMsMax: 60_000, tracking: TRACK_ALL }
  const spawn = (name: string) =>
    system.spawn(tracker, { name, args: { ...args, keeper: keeper.ref, ...more } })
  return { system, keeper, spawn }
}

t.test('a tracker that begins again knows what the one before had learned', async t => {
  const { system, keeper, spawn } = await start(t)
  const first = spawn('first')
  const asked = await keeper.next('1m')
  if (asked.type !== 'keptLearned') return t.fail(asked.type)
  asked.reply(undefined)
  first.tell({ type: 'fleet', fleet: fleetOf({ a: {}, b: {} }) })
  for (let i = 0; i < 40; i++) {
    const decisionId = `${i}`
    const booking = { decisionId, gateway: GATEWAY, worker: `${'ab'[i % 2]}/0`, workerSlot: i % 2 }
    const size = {
      sequenceHashes: new Int32Array(0),
      promptTokens: 1000,
      prefillTokens: 1000,
      isStream: true,
      stepTokens: 8192,
    }
    await first.ask({ type: 'book', booking: { ...booking, ...size } }, ASK)
    await system.advance(i % 2 === 0 ? 400 : 40)
    first.tell({ type: 'prefillComplete', decisionId })
    await system.advance(500)
    first.tell({ type: 'free', decisionId, outputTokens: 50, cachedShare: 0 })
  }
  await system.advance('5s')
  const { rows } = await first.ask({ type: 'loads' }, ASK)
  let kept: LearnedImage | undefined
  for (const message of keeper.waiting) if (message.type === 'keepLearned') kept = message.image
  t.equal(kept?.workers.length, 2)

  while (keeper.waiting.length > 0) await keeper.next('1m')
  const second = spawn('second')
  await system.settle()
  for (const message of keeper.waiting) if (message.type === 'keptLearned') message.reply(kept)
  // `a` runs as another process meanwhile.
  second.tell({ type: 'fleet', fleet: fleetOf({ a: { promptsEpoch: 2 }, b: {} }) })
  const after = await second.ask({ type: 'loads' }, ASK)
  const observations = (report: typeof after) =>
    report.rows.map(({ learned }) => [learned.prefill.observations, learned.decode.observations])
  const [, before] = observations({ ...after, rows })
  t.ok(before!.every(count => count > 0))
  t.strictSame(observations(after), [[0, 0], before])
  t.strictSame(after.rows[1]!.learned.prefill.coefficients, rows[1]!.learned.prefill.coefficients)
})

t.test('without an answer of its keeper, a tracker begins with the priors', async t => {
  const { system, keeper, spawn } = await start(t)
  const ref = spawn('tracker')
  t.equal((await keeper.next('1m')).type, 'keptLearned')
  ref.tell({ type: 'fleet', fleet: fleetOf({ a: {} }) })
  const asked = ref.ask({ type: 'loads' }, { timeout: '10s' })
  await system.advance('2s')
  t.equal((await asked).rows[0]!.learned.prefill.source, 'prior')
})

t.test(
  'a fleet that was offered and is known again by no worker does not outlast what is learned',
  async t => {
    const learned = taught(2)
    const lives = new LearnedLives(learned, 8)
    lives.offer({ ...imageOf({}), workers: [] }, 'file')
    lives.takeFleet(fleetOf({ a: {}, b: {} }).workers, 5000)
    t.equal(lives.image(9000).fleet.takenMs, 9000)
    const fresh = new LearnedLives(new LearnedValues(), 8)
    fresh.offer(imageOf({}), 'file')
    t.equal(fresh.image(9000).fleet.takenMs, 5000, 'nothing was learned yet')
  },
)
