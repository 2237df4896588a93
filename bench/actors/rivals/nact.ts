/** nact: one thread; `dispatch`, `query`, `spawnStateless` and `stop`. */

import {
  ASK_MS_MAX,
  idleActor,
  load,
  localAsk,
  localTell,
  type Rival,
  type Step,
  Steps,
  spawnStop,
  versionOf,
} from './rival.ts'

interface Nact {
  start(): object
  spawnStateless<M>(parent: object, behavior: (message: M) => void, name: string): object
  stop(actor: object): void
  dispatch(actor: object, message: unknown): void
  query<T>(actor: object, message: (sender: object) => unknown, timeoutMs: number): Promise<T>
}

export const nact: Rival = {
  version: () => versionOf('nact'),
  rows: {
    async localTell() {
      const { start, spawnStateless, dispatch } = await loadNact()
      const steps = new Steps()
      const actor = spawnStateless(start(), (message: Step) => steps.take(message.n), 'stepper')
      return localTell(n => dispatch(actor, { type: 'step', n }), steps)
    },
    async localAsk() {
      const { start, spawnStateless, dispatch, query } = await loadNact()
      const answer = ({ a, sender }: { a: number; sender: object }) => dispatch(sender, a + 1)
      const actor = spawnStateless(start(), answer, 'adder')
      return localAsk(a => query<number>(actor, sender => ({ a, sender }), ASK_MS_MAX))
    },
    async spawnStop() {
      const { start, spawnStateless, stop } = await loadNact()
      const system = start()
      let spawned = 0
      return spawnStop(async count => {
        const all = Array.from({ length: count }, () =>
          spawnStateless(system, () => {}, `idler-${spawned++}`),
        )
        for (const actor of all) stop(actor)
      })
    },
    async idleActor() {
      const { start, spawnStateless } = await loadNact()
      const system = start()
      return idleActor(i => spawnStateless(system, () => {}, `idler-${i}`))
    },
  },
}

async function loadNact(): Promise<Nact> {
  return (await load('nact')) as Nact
}
