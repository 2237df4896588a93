/**
 * Turns: the run queue of a thread, and when the event loop lets it run.
 *
 * A burst of messages is handled in the microtask after it. A *round* is everything that runs in one cycle of
 * the event loop. After TURN_MESSAGES_MAX messages or TURN_MS_MAX of a round the rest waits for setImmediate,
 * so that sockets and timers get their share, even when every message arrives from a promise or from another
 * thread.
 *
 * Invariants
 *   I1  A round ends before the thread waits: in the immediate that its first microtask planned, or with the
 *       immediate that began it. Otherwise the wait would count, and the messages after it would have no time
 *       left.
 *   I2  The time of turns is the time between begin and end of each turn: it excludes other work of the event
 *       loop in the round, and work of async arms after an await.
 *
 * One turn in TIMED_TURNS looks at the clock after each cell, for the times of handlers.
 */

import type { Clock } from '@homing/base'
import type { Counts } from '../observe/counts.ts'
import type { FlightRecorder } from '../observe/flight.ts'
import type { HeapGauge } from '../observe/heap-gauge.ts'

const TURN_MESSAGES_MAX = 4096
const TURN_MS_MAX = 1
/** Messages before the first looks at the clock, and between two later ones: slow arms are noticed soon. */
const FIRST_LOOK_MESSAGES = 4
const SECOND_LOOK_MESSAGES = 16
const LOOK_MESSAGES = 64
/** One turn in this many is timed. */
const TIMED_TURNS = 16
/** Turns between two looks at the heap. */
const HEAP_TURNS = 256
/** A round of the event loop that takes longer is an event. */
const LONG_TURN_MS = 50

/** What turns are told by, and where they are counted. */
export interface TurnFacilities {
  readonly clock: Clock
  readonly counts: Counts
  readonly flight: FlightRecorder
  readonly heap: HeapGauge
}

/** A cell, as far as turns go. */
export interface Turned {
  /** True while it is in the run queue or having its turn. */
  isQueued: boolean
  /** Has its turn; the number of messages and signals that it handled. */
  turn(): number
}

export class Turns {
  /** No actor has another turn: the thread is about to be ended. */
  isHalted = false
  readonly #clock: Clock
  readonly #counts: Counts
  readonly #flight: FlightRecorder
  readonly #heap: HeapGauge
  readonly #planTurn: (() => void) | undefined
  #ready: Turned[] = []
  #isTurnPlanned = false
  #isImmediatePlanned = false
  #turnCount = 0
  /** When the round of the event loop began that is going on; −1 before its first turn. */
  #roundMs = -1
  /** Messages that microtask turns may still handle before the event loop has to go round. */
  #microtaskBudget = TURN_MESSAGES_MAX

  /** `planTurn` plans a call of `take`, instead of microtasks and immediates. */
  constructor({ clock, counts, flight, heap }: TurnFacilities, planTurn: (() => void) | undefined) {
    this.#clock = clock
    this.#counts = counts
    this.#flight = flight
    this.#heap = heap
    this.#planTurn = planTurn
  }

