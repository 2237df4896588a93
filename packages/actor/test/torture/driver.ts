/**
 * Driver: a torture run of an actor system on real threads, and its checks.
 *
 * Nodes exchange numbered messages of two kinds, ask, watch and spawn, while threads are killed in every
 * way (chaos.ts), one death or more a cycle. The board records what happened. At *quiet points* no thread
 * dies and no message is sent: then every message has arrived, or is missing for a reason that the runtime
 * states (losses.ts).
 *
 * Owns   the system, its nodes, watchers and nurseries, the violations, and the memory at the quiet points.
 */

import { getActiveResourcesInfo } from 'node:process'
import {
  type ActorRef,
  type ActorStatus,
  type ActorSystem,
  createActorSystem,
  type Supervision,
  type SystemStats,
  type ThreadPlacement,
} from '@homing/actor'
import { type Random, seededRandom, silentLog } from '@homing/base'
import {
  boardOf,
  type NodeMessage,
  type NurseryMessage,
  node,
  nursery,
  sendNumbered,
  type WatcherMessage,
  watcher,
} from './actors.ts'
import { Asks } from './asks.ts'
import { Board, COUNT, DRIVER, MAIN_INDEX } from './board.ts'
import { Chaos, count } from './chaos.ts'
import { CheckedFaults } from './checked-faults.ts'
import { Losses, type Reason } from './losses.ts'
import { ALIVE_MS_MAX, ANSWER_MS_MAX, bounded, LATE_MS_MAX, PUMP_MS, pause, QUIET_MS_MAX } from './waits.ts'

const ASKERS = 6
const OUTSTANDING_MAX = 8000

export interface TortureOptions {
  readonly seed: number
  /** Threads beside main, 2 … 4. */
  readonly threads: number
  /** Deaths to bring about; fewer when the time is up, but at least `cyclesMin`. */
  readonly cycles: number
  readonly cyclesMin?: number
  readonly limitMs: number
  /** Deaths between two quiet points. */
  readonly quietEvery: number
  /** Other faults between two deaths, on average. */
  readonly faultsPerCycle: number
  readonly onProgress?: (line: string) => void
  /** Collects the garbage of main, before its memory is looked at. */
  readonly collect?: () => void
}

export interface TortureResult {
  readonly seed: number
  readonly cycles: number
  readonly seconds: number
  readonly sent: number
  readonly received: number
  /** Messages lost, by reason. */
  readonly lost: Readonly<Record<Reason, number>>
  /** The most frames of one link that one death lost. */
  readonly windowMax: number
  readonly asks: Readonly<Record<string, number>>
  /** The latest that an ask settled after its deadline. */
  readonly asksLateMsMax: number
  readonly stuckAsks: number
  readonly duplicates: number
  readonly disorders: number
  readonly beyondWindow: number
  readonly watches: number
  readonly faults: Readonly<Record<string, number>>
  readonly threadRestarts: number
  readonly failoversMs: readonly number[]
  /** Resident bytes at the quiet points, and the deaths by then. */
  readonly memory: readonly (readonly [
    cycles: number,
    rssBytes: number,
    heapBytes: number,
    externalBytes: number,
  ])[]
  /** Active handles of main at the first quiet point and the last. */
  readonly handles: readonly [Readonly<Record<string, number>>, Readonly<Record<string, number>>]
  readonly shutdownMs: number
  /** What must not have happened; none. */
  readonly violations: readonly string[]
}

const forever: Supervision = {
  directive: 'restart',
  max: 1_000_000,
  within: '1m',
  backoff: { min: 1, max: 5 },
}

export async function torture(options: TortureOptions): Promise<TortureResult> {
  const run = new Run(options)
  return run.result()
}

class Run {
  readonly #options: TortureOptions
  readonly #random: Random
  readonly #board: Board
  #system!: ActorSystem
  readonly #nodes: ActorRef<NodeMessage>[] = []
  readonly #watchers: ActorRef<WatcherMessage>[] = []
  readonly #nurseries: ActorRef<NurseryMessage>[] = []
  readonly #violations: string[] = []
  readonly #losses: Losses
  readonly #asks: Asks
  #checked!: CheckedFaults
  #chaos!: Chaos
  #stuckAsks = 0
  readonly #failoversMs: number[] = []
  readonly #memory: [number, number, number, number][] = []
  #isPaused = false
  #isOver = false

  constructor(options: TortureOptions) {
    this.#options = options
    this.#random = seededRandom(options.seed)
    this.#board = boardOf(new Board().memory)
    const violate = (what: string): void => this.#violate(what)
    this.#losses = new Losses(this.#board, violate)
    this.#asks = new Asks(violate)
  }

