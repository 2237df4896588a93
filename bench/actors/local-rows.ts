/** The rows of one thread: tell, ask, spawn and stop, memory of an idle actor. */

import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import type { ActorRef } from '@homing/actor'
import { adder, lives, nursery, type StepMessage, stepper } from './actors.ts'
import { type Add, askBackToBack, askInFlight, nextTurn, perSecond, requireEqual, until } from './loads.ts'
import { bareAdd, bareCell, bareTells } from './raw.ts'
import { type Row, restarting, withSystem } from './row.ts'
import { actors, inFlight, localAsks, localTells } from './sizes.ts'

/** Messages told in a row before the teller waits for them; with the ask behind them a default mailbox full. */
export const BURST = 1023
const SPAWN_BURST = 1000

export const localRows: readonly Row[] = [
  {
    name: 'localTell',
    threads: 1,
    targets: { localTell: { floor: 15e6, goal: 30e6 } },
    async run() {
      await bareTells(localTells / 5, BURST)
      const bareLoop = await bareTells(localTells, BURST)
      const value = await withSystem(1, async system => {
        const ref = system.spawn(stepper, { name: 'stepper', args: undefined, supervision: restarting })
        const warm = await tellAndDrain(ref, 0, localTells / 5)
        const from = performance.now()
        const count = await tellAndDrain(ref, warm, localTells)
        return perSecond(count - warm, from)
      })
      return { localTell: { value, unit: 'msg/s', raw: { 'bare loop': bareLoop } } }
    },
  },
  {
    name: 'localAsk',
    threads: 1,
    targets: { localAsk: { floor: 3e6, goal: 6e6 }, localAskSequential: { floor: 2e6, goal: 4e6 } },
    async run() {
      const bare = await measureAsks(bareAdd())
      const ours = await withSystem(1, system => {
        const ref = system.spawn(adder, { name: 'adder', args: undefined, supervision: restarting })
        return measureAsks(a => ref.ask({ type: 'add', a }, { timeout: '10s' }))
      })
      return {
        localAsk: { value: ours.inFlight, unit: 'ask/s', raw: { 'bare loop': bare.inFlight } },
        localAskSequential: { value: ours.sequential, unit: 'ask/s', raw: { 'bare loop': bare.sequential } },
      }
    },
  },
  {
    name: 'spawnStop',
    threads: 1,
    targets: { spawnStop: { floor: 500e3, goal: 1e6 } },
    async run() {
      const bare = bareSpawnStop()
      const value = await withSystem(1, async system => {
        const parent = system.spawn(nursery, { name: 'nursery', args: undefined })
        const cycle = async (count: number): Promise<void> => {
          const end = lives.stopped + count
          for (let left = count; left > 0; left -= SPAWN_BURST) {
            const burst = Math.min(left, SPAWN_BURST)
            const [started, stopped] = [lives.started + burst, lives.stopped + burst]
            parent.tell({ type: 'spawn', count: burst })
            // One that is stopped before it ran was never alive, and does less.
            await until(() => lives.started >= started)
            parent.tell({ type: 'stop' })
            await until(() => lives.stopped >= stopped)
          }
          requireEqual('lives that were stopped', lives.stopped, end)
        }
        await cycle(actors / 5)
        const from = performance.now()
        await cycle(actors)
        const rate = perSecond(actors, from)
        const { actors: left } = await system.stats()
        requireEqual('actors left', left, 1)
        return rate
      })
      return { spawnStop: { value, unit: 'actor/s', raw: { 'bare cells': bare } } }
    },
  },
  {
    name: 'idleActor',
    threads: 1,
    targets: { idleActor: { floor: 700, goal: 450 } },
    async run() {
      const bare = await heapBytesOf(async () => {
        const cells = new Map<number, object>()
        for (let id = 0; id < actors; id++) cells.set(id, bareCell(id))
        return cells
      })
      const value = await withSystem(1, async system => {
        const parent = system.spawn(nursery, { name: 'nursery', args: undefined })
        return heapBytesOf(async () => {
          const end = lives.started + actors
          for (let left = actors; left > 0; left -= SPAWN_BURST) {
            parent.tell({ type: 'spawn', count: Math.min(left, SPAWN_BURST) })
            await nextTurn()
          }
          await until(() => lives.started >= end)
        })
      })
      return { idleActor: { value: value / actors, unit: 'B', raw: { 'bare cell': bare / actors } } }
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

export interface Asks {
  readonly inFlight: number
  readonly sequential: number
}

/** After a warm-up of each. */
export async function measureAsks(add: Add): Promise<Asks> {
  await askInFlight(add, inFlight, localAsks / 5)
  await askBackToBack(add, localAsks / 5)
  return {
    inFlight: await askInFlight(add, inFlight, localAsks),
    sequential: await askBackToBack(add, localAsks),
  }
}

function bareSpawnStop(): number {
  const cells = new Map<number, object>()
  const cycle = (count: number): void => {
    for (let id = 0; id < count; id++) {
      cells.set(id, bareCell(id))
      if (id >= SPAWN_BURST) cells.delete(id - SPAWN_BURST)
    }
    cells.clear()
  }
  cycle(actors)
  const from = performance.now()
  cycle(actors)
  return perSecond(actors, from)
}

/** What `make` leaves on the heap; its result is kept alive meanwhile. */
async function heapBytesOf(make: () => Promise<unknown>): Promise<number> {
  setFlagsFromString('--expose-gc')
  const gc = runInNewContext('gc') as () => void
  const settle = async (): Promise<number> => {
    for (let i = 0; i < 3; i++) {
      await nextTurn()
      gc()
    }
    return process.memoryUsage().heapUsed
  }
  const before = await settle()
  const kept = await make()
  const after = await settle()
  // Looked at here, so that it was alive when the heap was.
  if (kept === null) throw new Error('nothing was made')
  return after - before
}
