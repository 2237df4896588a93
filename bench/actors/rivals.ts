/**
 * Rivals: the same loads on other libraries, each in the way its own documents show.
 *
 *   nact       one thread; `dispatch` and `query`
 *   comedy     `send` and `sendAndReceive`, in memory and threaded
 *   xstate     one thread; `fromTransition` actors (its fastest kind). It has no ask: a function in the event
 *              answers. A `send` runs the transition at once; nothing is queued.
 *   comlink    calls of a function on a worker
 *   piscina    tasks of a pool of one worker; every setting that matters is measured and named, the best one counts
 *
 * Deadlines are used where a rival has them. Imports are late: a rival that is not installed is skipped by name.
 */

import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import type { Measure, Measures } from '../harness.ts'
import { type CrossAsks, measureCrossAsks } from './cross-rows.ts'
import { type Add, nextTurn, perSecond, requireEqual } from './loads.ts'
import { type Asks, BURST, measureAsks } from './local-rows.ts'
import { localTells } from './sizes.ts'

export interface Rival {
  readonly version: () => string | undefined
  /** What it can do, by the name of our row. */
  readonly rows: Readonly<Record<string, () => Promise<Measures>>>
}

/** They are 10 to 100 times slower: a run of theirs need not be that much longer. */
const TELLS = Math.ceil(localTells / 20)
const ASK_MS_MAX = 10_000

interface Step {
  readonly type: 'step'
  readonly n: number
}

/** Counts numbered messages. */
class Steps {
  count = 0
  violations = 0

  take(n: number): void {
    this.count++
    if (n !== this.count) this.violations++
  }
}

export const rivals: Readonly<Record<string, Rival>> = {
  nact: {
    version: () => versionOf('nact'),
    rows: {
      localTell: () =>
        withNact(async ({ start, spawnStateless, dispatch }) => {
          const system = start()
          const steps = new Steps()
          const actor = spawnStateless(system, (message: Step) => steps.take(message.n), 'stepper')
          return measureTells(n => dispatch(actor, { type: 'step', n }), steps)
        }),
      localAsk: () =>
        withNact(async ({ start, spawnStateless, dispatch, query }) => {
          const system = start()
          const answer = ({ a, sender }: { a: number; sender: object }) => dispatch(sender, a + 1)
          const actor = spawnStateless(system, answer, 'adder')
          return localAsks(
            await measureAsks(a => query<number>(actor, sender => ({ a, sender }), ASK_MS_MAX)),
          )
        }),
    },
  },
  comedy: {
    version: () => versionOf('comedy'),
    rows: {
      localTell: () =>
        withComedy({ mode: 'in-memory' }, async (actor, steps) =>
          measureTells(n => void actor.send('step', n), steps),
        ),
      localAsk: () =>
        withComedy({ mode: 'in-memory' }, async actor =>
          localAsks(await measureAsks(a => actor.sendAndReceive('add', a))),
        ),
      crossAsk: () =>
        withComedy({ mode: 'threaded' }, async actor =>
          crossAsks(await measureCrossAsks(a => actor.sendAndReceive('add', a))),
        ),
    },
  },
  xstate: {
    version: () => versionOf('xstate'),
    rows: {
      localTell: () =>
        withXstate(async ({ createActor, fromTransition }) => {
          const steps = new Steps()
          const logic = fromTransition((state: null, event: Step) => {
            steps.take(event.n)
            return state
          }, null)
          const actor = createActor(logic).start()
          return measureTells(n => actor.send({ type: 'step', n }), steps)
        }),
      localAsk: () =>
        withXstate(async ({ createActor, fromTransition }) => {
          interface AddEvent {
            readonly type: 'add'
            readonly a: number
            readonly resolve: (answer: number) => void
          }
          const logic = fromTransition((state: null, { a, resolve }: AddEvent) => {
            resolve(a + 1)
            return state
          }, null)
          const actor = createActor(logic).start()
          const add: Add = a => new Promise(resolve => actor.send({ type: 'add', a, resolve }))
          return localAsks(await measureAsks(add))
        }),
    },
  },
  comlink: {
    version: () => versionOf('comlink'),
    rows: {
      async crossAsk() {
        const { wrap } = (await load('comlink')) as Comlink
        const nodeEndpoint = ((await load('comlink/dist/esm/node-adapter.mjs')) as NodeAdapter).default
        const worker = new Worker(new URL('./rival-comlink.ts', import.meta.url), { execArgv: [] })
        const { add } = wrap(nodeEndpoint(worker))
        const asks = await measureCrossAsks(a => add({ a }).then(({ answer }) => answer))
        await worker.terminate()
        return crossAsks(asks)
      },
    },
  },
  piscina: {
    version: () => versionOf('piscina'),
    rows: {
      async crossAsk() {
        const { Piscina } = (await load('piscina')) as PiscinaModule
        const measures: Record<string, Measure> = {}
        const all: CrossAsks[] = []
        for (const atomics of ['sync', 'async'] as const) {
          for (const concurrentTasksPerWorker of [1, 16]) {
            const pool = new Piscina({
              filename: fileURLToPath(new URL('./rival-task.ts', import.meta.url)),
              minThreads: 1,
              maxThreads: 1,
              execArgv: [],
              atomics,
              concurrentTasksPerWorker,
            })
            const asks = await measureCrossAsks(a =>
              pool.run({ a }, { name: 'add' }).then(({ answer }) => answer),
            )
            await pool.destroy()
            all.push(asks)
            const setting = `atomics ${atomics}, ${concurrentTasksPerWorker} tasks per worker`
            measures[`crossAsk, ${setting}`] = { value: asks.perS, unit: 'ask/s' }
            measures[`crossAskSequentialP50, ${setting}`] = { value: asks.p50Us, unit: 'µs' }
          }
        }
        const best: CrossAsks = {
          perS: Math.max(...all.map(asks => asks.perS)),
          p50Us: Math.min(...all.map(asks => asks.p50Us)),
          p99Us: Math.min(...all.map(asks => asks.p99Us)),
        }
        return { ...crossAsks(best), ...measures }
      },
    },
  },
}

