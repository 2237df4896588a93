/** comedy: `send`, `sendAndReceive`, `createChild` and `destroy`, in memory and threaded. */

import type { Measures } from '../../harness.ts'
import { costsOf, cpuTimes } from '../cpu.ts'
import { nextTurn, perSecond, requireEqual } from '../loads.ts'
import { costMeasures } from '../row.ts'
import { crossTells } from '../sizes.ts'
import { inTurns } from '../turns.ts'
import {
  ASK_MS_MAX,
  crossAsk,
  crossAskSequential,
  idleActor,
  load,
  localAsk,
  localTell,
  type Rival,
  Steps,
  spawnStop,
  versionOf,
} from './rival.ts'

interface Comedy {
  createSystem(options: object): {
    rootActor(): Promise<Actor>
    destroy(): Promise<void>
  }
}

interface Actor {
  createChild(definition: object, options: { readonly mode: 'in-memory' | 'threaded' }): Promise<Actor>
  destroy(): Promise<void>
  send(topic: string, message: unknown): Promise<void>
  sendAndReceive(topic: string, message: unknown): Promise<number>
}

/** It is some ten times slower than ours. */
const TELLS_SHARE = 1 / 10
const TURN_TELLS = 1024

export const comedy: Rival = {
  version: () => versionOf('comedy'),
  rows: {
    localTell: () =>
      withRoot(async root => {
        const steps = new Steps()
        const actor = await root.createChild({ step: (n: number) => steps.take(n) }, { mode: 'in-memory' })
        return localTell(n => void actor.send('step', n), steps)
      }),
    localAsk: () =>
      withRoot(async root => {
        const actor = await root.createChild({ add: (a: number) => a + 1 }, { mode: 'in-memory' })
        return localAsk(a => actor.sendAndReceive('add', a))
      }),
    spawnStop: () =>
      withRoot(root =>
        spawnStop(async count => {
          const spawned = Array.from({ length: count }, () => root.createChild({}, { mode: 'in-memory' }))
          const all = await Promise.all(spawned)
          await Promise.all(all.map(actor => actor.destroy()))
        }),
      ),
    idleActor: () => withRoot(root => idleActor(() => root.createChild({}, { mode: 'in-memory' }))),
    crossTell: () => withThreaded(crossTell),
    crossAsk: () => withThreaded(actor => crossAsk(asked(actor))),
    crossAskSequential: () => withThreaded(actor => crossAskSequential(asked(actor))),
  },
}

/** Its source travels to the thread. */
class Threaded {
  count = 0
  violations = 0

  add(a: number) {
    return a + 1
  }

  work({ n }: { n: number }) {
    if (n !== ++this.count) this.violations++
  }

  tally() {
    return this.count - this.violations
  }

  usage() {
    const { user, system } = process.threadCpuUsage()
    return user + system
  }
}

function asked(actor: Actor) {
  return {
    add: (a: number) => actor.sendAndReceive('add', a),
    usageUs: () => actor.sendAndReceive('usage', 0),
  }
}

/** The objects of our row, to one actor. */
async function crossTell(actor: Actor): Promise<Measures> {
  const { usageUs } = asked(actor)
  let told = 0
  const { theirs } = await inTurns(crossTells * TELLS_SHARE, {
    theirs: async count => {
      const before = await cpuTimes(usageUs)
      const from = performance.now()
      const end = told + count
      while (told < end) {
        const n = ++told
        void actor.send('work', { type: 'work', n, a: n + 1, b: -n, text: 'sixteen letters.' })
        if (n % TURN_TELLS === 0) await nextTurn()
      }
      // An ask overtakes what is being sent.
      const untilMs = performance.now() + ASK_MS_MAX
      let handled = 0
      while (handled < end && performance.now() < untilMs) handled = await actor.sendAndReceive('tally', 0)
      requireEqual('messages handled in order', handled, end)
      const perS = perSecond(count, from)
      return { perS, ...costsOf(count, before, await cpuTimes(usageUs)) }
    },
  })
  return { crossTell: { value: theirs.perS, unit: 'msg/s' }, ...costMeasures('crossTell', theirs) }
}

function withThreaded<T>(use: (actor: Actor) => Promise<T>): Promise<T> {
  return withRoot(async root => use(await root.createChild(Threaded, { mode: 'threaded' })))
}

async function withRoot<T>(use: (root: Actor) => Promise<T>): Promise<T> {
  const { createSystem } = (await load('comedy')) as Comedy
  const system = createSystem({ test: true }) // Without it, it logs and looks for its settings in files.
  try {
    return await use(await system.rootActor())
  } finally {
    await system.destroy()
  }
}
