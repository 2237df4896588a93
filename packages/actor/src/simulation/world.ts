/**
 * World: the order of everything in a simulation. All virtual threads live in one real thread; each *step*
 * runs one source of one of them (a turn, a batch of frames, a timer, …) to its end, then the microtasks that
 * it left behind.
 *
 *   time      moves by STEP_MS per step, to the next timer when nothing can run, and sometimes, as on a
 *             machine that pauses, by up to `pauseMsMax` although something can run
 *   chance    which source is next: from the seed. Actors and faults have random generators of their own
 *   trace     a rolling hash of every choice and of every frame: equal seeds give equal traces
 *
 * Microtasks are first in, first out and no real time passes within a step, so promises are no source of
 * chance.
 */

import { type Clock, type Random, seededRandom, type Timer } from '@homing/base'
import { SimulationError } from './errors.ts'
import { drainMicrotasks } from './microtasks.ts'

/** What every step costs. */
const STEP_MS = 0.001
const TIMERS_SLACK = 64

/** Something that can run; it belongs to a thread, or to the world when that is undefined. */
export abstract class Source {
  /** Its place among what can run; −1: it cannot. Kept by the world. */
  position = -1
  /** In the trace. */
  abstract readonly code: number
  readonly owner: Owner | undefined

  constructor(owner: Owner | undefined) {
    this.owner = owner
  }

  abstract run(): void
}

/** Whose sources run, wait or run no more. */
export interface Owner {
  /** In the trace. */
  readonly uid: number
  readonly isAlive: boolean
  readonly isHung: boolean
  /** Chance in [0, 1) that another is preferred: a slow thread. */
  readonly slowness: number
  /** What becomes ready while it hangs. */
  readonly held: Set<Source>
  /** A source of it threw. */
  failed(error: unknown): void
}

class SimulatedTimer implements Timer {
  readonly owner: Owner | undefined
  readonly dueMs: number
  readonly order: number
  readonly callback: () => void
  readonly #world: World
  /** Fired, or cancelled. */
  isOver = false

  constructor(world: World, owner: Owner | undefined, dueMs: number, order: number, callback: () => void) {
    this.#world = world
    this.owner = owner
    this.dueMs = dueMs
    this.order = order
    this.callback = callback
  }

  cancel(): void {
    if (this.isOver) return
    this.isOver = true
    this.#world.timerCancelled()
  }
}

/** The timers of one owner that are due: they fire in their order, one per step. */
class DueTimers extends Source {
  readonly code = 1
  readonly #world: World
  #waiting: SimulatedTimer[] = []
  #at = 0

  constructor(world: World, owner: Owner | undefined) {
    super(owner)
    this.#world = world
  }

  add(timer: SimulatedTimer): void {
    this.#waiting.push(timer)
    this.#world.ready(this)
  }

  run(): void {
    let timer: SimulatedTimer | undefined
    while (this.#at < this.#waiting.length) {
      timer = this.#waiting[this.#at]!
      this.#at++
      if (!timer.isOver) break
    }
    if (this.#at < this.#waiting.length) this.#world.ready(this)
    else {
      this.#waiting = []
      this.#at = 0
    }
    if (timer === undefined || timer.isOver) return
    timer.isOver = true
    timer.callback()
  }
}

export interface WorldOptions {
  readonly seed: number
  /** What `wallMs` says at simulated time 0. */
  readonly originWallMs: number
  /** Chance per step of a pause, and how long one is at most. */
  readonly pause: number
  readonly pauseMsMax: number
}

export class World implements Clock {
  readonly seed: number
  /** For the schedule only. */
  readonly #random: Random
  readonly #options: WorldOptions
  readonly #runnable: Source[] = []
  #timers: SimulatedTimer[] = []
  readonly #due = new Map<Owner | undefined, DueTimers>()
  #cancelledCount = 0
  #timerCount = 0
  #nowMs = 0
  #steps = 0
  #hashLow = 0x811c9dc5
  #hashHigh = 0x1234567
  #nextPause: number
  /** Called after every step, once its microtasks have run. */
  onStepEnd: () => void = () => {}

