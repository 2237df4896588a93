/**
 * The actor system: main's runtime, its root as the parent of every top-level actor, and the
 * threads beside main.
 */

import { createLog, type Duration, LOG_LEVELS, type LogFormat, systemClock, systemRandom } from '@homing/base'
import type { Cell } from '../cell/cell.ts'
import type { Child } from '../cell/kin.ts'
import { asRef } from '../cell/ref.ts'
import { BACKOFF_FIELDS, checkedFields, checkedHeapMb, checkedWord, drainMsOf } from '../contract/settings.ts'
import { systemView } from '../contract/system-view.ts'
import { terminatedOf } from '../contract/terminated.ts'
import type { Pools } from '../contract/thread-names.ts'
import type {
  ActorDefinition,
  ActorRef,
  ActorStatus,
  ActorSystem,
  ActorSystemOptions,
  Census,
  ShutdownReport,
  SpawnOptions,
  StopOptions,
  SystemStats,
  Terminated,
  ThreadStatus,
} from '../contract/types.ts'
import { MAIN } from '../links/life.ts'
import type { FlightEvent } from '../observe/flight.ts'
import { Observatory, type SystemCounters } from '../observe/observatory.ts'
import type { PoolMap } from '../runtime/placement.ts'
import type { Places } from '../runtime/places.ts'
import { type FlatStatus, Runtime, type RuntimeStats } from '../runtime/runtime.ts'
import type { HeapPressure } from '../threads/heap-guard.ts'
import { IdleHeap } from '../threads/idle-heap.ts'
import { threadName } from '../threads/thread.ts'
import { Threads } from '../threads/threads.ts'
import { WorkerHost } from '../threads/worker-host.ts'
import { type DeadLetterReason, noDeadLetters } from '../values/dead-letters.ts'
import { toMs } from '../values/durations.ts'
import { NestedSystemError, SystemStoppedError } from '../values/errors.ts'
import type { Message } from '../values/message.ts'

const OPTION_FIELDS: readonly (keyof ActorSystemOptions)[] = [
  'name',
  'pools',
  'clock',
  'random',
  'logLevel',
  'logFormat',
  'threadRestartsMax',
  'threadBackoff',
  'hungAfter',
  'heapPressure',
  'threadHeapMb',
  'ringKib',
  'warmSpare',
  'threadExecArgv',
  'log',
  'provide',
]
const POOL_FIELDS = ['count', 'preload'] as const
const SHUTDOWN_FIELDS = ['deadline', 'after', 'within'] as const
const PRESSURE_FIELDS = ['shedAt', 'recycleAt', 'shedFor'] as const
const LOG_FORMATS: readonly LogFormat[] = ['auto', 'text', 'json']
const THREAD_RESTARTS_MAX_DEFAULT = 10
const HUNG_AFTER_DEFAULT = '10s'
const THREAD_BACKOFF_DEFAULT = { min: '20ms', max: '2s' } as const
const SHED_AT_DEFAULT = 0.7
const RECYCLE_AT_DEFAULT = 0.85
const SHED_FOR_DEFAULT = '2s'
const RING_KIB_MIN = 16
const RING_KIB_MAX = 8192
const RING_KIB_DEFAULT = 1024
const SYSTEM_SHUTDOWN_MS_DEFAULT = 10_000
/** The part of the deadline in which actors may drain; the rest is left for their stop. */
const DRAIN_SHARE = 0.8
/** Left for the threads, and then for main's capabilities, when the deadline is used up. */
const RELEASE_MS_MIN = 1000
const QUERY_MS_MAX = 1000
const FLIGHT_LIMIT_DEFAULT = 100
const PROCESS_KEEP_ALIVE_MS = 2 ** 31 - 1

/**
 * Starts a system: `main` is the calling thread, the pools are workers. Resolves when every thread is
 * ready. The process stays alive until `shutdown`. Rejects with ThreadStartError when a thread does not
 * come up, and with NestedSystemError on a thread of another system.
 */
