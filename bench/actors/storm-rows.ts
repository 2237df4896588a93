/** The rows on endless restarts, and on how waiting actors learn of a death. */

import process from 'node:process'
import { type ActorSystem, ThreadDownError } from '@homing/actor'
import { percentile } from '../harness.ts'
import { slope } from '../statistics.ts'
import { adder } from './actors.ts'
import { pause, requireEqual } from './loads.ts'
import { msBetween, workerExitMs, workerStartMs } from './raw-lives.ts'
import { residentKb } from './resident.ts'
import { placed, type Row, THREAD, withThread } from './row.ts'
import { rejections, stormMs } from './sizes.ts'
import { expectNextSpare, spareReady } from './spare.ts'
import { EXIT_AT } from './times.ts'
import { Victim } from './victims.ts'

/** The storm without a spare and that of bare workers, as shares of the storm. */
const SIDE_SHARE = 1 / 6
const RSS_SAMPLE_MS = 100
const SETTLE_MS = 20
/** Of the first samples: heaps and pools grow to their size. */
const WARM_UP = 0.3

export const stormRows: readonly Row[] = [
  {
    name: 'askRejection',
    threads: 2,
    targets: { askRejectionP99: { floor: 20, goal: 5 } },
    async run() {
      const exits: number[] = []
      const timesMs: number[] = []
      await withThread(async system => {
        const victim = new Victim(system)
        for (let i = 0; i < rejections; i++) {
          exits.push(await workerExitMs())
          timesMs.push(await rejectionMs(victim))
        }
        await victim.serves()
      })
      const measure = (q: number) => ({
        value: percentile(Float64Array.from(timesMs), q),
        unit: 'ms',
        raw: { 'exit event': percentile(Float64Array.from(exits), q) },
      })
      return { askRejectionP50: measure(50), askRejectionP99: measure(99) }
    },
  },
  {
    name: 'storm',
    threads: 2,
    targets: { storm: { floor: 10, goal: 25 }, stormRssSlope: { floor: 10, goal: 2 } },
    async run() {
      const starts = () => workerStartMs().then(() => {})
      const before = await storm((stormMs * SIDE_SHARE) / 2, starts)
      const ours = await withThread(system => stormOf(system, stormMs))
      const cold = await withThread(system => stormOf(system, stormMs * SIDE_SHARE), { warmSpare: false })
      const after = await storm((stormMs * SIDE_SHARE) / 2, starts)
      const raw = {
        perS: (before.perS + after.perS) / 2,
        rssKbPerRestart: (before.rssKbPerRestart + after.rssKbPerRestart) / 2,
      }
      return {
        storm: { value: ours.perS, unit: 'restart/s', raw: { 'worker start': raw.perS } },
        stormRssSlope: { value: ours.rssKbPerRestart, unit: 'kB a restart' },
        // Beside it and not as a ratio: either may be 0, or less.
        stormRssSlopeOfWorkers: { value: raw.rssKbPerRestart, unit: 'kB a restart' },
        stormWithoutSpare: { value: cold.perS, unit: 'restart/s', raw: { 'worker start': raw.perS } },
      }
    },
  },
]

/** Milliseconds from the exit of a thread to the rejection of an ask that it had taken. */
async function rejectionMs(victim: Victim): Promise<number> {
  await victim.serves()
  await spareReady()
  await pause(SETTLE_MS)
  const asked = victim.ref.ask({ type: 'silent' }, { timeout: '10s' })
  expectNextSpare()
  victim.ref.tell({ type: 'exit' })
  const error = await asked.then(
    () => undefined,
    (error: unknown) => error,
  )
  const nowNs = process.hrtime.bigint()
  if (!(error instanceof ThreadDownError)) throw new Error(`an ask of a dead thread ended with ${error}`)
  return msBetween(Atomics.load(victim.timesNs, EXIT_AT), nowNs)
}

/** Ends the thread again as soon as its actor answers. */
async function stormOf(system: ActorSystem, ms: number): Promise<Storm> {
  const ref = system.spawn(adder, { ...placed('adder'), args: undefined })
  const result = await storm(ms, async () => {
    await system.killThread(THREAD)
    requireEqual('answer after a restart', await ref.ask({ type: 'add', a: 1 }, { timeout: '10s' }), 2)
  })
  const { threadRestarts, actors, asksPending } = await system.stats()
  requireEqual('restarts counted', threadRestarts, result.restarts)
  requireEqual('actors', actors, 1)
  requireEqual('asks left', asksPending, 0)
  return result
}

interface Storm {
  readonly restarts: number
  readonly perS: number
  /** What the resident memory grew by, after the warm-up. */
  readonly rssKbPerRestart: number
}

async function storm(ms: number, restart: () => Promise<void>): Promise<Storm> {
  const samples: [restarts: number, rssKb: number][] = []
  let restarts = 0
  let sampledMs = 0
  const fromMs = performance.now()
  for (let nowMs = fromMs; nowMs - fromMs < ms; nowMs = performance.now()) {
    await restart()
    restarts++
    if (nowMs - sampledMs < RSS_SAMPLE_MS) continue
    samples.push([restarts, residentKb()])
    sampledMs = nowMs
  }
  return {
    restarts,
    perS: (restarts / (performance.now() - fromMs)) * 1000,
    rssKbPerRestart: slope(samples.slice(Math.floor(samples.length * WARM_UP))),
  }
}
