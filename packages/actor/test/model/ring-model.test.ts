/**
 * The ring of production code in every interleaving of its threads, within the bounds that the tests print.
 * How it works: explorer.ts. What the threads do: ring-programs.ts.
 *
 * `pnpm exec node packages/actor/test/model/ring-model.test.ts --traces` prints the shortest trace of each
 * broken variant.
 */

import process from 'node:process'
import t, { type Test } from 'tap'
import * as ring from '../../src/links/ring/ring.ts'
import { type Bounds, explore, type Model, type Report, summary } from './explorer.ts'
import { type Change, MISTAKES, patchedRing, WRITER_FROM_MEMORY } from './patched-ring.ts'
import { newPort, oneRing, type RingMistake, type RingSetup, twoRings, writerDeath } from './ring-programs.ts'

const printsTraces = process.argv.includes('--traces')
/** ring.ts but for where its writer starts. */
const anywhere = await patchedRing(WRITER_FROM_MEMORY)

const production = { module: ring, capacityWords: 8 }
const startingAnywhere = { module: anywhere, capacityWords: 8 }

/** A ring whose writer has to wait for space at once; the reader takes everything in one go. */
const FULL = { frames: [2, 2, 2, 2, 2], framesBefore: 4, takeMax: 4 }
/** The same, taken in several. */
const FULL_IN_STEPS = { ...FULL, takeMax: 2 }
/** The next frame fits neither at the end nor, until another frame is taken, at the start. */
const FULL_AT_THE_END = { frames: [2, 2, 2, 2], framesBefore: 3, start: 1 }
/** Tail has passed 2³¹, head has not: as Int32 the one is negative. */
const FULL_AT_2_31 = { ...FULL, start: 2 ** 31 - 4 }
const ONE_DEATH = { frames: [2, 2, 2], framesBefore: 1, deaths: 1 }

t.test('frames arrive in order, whole, once, and nobody sleeps for ever', async t => {
  holds(t, '3 frames of 2, 3 and 4 words', oneRing({ module: ring, capacityWords: 16, frames: [2, 3, 4] }))
  holds(t, '5 frames into room for 4', oneRing({ ...production, frames: [2, 2, 2, 2, 2], publishEvery: 4 }))
  holds(t, '2 more into a full ring', oneRing({ ...startingAnywhere, ...FULL, frames: [2, 2, 2, 2, 2, 2] }))
  holds(t, 'a full ring, taken in steps', oneRing({ ...startingAnywhere, ...FULL_IN_STEPS }))
})

t.test('so they do where the ring ends, and where positions wrap at 2³¹ and 2³²', async t => {
  const three = { frames: [2, 2, 2] }
  holds(t, 'from 7 of 8', oneRing({ ...startingAnywhere, ...three, start: 7 }))
  holds(t, 'from 2³¹ − 1', oneRing({ ...startingAnywhere, ...three, start: 2 ** 31 - 1 }))
  holds(t, 'from 2³² − 1', oneRing({ ...startingAnywhere, ...three, start: -1 }))
  holds(t, 'from 2³² − 3', oneRing({ ...startingAnywhere, ...three, start: -3 }))
  holds(t, 'full at its end', oneRing({ ...startingAnywhere, ...FULL_AT_THE_END }))
  holds(t, 'full at 2³¹', oneRing({ ...startingAnywhere, ...FULL_AT_2_31 }))
  holds(t, 'full at 2³²', oneRing({ ...startingAnywhere, ...FULL, start: -4 }))
})

t.test('a frame that is reserved and given up harms nobody', async t => {
  const givingUp = { frames: [2, 2], givesUpAfter: [1, 2] }
  holds(t, 'before the end of the ring', oneRing({ ...startingAnywhere, ...givingUp, start: 1 }))
  holds(t, 'as the last, at the end', oneRing({ ...startingAnywhere, ...givingUp, start: 3 }))
  holds(t, 'in the middle, at the end', oneRing({ ...startingAnywhere, ...givingUp, start: 5 }))
  const full = { ...FULL_AT_THE_END, givesUpAfter: [4] }
  holds(t, 'in a full ring', oneRing({ ...startingAnywhere, ...full }))
})

t.test('a reader may end its park by itself', async t => {
  holds(t, 'once, at any time', oneRing({ ...production, frames: [2, 2], unparksMax: 1 }))
  holds(t, 'when woken', oneRing({ ...production, frames: [2, 2, 2], unparksWhenWoken: true }))
})

t.test('one reader parks on two rings', async t => {
  const one = { ...production, frames: [2] }
  const two = { ...production, frames: [2, 2] }
  holds(t, '1 frame each', twoRings(one))
  holds(t, '1 frame each, ends its parks when woken', twoRings({ ...one, unparksWhenWoken: true }))
  holds(t, '2 frames each, published together', twoRings({ ...two, publishEvery: 2 }))
  holds(t, '2 frames and 1', twoRings(two, one.frames))
  holds(t, '2 frames each', twoRings(two), { preemptionsMax: 3 })
})