  constructor(options: WorldOptions) {
    this.seed = options.seed
    this.#options = options
    this.#random = this.generator(0)
    this.#nextPause = this.#drawPause()
  }

  /** A generator of its own for `purpose`. */
  generator(purpose: number): Random {
    return seededRandom(Math.imul(this.seed, 0x9e3779b1) + Math.imul(purpose, 0x85ebca77))
  }

  /** Part of the schedule: an integer in [0, bound). */
  roll(bound: number): number {
    return this.#random.below(bound)
  }

  get steps(): number {
    return this.#steps
  }

  // ── Clock ────────────────────────────────────────────────────────────────────────────────────

  nowMs(): number {
    return this.#nowMs
  }

  wallMs(): number {
    return this.#options.originWallMs + Math.floor(this.#nowMs)
  }

  after(delayMs: number, callback: () => void): Timer {
    return this.timer(undefined, delayMs, callback)
  }

  timer(owner: Owner | undefined, delayMs: number, callback: () => void): Timer {
    const dueMs = this.#nowMs + Math.max(0, delayMs)
    const timer = new SimulatedTimer(this, owner, dueMs, this.#timerCount++, callback)
    if (dueMs < Number.POSITIVE_INFINITY) pushTimer(this.#timers, timer)
    return timer
  }

  timerCancelled(): void {
    this.#cancelledCount++
    if (this.#cancelledCount < TIMERS_SLACK || this.#cancelledCount * 2 < this.#timers.length) return
    this.#cancelledCount = 0
    const live = this.#timers.filter(timer => !timer.isOver)
    this.#timers = []
    for (const timer of live) pushTimer(this.#timers, timer)
  }

  // ── Sources ──────────────────────────────────────────────────────────────────────────────────

  /** Lets a source run once, some steps from now. */
  ready(source: Source): void {
    if (source.position >= 0) return
    const { owner } = source
    if (owner !== undefined) {
      if (!owner.isAlive) return
      if (owner.isHung) {
        owner.held.add(source)
        return
      }
    }
    source.position = this.#runnable.length
    this.#runnable.push(source)
  }

  withdraw(source: Source): void {
    const { position } = source
    source.owner?.held.delete(source)
    if (position < 0) return
    source.position = -1
    const last = this.#runnable.pop()!
    if (last === source) return
    last.position = position
    this.#runnable[position] = last
  }

  /** What the owner could run waits until `resume`. */
  suspend(owner: Owner): void {
    for (const source of [...this.#runnable]) {
      if (source.owner !== owner) continue
      this.withdraw(source)
      owner.held.add(source)
    }
  }

  resume(owner: Owner): void {
    const held = [...owner.held]
    owner.held.clear()
    for (const source of held) this.ready(source)
  }

  /** Nothing of the owner runs any more. */
  forget(owner: Owner): void {
    this.#due.delete(owner)
    owner.held.clear()
    for (const source of [...this.#runnable]) if (source.owner === owner) this.withdraw(source)
  }

  // ── Steps ────────────────────────────────────────────────────────────────────────────────────

  /** Runs one source. False when there is nothing to run, now or before `endMs`. */
  step(endMs = Number.POSITIVE_INFINITY): boolean {
    this.#nowMs += STEP_MS
    this.#steps++
    if (this.#steps >= this.#nextPause) {
      this.#nextPause = this.#steps + this.#drawPause()
      const pauseMs = this.#random.next() * this.#options.pauseMsMax
      this.#nowMs += pauseMs
      this.mix(Math.floor(pauseMs * 1024))
    }
    this.#releaseDue()
    const runnable = this.#runnable
    while (runnable.length === 0) {
      const next = this.#earliest()
      if (next === undefined) return false
      if (next.dueMs > endMs) {
        this.#nowMs = Math.max(this.#nowMs, endMs)
        return false
      }
      this.#nowMs = Math.max(this.#nowMs, next.dueMs)
      this.#releaseDue()
    }
    const source = this.#pick()
    this.withdraw(source)
    const { owner } = source
    this.mix((source.code << 20) ^ (owner === undefined ? 0 : owner.uid))
    try {
      source.run()
    } catch (thrown) {
      if (owner === undefined) throw thrown
      owner.failed(thrown)
    }
    drainMicrotasks()
    this.onStepEnd()
    return true
  }

  #pick(): Source {
    const runnable = this.#runnable
    const { length } = runnable
    if (length === 1) return runnable[0]!
    const source = runnable[this.#random.below(length)]!
    const slowness = source.owner?.slowness ?? 0
    if (slowness === 0 || this.#random.next() >= slowness) return source
    return runnable[this.#random.below(length)]!
  }

  #drawPause(): number {
    return drawInterval(this.#random, this.#options.pause)
  }

  #releaseDue(): void {
    for (;;) {
      const timer = this.#timers[0]
      if (timer === undefined) return
      if (timer.isOver) {
        popTimer(this.#timers)
        this.#cancelledCount--
      } else if (timer.dueMs <= this.#nowMs) {
        popTimer(this.#timers)
        this.#dueOf(timer.owner).add(timer)
      } else return
    }
  }

  #dueOf(owner: Owner | undefined): DueTimers {
    let due = this.#due.get(owner)
    if (due === undefined) {
      due = new DueTimers(this, owner)
      this.#due.set(owner, due)
    }
    return due
  }

  #earliest(): SimulatedTimer | undefined {
    for (;;) {
      const timer = this.#timers[0]
      if (timer === undefined) return undefined
      // Timers of the dead never fire.
      if (!timer.isOver && timer.owner?.isAlive !== false) return timer
      popTimer(this.#timers)
      if (timer.isOver) this.#cancelledCount--
    }
  }

  // ── Trace ────────────────────────────────────────────────────────────────────────────────────

  /** Takes an integer into the trace. */
  mix(value: number): void {
    this.#hashLow = Math.imul(this.#hashLow ^ value, 0x01000193)
    const mixed = Math.imul(this.#hashHigh + value, 0x85ebca6b)
    this.#hashHigh = mixed ^ (mixed >>> 13)
  }

  get traceHash(): string {
    return hex(this.#hashHigh) + hex(this.#hashLow)
  }
}

/** A source that runs one function once. */
export class Task extends Source {
  readonly code: number
  readonly #run: () => void

  constructor(owner: Owner | undefined, code: number, run: () => void) {
    super(owner)
    this.code = code
    this.#run = run
  }

  run(): void {
    this.#run()
  }
}

/** Steps until something with this chance per step happens: at least 1. */
export function drawInterval(random: Random, chance: number): number {
  if (chance <= 0) return Number.POSITIVE_INFINITY
  if (chance > 1) throw new SimulationError('draw an interval', `${chance} is not a probability`)
  if (chance === 1) return 1
  return 1 + Math.floor(Math.log(1 - random.next()) / Math.log(1 - chance))
}

function hex(word: number): string {
  return (word >>> 0).toString(16).padStart(8, '0')
}

function isBefore(one: SimulatedTimer, other: SimulatedTimer): boolean {
  return one.dueMs < other.dueMs || (one.dueMs === other.dueMs && one.order < other.order)
}

function pushTimer(heap: SimulatedTimer[], timer: SimulatedTimer): void {
  let position = heap.length
  heap.push(timer)
  while (position > 0) {
    const parentPosition = (position - 1) >> 1
    const parent = heap[parentPosition]!
    if (!isBefore(timer, parent)) break
    heap[position] = parent
    position = parentPosition
  }
  heap[position] = timer
}

function popTimer(heap: SimulatedTimer[]): void {
  const last = heap.pop()!
  const size = heap.length
  if (size === 0) return
  let position = 0
  for (;;) {
    let childPosition = 2 * position + 1
    if (childPosition >= size) break
    if (childPosition + 1 < size && isBefore(heap[childPosition + 1]!, heap[childPosition]!)) childPosition++
    if (!isBefore(heap[childPosition]!, last)) break
    heap[position] = heap[childPosition]!
    position = childPosition
  }
  heap[position] = last
}
