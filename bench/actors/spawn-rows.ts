/** The rows on what an actor costs: spawn and stop, memory while it is idle. */

import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { lives, nursery } from './actors.ts'
import { nextTurn, perSecond, requireEqual, until } from './loads.ts'
import { bareCell } from './raw-local.ts'
import { type Row, withMain } from './row.ts'
import { actors } from './sizes.ts'
import { inTurns } from './turns.ts'

/** Actors that are alive at once while they are spawned and stopped. */
export const SPAWN_BURST = 1000

export const spawnRows: readonly Row[] = [
  {
    name: 'spawnStop',
    threads: 1,
    targets: { spawnStop: { floor: 500e3, goal: 1e6 } },
    async run() {
      const { ours, bare } = await withMain(async system => {
        const parent = system.spawn(nursery, { name: 'nursery', args: undefined })
        const medians = await inTurns(actors, {
          bare: async count => bareSpawnStop(count),
          ours: async count => {
            const from = performance.now()
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
            return { perS: perSecond(count, from) }
          },
        })
        const { actors: left } = await system.stats()
        requireEqual('actors left', left, 1)
        return medians
      })
      return { spawnStop: { value: ours.perS, unit: 'actor/s', raw: { 'bare cells': bare.perS } } }
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
      const value = await withMain(async system => {
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

function bareSpawnStop(count: number): { readonly perS: number } {
  const cells = new Map<number, object>()
  const from = performance.now()
  for (let id = 0; id < count; id++) {
    cells.set(id, bareCell(id))
    if (id >= SPAWN_BURST) cells.delete(id - SPAWN_BURST)
  }
  cells.clear()
  return { perS: perSecond(count, from) }
}

/** What `make` leaves on the heap; its result is kept alive meanwhile. */
export async function heapBytesOf(make: () => Promise<unknown>): Promise<number> {
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
