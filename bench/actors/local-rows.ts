/** The rows of one thread: tell and ask. */

import type { ActorRef } from '@homing/actor'
import type { Measures } from '../harness.ts'
import { adder, type StepMessage, stepper } from './actors.ts'
import { costsOf, cpuTimes } from './cpu.ts'
import { type Add, askBackToBack, askInFlight, perSecond, requireEqual } from './loads.ts'
import { BareTells, bareAdd } from './raw-local.ts'
import { type Row, restarting, withMain } from './row.ts'
import { inFlight, localAsks, localTells } from './sizes.ts'
import { inTurns } from './turns.ts'

/**
 * Messages told in a row before the teller waits for them; with the ask behind them a default mailbox full.
 */
export const BURST = 1023

export const localRows: readonly Row[] = [
  {
    name: 'localTell',
    threads: 1,
    targets: { localTell: { floor: 15e6, goal: 30e6 } },
    async run() {
      const { ours, bare } = await withMain(system => {
        const ref = system.spawn(stepper, { name: 'stepper', args: undefined, supervision: restarting })
        const tells = new BareTells()
        let told = 0
        return inTurns(localTells, {
          bare: count => tells.tell(count, BURST),
          ours: async count => {
            const before = await cpuTimes()
            const from = performance.now()
            told = await tellAndDrain(ref, told, count)
            const perS = perSecond(count, from)
            return { perS, cpuNs: costsOf(count, before, await cpuTimes()).cpuNs }
          },
        })
      })
      return {
        localTell: { value: ours.perS, unit: 'msg/s', raw: { 'bare loop': bare.perS } },
        localTellCpu: { value: ours.cpuNs, unit: 'ns CPU', raw: { 'bare loop': bare.cpuNs } },
      }
    },
  },
  {
    name: 'localAsk',
    threads: 1,
    targets: { localAsk: { floor: 3e6, goal: 6e6 }, localAskSequential: { floor: 2e6, goal: 4e6 } },
    async run() {
      const { ours, bare } = await withMain(system => {
        const ref = system.spawn(adder, { name: 'adder', args: undefined, supervision: restarting })
        const add = bareAdd()
        return inTurns(localAsks, {
          bare: count => measureAsks(add, count),
          ours: count => measureAsks(a => ref.ask({ type: 'add', a }, { timeout: '10s' }), count),
        })
      })
      return askMeasures(ours, bare)
    },
  },
]

/** Tells the numbers after `told` in bursts, each waited for, so that what is counted was handled. */
async function tellAndDrain(ref: ActorRef<StepMessage>, told: number, count: number): Promise<number> {
  const end = told + count
  for (let n = told; n < end; ) {
    const burstEnd = Math.min(n + BURST, end)
    while (n < burstEnd) {
      n++
      if (ref.tell({ type: 'step', n }) !== 'ok') throw new Error(`message ${n} was not taken`)
    }
    const tally = await ref.ask({ type: 'tally' }, { timeout: '10s' })
    requireEqual('messages handled in order', tally.count - tally.violations, n)
  }
  return end
}

/** Asks that were on their way together, and asks one after the other. */
export type Asks = {
  readonly perS: number
  readonly cpuNs: number
  readonly sequentialPerS: number
  readonly sequentialCpuNs: number
}

export async function measureAsks(add: Add, count: number): Promise<Asks> {
  const first = await cpuTimes()
  const perS = await askInFlight(add, inFlight, count)
  const between = await cpuTimes()
  const sequentialPerS = await askBackToBack(add, count)
  const last = await cpuTimes()
  return {
    perS,
    cpuNs: costsOf(count, first, between).cpuNs,
    sequentialPerS,
    sequentialCpuNs: costsOf(count, between, last).cpuNs,
  }
}

export function askMeasures(asks: Asks, bare?: Asks): Measures {
  const measure = (of: (asks: Asks) => number, unit: string) => ({
    value: of(asks),
    unit,
    ...(bare === undefined ? {} : { raw: { 'bare loop': of(bare) } }),
  })
  return {
    localAsk: measure(({ perS }) => perS, 'ask/s'),
    localAskCpu: measure(({ cpuNs }) => cpuNs, 'ns CPU'),
    localAskSequential: measure(({ sequentialPerS }) => sequentialPerS, 'ask/s'),
    localAskSequentialCpu: measure(({ sequentialCpuNs }) => sequentialCpuNs, 'ns CPU'),
  }
}
