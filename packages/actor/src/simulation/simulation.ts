/**
 * A system of actors whose threads are simulated: the same runtimes, cells and registrar as over workers, on
 * one real thread, in an order that a seed decides. The same seed and code repeat a run exactly.
 *
 * Only `run`, `settle` and `step` make anything run. While they run, real time, timers and randomness throw.
 */

import { type Clock, type Duration, type Log, type Random, seededRandom, silentLog } from '@homing/base'
import { BACKOFF_FIELDS, checkedFields, shown } from '../contract/settings.ts'
import type { ActorSystem, Backoff, Provided } from '../contract/types.ts'
import { MAIN } from '../links/life.ts'
import { Runtime } from '../runtime/runtime.ts'
import { checkedRestartsMax, LocalActorSystem, poolMapOf } from '../system/system.ts'
import { Threads } from '../threads/threads.ts'
import { toMs } from '../values/durations.ts'
import { describe } from '../values/thrown.ts'
import { SimulatedDefinitions } from './definitions.ts'
import { SimulationError } from './errors.ts'
import { type CrashPoint, checkFaults, type SimulatedFaults } from './faults.ts'
import { SimulationHost, type SimulationObserver } from './simulation-host.ts'
import { withTraps } from './traps.ts'
import type { VirtualThread } from './virtual-thread.ts'
import { World } from './world.ts'

/** Steps between two rounds of the real event loop. */
const CHUNK_STEPS = 4096
const START_STEPS_MAX = 100_000
const STEPS_MAX_DEFAULT = 1_000_000
const PAUSE_MS_MAX_DEFAULT = 10
const VIOLATIONS_MAX = 100
const THREAD_RESTARTS_MAX_DEFAULT = 10
const LIMIT_FIELDS: readonly (keyof RunLimits)[] = ['steps', 'within']
const OPTION_FIELDS: readonly (keyof SimulationOptions)[] = [
  'seed',
  'pools',
  'faults',
  'provide',
  'log',
  'observer',
  'threadRestartsMax',
  'threadBackoff',
  'hungAfter',
  'originWallMs',
]

export interface SimulationOptions {
  /** Any integer; decides everything that is left to chance. */
  readonly seed: number
  /** Threads beside main, as for `createActorSystem`. */
  readonly pools?: Readonly<Record<string, { readonly count: number }>>
  /** Deals faults once all threads are up; `linkFrames` and `spillFrames` hold from the start. */
  readonly faults?: SimulatedFaults
  /**
   * Values to use instead of making the capability of that name: for all threads, or for each life of one.
   */
  readonly provide?: readonly Provided[] | ((thread: SimulatedThread) => readonly Provided[])
  /** The log of each thread; default: writes nothing. */
  readonly log?: (thread: string) => Log
  readonly observer?: SimulationObserver
  readonly threadRestartsMax?: number
  readonly threadBackoff?: Backoff
  /** Default 1 s of simulated time; 0: never. */
  readonly hungAfter?: Duration
  /** What the wall clock says at the start; default: the first second of 2026. */
  readonly originWallMs?: number
}

/** A life of a thread, for those who provide something to it. */
export interface SimulatedThread {
  readonly name: string
  /** The number of its life, unique in the simulation. */
  readonly uid: number
  /** Its timers end with it. */
  readonly clock: Clock
  readonly random: Random
  /**
   * Runs `callback` on the thread, in a step of its own, in the order of the calls; never when it is dead.
   */
  post(callback: () => void): void
  /** Called when the life ends, however. */
  onEnd(release: () => void): void
}

export interface RunLimits {
  /** Default 1,000,000. */
  readonly steps?: number
  /** Simulated time; default: no limit. */
  readonly within?: Duration
}

/** Why `run` came back: the condition holds, nothing is left to run, or a limit was reached. */
export type RunOutcome = 'reached' | 'quiet' | 'steps' | 'time'

