/**
 * Driver: a torture run of an actor system on real threads, and its checks.
 *
 * Nodes exchange numbered messages of two kinds, ask, watch and spawn, while threads are killed in every
 * way, one death or more a cycle. The board records what happened. At *quiet points* no thread dies and no
 * message is sent: then every message has arrived, or is missing for a reason that the runtime states
 * (losses.ts).
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
import { Board, COUNT, DRIVER, MAIN_INDEX, WATCHES_MAX } from './board.ts'
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
  #stuckAsks = 0
  readonly #faults: Record<string, number> = {}
  readonly #failoversMs: number[] = []
  readonly #memory: [number, number, number, number][] = []
  #cycles = 0
  #isPaused = false
  #isOver = false
  #watchCount = 1

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
    const startMs = performance.now()
    this.#spawnAll()
    const load = [this.#pump(), ...Array.from({ length: ASKERS }, () => this.#asker())]
    await this.#quiet()
    const handlesFirst = handles()
    let nextQuiet = quietEvery
    const isTimeLeft = (): boolean => performance.now() - startMs < limitMs || this.#cycles < cyclesMin
    while (this.#cycles < cycles && isTimeLeft() && this.#violations.length < 20) {
      await this.#cycle()
      if (this.#cycles < nextQuiet) continue
      nextQuiet += quietEvery
      await this.#quiet()
      onProgress?.(this.#progress(startMs))
    }
    await this.#quiet()
    this.#isPaused = true
    await this.#checked.settled()
    await this.#clearNurseries()
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
    const report = await bounded(this.#system.shutdown({ deadline: '10s' }), 30_000, 'the shutdown')
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
    if (this.#violations.length < 100) this.#violations.push(`after ${this.#cycles} cycles: ${what}`)
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

  // ── Chaos ────────────────────────────────────────────────────────────────────────────────────

  async #cycle(): Promise<void> {
    const random = this.#random
    while (random.next() < this.#options.faultsPerCycle / (this.#options.faultsPerCycle + 1)) this.#fault()
    await pause(random.below(12))
    const thread = 1 + random.below(this.#options.threads)
    await this.#death(thread, random.below(11))
    this.#takeLosses(false)
  }

  /** Brings a thread to its end, and awaits that its next life handles messages. */
  async #death(thread: number, way: number): Promise<void> {
    const board = this.#board
    const name = `p-${thread - 1}`
    const lives = board.lives(thread)
    const on = this.#nodesOn(thread)
    const index = on[this.#random.below(on.length)]!
    const ref = this.#nodes[index]!
    const other = 1 + ((thread + this.#random.below(this.#options.threads - 1)) % this.#options.threads)
    const awaited: [number, number][] = [[thread, lives]]
    this.#cycles++
    this.#losses.note(`${name} life ${lives} way ${way}`)
    switch (way) {
      case 0:
      case 1:
        count(this.#faults, 'killThread')
        this.#kill(thread)
        break
      case 2:
        count(this.#faults, 'exit')
        await this.#tellDeath(thread, () => ref.tell({ type: 'exit' }))
        break
      case 3:
        count(this.#faults, 'exit after a burst')
        await this.#tellDeath(thread, () =>
          this.#order(index, this.#random.below(this.#nodes.length), 30, true),
        )
        break
      case 4:
        count(this.#faults, 'throw outside')
        await this.#tellDeath(thread, () => ref.tell({ type: 'throwOutside' }))
        break
      case 5:
        count(this.#faults, 'reject outside')
        await this.#tellDeath(thread, () => ref.tell({ type: 'rejectOutside' }))
        break
      case 6: {
        count(this.#faults, 'kill while it starts')
        this.#losses.killedStart(thread, lives + 1)
        this.#kill(thread)
        const waitMs = this.#random.below(60)
        await pause(waitMs)
        this.#kill(thread)
        break
      }
      case 7:
        count(this.#faults, 'two at once')
        if (other !== thread) awaited.push([other, board.lives(other)])
        this.#kill(thread)
        if (other !== thread) {
          if (this.#random.below(2) === 0) await pause(this.#random.below(4))
          this.#kill(other)
          this.#cycles++
        }
        break
      case 8:
        count(this.#faults, 'kill while it spins')
        ref.tell({ type: 'spin', ms: 5000, life: lives })
        await pause(5 + this.#random.below(10))
        this.#kill(thread)
        break
      case 9:
        count(this.#faults, 'kill while it waits natively')
        ref.tell({ type: 'wait', ms: 5000, life: lives })
        await pause(5 + this.#random.below(10))
        this.#kill(thread)
        break
      default: {
        count(this.#faults, 'kill while its links are full')
        ref.tell({ type: 'wait', ms: 5000, life: lives })
        await pause(5)
        for (const from of this.#nodes.keys()) {
          if (this.#board.threadOf(from) === thread) continue
          this.#nodes[from]!.tell({ type: 'flood', to: ref, target: index, count: 3000, isDying: false })
        }
        sendNumbered(board, DRIVER, 0, ref, index, this.#random.below(4) === 0 ? 25_000 : 3000)
        await pause(10)
        this.#kill(thread)
        if (other !== thread && this.#random.below(3) === 0) {
          awaited.push([other, board.lives(other)])
          this.#kill(other)
          this.#cycles++
        }
      }
    }
    for (const [each, before] of awaited) {
      await this.#until(
        () => board.handledInLife(each) > before,
        ALIVE_MS_MAX,
        () =>
          `thread p-${each - 1} handles messages again after ${Object.keys(this.#faults).at(-1)} of ${name}, life ${board.lives(each)}, last that handled ${board.handledInLife(each)}, before ${before}`,
      )
    }
  }

  #kill(thread: number): void {
    this.#board.dies(thread)
    void this.#system.killThread(`p-${thread - 1}`).catch((error: unknown) => this.#violate(String(error)))
  }

  /** Tells an actor to end its thread; again, when the order was lost with another death. */
  async #tellDeath(thread: number, tell: () => void): Promise<void> {
    const before = this.#board.deaths(thread)
    for (let attempt = 0; attempt < 3; attempt++) {
      tell()
      const limitMs = performance.now() + ANSWER_MS_MAX
      while (performance.now() < limitMs) {
        if (this.#board.deaths(thread) > before) return
        await pause(1)
      }
    }
    this.#violate(`thread p-${thread - 1} was told to end and did not`)
  }

  /** A fault that ends no thread. */
  #fault(): void {
    const random = this.#random
    const index = random.below(this.#nodes.length)
    const ref = this.#nodes[index]!
    const isMain = index === 0
    switch (random.below(isMain ? 6 : 10)) {
      case 0:
        count(this.#faults, 'throw in an arm')
        ref.tell({ type: 'throw' })
        break
      case 1:
        count(this.#faults, 'timer storm')
        this.#checked.storm(index)
        break
      case 2:
        count(this.#faults, 'poison')
        this.#checked.poison()
        break
      case 3:
        count(this.#faults, 'overflow')
        this.#checked.overflow()
        break
      case 4:
      case 5:
        this.#spawnMayfly()
        break
      case 6:
        count(this.#faults, 'spin')
        ref.tell({ type: 'spin', ms: 5 + random.below(60) })
        break
      case 7:
        count(this.#faults, 'wait natively')
        ref.tell({ type: 'wait', ms: 5 + random.below(60) })
        break
      case 8:
        if (random.below(4) > 0) break
        count(this.#faults, 'system call')
        ref.tell({ type: 'exec', ms: 5 + random.below(60) })
        break
      default:
        count(this.#faults, 'flood')
        this.#nodes[random.below(this.#nodes.length)]!.tell({
          type: 'flood',
          to: ref,
          target: index,
          count: 2000,
          isDying: false,
        })
    }
  }

  #spawnMayfly(): void {
    const random = this.#random
    const watchers = this.#watchers.filter(() => random.below(2) === 0)
    if (this.#watchCount + watchers.length >= WATCHES_MAX) return
    count(this.#faults, 'mayfly')
    const id = this.#watchCount
    this.#watchCount += watchers.length
    const { threads } = this.#options
    const where = random.below(60)
    const thread: ThreadPlacement =
      where === 0
        ? 'dedicated'
        : where < 15
          ? { pool: 'p', key: id }
          : where < 25
            ? 'here'
            : where < 30
              ? 'main'
              : `p-${where % threads}`
    this.#nurseries[random.below(this.#nurseries.length)]!.tell({
      type: 'spawn',
      id,
      thread,
      isRestarted: random.below(3) === 0,
      watchers,
      end: (['stop', 'fail', 'stay'] as const)[random.below(3)]!,
    })
  }

  async #clearNurseries(): Promise<void> {
    for (const ref of this.#nurseries) ref.tell({ type: 'clear' })
    // Spawns and stops may still be on their way; an actor abandons what does not stop in 5 s.
    await this.#until(
      () => this.#board.openWatches(this.#watchCount).length === 0,
      QUIET_MS_MAX,
      () => `watches fire; these do not: ${this.#board.openWatches(this.#watchCount).slice(0, 10).join()}`,
    )
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
      5000,
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
    this.#memory.push([this.#cycles, rss, heapUsed, external])
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
      `${this.#cycles} deaths in ${seconds.toFixed(0)} s (${(this.#cycles / seconds).toFixed(1)}/s)`,
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
      cycles: this.#cycles,
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
      faults: this.#faults,
      threadRestarts,
      failoversMs: this.#failoversMs,
      memory: this.#memory,
      handles: handlesOf,
      shutdownMs,
      violations: this.#violations,
    }
  }

  #nodesOn(thread: number): number[] {
    return [...this.#nodes.keys()].filter(index => this.#board.threadOf(index) === thread)
  }
}

function count(counts: Record<string, number>, name: string): void {
  counts[name] = (counts[name] ?? 0) + 1
}

/** What keeps the event loop of main busy, by kind. */
function handles(): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const kind of getActiveResourcesInfo())
    if (kind !== 'Timeout' && kind !== 'Immediate') count(counts, kind)
  return counts
}
