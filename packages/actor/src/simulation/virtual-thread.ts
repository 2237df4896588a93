/** VirtualThread: one life of a simulated thread, from its start to its death. */

import type { Clock, Random } from '@homing/base'
import type { HeapFigures } from '../observe/counts.ts'
import type { Runtime } from '../runtime/runtime.ts'
import type { CrashPoint } from './faults.ts'
import { type Owner, Source, Task, type World } from './world.ts'

/** Messages handled in one turn: few, so that other threads get between, or many. */
const TURN_SIZES = [1, 4, 64, 4096] as const
const MID_TURN_MESSAGES = 2
/** What the heap of the real thread holds must not be seen: it is another in each run. */
const HEAP: HeapFigures = { usedBytes: 0, limitBytes: 2 ** 32, residentBytes: 0 }

/** What is told about a thread that is over. */
export interface ThreadEvents {
  /** It died at a point that a fault named. */
  doomed(thread: VirtualThread, point: CrashPoint): void
  /** Something threw outside of any actor. */
  failed(thread: VirtualThread, error: unknown): void
}

/** An end of a link, as its thread sees it. */
export interface LinkEnd {
  /** The actors of the thread have had a turn. */
  turned(): void
  /** Lets the reader see what was sent. */
  publish(): void
  /** The life that owns it has ended. */
  die(): void
}

export class VirtualThread implements Owner {
  readonly name: string
  readonly uid: number
  readonly world: World
  readonly random: Random
  readonly clock: Clock
  readonly held = new Set<Source>()
  readonly links = new Set<LinkEnd>()
  /** Releases what it holds outside, as an operating system does for a process. */
  readonly onEnd: (() => void)[] = []
  readonly slowness: number
  isAlive = true
  isHung = false
  runtime: Runtime | undefined = undefined
  /** It dies when it comes to this point. */
  doom: CrashPoint | undefined = undefined
  readonly #events: ThreadEvents
  readonly #turn: Turn
  readonly #posts: Posts

  constructor(world: World, name: string, uid: number, slowness: number, events: ThreadEvents) {
    this.world = world
    this.name = name
    this.uid = uid
    this.slowness = slowness
    this.random = world.generator(1000 + uid)
    this.#events = events
    this.#turn = new Turn(this)
    this.#posts = new Posts(this)
    this.clock = {
      nowMs: () => world.nowMs(),
      wallMs: () => world.wallMs(),
      after: (delayMs, callback) => world.timer(this, delayMs, callback),
    }
  }

  readonly heap = (): HeapFigures => HEAP

  readonly planTurn = (): void => this.world.ready(this.#turn)

  /** Runs `callback` here, some steps from now; in the order in which they were posted. */
  post(callback: () => void): void {
    if (this.isAlive) this.#posts.add(callback)
  }

  task(code: number, run: () => void): void {
    this.world.ready(new Task(this, code, run))
  }

  failed(error: unknown): void {
    this.#events.failed(this, error)
  }

  /** True when it dies here. */
  diesAt(point: CrashPoint): boolean {
    if (this.doom !== point) return false
    this.doom = undefined
    this.#events.doomed(this, point)
    return true
  }

  hang(ms: number): void {
    if (this.isHung || !this.isAlive) return
    this.isHung = true
    this.world.suspend(this)
    this.world.after(ms, () => {
      if (!this.isAlive) return
      this.isHung = false
      this.world.resume(this)
    })
  }

  /** The end of this life, for the thread itself. */
  end(): void {
    this.isAlive = false
    this.world.forget(this)
    for (const release of this.onEnd.splice(0)) release()
  }
}

class Turn extends Source {
  readonly code = 2
  readonly #thread: VirtualThread

  constructor(thread: VirtualThread) {
    super(thread)
    this.#thread = thread
  }

  run(): void {
    const thread = this.#thread
    const { world, runtime, doom } = thread
    if (runtime === undefined) return
    if (doom !== undefined && thread.diesAt('beforeTurn')) return
    const sizes = TURN_SIZES
    const size = doom === 'midTurn' ? MID_TURN_MESSAGES : sizes[world.roll(sizes.length)]!
    const handled = runtime.turns.take(size)
    world.mix(handled)
    if (runtime.turns.isIdle) runtime.inbound.handover.clear()
    for (const link of thread.links) link.turned()
    if (doom === undefined) return
    if (thread.diesAt('midTurn')) return
    if (doom === 'afterTurn') {
      for (const link of thread.links) link.publish()
      thread.diesAt('afterTurn')
    }
  }
}

class Posts extends Source {
  readonly code = 3
  readonly #world: World
  #waiting: (() => void)[] = []
  #at = 0

  constructor(thread: VirtualThread) {
    super(thread)
    this.#world = thread.world
  }

  add(callback: () => void): void {
    this.#waiting.push(callback)
    this.#world.ready(this)
  }

  run(): void {
    const callback = this.#waiting[this.#at]!
    this.#at++
    if (this.#at === this.#waiting.length) {
      this.#waiting = []
      this.#at = 0
    } else this.#world.ready(this)
    callback()
  }
}
