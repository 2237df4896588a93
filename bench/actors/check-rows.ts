/** The rows that are not about speed: losses over many deaths, and results of a model check. */

import * as ring from '../../packages/actor/src/links/ring/ring.ts'
import { type Bounds, explore, type Model, summary } from '../../packages/actor/test/model/explorer.ts'
import { oneRing, twoRings } from '../../packages/actor/test/model/ring-programs.ts'
import { torture } from '../../packages/actor/test/torture/driver.ts'
import { say } from '../harness.ts'
import { perSecond } from './loads.ts'
import type { Row } from './row.ts'
import { killCycles, modelFrames } from './sizes.ts'
import { newSeed, reportViolations } from './violations.ts'

const NONE = { floor: 0, goal: 0 }
const KILLED_THREADS = 2
const KILL_MS_MAX = 300_000
const QUIET_EVERY = 20
const FAULTS_PER_CYCLE = 0.3

/** A ring that holds four of the frames. */
const RING = { module: ring, capacityWords: 8 }
const TWO_FRAMES = { ...RING, frames: [2, 2] }
/** Of the first of two writers, in all states. */
const FRAMES: readonly number[] = new Array(modelFrames).fill(2)

/** What has to hold at least: up to three operations on a side, pre-empted twice. */
const FLOOR: readonly (readonly [string, Model, Bounds])[] = [
  ['one writer, 3 frames', oneRing({ ...RING, frames: [2, 2, 2] }), { preemptionsMax: 2 }],
  ['two writers, 2 frames each', twoRings(TWO_FRAMES), { preemptionsMax: 2 }],
]
/** All states: two writers, one reader that parks and is woken. */
const GOAL: readonly (readonly [string, Model, Bounds])[] = [
  ['one writer, 3 frames', oneRing({ ...RING, frames: [2, 2, 2] }), {}],
  [`two writers, ${modelFrames} frames and 1`, twoRings({ ...RING, frames: FRAMES }, [2]), {}],
]

export const checkRows: readonly Row[] = [
  {
    name: 'kills',
    // Its counts are as true on a busy machine.
    threads: 1,
    targets: { lostBeyondWindow: NONE, duplicates: NONE, disorders: NONE, stuckAsks: NONE, violations: NONE },
    async run() {
      const seed = newSeed()
      const result = await torture({
        seed,
        threads: KILLED_THREADS,
        cycles: killCycles,
        limitMs: KILL_MS_MAX,
        quietEvery: QUIET_EVERY,
        faultsPerCycle: FAULTS_PER_CYCLE,
      })
      say(`  kills: seed ${seed}, ${result.cycles} deaths, ${result.sent} messages`)
      reportViolations(result.violations)
      return {
        deaths: { value: result.cycles, unit: 'deaths' },
        lostBeyondWindow: { value: result.beyondWindow, unit: 'messages' },
        duplicates: { value: result.duplicates, unit: 'messages' },
        disorders: { value: result.disorders, unit: 'messages' },
        stuckAsks: { value: result.stuckAsks, unit: 'asks' },
        violations: { value: result.violations.length, unit: 'violations' },
      }
    },
  },
  {
    name: 'modelCheck',
    threads: 1,
    targets: { modelFailures: NONE, modelIncomplete: NONE },
    async run() {
      const from = performance.now()
      let states = 0
      let failures = 0
      let incomplete = 0
      for (const [title, model, bounds] of [...FLOOR, ...GOAL]) {
        const report = explore(model, bounds)
        say(`  model check, ${title}: ${summary(report)}`)
        states += report.states
        if (report.failure !== undefined) {
          failures++
          reportViolations([report.failure])
        }
        if (!report.isComplete) incomplete++
      }
      return {
        modelStates: { value: perSecond(states, from), unit: 'state/s' },
        modelFailures: { value: failures, unit: 'failures' },
        modelIncomplete: { value: incomplete, unit: 'models not seen whole' },
      }
    },
  },
]
