/** What the section `pays` of the page says was saved. */

import type { HourReport } from '@homing/actors/router'
import type { WorkerLoad } from '@homing/actors/tracker'
import { KNEES } from '@homing/load'
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