export interface Simulation extends ActorSystem {
  readonly seed: number
  /** Simulated time, for what is outside of all threads. */
  readonly clock: Clock
  /** For the scenario: equal seeds roll equal numbers, whatever the actors do. */
  readonly random: Random
  readonly steps: number
  /** 16 hex digits over every choice of the schedule and every frame so far. */
  readonly traceHash: string
  /** Use of real time or chance, and unhandled rejections: the oldest 100. */
  readonly violations: readonly string[]
  /** Names of the threads that run now, main included. */
  readonly threadNames: readonly string[]
  /**
   * Runs until `until` answers true (asked after every step), nothing is left to run, or a limit is reached.
   */
  run(until?: () => boolean, limits?: RunLimits): Promise<RunOutcome>
  /** Runs until `promise` settles. Rejects with SimulationError when it does not. */
  settle<T>(promise: PromiseLike<T>, limits?: RunLimits): Promise<T>
  /** Runs that many steps; false when nothing is left to run. */
  step(count?: number): Promise<boolean>
  /** Lets the thread die when it next comes to that point of its work. */
  crash(thread: string, point: CrashPoint): void
  /** The thread runs nothing for so long. */
  hang(thread: string, duration: Duration): void
  /**
   * Lets the running actor of that name fail with SimulatedFailure, some steps from now. False: none runs.
   */
  fail(actor: string): boolean
  /** From now on only these faults are dealt; the capacity of links stays. */
  setFaults(faults: SimulatedFaults): void
  /** Takes an integer into the trace: of an outcome that the schedule does not show. */
  mix(value: number): void
}

/** Resolves once all threads run. Rejects with SimulationError when they do not come up. */
export async function createSimulation(options: SimulationOptions): Promise<Simulation> {
  checkedFields('the options of a simulation', options, OPTION_FIELDS)
  const { seed, faults = {} } = options
  if (!Number.isInteger(seed))
    throw new RangeError(`cannot simulate from seed ${shown(seed)}: use an integer`)
  checkFaults(faults)
  if (options.threadBackoff !== undefined)
    checkedFields('threadBackoff', options.threadBackoff, BACKOFF_FIELDS)
  const pools = poolMapOf(options.pools ?? {})
  const world = new World({
    seed,
    originWallMs: options.originWallMs ?? Date.UTC(2026, 0, 1),
    pause: faults.pause ?? 0,
    pauseMsMax: faults.pauseMsMax ?? PAUSE_MS_MAX_DEFAULT,
  })
  const definitions = new SimulatedDefinitions()
  const log = options.log ?? (() => silentLog)
  const provide = (thread: VirtualThread): readonly Provided[] => {
    if (typeof options.provide !== 'function') return options.provide ?? []
    const { name, uid, clock, random } = thread
    return options.provide({
      name,
      uid,
      clock,
      random,
      post: callback => thread.post(callback),
      onEnd: release => void thread.onEnd.push(release),
    })
  }
  const { linkFrames, spillFrames } = faults
  const host = new SimulationHost(world, {
    faults: {
      ...(linkFrames === undefined ? {} : { linkFrames }),
      ...(spillFrames === undefined ? {} : { spillFrames }),
    },
    observer: options.observer ?? {},
    log,
    provide,
    definitions,
  })
  const { main } = host
  const runtime = new Runtime({
    thread: MAIN,
    uid: main.uid,
    pools,
    clock: main.clock,
    random: main.random,
    log: log(MAIN),
    provide: provide(main),
    isAlone: false,
    planTurn: main.planTurn,
    heap: main.heap,
    definitions,
  })
  main.runtime = runtime
  const threads = new Threads(runtime, host, {
    pools,
    logLevel: 'info',
    logFormat: 'auto',
    threadRestartsMax: checkedRestartsMax(options.threadRestartsMax ?? THREAD_RESTARTS_MAX_DEFAULT),
    hungAfterMs: toMs(options.hungAfter ?? '1s'),
    backoffMsMin: toMs(options.threadBackoff?.min ?? '20ms'),
    backoffMsMax: toMs(options.threadBackoff?.max ?? '2s'),
  })
  const system = new LocalActorSystem(runtime, threads, false)
  const driver = new Driver(world)
  const simulation: Simulation = Object.defineProperties(system as unknown as Simulation, {
    steps: { get: () => world.steps },
    traceHash: { get: () => world.traceHash },
    threadNames: { get: () => [...host.threads.keys()] },
  })
  Object.assign(simulation, {
    seed,
    clock: world satisfies Clock,
    random: seededRandom(seed),
    violations: driver.violations,
    run: (until?: () => boolean, limits?: RunLimits) => driver.run(until, limits),
    settle: <T>(promise: PromiseLike<T>, limits?: RunLimits) => driver.settle(promise, limits),
    step: async (count = 1) => (await driver.run(undefined, { steps: count })) !== 'quiet',
    crash: (thread: string, point: CrashPoint) => host.crash(thread, point),
    hang: (thread: string, duration: Duration) => host.hang(thread, toMs(duration)),
    fail: (actor: string) => host.fail(actor),
    setFaults: (given: SimulatedFaults) => {
      checkFaults(given)
      host.setFaults(given)
    },
    mix: (value: number) => world.mix(value),
  })
  await driver.settle(threads.start(), { steps: START_STEPS_MAX })
  host.setFaults(faults)
  return simulation
}

