/**
 * Driver: a torture run of an actor system on real threads, and what it proves.
 *
 * Nodes exchange numbered messages on both lanes, ask, watch and spawn, while threads are killed in every way,
 * one death or more a cycle. What happened is on the board. At *quiet points* nobody dies and nothing is sent any
 * more: then every message has arrived or is missing for a reason that the runtime states.
 *
 * Reasons    window    the thread of the receiver died: at most INFLIGHT_MAX frames of each link to it
 *            mailbox   …, when the receiver had been in a backoff, or its thread was starting: its mailbox as well
 *            sender    the thread of the sender died before it had published them
 *            local     both on one thread, which died
 *            both      the threads of both died
 *            Any other loss is a violation.
 */

import { getActiveResourcesInfo } from 'node:process'
import {
  type ActorRef,
  type ActorStatus,
  type ActorSystem,
  createActorSystem,
  type Placement,
  type Supervision,
  type SystemStats,
} from '@homing/actor'
import { type Random, seededRandom } from '@homing/clock'
import { RouterError } from '@homing/errors'
import { silentLog } from '@homing/log'
import {
  boardOf,
  type NodeMessage,
  type NurseryMessage,
  node,
  nursery,
  poisoned,
  sendNumbered,
  sink,
  type WatcherMessage,
  watcher,
} from './actors.ts'
import { Board, COUNT, DRIVER, type Gap, MAIN_INDEX, SUBJECTS_MAX, WATCHES_MAX } from './board.ts'

/** What a thread that dies may lose of a link, as docs/actor-runtime.md says. */
const INFLIGHT_MAX = 64
const ASKERS = 6
const ANSWER_MS_MAX = 20_000
/** An ask may settle this much after its deadline: main may be waiting for a core. */
const LATE_MS_MAX = 2000
const ALIVE_MS_MAX = 40_000
const QUIET_MS_MAX = 15_000
const OUTSTANDING_MAX = 8000
const PUMP_MS = 2

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