  async result(): Promise<TortureResult> {
    const { seed, threads, cycles, cyclesMin = 0, limitMs, quietEvery, onProgress } = this.#options
    this.#system = await createActorSystem({
      pools: { p: { count: threads } },
      log: silentLog,
      logLevel: 'silent',
      threadRestartsMax: 1_000_000,
      threadBackoff: { min: 0, max: 0 },
    })
    this.#checked = new CheckedFaults({
      board: this.#board,
      system: this.#system,
      random: this.#random,
      threads,
      nodes: this.#nodes,
      asks: this.#asks,
      violate: what => this.#violate(what),
    })
    this.#chaos = new Chaos({
      board: this.#board,
      system: this.#system,
      random: this.#random,
      threads,
      faultsPerCycle: this.#options.faultsPerCycle,
      nodes: this.#nodes,
      watchers: this.#watchers,
      nurseries: this.#nurseries,
      losses: this.#losses,
      checked: this.#checked,
      order: (from, target, count, isDying) => this.#order(from, target, count, isDying),
      until: (condition, limitMs, what) => this.#until(condition, limitMs, what),
      violate: what => this.#violate(what),
    })
    const startMs = performance.now()
    this.#spawnAll()
    const load = [this.#pump(), ...Array.from({ length: ASKERS }, () => this.#asker())]
    await this.#quiet()
    const handlesFirst = handles()
    let nextQuiet = quietEvery
    const isTimeLeft = (): boolean => performance.now() - startMs < limitMs || this.#chaos.cycles < cyclesMin
    while (this.#chaos.cycles < cycles && isTimeLeft() && this.#violations.length < 20) {
      await this.#chaos.cycle()
      this.#takeLosses(false)
      if (this.#chaos.cycles < nextQuiet) continue
      nextQuiet += quietEvery
      await this.#quiet()
      onProgress?.(this.#progress(startMs))
    }
    await this.#quiet()
    this.#isPaused = true
    await this.#checked.settled()
    await this.#chaos.clearNurseries()
    this.#isOver = true
    await Promise.all(load)
    const seconds = (performance.now() - startMs) / 1000
    const stats = await this.#statsAtRest()
    const expected = this.#nodes.length + this.#watchers.length + this.#nurseries.length
    if (stats.actors !== expected)
      this.#violate(`${stats.actors} actors are left, not ${expected}: ${await this.#whoIsLeft()}`)
    if (stats.asksPending !== 0) this.#violate(`${stats.asksPending} asks are pending in the runtimes`)
    const handlesLast = handles()
    const shutdownFromMs = performance.now()
    const report = await bounded(this.#system.shutdown({ deadline: '30s' }), 60_000, 'the shutdown')
    if (report.slow.length > 0) this.#violate(`slow at the shutdown: ${report.slow.join(', ')}`)
    const shutdownMs = performance.now() - shutdownFromMs
    return this.#sum(seed, seconds, stats.threadRestarts, [handlesFirst, handlesLast], shutdownMs)
  }

  #spawnAll(): void {
    const { threads } = this.#options
    const system = this.#system
    const { memory } = this.#board
    const places: ThreadPlacement[] = ['main']
    for (let i = 0; i < threads; i++) places.push(`p-${i}`, { pool: 'p', key: `sticky-${i}` })
    for (const [index, thread] of places.entries()) {
      const options = { thread, supervision: forever, args: { index, memory } }
      this.#nodes.push(
        system.spawn(node, { ...options, name: `node-${index}`, mailbox: { capacity: 65_536 } }),
      )
    }
    for (let index = 0; index <= threads; index++) {
      const thread = index === MAIN_INDEX ? 'main' : `p-${index - 1}`
      const options = { thread, supervision: forever, args: { index, memory } }
      this.#watchers.push(system.spawn(watcher, { ...options, name: `watcher-${index}` }))
      this.#nurseries.push(system.spawn(nursery, { ...options, name: `nursery-${index}` }))
    }
  }

  get #senders(): readonly number[] {
    return [...this.#nodes.keys(), DRIVER]
  }

  #violate(what: string): void {
    if (this.#violations.length < 100)
      this.#violations.push(`after ${this.#chaos?.cycles ?? 0} cycles: ${what}`)
  }

  // ── Load ─────────────────────────────────────────────────────────────────────────────────────

  async #pump(): Promise<void> {
    const random = seededRandom(this.#options.seed + 1)
    const count = this.#nodes.length
    let before = 0
    while (!this.#isOver) {
      const outstanding = this.#board.outstanding(this.#senders, count)
      // What does not change is lost, and shows when another message comes.
      const isAsked = outstanding < OUTSTANDING_MAX || outstanding === before
      before = outstanding
      if (!this.#isPaused && isAsked) {
        for (let i = 0; i < 3; i++) {
          const target = random.below(count)
          sendNumbered(this.#board, DRIVER, 0, this.#nodes[target]!, target, 1 + random.below(20))
          this.#order(random.below(count), random.below(count), 1 + random.below(40))
        }
      }
      await pause(PUMP_MS)
    }
  }

  /** Has a node send numbered messages to another. */
  #order(from: number, target: number, count: number, isDying = false): void {
    this.#nodes[from]!.tell({ type: 'burst', to: this.#nodes[target]!, target, count, isDying })
  }

  async #asker(): Promise<void> {
    while (!this.#isOver) {
      if (this.#isPaused) {
        await pause(PUMP_MS)
        continue
      }
      await this.#askSomething()
    }
  }

  async #askSomething(): Promise<void> {
    const random = this.#random
    const index = random.below(this.#nodes.length)
    const ref = this.#nodes[index]!
    const kind = random.below(8)
    if (kind < 3)
      await this.#asks.ask(
        'typed',
        ANSWER_MS_MAX,
        ms => ref.ask({ type: 'add', a: kind }, { timeout: ms }),
        kind + 1,
      )
    else if (kind < 6) {
      const asked = (ms: number) => ref.ask({ type: 'addObject', a: { value: kind } }, { timeout: ms })
      await this.#asks.ask('object', ANSWER_MS_MAX, ms => asked(ms).then(({ value }) => value), kind + 1)
    } else if (kind === 6) {
      await this.#asks.ask(
        'mute',
        20 + random.below(200),
        ms => ref.ask({ type: 'mute' }, { timeout: ms }),
        undefined,
      )
    } else {
      const to = this.#nodes[random.below(this.#nodes.length)]!
      ref.tell({ type: 'askOther', to, isMuted: random.below(3) === 0, timeoutMs: 20 + random.below(200) })
      await pause(PUMP_MS)
    }
  }

  /**
   * The figures once everything told to end has ended, including the runtimes' own asks, such as the one for
   * the end of a thread.
   */
  async #statsAtRest(): Promise<SystemStats> {
    const expected = this.#nodes.length + this.#watchers.length + this.#nurseries.length
    const limitMs = performance.now() + QUIET_MS_MAX
    for (;;) {
      const stats = await this.#system.stats()
      const isAtRest = stats.actors <= expected && stats.asksPending === 0
      if (isAtRest || performance.now() > limitMs) return stats
      await pause(20)
    }
  }

  // ── Quiet points ─────────────────────────────────────────────────────────────────────────────

  /** No node sends and no thread dies: then no message may be missing without a reason. */
  async #quiet(): Promise<void> {
    const board = this.#board
    this.#isPaused = true
    for (let index = 0; index < this.#nodes.length; index++) await this.#answered(index)
    await this.#until(
      () => this.#asks.openCount === 0,
      ANSWER_MS_MAX + LATE_MS_MAX,
      () => 'asks settle',
    )
    this.#stuckAsks = Math.max(this.#stuckAsks, this.#asks.openCount)
    // One message of each pair shows which earlier ones are missing.
    for (let target = 0; target < this.#nodes.length; target++) {
      if (!sendNumbered(board, DRIVER, 0, this.#nodes[target]!, target, 1))
        this.#violate('the link is full at rest')
      for (let from = 0; from < this.#nodes.length; from++) this.#order(from, target, 1)
    }
    for (let index = 0; index < this.#nodes.length; index++) await this.#answered(index)
    const isStill = await this.#until(
      () => board.outstanding(this.#senders, this.#nodes.length) === 0,
      QUIET_MS_MAX,
      () => `messages arrive at rest; on their way: ${this.#whatIsOutstanding()}`,
    )
    if (!isStill) {
      await pause(100)
      for (let index = 0; index < this.#nodes.length; index++) await this.#answered(index)
      await pause(1000)
      this.#violate(
        `after asks to all: on their way ${this.#whatIsOutstanding() || 'nothing: wake-ups were lost'}`,
      )
    }
    await this.#until(
      () => this.#threadIndexes.every(thread => board.openAsks(thread) === 0),
      LATE_MS_MAX,
      () => `asks of actors settle: ${this.#threadIndexes.map(thread => board.openAsks(thread)).join()}`,
    )
    this.#takeLosses(true)
    this.#losses.account(this.#senders, [...this.#nodes.keys()])
    for (const [counter, what] of [
      [COUNT.duplicates, 'duplicates'],
      [COUNT.disorders, 'messages out of order'],
      [COUNT.handledAfterStopped, 'messages handled after stopped'],
      [COUNT.watchesFiredTwice, 'watches fired twice'],
      [COUNT.deadTells, "tells answered 'dead'"],
    ] as const) {
      if (board.count(counter) > 0) this.#violate(`${board.count(counter)} ${what}`)
    }
    this.#options.collect?.()
    const { rss, heapUsed, external } = process.memoryUsage()
    this.#memory.push([this.#chaos.cycles, rss, heapUsed, external])
    this.#isPaused = false
  }

  /** The actors besides those that stay, as their threads report them. */
  async #whoIsLeft(): Promise<string> {
    const all: ActorStatus[] = [...(await this.#system.census()).actors]
    for (const one of all) all.push(...one.children)
    return all
      .filter(({ name }) => !/^(node|watcher|nursery)-/.test(name))
      .map(({ name, thread, state, restarts }) => `${name} on ${thread}, ${state}, restarts ${restarts}`)
      .join('; ')
  }

  #whatIsOutstanding(): string {
    const found: string[] = []
    for (const sender of this.#senders) {
      for (const receiver of this.#nodes.keys()) {
        const { sent, expected } = this.#board.pair(sender, receiver)
        if (sent > expected) found.push(`${sender}→${receiver} ${sent - expected}`)
      }
    }
    return found.join(', ')
  }

  get #threadIndexes(): readonly number[] {
    return Array.from({ length: this.#options.threads + 1 }, (_, i) => i)
  }

  async #answered(index: number): Promise<void> {
    const limitMs = performance.now() + ALIVE_MS_MAX
    for (;;) {
      try {
        await this.#nodes[index]!.ask({ type: 'add', a: 1 }, { timeout: ANSWER_MS_MAX })
        return
      } catch (error) {
        if (performance.now() > limitMs) {
          this.#violate(`node ${index} does not answer at rest: ${String(error)}`)
          return
        }
        await pause(PUMP_MS)
      }
    }
  }

  #takeLosses(isAtRest: boolean): void {
    for (const ms of this.#board.takeFailovers()) this.#failoversMs.push(ms)
    this.#losses.take(isAtRest)
  }

  // ── Report ───────────────────────────────────────────────────────────────────────────────────

  async #until(condition: () => boolean, limitMs: number, what: () => string): Promise<boolean> {
    const dueMs = performance.now() + limitMs
    while (!condition()) {
      if (performance.now() > dueMs) {
        this.#violate(`not within ${limitMs} ms: ${what()}`)
        return false
      }
      await pause(1)
    }
    return true
  }

  #progress(startMs: number): string {
    const seconds = (performance.now() - startMs) / 1000
    const [, rss] = this.#memory.at(-1)!
    const { lost, windowMax } = this.#losses
    const { window, mailbox, sender, local, both } = lost
    return [
      `${this.#chaos.cycles} deaths in ${seconds.toFixed(0)} s (${(this.#chaos.cycles / seconds).toFixed(1)}/s)`,
      `${this.#totals().sent} messages`,
      `lost ${window} in the window (at most ${windowMax}), ${mailbox} mailbox, ${sender} sender, ${local} local, ${both} both`,
      `RSS ${(rss / 2 ** 20).toFixed(0)} MiB`,
      `${this.#violations.length} violations`,
    ].join('; ')
  }

  #totals(): { sent: number; received: number } {
    let sent = 0
    let received = 0
    for (const sender of this.#senders) {
      for (const receiver of this.#nodes.keys()) {
        const pair = this.#board.pair(sender, receiver)
        sent += pair.sent
        received += pair.received
      }
    }
    return { sent, received }
  }

  #sum(
    seed: number,
    seconds: number,
    threadRestarts: number,
    handlesOf: TortureResult['handles'],
    shutdownMs: number,
  ): TortureResult {
    if (this.#asks.lateMsMax > LATE_MS_MAX)
      this.#violate(`an ask settled ${Math.round(this.#asks.lateMsMax)} ms late`)
    return {
      seed,
      cycles: this.#chaos.cycles,
      seconds,
      ...this.#totals(),
      lost: this.#losses.lost,
      windowMax: this.#losses.windowMax,
      asks: this.#asks.outcomes,
      asksLateMsMax: this.#asks.lateMsMax,
      stuckAsks: this.#stuckAsks,
      duplicates: this.#board.count(COUNT.duplicates),
      disorders: this.#board.count(COUNT.disorders),
      beyondWindow: this.#losses.beyondWindow,
      watches: this.#board.count(COUNT.watches),
      faults: this.#chaos.faults,
      threadRestarts,
      failoversMs: this.#failoversMs,
      memory: this.#memory,
      handles: handlesOf,
      shutdownMs,
      violations: this.#violations,
    }
  }
}

/** What keeps the event loop of main busy, by kind. */
function handles(): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const kind of getActiveResourcesInfo())
    if (kind !== 'Timeout' && kind !== 'Immediate') count(counts, kind)
  return counts
}
