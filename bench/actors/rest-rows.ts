/** The rows of a system that has nothing to do, or has only just started. */

import process from 'node:process'
import { createActorSystem } from '@homing/actor'
import { adder } from './actors.ts'
import { type BuiltActor, withBuiltActor } from './built.ts'
import { cpuMs, pause } from './loads.ts'
import { startBareWorker, workerStartMs } from './raw-lives.ts'
import { placed, quiet, type Row, twoThreads, withThread } from './row.ts'
import { idleMs } from './sizes.ts'

export const restRows: readonly Row[] = [
  {
    name: 'idle',
    threads: 2,
    targets: { idleCpu: { floor: 0.5, goal: 0.1 } },
    async run() {
      const bare = await startBareWorker()
      const raw = await rest(idleMs)
      await bare.terminate()
      const ours = await withThread(async system => {
        const ref = system.spawn(adder, { ...placed('adder'), args: undefined })
        await ref.ask({ type: 'add', a: 1 }, { timeout: '10s' })
        return rest(idleMs)
      })
      return {
        idleCpu: { value: ours.percent, unit: '% of a core', raw: { 'idle worker': raw.percent } },
        idleSwitches: { value: ours.perS, unit: 'wake-ups a second', raw: { 'idle worker': raw.perS } },
      }
    },
  },
  {
    name: 'ready',
    threads: 2,
    targets: { ready: { floor: 120, goal: 70 } },
    async run() {
      const start = async (create: BuiltActor['createActorSystem']): Promise<number> => {
        const fromMs = performance.now()
        const system = await create({ ...twoThreads, ...quiet })
        const ms = performance.now() - fromMs
        await system.shutdown()
        return ms
      }
      // The first start in a process: any later one is faster.
      const built = await withBuiltActor(actor => start(actor.createActorSystem))
      const source = await start(createActorSystem)
      const raw = { 'worker start': await workerStartMs() }
      return {
        ready: { value: built, unit: 'ms', raw },
        readyFromSource: { value: source, unit: 'ms', raw },
      }
    },
  },
]

/** CPU time of the process while nothing happens, and how often one of its threads went to sleep again. */
async function rest(ms: number): Promise<{ readonly percent: number; readonly perS: number }> {
  await pause(ms / 4)
  const before = process.cpuUsage()
  const switchesBefore = process.resourceUsage().voluntaryContextSwitches
  const fromMs = performance.now()
  await pause(ms)
  const passedMs = performance.now() - fromMs
  return {
    percent: (cpuMs(before) / passedMs) * 100,
    perS: ((process.resourceUsage().voluntaryContextSwitches - switchesBefore) * 1000) / passedMs,
  }
}
