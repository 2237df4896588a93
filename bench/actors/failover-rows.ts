/**
 * The rows on the death of a thread: how long until the next life works, with a spare, without, and after a
 * hang.
 */

import { type Measures, percentile } from '../harness.ts'
import { type End, takeoverMs } from './raw-lives.ts'
import { type Row, withThread } from './row.ts'
import { failovers, hangs, hungAfterMs, rawTakeovers } from './sizes.ts'
import { Victim } from './victims.ts'

/** Deaths of one system before the other has its turn. */
const BLOCK = 10
const ENDS: readonly End[] = ['exit', 'terminate']
const PERCENTILES = [50, 99] as const

export const failoverRows: readonly Row[] = [
  {
    name: 'failover',
    threads: 2,
    targets: {
      failoverP99: { floor: 15, goal: 8 },
      failoverColdP99: { floor: 100, goal: 60 },
    },
    async run() {
      const [warm, cold] = [newTimes(), newTimes()]
      const lost = await withThread(system =>
        withThread(
          async systemWithout => {
            const [victim, victimWithout] = [new Victim(system), new Victim(systemWithout, false)]
            for (let done = 0; done < failovers; done += BLOCK) {
              const count = Math.min(BLOCK, failovers - done)
              warm.ours.push(...(await victim.outagesMs(count, ENDS)))
              cold.ours.push(...(await victimWithout.outagesMs(count, ENDS)))
              const raw = Math.ceil((rawTakeovers * count) / failovers)
              for (let i = 0; i < raw; i++) {
                warm.raw.push(await takeoverMs(ENDS[i % ENDS.length]!, true))
                cold.raw.push(await takeoverMs(ENDS[i % ENDS.length]!, false))
              }
            }
            await victimWithout.lost()
            return victim.lost()
          },
          { warmSpare: false },
        ),
      )
      return {
        ...measures('failover', warm, 'bare spare'),
        failoverByExitP50: { value: percentile(byEnd(warm.ours, 0), 50), unit: 'ms' },
        failoverByTerminateP50: { value: percentile(byEnd(warm.ours, 1), 50), unit: 'ms' },
        failoverLost: { value: lost / failovers, unit: 'msg a death' },
        ...measures('failoverCold', cold, 'worker start'),
      }
    },
  },
  {
    name: 'hang',
    threads: 2,
    // Beyond `hungAfter`.
    targets: { hangP99: { floor: 15, goal: 8 } },
    async run() {
      const times = newTimes()
      let falseAlarms = 0
      await withThread(
        async system => {
          const victim = new Victim(system)
          for (let done = 0; done < hangs; done += BLOCK) {
            const count = Math.min(BLOCK, hangs - done)
            times.ours.push(...(await victim.outagesMs(count, ['hang'])).map(ms => ms - hungAfterMs))
            const raw = Math.ceil((rawTakeovers * count) / hangs)
            for (let i = 0; i < raw; i++) times.raw.push(await takeoverMs('hang', true))
          }
          await victim.lost()
          const { threadRestarts } = await system.stats()
          falseAlarms = threadRestarts - hangs
        },
        { hungAfter: hungAfterMs },
      )
      return {
        ...measures('hang', times, 'terminate, bare spare'),
        hangFalseAlarms: { value: falseAlarms, unit: 'replaced without cause' },
      }
    },
  },
]

interface Times {
  readonly ours: number[]
  readonly raw: number[]
}

function newTimes(): Times {
  return { ours: [], raw: [] }
}

function measures(name: string, { ours, raw }: Times, rawName: string): Measures {
  const [sorted, rawSorted] = [Float64Array.from(ours), Float64Array.from(raw)]
  return Object.fromEntries(
    PERCENTILES.map(q => [
      `${name}P${q}`,
      { value: percentile(sorted, q), unit: 'ms', raw: { [rawName]: percentile(rawSorted, q) } },
    ]),
  )
}

/** The ends were dealt in turn within each block. */
function byEnd(timesMs: readonly number[], end: number): Float64Array {
  return Float64Array.from(timesMs.filter((_, i) => (i % BLOCK) % ENDS.length === end))
}
