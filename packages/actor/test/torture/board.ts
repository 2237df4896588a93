/**
 * Board: the records of a torture run, in shared memory, so that the death of a thread erases nothing.
 *
 *   pair      one record for each sender and receiver of numbered messages
 *   thread    deaths, lives and the moment of the last death of each thread
 *   node      where it is, how often it was set up
 *   log       one record for each gap in the numbers of a pair, with what had changed since the number before
 *
 * Numbers   A sender notes the number it is about to send (INTENT), tells, then notes it as sent (NEXT). Its
 *           heir never uses a number that may have been sent: a number twice is a message twice.
 * Gaps      A receiver that misses numbers notes whether its thread, that of the sender, or neither had died
 *           since the last number it saw. A gap with neither is a message lost without a cause.
 * Writers   A record has one writer at a time: the thread of the sender, or the thread of the receiver. An
 *           heir starts after the end of the thread before it. Shared counters are added to atomically.
 */

export const MAIN_INDEX = 0
export const THREADS_MAX = 5
/** Receivers. */
export const NODES_MAX = 10
/** The driver sends too. */
export const DRIVER = NODES_MAX
const SENDERS_MAX = NODES_MAX + 1
export const WATCHES_MAX = 1 << 16
/** Storms, mayflies, sinks: everything that has its own number. */
export const SUBJECTS_MAX = 1 << 16
const FAILOVERS_MAX = 1 << 16
const GAPS_MAX = 1 << 13

// Of a pair.
const NEXT = 0
const INTENT = 1
const EXPECTED = 2
const RECEIVED = 3
const SENDER_LIFE = 4
const LIVES_SEEN = 5
const PAIR_WORDS = 6
/** Numbers whose arrival is recorded, as bits. */
const RECENT = 4096
const RECENT_WORDS = RECENT / 32

// Of a thread.
const DEATHS = 0
const LIVES = 1
const HANDLED_IN_LIFE = 2
const ASKED = 3
const SETTLED = 4
const THREAD_WORDS = 8

// Of a node.
const PLACE = 0
const SETUPS = 1
/** The last life of its thread in which its mailbox may have held much: see `heldUp`. */
const HELD_UP_IN_LIFE = 2
const NODE_WORDS = 3

/** Counters of the whole run. */
export const COUNT = {
  duplicates: 0,
  disorders: 12,
  deadTells: 1,
  fullTells: 2,
  handledAfterStopped: 3,
  watchesFiredTwice: 4,
  watchesFired: 5,
  watches: 6,
  timersTwice: 7,
  storms: 8,
  gaps: 9,
  failovers: 10,
  throws: 11,
  /** Not counted: which run it is. */
  run: 13,
} as const
const COUNTS = 16

const GAP_WORDS = 9

/** Numbers of a pair that did not arrive, and what may be the reason. */
export interface Gap {
  readonly sender: number
  readonly receiver: number
  readonly size: number
  /** Lives of the receiver's thread since the number before; 0: it is the same. */
  readonly lives: number
  /** The life that saw the gap. */
  readonly life: number
  /** The number after the gap comes from another life of the sender's thread. */
  readonly senderDied: boolean
  /** The receiver was held up in the life that died: what had come was in its mailbox. */
  readonly wasHeldUp: boolean
  /** The first number that is missing. */
  readonly first: number
}

const PAIRS = COUNTS
const RECENTS = PAIRS + SENDERS_MAX * NODES_MAX * PAIR_WORDS
const THREADS = RECENTS + SENDERS_MAX * NODES_MAX * RECENT_WORDS
const NODES = THREADS + THREADS_MAX * THREAD_WORDS
const WATCHES = NODES + NODES_MAX * NODE_WORDS
const SUBJECTS = WATCHES + WATCHES_MAX
const GAPS = SUBJECTS + SUBJECTS_MAX
const WORDS = GAPS + GAPS_MAX * GAP_WORDS
const TIMES = (WORDS + 1) & ~1

let runs = 0

export class Board {
  readonly memory: SharedArrayBuffer
  readonly #words: Int32Array
  readonly #diedAtMs: Float64Array
  readonly #failoversMs: Float64Array
  /** The life of this thread, from its first actor on. */
  #life = 0
  #thread = -1
  #gapsTaken = 0
  #failoversTaken = 0

  /** Over the memory of a run, or for a new one. */
  constructor(memory?: SharedArrayBuffer) {
    this.memory = memory ?? new SharedArrayBuffer(TIMES * 4 + (THREADS_MAX + FAILOVERS_MAX) * 8)
    this.#words = new Int32Array(this.memory, 0, WORDS)
    this.#diedAtMs = new Float64Array(this.memory, TIMES * 4, THREADS_MAX)
    this.#failoversMs = new Float64Array(this.memory, TIMES * 4 + THREADS_MAX * 8, FAILOVERS_MAX)
    if (memory === undefined) this.#words[COUNT.run] = ++runs
  }

  /** True when that is its memory, also as another object, as it comes back from another thread. */
  isOver(memory: SharedArrayBuffer): boolean {
    return new Int32Array(memory, COUNT.run * 4, 1)[0] === this.count(COUNT.run)
  }

