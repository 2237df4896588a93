/**
 * Random histories of one engine, its events, its router, and sometimes a sidecar: loss, repetition and delay
 * as ZeroMQ and publishers cause them, restarts of either side, late joins. At every moment `exact` holds:
 * the engine holds every credited block, except changes without a sign yet. And once faults stop, every
 * source is again as good as its engine allows, within REST_MS_MAX. Of engines with pooled memory, no block
 * is credited then that is not in the pool.
 *
 * `HOMING_FAULTS_RUNS` sets the number of histories; one that fails prints its seed and its shortest script.
 */

import assert from 'node:assert/strict'
import process from 'node:process'
import type { EngineSettings } from '@homing/engine'
import fc from 'fast-check'
import t from 'tap'
import { ObservedFleet } from './observed-fleet.ts'
import { poolsOf } from './pools.ts'

const RUNS = Number(process.env['HOMING_FAULTS_RUNS'] ?? 15)
/** A replay socket that was silent is asked again after 60 s. */
const REST_MS_MAX = 75_000

type Step =
  | { readonly do: 'lose'; readonly count: number; readonly isForgotten: boolean }
  | { readonly do: 'repeat' | 'loseOnTheWay' | 'slowNetwork' | 'work'; readonly count: number }
  | { readonly do: 'late'; readonly count: number; readonly ms: number }
  | { readonly do: 'lossyReplay'; readonly every: number }
  | { readonly do: 'silentReplay' | 'calm' | 'clear' }
  | { readonly do: 'cutLink' | 'restartEngine' | 'restartRouter'; readonly ms: number }

const count = fc.integer({ min: 1, max: 6 })
const ms = fc.integer({ min: 0, max: 400 })
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ do: fc.constant('lose' as const), count, isForgotten: fc.boolean() }),
  fc.record({
    do: fc.constantFrom(
      'repeat' as const,
      'loseOnTheWay' as const,
      'slowNetwork' as const,
      'work' as const,
      'work' as const,
    ),
    count,
  }),
  fc.record({ do: fc.constant('late' as const), count, ms: fc.integer({ min: 1, max: 60 }) }),
  fc.record({ do: fc.constant('lossyReplay' as const), every: fc.integer({ min: 2, max: 5 }) }),
  fc.record({ do: fc.constantFrom('silentReplay' as const, 'calm' as const, 'clear' as const) }),
  fc.record({
    do: fc.constantFrom('cutLink' as const, 'restartEngine' as const, 'restartRouter' as const),
    ms,
  }),
)

const kind: fc.Arbitrary<Partial<EngineSettings>> = fc.record({
  blocks: fc.integer({ min: 24, max: 60 }),
  offersReplay: fc.constantFrom(true, true, true, false),
  replayBatchesMax: fc.constantFrom(10_000, 10_000, 6),
  eventForm: fc.constantFrom('vllm-map' as const, 'vllm-array' as const, 'sglang-map' as const),
  isClearLate: fc.boolean(),
  poolId: fc.constantFrom(-1, 7),
  poolWorkers: fc.constant(['9']),
  poolBlocks: fc.integer({ min: 8, max: 60 }),
})

class History {
  readonly observed: ObservedFleet
  #hasForgotten = false

  constructor(observed: ObservedFleet) {
    this.observed = observed
  }

