/** What the section `pays` of the page says was saved. */

import type { HourReport } from '@homing/actors/router'
import type { WorkerLoad } from '@homing/actors/tracker'
import { KNEES } from '@homing/load'
import type { GuardStatus } from '@homing/placement'
import t from 'tap'
import { paysSection } from '../../src/page/page-pays.ts'

/** An answer with 1,000 cached and 50 new tokens; without attention. */
const HOUR: HourReport = {
  spanMs: 60_000,
  minutes: [],
  requests: 1,
  promptTokens: 1050,
  cachedTokens: 1000,
  sparedTokens: [1000, 986, 922, 794],
  cachedPairs: 500_000,
  firstTokens: 0,
  firstTokenMs: undefined,
  predictionError: undefined,
  guarded: 0,
  regretMs: { 'round-robin': 0, 'least-loaded': 0, product: 0 },
}

const worker = (kneeTokens: number, p1: number): WorkerLoad =>
  ({ learned: { prefill: { coefficients: [1, p1, 1e-6], kneeTokens } } }) as unknown as WorkerLoad

t.test(
  'what was saved is what the step did not take less than with few tokens, at the mean of the fleet',
  async t => {
    for (const [at, knee] of KNEES.entries()) {
      const { saved_seconds } = paysSection(HOUR, undefined, [worker(knee, 0.02), worker(knee, 0.04)])
      t.ok(Math.abs(saved_seconds! - (0.03 * HOUR.sparedTokens[at]! + 0.5) / 1000) < 1e-12, `knee ${knee}`)
    }
    t.equal(paysSection(HOUR, undefined, []).saved_seconds, null, 'without workers there is no speed')
  },
)

t.test('of the workers at which requests end worse, the worst are listed', async t => {
  const none = { fewer: 0, z: 0, excess: 0 }
  const arm = {
    decisions: 1,
    outcomes: 0,
    finished: 0,
    failed: 0,
    correctedTtft: 0,
    correctedDuration: 0,
    errorShare: 0,
  }
  const workers = Array.from({ length: 40 }, (_, w) => {
    const means = { requests: 20, errorShare: w / 100, correctedTtft: 1, correctedDuration: 0 }
    const isWorseThanFleet = w >= 10
    return { worker: `w${w}/0`, policy: means, control: means, isWorseThanControl: false, isWorseThanFleet }
  })
  const status: GuardStatus = {
    phase: 'trusting',
    controlShare: 0.01,
    affinity: arm,
    control: arm,
    z: 0,
    differences: { errors: none, ttft: none, duration: none },
    worseBy: -0.5,
    calibration: 1,
    cachedShare: 1,
    tests: 0,
    shrinks: 0,
    unseen: 0,
    promptTokens: 1000,
    extraTokens: 5,
    isQuiet: true,
    share: 0.01,
    decisions: 1,
    meanRegretMs: HOUR.regretMs,
    workers,
  }
  const { guard } = paysSection(HOUR, status, [])
  t.match(guard, { worse_by: -0.5, is_quiet: true, extra_tokens: 5, prompt_tokens: 1000 })
  t.match(guard!.control, { corrected_ttft: null, corrected_duration: null, error_share: null })
  const found = guard!.worse_workers
  t.strictSame([found.length, found[0]!.worker, found.at(-1)!.worker], [16, 'w39/0', 'w24/0'])
  t.match(found[0], { than_fleet: true, than_control: false, error_share: 0.39, corrected_duration: null })
  const healthy = { ...status, workers: workers.slice(0, 10) }
  t.strictSame(paysSection(HOUR, healthy, []).guard!.worse_workers, [])
})