type Reason = 'window' | 'mailbox' | 'sender' | 'local' | 'both'

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
  readonly #lost: Record<Reason, number> = { window: 0, mailbox: 0, sender: 0, local: 0, both: 0 }
  /** Missing messages of each pair. */
  readonly #missing = new Map<string, number>()
  /** Messages that were lost of a link before a life, by the deaths that may have lost them: the last, the last two … */
  readonly #windows = new Map<string, number[]>()
  /** Lives whose start, or the start of the one before, was killed. */
  readonly #killedStarts = new Set<string>()
  #windowMax = 0
  /** The last deaths. */
  readonly #ways: string[] = []
  #beyondWindow = 0
  readonly #asks: Record<string, number> = {}
  readonly #openAsks = new Set<{ readonly dueMs: number; readonly what: string }>()
  #asksLateMsMax = 0
  #stuckAsks = 0
  readonly #faults: Record<string, number> = {}
  readonly #failoversMs: number[] = []
  readonly #memory: [number, number, number, number][] = []
  #cycles = 0
  #isPaused = false
  #isOver = false
  #watchCount = 1
  #subjectCount = 0
  /** Faults whose outcome is looked at later. */
  readonly #checks = new Set<Promise<void>>()

  constructor(options: TortureOptions) {
    this.#options = options
    this.#random = seededRandom(options.seed)
    this.#board = boardOf(new Board().memory)
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
    await Promise.all(this.#checks)
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
    const places: Placement[] = ['main']
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
      await this.#ask(
        'typed',
        ANSWER_MS_MAX,
        ms => ref.ask({ type: 'add', a: kind }, { timeout: ms }),
        kind + 1,
      )
    else if (kind < 6) {
      const asked = (ms: number) => ref.ask({ type: 'addObject', a: { value: kind } }, { timeout: ms })
      await this.#ask('object', ANSWER_MS_MAX, ms => asked(ms).then(({ value }) => value), kind + 1)
    } else if (kind === 6) {
      await this.#ask(
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

  async #ask(
    kind: string,
    timeoutMs: number,
    ask: (timeoutMs: number) => Promise<number>,
    answer: number | undefined,
  ): Promise<void> {
    const open = { dueMs: performance.now() + timeoutMs, what: kind }
    this.#openAsks.add(open)
    let outcome: string
    try {
      const value = await ask(timeoutMs)
      outcome = 'answered'
      if (value !== answer) this.#violate(`an ask (${kind}) was answered ${value}, not ${answer}`)
    } catch (error) {
      outcome = error instanceof RouterError ? error.code : String(error)
      const isExpected =
        ['HOMING_ACTOR_THREAD_DOWN', 'HOMING_ACTOR_ASK_REFUSED', 'HOMING_ACTOR_TERMINATED'].includes(
          outcome,
        ) ||
        (outcome === 'HOMING_ACTOR_ASK_TIMEOUT' && answer === undefined) ||
        // The handler failed while it had this ask, in its restart.
        outcome === 'HOMING_ACTOR_FAILED'
      if (!isExpected) this.#violate(`an ask (${kind}) was rejected with ${outcome}`)
      // Not again at once while a thread is away.
      await pause(PUMP_MS)
    }
    this.#openAsks.delete(open)
    this.#asksLateMsMax = Math.max(this.#asksLateMsMax, performance.now() - open.dueMs)
    count(this.#asks, `${kind} ${outcome}`)
  }

  // ── Chaos ────────────────────────────────────────────────────────────────────────────────────

  async #cycle(): Promise<void> {
    const random = this.#random
    while (random.next() < this.#options.faultsPerCycle / (this.#options.faultsPerCycle + 1)) this.#fault()
    await pause(random.below(12))
    const thread = 1 + random.below(this.#options.threads)
    await this.#death(thread, random.below(11))
    this.#takeGaps(false)
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
    this.#ways.push(`${name} life ${lives} way ${way}`)
    if (this.#ways.length > 20) this.#ways.shift()
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
        // Whatever the next life takes while its actors are loaded waits in their mailboxes.
        this.#killedStarts.add(`${thread} ${lives + 1}`).add(`${thread} ${lives + 2}`)
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
        this.#check('timer storm', this.#storm(index))
        break
      case 2:
        this.#check('poison', this.#poison())
        break
      case 3:
        this.#check('overflow', this.#overflow())
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

  #check(name: string, check: Promise<void>): void {
    count(this.#faults, name)
    const noted = check
      .catch((error: unknown) =>
        this.#violate(`${name}: ${error instanceof Error ? error.stack : String(error)}`),
      )
      .finally(() => void this.#checks.delete(noted))
    this.#checks.add(noted)
  }

  #nextSubject(): number {
    this.#subjectCount = (this.#subjectCount + 1) % SUBJECTS_MAX
    const id = this.#subjectCount
    this.#board.addSubject(id, -this.#board.subject(id))
    return id
  }

  async #storm(index: number): Promise<void> {
    const board = this.#board
    const timers = 200 + this.#random.below(2000)
    const id = this.#nextSubject()
    const thread = board.threadOf(index)
    if (thread < 0) return
    const before = `${board.lives(thread)} ${board.deaths(thread)} ${board.count(COUNT.throws)}`
    if (this.#nodes[index]!.tell({ type: 'storm', id, timers }) !== 'ok') return
    const isUntouched = (): boolean =>
      `${board.lives(thread)} ${board.deaths(thread)} ${board.count(COUNT.throws)}` === before
    const limitMs = performance.now() + QUIET_MS_MAX
    while (board.subject(id) < timers && isUntouched() && performance.now() < limitMs) await pause(5)
    await pause(50)
    const fired = board.subject(id)
    if (fired > timers) this.#violate(`${fired} of ${timers} timers fired`)
    if (fired < timers && isUntouched()) this.#violate(`only ${fired} of ${timers} timers fired`)
  }

  /** Fails at every restart, up to its budget. */
  async #poison(): Promise<void> {
    const board = this.#board
    const random = this.#random
    const id = this.#nextSubject()
    const thread = random.below(this.#options.threads + 1)
    const max = 1 + random.below(5)
    const deaths = board.deaths(thread)
    const lives = board.lives(thread)
    const ref = this.#system.spawn(poisoned, {
      name: `poisoned-${id}`,
      args: { memory: board.memory, id, where: random.below(2) === 0 ? 'setup' : 'arm' },
      thread: thread === MAIN_INDEX ? 'main' : `p-${thread - 1}`,
      supervision: { directive: 'restart', max, within: '10m', backoff: { min: 0, max: 2 } },
    })
    const { reason, error } = await bounded(
      this.#system.whenTerminated(ref),
      60_000,
      `the end of poisoned-${id}`,
    )
    const setups = board.subject(id)
    // A new thread knows of the restarts that deaths of threads cost, not of the others.
    const setupsMax = (max + 1) * (1 + board.deaths(thread) - deaths)
    if (setups > setupsMax) this.#violate(`an actor with ${max} restarts was set up ${setups} times`)
    // The thread may have been dead at the spawn already, and nobody have known: that costs a restart.
    const isSameLife = board.deaths(thread) === deaths && board.lives(thread) === lives
    if (isSameLife && (setups !== max + 1 || error?.code !== 'HOMING_ACTOR_RESTART_BUDGET')) {
      this.#violate(
        `an actor with ${max} restarts was set up ${setups} times and ended as ${reason}, ${error?.code}`,
      )
    }
  }

  /** More messages than a mailbox holds, while its actor is held by a promise. */
  async #overflow(): Promise<void> {
    const board = this.#board
    const random = this.#random
    const id = this.#nextSubject()
    const thread = random.below(this.#options.threads + 1)
    const overflow = (['reject', 'dropOldest', 'dropNewest', 'coalesce'] as const)[random.below(4)]!
    const capacity = 32
    const told = 100
    const deaths = board.deaths(thread)
    const ref = this.#system.spawn(sink, {
      name: `sink-${id}`,
      args: { memory: board.memory, id },
      thread: thread === MAIN_INDEX ? 'main' : `p-${thread - 1}`,
      mailbox: { capacity, overflow },
    })
    const ended = this.#system.whenTerminated(ref)
    let isEnded = false
    void ended.then(() => {
      isEnded = true
    })
    const until = async (subject: number): Promise<boolean> => {
      const limitMs = performance.now() + ALIVE_MS_MAX
      while (board.subject(id) < subject && !isEnded) {
        if (performance.now() > limitMs)
          throw new Error(`sink-${id} (${overflow}) did not reach ${subject}, but ${board.subject(id)}`)
        await pause(2)
      }
      return !isEnded
    }
    // Its thread may be one whose links are full just now.
    while (ref.tell({ type: 'hold' }) === 'full') await pause(PUMP_MS)
    if (!(await until(1))) return
    let taken = 0
    for (let n = 0; n < told; n++) if (ref.tell({ type: 'put', n }) === 'ok') taken++
    const near = this.#nodesOn(thread)[0]
    // On main it is the mailbox that says so, elsewhere the link: then the mailbox may never be full.
    const isLinkFull = thread !== MAIN_INDEX && taken < told
    if (isLinkFull || near === undefined) {
      board.addSubject(id)
      await this.#stopSink(ref, ended)
      return
    }
    // Its answer comes over the link behind them: they are in the mailbox, or were dropped.
    await this.#nodes[near]!.ask({ type: 'add', a: 1 }, { timeout: ANSWER_MS_MAX }).catch(() => undefined)
    // An ask that finds the mailbox full is refused; dropOldest makes room for it, coalesce has some.
    if (overflow === 'reject' || overflow === 'dropNewest') {
      await this.#ask(
        'refused',
        ANSWER_MS_MAX,
        ms => ref.ask({ type: 'seen' }, { timeout: ms }).then(() => -1),
        -2,
      )
    }
    if (overflow === 'coalesce') {
      board.addSubject(id)
      await this.#stopSink(ref, ended)
      return
    }
    board.addSubject(id)
    if (await until(2 + capacity)) {
      const seen = await ref.ask({ type: 'seen' }, { timeout: ANSWER_MS_MAX }).catch(() => undefined)
      if (seen !== undefined && board.deaths(thread) === deaths) {
        const from = overflow === 'dropOldest' ? told - capacity : 0
        const expected = Array.from({ length: capacity }, (_, i) => from + i)
        if (seen.join() !== expected.join())
          this.#violate(`a mailbox with ${overflow} (thread ${thread}) kept ${seen.join()}`)
      }
    }
    await this.#stopSink(ref, ended)
  }

  async #stopSink(ref: ActorRef<never>, ended: Promise<unknown>): Promise<void> {
    // It may have ended already, and its thread be away.
    this.#system.stop(ref).catch(() => {})
    await bounded(ended, 60_000, `the end of ${ref.name}`)
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
    const thread: Placement =
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

  /** Once everything has ended that was told to: the asks of the runtimes too, such as that for the end of a thread. */
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

  /** Nothing is sent and nobody dies: then nothing may be missing without a reason. */
  async #quiet(): Promise<void> {
    const board = this.#board
    this.#isPaused = true
    for (let index = 0; index < this.#nodes.length; index++) await this.#answered(index)
    await this.#until(
      () => this.#openAsks.size === 0,
      ANSWER_MS_MAX + LATE_MS_MAX,
      () => 'asks settle',
    )
    this.#stuckAsks = Math.max(this.#stuckAsks, this.#openAsks.size)
    // One message of each pair shows what is missing before it.
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
    this.#takeGaps(true)
    this.#account()
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

  #takeGaps(isAtRest: boolean): void {
    for (const ms of this.#board.takeFailovers()) this.#failoversMs.push(ms)
    for (const gap of this.#board.takeGaps(isAtRest)) {
      const key = `${gap.sender} ${gap.receiver}`
      this.#missing.set(key, (this.#missing.get(key) ?? 0) + gap.size)
      const reason = this.#reasonFor(gap)
      if (reason === undefined) {
        this.#beyondWindow += gap.size
        this.#violate(
          `lost without a reason: ${JSON.stringify(gap)}, sender on ${this.#board.threadOf(gap.sender)}, receiver on ${this.#board.threadOf(gap.receiver)}; deaths before: ${this.#ways.slice(-6).join('; ')}`,
        )
      } else this.#lost[reason] += gap.size
    }
  }

  #reasonFor(gap: Gap): Reason | undefined {
    const receiverDied = gap.lives > 0
    const { senderDied } = gap
    if (!receiverDied) return senderDied ? 'sender' : undefined
    const from = gap.sender === DRIVER ? MAIN_INDEX : this.#board.threadOf(gap.sender)
    const to = this.#board.threadOf(gap.receiver)
    if (from === to) return 'local'
    if (senderDied) return 'both'
    if (gap.wasHeldUp || this.#killedStarts.has(`${to} ${gap.life}`)) return 'mailbox'
    return this.#isInWindow(`${from} ${to} ${gap.life}`, gap) ? 'window' : undefined
  }

  /** The deaths before a life may have lost so much of a link, with what is known already. */
  #isInWindow(link: string, { lives, size }: Gap): boolean {
    const sizes = this.#windows.get(link) ?? []
    this.#windows.set(link, sizes)
    if (this.#windows.size > 1000) this.#windows.delete(this.#windows.keys().next().value!)
    sizes[lives] = (sizes[lives] ?? 0) + size
    let isWithin = true
    let total = 0
    // What was seen last before the last death was lost with that one; before the last two, with either of them.
    for (let deaths = 1; deaths < sizes.length; deaths++) {
      total += sizes[deaths] ?? 0
      if (deaths < lives) continue
      this.#windowMax = Math.max(this.#windowMax, Math.ceil(total / deaths))
      isWithin &&= total <= INFLIGHT_MAX * deaths
    }
    if (!isWithin) this.#ways.push(`${link} lost ${sizes.join('+')}`)
    return isWithin
  }

  /** Sent is handled and lost with a reason: of each pair, and exactly. */
  #account(): void {
    for (const sender of this.#senders) {
      for (const receiver of this.#nodes.keys()) {
        const { sent, received, expected } = this.#board.pair(sender, receiver)
        const missing = this.#missing.get(`${sender} ${receiver}`) ?? 0
        if (sent !== received + missing || sent !== expected) {
          this.#violate(
            `${sender}→${receiver}: sent ${sent}, handled ${received}, missing ${missing}, expected ${expected}`,
          )
        }
      }
    }
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
    const { window, mailbox, sender, local, both } = this.#lost
    return [
      `${this.#cycles} deaths in ${seconds.toFixed(0)} s (${(this.#cycles / seconds).toFixed(1)}/s)`,
      `${this.#totals().sent} messages`,
      `lost ${window} in the window (at most ${this.#windowMax}), ${mailbox} mailbox, ${sender} sender, ${local} local, ${both} both`,
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
    if (this.#asksLateMsMax > LATE_MS_MAX)
      this.#violate(`an ask settled ${Math.round(this.#asksLateMsMax)} ms late`)
    return {
      seed,
      cycles: this.#cycles,
      seconds,
      ...this.#totals(),
      lost: this.#lost,
      windowMax: this.#windowMax,
      asks: this.#asks,
      asksLateMsMax: this.#asksLateMsMax,
      stuckAsks: this.#stuckAsks,
      duplicates: this.#board.count(COUNT.duplicates),
      disorders: this.#board.count(COUNT.disorders),
      beyondWindow: this.#beyondWindow,
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

function pause(ms: number): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, ms))
}

async function bounded<T>(promise: Promise<T>, limitMs: number, what: string): Promise<T> {
  const limit = Promise.withResolvers<never>()
  const timer = setTimeout(
    () => limit.reject(new Error(`${what} did not come within ${limitMs} ms`)),
    limitMs,
  )
  try {
    return await Promise.race([promise, limit.promise])
  } finally {
    clearTimeout(timer)
  }
}
