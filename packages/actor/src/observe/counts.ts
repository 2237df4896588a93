/**
 * Counts: the figures of one thread, written where they survive it. A counter continues from the previous
 * life of the thread; a gauge begins again.
 */

import { DEAD_LETTER_REASONS, type DeadLetterCounts, type DeadLetterReason } from '../values/dead-letters.ts'
import { RECORD_COUNT, ThreadMemory } from './thread-memory.ts'

const SENT = 0
/** Messages handled before the last record of messages, which counts its own: see flight.ts. */
export const HANDLED_BEFORE = 1
const DROPPED = 2
const REFUSED = 3
const DEAD_LETTERS = 4
const RESTARTS = 5
const ASKS_TIMED_OUT = 6
const DOORBELLS = 7
const PARKS = 8
const FRAMES_OUT_OBJECT = 9
const FRAMES_OUT_INLINE = 10
const FRAMES_IN_OBJECT = 11
const FRAMES_IN_INLINE = 12
const INBOUND_BATCHES = 13
export const TURNS = 14
const BUSY_MS = 15
const LIVES = 16
const SPILL_HIGH_WATER = 17
const RING_HIGH_WATER = 18
const MAILBOX_HIGH_WATER = 19
const ACTORS = 20
const ASKS_PENDING = 21
const HEAP_USED = 22
const HEAP_LIMIT = 23
const LIFE = 24
/** 1 while actors have a turn. */
export const IS_IN_TURN = 25
/** Sequence numbers of the records that come next, and how many texts of types there are: see flight.ts. */
export const NEXT_MESSAGE = 26
export const NEXT_EVENT = 27
export const TYPE_COUNT = 28
const HEAP_RESIDENT = 29
const REASONS = 32
const TIMED_US = 63
const TIMES = 64

/** Bounds of the handler times, in microseconds: 1, 2, 4 … 524 288; what took longer comes after them. */
const TIME_BOUNDS_US: readonly number[] = Array.from({ length: 20 }, (_, power) => 2 ** power)

/** Frames between threads, by the way their bodies went. */
export interface FramesByLane {
  /** Cloned by the port. */
  readonly object: number
  /** A primitive, or nothing: written into the ring as it is. */
  readonly inline: number
}

/** How long messages took to be handled; taken from one turn in 16. */
export interface HandlerTimes {
  /** Upper bounds in microseconds; each is twice the one before. */
  readonly boundsUs: readonly number[]
  /** Messages up to each bound, and one more figure: those beyond the last. */
  readonly counts: readonly number[]
  readonly sumUs: number
}

/** The figures of one thread over all its lives; those that say "now" are of the present one. */
export interface ThreadCounters {
  readonly thread: string
  /** Times that the thread was started. */
  readonly lives: number
  readonly sent: number
  readonly handled: number
  /** Messages that waited when their actor stopped. */
  readonly dropped: number
  /** Messages and asks that a bound refused. */
  readonly refused: number
  readonly deadLetters: number
  readonly deadLettersByReason: Readonly<DeadLetterCounts>
  readonly restarts: number
  readonly asksTimedOut: number
  /** Other threads woken. */
  readonly doorbells: number
  /** Times that it waited for one of its links. */
  readonly parks: number
  readonly framesOut: FramesByLane
  readonly framesIn: FramesByLane
  readonly inboundBatches: number
  /** Bursts of messages handled in a row. */
  readonly turns: number
  /** Time that actors were on turn, without what async arms do after an await. */
  readonly busyMs: number
  /** Most frames that ever waited for room in a ring. */
  readonly spillHighWater: number
  /** Most bytes that were ever found in one of its inbound rings. */
  readonly ringHighWaterBytes: number
  /** Most messages that ever waited in one mailbox. */
  readonly mailboxHighWater: number
  /** Now. */
  readonly actors: number
  /** Now: asks of its actors that await their answer. */
  readonly asksPending: number
  /** At the last look, some hundred turns or a second apart; 0 before the first. */
  readonly heapUsedBytes: number
  readonly heapLimitBytes: number
  /** What the heap takes of the system, free room included. */
  readonly heapResidentBytes: number
  readonly handlerTimes: HandlerTimes
}

/** A heap as its thread sees it. */
export interface HeapFigures {
  readonly usedBytes: number
  readonly limitBytes: number
  readonly residentBytes: number
}

/** What a link counts. */
export interface LinkCounts {
  doorbells: number
  parks: number
  framesOutObject: number
  framesOutInline: number
  framesInObject: number
  framesInInline: number
  inboundBatches: number
  raiseSpill(frames: number): void
  raiseRing(bytes: number): void
}

export class Counts implements LinkCounts {
  readonly #numbers: Float64Array

  constructor(memory: ThreadMemory) {
    this.#numbers = memory.numbers
  }

  /** A new life begins: gauges are 0 again. */
  begin(life: number): void {
    const numbers = this.#numbers
    endLife(numbers)
    numbers[LIFE] = life
    numbers[LIVES]!++
  }

