/**
 * A system for tests: one thread, a simulated clock, every placement means here. Actors are tested through
 * messages and probes; nothing sleeps, and no thread is started. What actors of different placements tell
 * each other is copied, as between threads.
 */

import './values/node-version.ts'

import {
  CodedError,
  type Duration,
  type Log,
  type Random,
  SimulatedClock,
  seededRandom,
  silentLog,
  systemClock,
} from '@homing/base'
import { anyMessage } from './cell/arms.ts'
import { checkedFields } from './contract/settings.ts'
import {
  type ActorDefinition,
  type ActorRef,
  type ActorSystem,
  type Provided,
  type Signal,
  signal,
  type Terminated,
} from './contract/types.ts'
import { CopiedPlaces } from './simulation/copied-places.ts'
import { createMainRuntime, LocalActorSystem } from './system/system.ts'
import { toMs } from './values/durations.ts'
import type { Message } from './values/message.ts'

export {
  type LogLine,
  type RecordingLog,
  recordingLog,
  SimulatedClock,
  seededRandom,
  silentLog,
} from '@homing/base'

/** Options of a test system; all have defaults. */
export interface TestSystemOptions {
  /** Default: a new clock at 0. */
  readonly clock?: SimulatedClock
  /** Default: seeded with 1. */
  readonly random?: Random
  /** Default: writes nothing. */
  readonly log?: Log
  /** Values to use instead of making the capability of that name. */
  readonly provide?: readonly Provided[]
  /**
   * Pass messages, answers and args by reference, whatever the placements. Default false: see docs/actors.md.
   */
  readonly byReference?: boolean
}

/** A system on one thread whose time the test moves. */
export interface TestSystem extends ActorSystem {
  /** Stands still but for `advance`. */
  readonly clock: SimulatedClock
  /** A new probe: a ref that records what it is told. */
  probe<M extends Message>(name?: string): Probe<M>
  /** Resolves when no actor has anything left to do at this simulated time. */
  settle(): Promise<void>
  /** Moves time forward from timer to timer, and lets the actors finish after each. */
  advance(duration: Duration): Promise<void>
}

/** An actor that records its messages in order, for a test to await. */
export interface Probe<M extends Message> {
  /** What the actors under test are given. */
  readonly ref: ActorRef<M>
  /** Messages that `next` has not returned yet, oldest first. */
  readonly waiting: readonly M[]
  /** The next message. Rejects with ProbeTimeoutError after `within` of real time; default 30 s. */
  next(within?: Duration): Promise<M>
  /** Its end comes out of `nextTerminated`. */
  watch(ref: ActorRef<never>): void
  /** The next `terminated` signal of a watched ref; bounded as `next`. */
  nextTerminated(within?: Duration): Promise<Terminated>
}

/** A probe was not told what the test awaited. */
export class ProbeTimeoutError extends CodedError {
  readonly code = 'HOMING_ACTOR_PROBE_TIMEOUT'

  constructor(probe: string, what: string, withinMs: number) {
    super(`cannot await ${what} of probe ${probe}: nothing came within ${withinMs} ms`, {
      probe,
      what,
      withinMs,
    })
  }
}

const OPTION_FIELDS: readonly (keyof TestSystemOptions)[] = [
  'clock',
  'random',
  'log',
  'provide',
  'byReference',
]
/** Rounds of the event loop without work after which a system counts as settled. */
const QUIET_ROUNDS = 3
const ROUNDS_MAX = 100_000
const WITHIN_DEFAULT = '30s'

/** Starts a system on this thread only: every placement means here, and nothing needs to be exported. */
export function createTestSystem(options: TestSystemOptions = {}): TestSystem {
  checkedFields('the options of a test system', options, OPTION_FIELDS)
  const clock = options.clock ?? new SimulatedClock()
  const runtime = createMainRuntime(
    {
      clock,
      random: options.random ?? seededRandom(1),
      log: options.log ?? silentLog,
      provide: options.provide ?? [],
    },
    [],
    true,
    options.byReference === true ? undefined : new CopiedPlaces(),
  )
  const system = new LocalActorSystem(runtime, undefined)
  let probeCount = 0

  const settle = async (): Promise<void> => {
    let quietRounds = 0
    for (let round = 0; quietRounds < QUIET_ROUNDS; round++) {
      if (round >= ROUNDS_MAX)
        throw new Error(`cannot settle: actors were still busy after ${ROUNDS_MAX} rounds`)
      await new Promise<void>(resolve => setImmediate(resolve))
      quietRounds = runtime.turns.isIdle ? quietRounds + 1 : 0
    }
  }

  return Object.assign(system, {
    clock,
    settle,
    probe<M extends Message>(name?: string): Probe<M> {
      probeCount++
      return createProbe<M>(system, name ?? `probe-${probeCount}`)
    },
    async advance(duration: Duration): Promise<void> {
      const targetMs = clock.nowMs() + toMs(duration)
      await settle()
      for (let dueMs = clock.nextDueMs; dueMs !== undefined && dueMs <= targetMs; dueMs = clock.nextDueMs) {
        clock.advance(Math.max(0, dueMs - clock.nowMs()))
        await settle()
      }
      clock.advance(Math.max(0, targetMs - clock.nowMs()))
      await settle()
    },
  })
}

/** A probe on the main thread of any system, also of one with threads. */
export function createProbe<M extends Message>(system: ActorSystem, name: string): Probe<M> {
  const messages = new Inbox<M>()
  const terminations = new Inbox<Terminated>()
  // Watches asked for before the first turn of the probe wait here.
  const early: ActorRef<never>[] = []
  let watch = (watched: ActorRef<never>): void => void early.push(watched)
  const definition: ActorDefinition<M, undefined> = {
    moduleUrl: import.meta.url,
    exportName: 'probe',
    reentrant: false,
    setup(ctx) {
      watch = ctx.watch
      for (const watched of early) watch(watched)
      return {
        [anyMessage]: (message: M) => messages.put(message),
        [signal]: (given: Signal) => {
          if (given.type === 'terminated') terminations.put(given)
        },
      } as never
    },
  }
  const ref = system.spawn(definition, { name, args: undefined, mailbox: { capacity: PROBE_CAPACITY } })
  return {
    ref,
    get waiting() {
      return messages.waiting
    },
    next: (within = WITHIN_DEFAULT) =>
      messages.take(toMs(within), ms => new ProbeTimeoutError(name, 'a message', ms)),
    watch: watched => watch(watched),
    nextTerminated: (within = WITHIN_DEFAULT) =>
      terminations.take(toMs(within), ms => new ProbeTimeoutError(name, 'a terminated signal', ms)),
  }
}

const PROBE_CAPACITY = 1_000_000

/** Values in order, and the waiters for the next. */
class Inbox<T> {
  readonly waiting: T[] = []
  readonly #takers: ((value: T) => void)[] = []

  put(value: T): void {
    const taker = this.#takers.shift()
    if (taker === undefined) this.waiting.push(value)
    else taker(value)
  }

  take(withinMs: number, late: (withinMs: number) => Error): Promise<T> {
    if (this.waiting.length > 0) return Promise.resolve(this.waiting.shift()!)
    const { promise, resolve, reject } = Promise.withResolvers<T>()
    const timer = systemClock.after(withinMs, () => {
      this.#takers.splice(this.#takers.indexOf(taker), 1)
      reject(late(withinMs))
    })
    const taker = (value: T): void => {
      timer.cancel()
      resolve(value)
    }
    this.#takers.push(taker)
    return promise
  }
}