  count(counter: number): number {
    return Atomics.load(this.#words, counter)
  }

  add(counter: number, amount = 1): void {
    Atomics.add(this.#words, counter, amount)
  }

  // ── Numbered messages ────────────────────────────────────────────────────────────────────────

  /** The number of the next message; `sent` or `refused` must follow. */
  begin(sender: number, receiver: number): number {
    const at = pairAt(sender, receiver)
    const words = this.#words
    const n = Math.max(words[at + NEXT]!, words[at + INTENT]!)
    words[at + INTENT] = n + 1
    return n
  }

  sent(sender: number, receiver: number, n: number): void {
    Atomics.store(this.#words, pairAt(sender, receiver) + NEXT, n + 1)
  }

  /** No actor has seen the number: it may be used again. */
  refused(sender: number, receiver: number, n: number): void {
    this.#words[pairAt(sender, receiver) + INTENT] = n
  }

  /** A number has arrived at `receiver` on this thread. */
  received(sender: number, senderLife: number, receiver: number, n: number): void {
    const at = pairAt(sender, receiver)
    const words = this.#words
    this.#noteFirstHandled()
    const expected = words[at + EXPECTED]!
    if (n < expected) {
      const isTwice = expected - n <= RECENT && this.#isRecent(sender, receiver, n)
      this.add(isTwice ? COUNT.duplicates : COUNT.disorders)
      return
    }
    for (let missed = Math.max(expected, n - RECENT); missed < n; missed++) {
      this.#setRecent(sender, receiver, missed, 0)
    }
    this.#setRecent(sender, receiver, n, 1)
    const lives = this.lives(this.#thread)
    const node = nodeAt(receiver)
    // From here on no call of a function: the end of this thread falls before all of it, or after.
    if (n > expected) {
      const record = GAPS + (Atomics.add(words, COUNT.gaps, 1) % GAPS_MAX) * GAP_WORDS
      words[record] = sender
      words[record + 1] = receiver
      words[record + 2] = n - expected
      words[record + 3] = lives - words[at + LIVES_SEEN]!
      words[record + 4] = lives
      words[record + 5] = senderLife === words[at + SENDER_LIFE] ? 0 : 1
      words[record + 6] = words[node + HELD_UP_IN_LIFE]! >= words[at + LIVES_SEEN]! ? 1 : 0
      words[record + 7] = expected
      Atomics.store(words, record + 8, 1)
    }
    words[at + SENDER_LIFE] = senderLife
    words[at + LIVES_SEEN] = lives
    words[at + RECEIVED]!++
    words[at + EXPECTED] = n + 1
  }

  #isRecent(sender: number, receiver: number, n: number): boolean {
    const bit = n & (RECENT - 1)
    return ((this.#words[recentAt(sender, receiver) + (bit >> 5)]! >> (bit & 31)) & 1) === 1
  }

  #setRecent(sender: number, receiver: number, n: number, value: 0 | 1): void {
    const bit = n & (RECENT - 1)
    const at = recentAt(sender, receiver) + (bit >> 5)
    const mask = 1 << (bit & 31)
    if (value === 1) this.#words[at]! |= mask
    else this.#words[at]! &= ~mask
  }

  /**
   * The gaps since the last call. Call it often enough; throws when some were overwritten. A gap that is
   * still being written ends the result, except at rest: then its writer died while writing, and its heir has
   * noted the gap again.
   */
  *takeGaps(isAtRest: boolean): Generator<Gap> {
    const words = this.#words
    const end = this.count(COUNT.gaps)
    if (end - this.#gapsTaken > GAPS_MAX) throw new Error('gaps were overwritten before they were read')
    for (; this.#gapsTaken < end; this.#gapsTaken++) {
      const record = GAPS + (this.#gapsTaken % GAPS_MAX) * GAP_WORDS
      if (Atomics.load(words, record + 8) === 0) {
        if (isAtRest) continue
        return
      }
      Atomics.store(words, record + 8, 0)
      yield {
        sender: words[record]!,
        receiver: words[record + 1]!,
        size: words[record + 2]!,
        lives: words[record + 3]!,
        life: words[record + 4]!,
        senderDied: words[record + 5] === 1,
        wasHeldUp: words[record + 6] === 1,
        first: words[record + 7]!,
      }
    }
  }

  /** Messages that were accepted for sending, handled messages, and the expected number. */
  pair(sender: number, receiver: number): { sent: number; received: number; expected: number } {
    const at = pairAt(sender, receiver)
    const words = this.#words
    return { sent: words[at + NEXT]!, received: words[at + RECEIVED]!, expected: words[at + EXPECTED]! }
  }

  /** Messages that are on their way, or lost and not yet known to be. */
  outstanding(senders: readonly number[], receivers: number): number {
    let total = 0
    for (const sender of senders) {
      for (let receiver = 0; receiver < receivers; receiver++) {
        const { sent, expected } = this.pair(sender, receiver)
        total += Math.max(0, sent - expected)
      }
    }
    return total
  }

  // ── Threads and nodes ────────────────────────────────────────────────────────────────────────

  /** An actor starts on thread `thread`. Returns the life of the thread; the first life is 1. */
  begun(thread: number): number {
    if (this.#life === 0) {
      const words = this.#words
      words[THREADS + thread * THREAD_WORDS + ASKED] = 0
      words[THREADS + thread * THREAD_WORDS + SETTLED] = 0
      this.#thread = thread
      this.#life = Atomics.add(words, THREADS + thread * THREAD_WORDS + LIVES, 1) + 1
    }
    return this.#life
  }

  /** The code that kills a thread calls this right before. */
  dies(thread: number): void {
    this.#diedAtMs[thread] = nowMs()
    Atomics.add(this.#words, THREADS + thread * THREAD_WORDS + DEATHS, 1)
  }

  deaths(thread: number): number {
    return Atomics.load(this.#words, THREADS + thread * THREAD_WORDS + DEATHS)
  }

  /** Lives of a thread that had an actor. */
  lives(thread: number): number {
    return Atomics.load(this.#words, THREADS + thread * THREAD_WORDS + LIVES)
  }

  /** The last life of a thread that has handled a numbered message. */
  handledInLife(thread: number): number {
    return Atomics.load(this.#words, THREADS + thread * THREAD_WORDS + HANDLED_IN_LIFE)
  }

  #noteFirstHandled(): void {
    const at = THREADS + this.#thread * THREAD_WORDS + HANDLED_IN_LIFE
    if (this.#words[at] === this.#life) return
    if (this.#life > 1 && this.#diedAtMs[this.#thread]! > 0) {
      const index = Atomics.add(this.#words, COUNT.failovers, 1)
      this.#failoversMs[index % FAILOVERS_MAX] = nowMs() - this.#diedAtMs[this.#thread]!
    }
    Atomics.store(this.#words, at, this.#life)
  }

  /** Milliseconds from each death to the first message handled by the next life, since the last call. */
  *takeFailovers(): Generator<number> {
    const end = this.count(COUNT.failovers)
    for (; this.#failoversTaken < end; this.#failoversTaken++) {
      yield this.#failoversMs[this.#failoversTaken % FAILOVERS_MAX]!
    }
  }

  asked(): void {
    Atomics.add(this.#words, THREADS + this.#thread * THREAD_WORDS + ASKED, 1)
  }

  settled(): void {
    Atomics.add(this.#words, THREADS + this.#thread * THREAD_WORDS + SETTLED, 1)
  }

  /** Asks that actors of the present life of a thread opened, and have not seen settle. */
  openAsks(thread: number): number {
    const at = THREADS + thread * THREAD_WORDS
    return this.#words[at + ASKED]! - this.#words[at + SETTLED]!
  }

  place(node: number, thread: number): void {
    const at = nodeAt(node)
    const words = this.#words
    words[at + SETUPS]!++
    Atomics.store(words, at + PLACE, thread + 1)
  }

  /**
   * The instance of a node throws: until another follows, and has caught up, its mailbox keeps what comes.
   */
  heldUp(node: number): void {
    this.#words[nodeAt(node) + HELD_UP_IN_LIFE] = this.#life
  }

  /** The thread of a node; −1 before its first setup. */
  threadOf(node: number): number {
    return Atomics.load(this.#words, nodeAt(node) + PLACE) - 1
  }

  // ── Watches, storms ──────────────────────────────────────────────────────────────────────────

  /** A watch was set on `thread`; it fires once, unless that life of the thread ends before. */
  watched(id: number, thread: number): void {
    Atomics.store(this.#words, WATCHES + id, (thread << 24) | this.#life)
    this.add(COUNT.watches)
  }

  fired(id: number): void {
    const before = Atomics.exchange(this.#words, WATCHES + id, -1)
    this.add(before === -1 ? COUNT.watchesFiredTwice : COUNT.watchesFired)
  }

  /** Watches below `end` that have not fired and whose watcher lives. */
  openWatches(end: number): number[] {
    const open: number[] = []
    for (let id = 0; id < end; id++) {
      const word = Atomics.load(this.#words, WATCHES + id)
      if (word > 0 && (word & 0xffffff) === this.lives(word >> 24)) open.push(id)
    }
    return open
  }

  /** A counter for any numbered subject. */
  subject(id: number): number {
    return Atomics.load(this.#words, SUBJECTS + id)
  }

  addSubject(id: number, amount = 1): number {
    return Atomics.add(this.#words, SUBJECTS + id, amount) + amount
  }
}

/** Milliseconds on a clock that all threads share. */
export function nowMs(): number {
  return Number(process.hrtime.bigint()) / 1e6
}

function pairAt(sender: number, receiver: number): number {
  return PAIRS + (sender * NODES_MAX + receiver) * PAIR_WORDS
}

function recentAt(sender: number, receiver: number): number {
  return RECENTS + (sender * NODES_MAX + receiver) * RECENT_WORDS
}

function nodeAt(node: number): number {
  return NODES + node * NODE_WORDS
}