export async function createActorSystem<const P extends Pools = Record<never, never>>(
  options: ActorSystemOptions<P> = {},
): Promise<ActorSystem<P>> {
  const nested = (globalThis as { [threadName]?: string })[threadName]
  if (nested !== undefined) throw new NestedSystemError(nested)
  checkedFields('the options of a system', options, OPTION_FIELDS)
  if (options.logLevel !== undefined) checkedWord('logLevel', options.logLevel, LOG_LEVELS)
  if (options.logFormat !== undefined) checkedWord('logFormat', options.logFormat, LOG_FORMATS)
  if (options.threadBackoff !== undefined)
    checkedFields('threadBackoff', options.threadBackoff, BACKOFF_FIELDS)
  const pools = poolMapOf(options.pools ?? {})
  const logLevel = options.logLevel ?? 'info'
  const backoff = options.threadBackoff ?? THREAD_BACKOFF_DEFAULT
  const runtime = createMainRuntime(options, pools, false)
  const host = new WorkerHost({
    log: runtime.log,
    execArgv: options.threadExecArgv,
    hasSpare: options.warmSpare ?? true,
    heapMb: options.threadHeapMb === undefined ? undefined : checkedHeapMb(options.threadHeapMb),
    ringWords: (checkedRingKib(options.ringKib ?? RING_KIB_DEFAULT) * 1024) / Int32Array.BYTES_PER_ELEMENT,
  })
  const threads = new Threads(runtime, host, {
    pools,
    logLevel,
    logFormat: options.logFormat ?? 'auto',
    threadRestartsMax: checkedRestartsMax(options.threadRestartsMax ?? THREAD_RESTARTS_MAX_DEFAULT),
    hungAfterMs: toMs(options.hungAfter ?? HUNG_AFTER_DEFAULT),
    backoffMsMin: toMs(backoff.min),
    backoffMsMax: toMs(backoff.max),
    heapPressure: heapPressureOf(options.heapPressure),
  })
  const system = new LocalActorSystem(runtime, threads)
  try {
    await threads.start()
  } catch (error) {
    await system.shutdown({ deadline: 0 })
    throw error
  }
  return system
}

/** The threads of the pools by name. Throws RangeError for what is no pool. */
export function poolMapOf(pools: Pools): PoolMap {
  return Object.entries(pools).map(([name, pool]) => {
    checkedFields(`pool ${name}`, pool, POOL_FIELDS)
    const { count, preload = [] } = pool
    if (!Number.isInteger(count) || count < 0) {
      throw new RangeError(`cannot start ${count} threads in pool ${name}: use an integer ≥ 0`)
    }
    if (!Array.isArray(preload) || preload.some(url => typeof url !== 'string')) {
      throw new RangeError(`cannot preload ${String(preload)} in pool ${name}: use a list of URLs of modules`)
    }
    return { name, threads: Array.from({ length: count }, (_, index) => `${name}-${index}`), preload }
  })
}

/** `max`, where it is a bound. Throws RangeError otherwise. */
export function checkedRestartsMax(max: number): number {
  if (Number.isInteger(max) && max >= 0) return max
  throw new RangeError(`cannot allow ${max} restarts of a thread: use an integer ≥ 0`)
}

function checkedRingKib(kib: number): number {
  if (kib >= RING_KIB_MIN && kib <= RING_KIB_MAX && Number.isInteger(Math.log2(kib))) return kib
  throw new RangeError(
    `cannot give threads rings of ${kib} KiB: use a power of two of ${RING_KIB_MIN} … ${RING_KIB_MAX}`,
  )
}

function heapPressureOf(option: ActorSystemOptions['heapPressure']): HeapPressure | undefined {
  if (option === false) return undefined
  if (option !== undefined) checkedFields('heapPressure', option, PRESSURE_FIELDS)
  const {
    shedAt = SHED_AT_DEFAULT,
    recycleAt = RECYCLE_AT_DEFAULT,
    shedFor = SHED_FOR_DEFAULT,
  } = option ?? {}
  if (!(shedAt > 0 && shedAt <= recycleAt && recycleAt <= 1)) {
    throw new RangeError(
      `cannot shed at ${shedAt} and recycle at ${recycleAt} of the heap: use 0 < shedAt ≤ recycleAt ≤ 1`,
    )
  }
  return { shedAt, recycleAt, shedForMs: toMs(shedFor) }
}

/** Main's runtime; `isAlone` when there are no threads and every placement means main. */
export function createMainRuntime(
  options: ActorSystemOptions,
  pools: PoolMap,
  isAlone: boolean,
  places?: Places,
): Runtime {
  const fields = { ...(options.name === undefined ? {} : { system: options.name }), thread: MAIN }
  return new Runtime({
    thread: MAIN,
    uid: 1,
    pools,
    clock: options.clock ?? systemClock,
    random: options.random ?? systemRandom,
    log: options.log ?? createLog(options.logLevel ?? 'info', fields, options.logFormat),
    provide: options.provide ?? [],
    isAlone,
    places,
  })
}