  get sent(): number {
    return this.#numbers[SENT]!
  }
  set sent(count: number) {
    this.#numbers[SENT] = count
  }

  /** Up to the last turn. */
  get handled(): number {
    return readHandled(this.#numbers)
  }

  /** A message that was given to an actor found no arm. */
  unhandled(): void {
    this.#numbers[HANDLED_BEFORE]!--
  }

  get dropped(): number {
    return this.#numbers[DROPPED]!
  }
  set dropped(count: number) {
    this.#numbers[DROPPED] = count
  }

  get refused(): number {
    return this.#numbers[REFUSED]!
  }
  set refused(count: number) {
    this.#numbers[REFUSED] = count
  }

  get deadLetters(): number {
    return this.#numbers[DEAD_LETTERS]!
  }

  get restarts(): number {
    return this.#numbers[RESTARTS]!
  }
  set restarts(count: number) {
    this.#numbers[RESTARTS] = count
  }

  get asksTimedOut(): number {
    return this.#numbers[ASKS_TIMED_OUT]!
  }
  set asksTimedOut(count: number) {
    this.#numbers[ASKS_TIMED_OUT] = count
  }

  get doorbells(): number {
    return this.#numbers[DOORBELLS]!
  }
  set doorbells(count: number) {
    this.#numbers[DOORBELLS] = count
  }

  get parks(): number {
    return this.#numbers[PARKS]!
  }
  set parks(count: number) {
    this.#numbers[PARKS] = count
  }

  get framesOutObject(): number {
    return this.#numbers[FRAMES_OUT_OBJECT]!
  }
  set framesOutObject(count: number) {
    this.#numbers[FRAMES_OUT_OBJECT] = count
  }

  get framesOutInline(): number {
    return this.#numbers[FRAMES_OUT_INLINE]!
  }
  set framesOutInline(count: number) {
    this.#numbers[FRAMES_OUT_INLINE] = count
  }

  get framesInObject(): number {
    return this.#numbers[FRAMES_IN_OBJECT]!
  }
  set framesInObject(count: number) {
    this.#numbers[FRAMES_IN_OBJECT] = count
  }

  get framesInInline(): number {
    return this.#numbers[FRAMES_IN_INLINE]!
  }
  set framesInInline(count: number) {
    this.#numbers[FRAMES_IN_INLINE] = count
  }

  get inboundBatches(): number {
    return this.#numbers[INBOUND_BATCHES]!
  }
  set inboundBatches(count: number) {
    this.#numbers[INBOUND_BATCHES] = count
  }

  get busyMs(): number {
    return this.#numbers[BUSY_MS]!
  }
  set busyMs(timeMs: number) {
    this.#numbers[BUSY_MS] = timeMs
  }

  set actors(count: number) {
    this.#numbers[ACTORS] = count
  }

  get asksPending(): number {
    return this.#numbers[ASKS_PENDING]!
  }
  set asksPending(count: number) {
    this.#numbers[ASKS_PENDING] = count
  }

  raiseSpill(frames: number): void {
    if (frames > this.#numbers[SPILL_HIGH_WATER]!) this.#numbers[SPILL_HIGH_WATER] = frames
  }

  raiseRing(bytes: number): void {
    if (bytes > this.#numbers[RING_HIGH_WATER]!) this.#numbers[RING_HIGH_WATER] = bytes
  }

  raiseMailbox(messages: number): void {
    if (messages > this.#numbers[MAILBOX_HIGH_WATER]!) this.#numbers[MAILBOX_HIGH_WATER] = messages
  }

  heap({ usedBytes, limitBytes, residentBytes }: HeapFigures): void {
    this.#numbers[HEAP_USED] = usedBytes
    this.#numbers[HEAP_LIMIT] = limitBytes
    this.#numbers[HEAP_RESIDENT] = residentBytes
  }

  deadLetter(reason: DeadLetterReason, count = 1): void {
    this.#numbers[DEAD_LETTERS]! += count
    this.#numbers[REASONS + DEAD_LETTER_REASONS.indexOf(reason)]! += count
  }

  get deadLettersByReason(): DeadLetterCounts {
    return readReasons(this.#numbers)
  }

  /** `messages` were handled in `timeUs` altogether. */
  timed(timeUs: number, messages: number): void {
    const each = Math.ceil(timeUs / messages)
    const bucket = each <= 1 ? 0 : Math.min(TIME_BOUNDS_US.length, 32 - Math.clz32(each - 1))
    this.#numbers[TIMES + bucket]! += messages
    this.#numbers[TIMED_US]! += timeUs
  }
}

/** The figures of a thread as they are now. */
export function readCounters(thread: string, { numbers }: ThreadMemory): ThreadCounters {
  const at = (index: number): number => numbers[index]!
  return {
    thread,
    lives: at(LIVES),
    sent: at(SENT),
    handled: readHandled(numbers),
    dropped: at(DROPPED),
    refused: at(REFUSED),
    deadLetters: at(DEAD_LETTERS),
    deadLettersByReason: readReasons(numbers),
    restarts: at(RESTARTS),
    asksTimedOut: at(ASKS_TIMED_OUT),
    doorbells: at(DOORBELLS),
    parks: at(PARKS),
    framesOut: {
      object: at(FRAMES_OUT_OBJECT),
      inline: at(FRAMES_OUT_INLINE),
    },
    framesIn: { object: at(FRAMES_IN_OBJECT), inline: at(FRAMES_IN_INLINE) },
    inboundBatches: at(INBOUND_BATCHES),
    turns: at(TURNS),
    busyMs: at(BUSY_MS),
    spillHighWater: at(SPILL_HIGH_WATER),
    ringHighWaterBytes: at(RING_HIGH_WATER),
    mailboxHighWater: at(MAILBOX_HIGH_WATER),
    actors: at(ACTORS),
    asksPending: at(ASKS_PENDING),
    heapUsedBytes: at(HEAP_USED),
    heapLimitBytes: at(HEAP_LIMIT),
    heapResidentBytes: at(HEAP_RESIDENT),
    handlerTimes: {
      boundsUs: TIME_BOUNDS_US,
      counts: Array.from({ length: TIME_BOUNDS_US.length + 1 }, (_, bucket) => at(TIMES + bucket)),
      sumUs: at(TIMED_US),
    },
  }
}

/** The life that has the memory, and whether it has an arm of an actor in hand, or had when it ended. */
export function readLife({ numbers }: ThreadMemory): { readonly life: number; readonly isInTurn: boolean } {
  return { life: numbers[LIFE]!, isInTurn: numbers[IS_IN_TURN] === 1 }
}

/** Resets the figures that were true only of the life that is over. */
export function endLife(numbers: Float64Array): void {
  for (const gauge of [ACTORS, ASKS_PENDING, HEAP_USED, HEAP_LIMIT, HEAP_RESIDENT, IS_IN_TURN])
    numbers[gauge] = 0
}

/** The sum of several threads; a high water is the highest of all, a heap limit the sum. */
export function totalOf(all: readonly ThreadCounters[]): ThreadCounters {
  const sum = (figure: (one: ThreadCounters) => number): number =>
    all.reduce((total, one) => total + figure(one), 0)
  const most = (figure: (one: ThreadCounters) => number): number =>
    all.reduce((highest, one) => Math.max(highest, figure(one)), 0)
  const lanes = (frames: (one: ThreadCounters) => FramesByLane): FramesByLane => ({
    object: sum(one => frames(one).object),
    inline: sum(one => frames(one).inline),
  })
  return {
    thread: 'all',
    lives: sum(one => one.lives),
    sent: sum(one => one.sent),
    handled: sum(one => one.handled),
    dropped: sum(one => one.dropped),
    refused: sum(one => one.refused),
    deadLetters: sum(one => one.deadLetters),
    deadLettersByReason: Object.fromEntries(
      DEAD_LETTER_REASONS.map(reason => [reason, sum(one => one.deadLettersByReason[reason])]),
    ) as DeadLetterCounts,
    restarts: sum(one => one.restarts),
    asksTimedOut: sum(one => one.asksTimedOut),
    doorbells: sum(one => one.doorbells),
    parks: sum(one => one.parks),
    framesOut: lanes(one => one.framesOut),
    framesIn: lanes(one => one.framesIn),
    inboundBatches: sum(one => one.inboundBatches),
    turns: sum(one => one.turns),
    busyMs: sum(one => one.busyMs),
    spillHighWater: most(one => one.spillHighWater),
    ringHighWaterBytes: most(one => one.ringHighWaterBytes),
    mailboxHighWater: most(one => one.mailboxHighWater),
    actors: sum(one => one.actors),
    asksPending: sum(one => one.asksPending),
    heapUsedBytes: sum(one => one.heapUsedBytes),
    heapLimitBytes: sum(one => one.heapLimitBytes),
    heapResidentBytes: sum(one => one.heapResidentBytes),
    handlerTimes: {
      boundsUs: TIME_BOUNDS_US,
      counts: Array.from({ length: TIME_BOUNDS_US.length + 1 }, (_, bucket) =>
        sum(one => one.handlerTimes.counts[bucket]!),
      ),
      sumUs: sum(one => one.handlerTimes.sumUs),
    },
  }
}

function readHandled(numbers: Float64Array): number {
  const next = numbers[NEXT_MESSAGE]!
  return next === 0 ? 0 : numbers[HANDLED_BEFORE]! + numbers[ThreadMemory.messageAt(next - 1) + RECORD_COUNT]!
}

function readReasons(numbers: Float64Array): DeadLetterCounts {
  return Object.fromEntries(
    DEAD_LETTER_REASONS.map((reason, at) => [reason, numbers[REASONS + at]!]),
  ) as DeadLetterCounts
}
