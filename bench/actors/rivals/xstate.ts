/**
 * XState: one thread; `fromTransition` actors, its fastest kind. It has no ask: a function in the event
 * answers. A `send` runs the transition at once; nothing is queued.
 */

import type { Add } from '../loads.ts'
import {
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

interface Xstate {
  fromTransition<S, E>(transition: (state: S, event: E) => S, initial: S): { readonly event?: E }
  createActor<E>(logic: { readonly event?: E }): {
    start(): { send(event: E): void; stop(): void }
  }
}

interface AddEvent {
  readonly type: 'add'
  readonly a: number
  readonly resolve: (answer: number) => void
}

export const xstate: Rival = {
  version: () => versionOf('xstate'),
  rows: {
    async localTell() {
      const { createActor, fromTransition } = await loadXstate()
      const steps = new Steps()
      const logic = fromTransition((state: null, event: Step) => {
        steps.take(event.n)
        return state
      }, null)
      const actor = createActor(logic).start()
      return localTell(n => actor.send({ type: 'step', n }), steps)
    },
    async localAsk() {
      const { createActor, fromTransition } = await loadXstate()
      const logic = fromTransition((state: null, { a, resolve }: AddEvent) => {
        resolve(a + 1)
        return state
      }, null)
      const actor = createActor(logic).start()
      const add: Add = a => new Promise(resolve => actor.send({ type: 'add', a, resolve }))
      return localAsk(add)
    },
    async spawnStop() {
      const { createActor, fromTransition } = await loadXstate()
      const logic = fromTransition((state: null) => state, null)
      return spawnStop(async count => {
        const all = Array.from({ length: count }, () => createActor(logic).start())
        for (const actor of all) actor.stop()
      })
    },
    async idleActor() {
      const { createActor, fromTransition } = await loadXstate()
      const logic = fromTransition((state: null) => state, null)
      return idleActor(() => createActor(logic).start())
    },
  },
}

async function loadXstate(): Promise<Xstate> {
  return (await load('xstate')) as Xstate
}