/** The system over one runtime on this thread and, unless it is alone, the threads beside it. */
export class LocalActorSystem implements ActorSystem {
  readonly runtime: Runtime
  readonly #threads: Threads | undefined
  readonly #observatory: Observatory
  #keepAlive: { cancel(): void } | undefined
  #idleHeap: IdleHeap | undefined
  #shutdown: Promise<ShutdownReport> | undefined

  constructor(runtime: Runtime, threads: Threads | undefined, keepsProcessAlive = threads !== undefined) {
    this.runtime = runtime
    this.#threads = threads
    this.#observatory = threads?.observatory ?? new Observatory(MAIN, runtime.memory)
    runtime.provide(systemView, this)
    if (!keepsProcessAlive) return
    this.#stayAlive()
    this.#idleHeap = new IdleHeap(systemClock)
  }

  spawn<M extends Message, A>(definition: ActorDefinition<M, A>, options: SpawnOptions<A>): ActorRef<M> {
    if (this.#shutdown !== undefined) throw new SystemStoppedError(`spawn ${options.name}`)
    return this.runtime.spawn(this.#root, definition, options)
  }

  whenTerminated(ref: ActorRef<never>): Promise<Terminated> {
    const any = asRef(ref)
    const { promise, resolve } = Promise.withResolvers<Terminated>()
    const child = this.#child(ref)
    if (child !== undefined) {
      child.onEnded ??= []
      child.onEnded.push(resolve)
    } else {
      const onTerminated = (_key: string, _name: string, ...[reason, error]: EndingFields): void =>
        resolve(terminatedOf(any, reason, error))
      this.runtime.watches.add({ onTerminated }, any)
    }
    return promise
  }

  async stop(ref: ActorRef<never>, options?: StopOptions): Promise<Terminated> {
    const any = asRef(ref)
    const drainMs = drainMsOf(options)
    const isTopLevel = this.#child(ref) !== undefined
    if (!isTopLevel) this.runtime.kinship.stopDistant(any, drainMs)
    const terminated = this.whenTerminated(ref)
    if (isTopLevel) this.#root.stopChild(any.id, drainMs)
    return terminated
  }

  async stats(): Promise<SystemStats> {
    const all = (await this.#queryThreads('stats')) as RuntimeStats[]
    all.push(this.runtime.stats())
    const deadLettersByReason = noDeadLetters()
    for (const stats of all) {
      for (const [reason, count] of Object.entries(stats.deadLettersByReason)) {
        deadLettersByReason[reason as DeadLetterReason] += count
      }
    }
    const sum = (field: Exclude<keyof RuntimeStats, 'deadLettersByReason'>): number =>
      all.reduce((total, stats) => total + stats[field], 0)
    return {
      actors: sum('actors'),
      threads: this.#threads?.names.length ?? 1,
      sent: sum('sent'),
      handled: sum('handled'),
      deadLetters: sum('deadLetters'),
      deadLettersByReason,
      refused: sum('refused'),
      restarts: sum('restarts'),
      threadRestarts: this.#threads?.restartCount ?? 0,
      threadRecycles: this.#threads?.recycleCount ?? 0,
      threadZombies: this.#threads?.zombieCount ?? 0,
      asksPending: sum('asksPending'),
      asksTimedOut: sum('asksTimedOut'),
    }
  }

  async describe(): Promise<readonly ActorStatus[]> {
    return (await this.census()).actors
  }

  async census(): Promise<Census> {
    const names = this.#threads?.names ?? [MAIN]
    const all = (await this.#queryThreads('describe')) as FlatStatus[][]
    const flat = [...this.runtime.describe(), ...all.flat()]
    const ids = new Set(flat.map(status => status.id))
    const byParent = Map.groupBy(flat, ({ parentId }) => (ids.has(parentId) ? parentId : 0))
    const tree = (parentId: number): ActorStatus[] =>
      (byParent.get(parentId) ?? [])
        .toSorted((a, b) => a.id - b.id)
        .map(({ id, parentId: _, ...status }) => ({ ...status, children: tree(id) }))
    const answered = new Set([MAIN, ...flat.map(({ thread }) => thread)])
    const { threads } = this.counters()
    const isEmpty = (name: string): boolean => threads.find(({ thread }) => thread === name)?.actors === 0
    return { actors: tree(0), unanswered: names.filter(name => !answered.has(name) && !isEmpty(name)) }
  }

  counters(): SystemCounters {
    // Other threads note it with every sign of life.
    this.runtime.heap.note()
    return this.#observatory.counters()
  }

  threads(): readonly ThreadStatus[] {
    const standings = new Map((this.#threads?.standings ?? []).map(standing => [standing.name, standing]))
    return this.counters().threads.map(({ thread: name, lives }) => {
      const standing = standings.get(name)
      const state = name === MAIN ? 'running' : (standing?.state ?? 'ended')
      return { name, state, lives, restartsLately: standing?.restartsLately ?? 0 }
    })
  }

  flight(thread: string, limit = FLIGHT_LIMIT_DEFAULT): readonly FlightEvent[] | undefined {
    return this.#observatory.flight(thread, limit)
  }

  async killThread(name: string): Promise<void> {
    if (this.#threads === undefined) return
    await this.#threads.kill(name)
  }

  shutdown(options: StopOptions & { readonly deadline?: Duration } = {}): Promise<ShutdownReport> {
    checkedFields('the options of a shutdown', options, SHUTDOWN_FIELDS)
    const { deadline = SYSTEM_SHUTDOWN_MS_DEFAULT, ...how } = options
    const deadlineMs = toMs(deadline)
    const drainMs = drainMsOf(how)
    this.#shutdown ??= this.#stopAll(deadlineMs, drainMs === 'shutdown' ? deadlineMs * DRAIN_SHARE : drainMs)
    return this.#shutdown
  }

  async #stopAll(deadlineMs: number, drainMs: number | undefined): Promise<ShutdownReport> {
    const { runtime } = this
    const startMs = runtime.clock.nowMs()
    const { dropped: droppedBefore, handled: handledBefore } = this.counters().total
    // An actor that drains may need children for what it handles.
    runtime.isOpen = drainMs !== undefined
    const root = this.#root
    const { promise: stopped, resolve } = Promise.withResolvers<void>()
    root.addWatcher({ onTerminated: () => resolve() })
    const limit = { dueMs: 0, position: -1, expire: () => root.abandonChildren() }
    runtime.deadlines.add(limit, deadlineMs)
    if (drainMs === undefined) root.requestStop()
    else root.requestDrain(Math.min(drainMs, deadlineMs))
    await stopped
    runtime.isOpen = false
    runtime.deadlines.remove(limit)
    const passedMs = (): number => runtime.clock.nowMs() - startMs
    const leftMs = (): number => Math.max(RELEASE_MS_MIN, deadlineMs - passedMs())
    const disposals = (await this.#threads?.stop(leftMs(), passedMs())) ?? []
    disposals.push(await runtime.dispose(leftMs(), passedMs()))
    runtime.close()
    this.#keepAlive?.cancel()
    this.#idleHeap?.stop()
    const { dropped, handled } = this.counters().total
    return {
      durationMs: passedMs(),
      slow: [...new Set(disposals.flatMap(({ slow }) => slow))],
      undrained: [...new Set(disposals.flatMap(({ undrained = [] }) => undrained))],
      handledMessages: handled - handledBefore,
      droppedMessages: dropped - droppedBefore,
    }
  }

  /** The queries that were answered; a thread that dies meanwhile is left out. */
  async #queryThreads(type: 'stats' | 'describe'): Promise<unknown[]> {
    const names = this.#threads?.names.filter(name => name !== MAIN) ?? []
    const answers = await Promise.allSettled(
      names.map(name => this.runtime.query(name, { type }, QUERY_MS_MAX)),
    )
    return answers.filter(answer => answer.status === 'fulfilled').map(answer => answer.value)
  }

  get #root(): Cell {
    return this.runtime.root!
  }

  #child(ref: ActorRef<never>): Child | undefined {
    return this.#root.children?.get(asRef(ref).id)
  }

  #stayAlive(): void {
    this.#keepAlive = systemClock.after(PROCESS_KEEP_ALIVE_MS, () => this.#stayAlive())
  }
}

type EndingFields = [reason: Terminated['reason'], error: Terminated['error']]