  /** Puts a cell that has work into the run queue. */
  enqueue(cell: Turned): void {
    cell.isQueued = true
    this.#ready.push(cell)
    if (this.#isTurnPlanned) return
    this.#isTurnPlanned = true
    if (this.#planTurn !== undefined) this.#planTurn()
    else if (this.#microtaskBudget > 0) queueMicrotask(this.#microtaskTurn)
    else this.#planImmediate()
  }

  /** Puts a cell back that has had its turn and has more work. */
  requeue(cell: Turned): void {
    this.#ready.push(cell)
  }

  /** True when no actor has anything to do now. */
  get isIdle(): boolean {
    return this.#ready.length === 0
  }

  readonly #microtaskTurn = (): void => {
    // The immediate refills the budget; until then promises cannot keep the event loop from going round.
    this.#planImmediate()
    this.#microtaskBudget -= this.#run(this.#microtaskBudget)
    if (this.#ready.length === 0) this.#isTurnPlanned = false
    else this.#microtaskBudget = 0
  }

  /** Lets actors run now, within the bounds of a round. False when they have more to do. */
  runNow(): boolean {
    if (this.#ready.length === 0) return true
    const isInRound = this.#roundMs >= 0
    if (this.#planTurn === undefined) this.#planImmediate()
    this.#run(TURN_MESSAGES_MAX)
    if (!isInRound && this.#planTurn !== undefined) this.#endRound()
    return this.#ready.length === 0
  }

  /**
   * True when an actor that has handled this many messages in its turn is to make room for the event loop.
   */
  isOverAfter(messages: number): boolean {
    if (messages !== FIRST_LOOK_MESSAGES && messages !== SECOND_LOOK_MESSAGES) return false
    return this.#roundMs >= 0 && this.#clock.nowMs() - this.#roundMs >= TURN_MS_MAX
  }

  /** The turn that `planTurn` was asked for: about `messagesMax` messages; what is left is planned again. */
  take(messagesMax: number): number {
    const handled = this.#run(messagesMax)
    this.#endRound()
    if (this.#ready.length === 0) this.#isTurnPlanned = false
    else this.#planTurn?.()
    return handled
  }

  readonly #immediateTurn = (): void => {
    this.#isImmediatePlanned = false
    this.#microtaskBudget = TURN_MESSAGES_MAX
    this.#endRound()
    if (!this.#isTurnPlanned) return
    this.#run(TURN_MESSAGES_MAX)
    if (this.#ready.length > 0) {
      this.#planImmediate()
      return
    }
    this.#isTurnPlanned = false
    // Nothing is planned that could end it later.
    this.#endRound()
  }

  #planImmediate(): void {
    if (this.#isImmediatePlanned) return
    this.#isImmediatePlanned = true
    setImmediate(this.#immediateTurn)
  }

  /**
   * Handles up to about `budget` messages; returns how many, at least 1 per cell. None when the round is
   * over.
   */
  #run(budget: number): number {
    let handled = 0
    let lookAt = FIRST_LOOK_MESSAGES
    const startMs = this.#clock.nowMs()
    if (this.#roundMs < 0) this.#roundMs = startMs
    const endMs = this.#roundMs + TURN_MS_MAX
    if (startMs >= endMs) return 0
    const isTimed = this.#beginTurn(startMs)
    if (this.isHalted) budget = 0
    let lastMs = startMs
    while (this.#ready.length > 0 && handled < budget) {
      const round = this.#ready
      this.#ready = []
      let position = 0
      for (; position < round.length && handled < budget; position++) {
        const messages = round[position]!.turn()
        handled += messages + 1
        if (isTimed) lastMs = this.#time(lastMs, messages)
        if (handled >= lookAt) {
          lookAt = handled < SECOND_LOOK_MESSAGES ? SECOND_LOOK_MESSAGES : handled + LOOK_MESSAGES
          if (this.#clock.nowMs() >= endMs) budget = 0
        }
      }
      // What did not get its turn stays in front of what was queued meanwhile.
      if (position < round.length) this.#ready = [...round.slice(position), ...this.#ready]
    }
    this.#flight.endTurn()
    this.#counts.busyMs += this.#clock.nowMs() - startMs
    return handled
  }

  /** True when this turn is to be timed. */
  #beginTurn(nowMs: number): boolean {
    this.#flight.beginTurn(nowMs)
    this.#turnCount = (this.#turnCount + 1) % HEAP_TURNS
    if (this.#turnCount === 0 || this.#heap.isLookDue(nowMs)) this.#heap.look(nowMs)
    return this.#turnCount % TIMED_TURNS === 0
  }

  /** Takes the time since `fromMs` for that of some messages; returns the time now. */
  #time(fromMs: number, messages: number): number {
    const nowMs = this.#clock.nowMs()
    if (messages > 0) this.#counts.timed((nowMs - fromMs) * 1000, messages)
    return nowMs
  }

  #endRound(): void {
    if (this.#roundMs < 0) return
    const durationMs = this.#clock.nowMs() - this.#roundMs
    this.#roundMs = -1
    if (durationMs >= LONG_TURN_MS) this.#flight.note('longTurn', 0, '', Math.round(durationMs))
  }
}