t.test('a reader dies at any point: nothing comes twice, lost is what it had taken', async t => {
  holds(t, 'one death', oneRing({ ...startingAnywhere, ...ONE_DEATH }))
  holds(t, 'one death, full ring', oneRing({ ...startingAnywhere, ...FULL_IN_STEPS, deaths: 1 }))
  const positions = { frames: [2, 2], framesBefore: 1, start: 2 ** 31 - 1 }
  holds(t, 'one death, from 2³¹ − 1', oneRing({ ...startingAnywhere, ...positions, deaths: 1 }))
  const twoFrames = { frames: [2, 2], framesBefore: 1, deaths: 2 }
  holds(t, 'two deaths', oneRing({ ...startingAnywhere, ...twoFrames }))
  const two = oneRing({ ...startingAnywhere, ...ONE_DEATH, deaths: 2 })
  holds(t, 'two deaths, 3 frames', two, { preemptionsMax: 1 })
  holds(t, 'one death, a port for each life', newPort({ ...production, frames: [2] }, true))
  const ports = newPort({ ...production, frames: [2, 2] }, true)
  holds(t, 'one death, a port for each life, 2 frames', ports)
})

t.test('a writer dies at any point: all that it had published is taken', async t => {
  holds(t, '3 frames', writerDeath({ ...production, frames: [2, 2, 2] }, true))
  holds(t, 'a full ring', writerDeath({ ...startingAnywhere, ...FULL_IN_STEPS }, true))
})

t.test('it makes no difference whether plain accesses are steps of their own', async t => {
  const model = oneRing({ ...production, frames: [2, 2] })
  const fewer = holds(t, 'not steps', model)
  const more = holds(t, 'steps', model, { interleavesPlain: true })
  t.ok(more.interleavings > fewer.interleavings)
})

t.test('every broken ring is found, with a trace', async t => {
  const expected: Readonly<Record<keyof typeof MISTAKES, readonly [object, RegExp]>> = {
    'publish looks at the reader before it stores the tail': [FULL, /lost wake-up: .* the reader is parked/],
    'park without a second look at the tail': [FULL, /lost wake-up: .* the reader is parked/],
    'the tail is a plain store': [FULL, /data race: .* of tail/],
    'a frame is published before its words are written': [FULL, /data race: .* of frame word/],
    'the writer loads and stores in place of an exchange': [FULL, /two doorbells for one park: writer/],
    'the reader loads and stores in place of an exchange': [FULL_IN_STEPS, /two doorbells .* reader/],
    'the writer waits for space without a second look at the head': [FULL, /lost wake-up: writer waits/],
    'the reader looks for a waiting writer before it stores the head': [FULL, /lost wake-up: writer waits/],
    'the reader wakes the writer only when more than everything is free': [
      FULL,
      /lost wake-up: writer waits/,
    ],
    'the head is a plain store': [FULL, /data race: .* of head/],
    'room for a frame is counted one word too large': [FULL_AT_THE_END, /9 of 8 words are used/],
    'the words left out at the end are not counted as needed': [FULL_AT_THE_END, /9 of 8 words are used/],
    'the writer subtracts positions without wrapping': [FULL_AT_2_31, /10 of 8 words are used/],
    'the reader adds to its position without wrapping': [FULL_AT_2_31, /-8 of 8 words are used/],
    'a new reader begins at the tail': [ONE_DEATH, /lost wake-up: .* the reader is parked/],
  }
  for (const setup of [FULL, FULL_IN_STEPS, FULL_AT_THE_END, FULL_AT_2_31]) {
    t.equal(explore(oneRing({ ...startingAnywhere, ...setup })).failure, undefined, 'the sound ring passes')
  }
  for (const [mistake, [setup, failure]] of Object.entries(expected)) {
    const changes: readonly Change[] = MISTAKES[mistake as keyof typeof MISTAKES]
    const module = await patchedRing(WRITER_FROM_MEMORY, ...changes)
    fails(t, mistake, oneRing({ module, capacityWords: 8, ...(setup as typeof FULL) }), failure)
  }
})

t.test('every wrong use of the ring is found, with a trace', async t => {
  const use = (mistake: RingMistake, setup: Omit<RingSetup, 'module' | 'capacityWords'>, failure: RegExp) =>
    fails(t, mistake, oneRing({ ...startingAnywhere, ...setup, mistake }), failure)
  use('releases before reading', FULL, /data race: .* of frame word/)
  use('delivers before releasing', ONE_DEATH, /frame 1 is delivered in place of/)
  // The dead one may have taken the writer's WAITING and not rung, so only its heir can.
  use('heir is not announced', { ...FULL_IN_STEPS, deaths: 1 }, /lost wake-up: writer waits/)
  // A writer that took PARKED from the heir before it heard of it has rung the dead one's port.
  const ports = newPort({ ...production, frames: [2] }, false)
  fails(t, 'writer does not ring the new port', ports, /lost wake-up: .* the reader is parked/)
  // It may have stored the tail and not rung.
  const silent = writerDeath({ ...production, frames: [2] }, false)
  fails(t, 'the death of the writer is not announced', silent, /lost wake-up: .* the reader is parked/)
})

t.test('a change whose text is not in ring.ts is refused', async t => {
  await t.rejects(patchedRing(['no such text', '']), /contains 0 times, not once/)
})

function holds(t: Test, title: string, model: Model, bounds: Bounds = {}): Report {
  const report = explore(model, bounds)
  t.equal(report.failure, undefined, title)
  t.ok(report.isComplete, `${title}: all states within the bounds`)
  t.comment(`${title}: ${summary(report)}`)
  if (report.failure !== undefined) t.comment(report.trace.join('\n'))
  return report
}

function fails(t: Test, title: string, model: Model, failure: RegExp): void {
  const report = explore(model)
  t.match(report.failure, failure, title)
  t.comment(`${title}: found ${summary(report)}`)
  if (printsTraces) t.comment(report.trace.join('\n'))
}