/** Messages per second, in bursts as ours; each burst is over when its last message was handled. */
async function measureTells(tell: (n: number) => void, steps: Steps): Promise<Measures> {
  const tellAll = async (to: number): Promise<void> => {
    for (let n = steps.count; n < to; ) {
      const burstEnd = Math.min(n + BURST, to)
      while (n < burstEnd) tell(++n)
      while (steps.count < burstEnd) await nextTurn()
    }
  }
  const warm = Math.ceil(TELLS / 5)
  await tellAll(warm)
  const from = performance.now()
  await tellAll(warm + TELLS)
  const value = perSecond(TELLS, from)
  requireEqual('messages handled in order', steps.count - steps.violations, warm + TELLS)
  return { localTell: { value, unit: 'msg/s' } }
}

function localAsks({ inFlight, sequential }: Asks): Measures {
  return {
    localAsk: { value: inFlight, unit: 'ask/s' },
    localAskSequential: { value: sequential, unit: 'ask/s' },
  }
}

function crossAsks({ perS, p50Us, p99Us }: CrossAsks): Measures {
  return {
    crossAsk: { value: perS, unit: 'ask/s' },
    crossAskSequentialP50: { value: p50Us, unit: 'µs' },
    crossAskSequentialP99: { value: p99Us, unit: 'µs' },
  }
}

async function withNact<T>(use: (nact: Nact) => Promise<T>): Promise<T> {
  return use((await load('nact')) as Nact)
}

async function withXstate<T>(use: (xstate: Xstate) => Promise<T>): Promise<T> {
  return use((await load('xstate')) as Xstate)
}

async function withComedy<T>(
  options: { readonly mode: 'in-memory' | 'threaded' },
  use: (actor: ComedyActor, steps: Steps) => Promise<T>,
): Promise<T> {
  const { createSystem } = (await load('comedy')) as Comedy
  const system = createSystem({ test: true }) // Without it, it logs and looks for its settings in files.
  try {
    const root = await system.rootActor()
    const steps = new Steps()
    const definition =
      options.mode === 'threaded'
        ? ComedyAdder
        : { step: (n: number) => steps.take(n), add: (a: number) => a + 1 }
    return await use(await root.createChild(definition, options), steps)
  } finally {
    await system.destroy()
  }
}

/** Its source travels to the thread. */
class ComedyAdder {
  add(a: number) {
    return a + 1
  }
}

/** A specifier that is no literal: types of a rival that may be missing are not asked for. */
function load(specifier: string): Promise<unknown> {
  return import(specifier)
}

/** The version in the package.json of what is installed beside this package. */
function versionOf(name: string): string | undefined {
  const path = fileURLToPath(new URL(`../node_modules/${name}/package.json`, import.meta.url))
  if (!existsSync(path)) return undefined
  return (JSON.parse(readFileSync(path, 'utf8')) as { version: string }).version
}

// ── What is used of each ─────────────────────────────────────────────────────────────────────────

interface Nact {
  start(): object
  spawnStateless<M>(parent: object, behavior: (message: M) => void, name: string): object
  dispatch(actor: object, message: unknown): void
  query<T>(actor: object, message: (sender: object) => unknown, timeoutMs: number): Promise<T>
}

interface Comedy {
  createSystem(options: object): {
    rootActor(): Promise<{ createChild(definition: object, options: object): Promise<ComedyActor> }>
    destroy(): Promise<void>
  }
}

interface ComedyActor {
  send(topic: string, message: unknown): Promise<void>
  sendAndReceive(topic: string, message: unknown): Promise<number>
}

interface Xstate {
  fromTransition<S, E>(transition: (state: S, event: E) => S, initial: S): { readonly event?: E }
  createActor<E>(logic: { readonly event?: E }): { start(): { send(event: E): void } }
}

interface Comlink {
  wrap(endpoint: object): { add(task: { a: number }): Promise<{ answer: number }> }
}

interface NodeAdapter {
  readonly default: (worker: Worker) => object
}

interface PiscinaModule {
  readonly Piscina: new (
    options: object,
  ) => {
    run(task: { a: number }, options: { name: string }): Promise<{ answer: number }>
    destroy(): Promise<void>
  }
}