  async take(step: Step): Promise<void> {
    const { observed } = this
    const { network, engines, simulation } = observed.fleet
    const { engine, events: endpoint, url: origin } = engines[0]!
    const events = (faults: object) => engine.setFaults({ events: faults })
    switch (step.do) {
      case 'lose':
        if (step.isForgotten) this.#hasForgotten = true
        events({ drop: step.count, forget: step.isForgotten })
        break
      case 'repeat':
        events({ duplicate: step.count })
        break
      case 'late':
        events({ delay: step.count, delayMs: step.ms })
        break
      case 'lossyReplay':
        events({ replayLoseEvery: step.every })
        break
      case 'silentReplay':
        events({ replaySilent: true })
        break
      case 'loseOnTheWay': {
        const end = simulation.clock.nowMs() + 50 * step.count
        network.faults.message = place =>
          place === endpoint && simulation.clock.nowMs() < end && simulation.random.below(3) === 0
            ? 'drop'
            : 'deliver'
        break
      }
      case 'slowNetwork': {
        const end = simulation.clock.nowMs() + 50 * step.count
        network.faults.message = () =>
          simulation.clock.nowMs() < end && simulation.random.below(3) === 0
            ? { delayMs: simulation.random.next() * 20 }
            : 'deliver'
        break
      }
      case 'cutLink':
        network.disconnect(endpoint)
        simulation.clock.after(step.ms, () => network.reconnect(endpoint))
        break
      case 'restartEngine':
        void engine.restart(step.ms)
        break
      case 'restartRouter':
        await observed.fleet.stopRouter()
        await observed.run(step.ms)
        await observed.fleet.startRouter()
        break
      case 'clear':
        // Refused while requests run; an engine that is down answers nothing.
        await observed.idle()
        await observed.fleet.ask({ origin, path: '/reset_prefix_cache' }).catch(() => undefined)
        observed.beginTraffic()
        break
      case 'calm':
        this.#calm()
        break
      case 'work':
        break
    }
    await observed.lookFor('count' in step ? 60 * step.count : 100)
  }

  /** Ends all faults, and checks that the result is as good as the engine allows. */
  async rest(settings: Partial<EngineSettings>, hasSidecar: boolean): Promise<void> {
    const { observed } = this
    this.#calm()
    // Blocks of an ended life do not count any more. A sidecar asks for no replay.
    const reachesBack =
      !hasSidecar &&
      settings.offersReplay === true &&
      settings.replayBatchesMax === 10_000 &&
      !this.#hasForgotten
    const wanted = reachesBack ? ['exact'] : ['exact', 'partial']
    const { clock } = observed.fleet.simulation
    const endMs = clock.nowMs() + REST_MS_MAX
    // At least one batch after the last fault: a loss shows with the next one.
    const isAsGoodAsItGets = async (): Promise<boolean> => {
      const { trusts, isAtRest } = await observed.seen()
      return isAtRest && wanted.includes(trusts.at(-1)!)
    }
    do await observed.lookFor(500)
    while (!(await isAsGoodAsItGets()) && clock.nowMs() < endMs)
    await observed.idle()
    const seen = await observed.seen()
    const said = `${seen.trusts.join(' → ')}: ${seen.reason}`
    assert.ok(seen.isAtRest && wanted.includes(seen.trusts.at(-1)!), `after the last fault ${said}`)
    assert.equal(seen.surplus, 0, `held that is not there at rest; ${said}`)
    if (reachesBack) assert.equal(seen.missing, 0, `missing at rest; ${said}`)
    assert.equal(seen.staleExact, 0, `stale under exact; ${said}`)
    const { credited, there } = await poolsOf(observed.fleet)
    for (const hash of credited)
      assert.ok(there.has(hash), `${hash} is credited, and not in the pool; ${said}`)
    if (reachesBack) assert.equal(credited.size, there.size, `missing of the pool at rest; ${said}`)
  }

  #calm(): void {
    const { network, engines } = this.observed.fleet
    network.faults.message = undefined
    engines[0]!.engine.clearFaults()
  }
}

t.test('whatever happens, exact does not lie, and every source heals', { timeout: 600_000 }, async t => {
  const holds = fc.asyncProperty(
    fc.integer({ min: 1, max: 2 ** 31 - 1 }),
    kind,
    fc.constantFrom(false, false, true),
    fc.array(step, { minLength: 3, maxLength: 10 }),
    async (seed, settings, hasSidecar, script) => {
      const observed = await ObservedFleet.start(seed, settings, { hasSidecar })
      try {
        const history = new History(observed)
        observed.beginTraffic()
        observed.begin()
        for (const one of script) await history.take(one)
        await history.rest(settings, hasSidecar)
      } finally {
        await observed.fleet.stop()
      }
    },
  )
  await t.resolves(fc.assert(holds, { numRuns: RUNS, endOnFailure: RUNS === 1 }))
})