/** Runs a world in chunks, with the traps set. */
class Driver {
  readonly violations: string[] = []
  readonly #world: World
  #isRunning = false

  constructor(world: World) {
    this.#world = world
  }

  async settle<T>(promise: PromiseLike<T>, limits?: RunLimits): Promise<T> {
    let isSettled = false
    const note = (): void => {
      isSettled = true
    }
    promise.then(note, note)
    const outcome = await this.run(() => isSettled, limits)
    if (!isSettled) {
      const { steps } = this.#world
      throw new SimulationError(
        'settle a promise',
        `it was pending after ${steps} steps at ${this.#world.nowMs().toFixed(3)} ms: ${OUTCOMES[outcome]}`,
      )
    }
    return promise
  }

  async run(until: () => boolean = () => false, limits: RunLimits = {}): Promise<RunOutcome> {
    checkedFields('the limits of a run', limits, LIMIT_FIELDS)
    if (this.#isRunning) throw new SimulationError('run', 'the simulation runs already')
    this.#isRunning = true
    try {
      const world = this.#world
      const lastStep = world.steps + (limits.steps ?? STEPS_MAX_DEFAULT)
      const endMs =
        limits.within === undefined ? Number.POSITIVE_INFINITY : world.nowMs() + toMs(limits.within)
      for (;;) {
        const outcome = await this.#chunk(until, lastStep, endMs)
        if (outcome !== undefined) return outcome
      }
    } finally {
      this.#isRunning = false
    }
  }

  #chunk(until: () => boolean, lastStep: number, endMs: number): Promise<RunOutcome | undefined> {
    return new Promise((resolve, reject) => {
      setImmediate(() => {
        process.on('unhandledRejection', this.#noteRejection)
        try {
          resolve(
            withTraps(
              error => this.#note(error.message),
              () => this.#steps(until, lastStep, endMs),
            ),
          )
        } catch (thrown) {
          reject(thrown)
        } finally {
          process.off('unhandledRejection', this.#noteRejection)
        }
      })
    })
  }

  #steps(until: () => boolean, lastStep: number, endMs: number): RunOutcome | undefined {
    const world = this.#world
    // What the scenario sent between two runs.
    world.onStepEnd()
    for (let count = 0; count < CHUNK_STEPS; count++) {
      if (until()) return 'reached'
      if (world.steps >= lastStep) return 'steps'
      if (world.nowMs() >= endMs) return 'time'
      if (!world.step(endMs)) return world.nowMs() >= endMs ? 'time' : 'quiet'
    }
    return undefined
  }

  readonly #noteRejection = (reason: unknown): void =>
    this.#note(`unhandled rejection: ${JSON.stringify(describe(reason))}`)

  #note(violation: string): void {
    if (this.violations.length < VIOLATIONS_MAX) this.violations.push(violation)
  }
}

const OUTCOMES: Readonly<Record<RunOutcome, string>> = {
  reached: 'it had been reached',
  quiet: 'nothing was left to run',
  steps: 'the steps were used up',
  time: 'the simulated time was over',
}
