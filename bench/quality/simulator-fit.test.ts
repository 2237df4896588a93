/**
 * What the simulator says of a router's own decision log agrees with what the log says happened, for three
 * policies.
 */

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { FIT_LIMITS, fitText } from '@homing/simulate'
import t from 'tap'
import { fitOf, loadOf, POLICIES, type PolicyUnderTest, recordInSimulation } from './simulator-fit.ts'

const REQUESTS = 150
const PER_SECOND = 14

t.test('a whole router on simulated engines, and the simulation of its decision log, agree', async t => {
  const folder = await mkdtemp(join(tmpdir(), 'homing-fit-'))
  t.teardown(() => rm(folder, { recursive: true }))
  const load = loadOf(1, REQUESTS, PER_SECOND)
  for (const policy of Object.keys(POLICIES) as PolicyUnderTest[]) {
    const path = join(folder, policy)
    await recordInSimulation(path, load, policy)
    const fit = await fitOf(path)
    t.strictSame(fit.faults, [], fitText(fit))
    const { seen, simulated } = fit.ttftMs
    // Without the noise of a machine both are much closer than what is asked of a real fleet.
    t.ok(Math.abs(simulated.mean / seen.mean - 1) < FIT_LIMITS.ttftShare / 5, policy)
    t.ok(Math.abs(fit.hitRate.simulated - fit.hitRate.seen) < FIT_LIMITS.hitRatePoints / 100 / 5, policy)
    t.equal(fit.simulated, REQUESTS)
  }
})
