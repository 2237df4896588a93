/**
 * Ledger: what became of numbered messages, as counters for each pair of sender and receiver. It checks the
 * same as the checkers of a history (fifoPerPair, noDuplicates, lossesHaveCauses, asksSettleOnce), and
 * besides the window, in constant memory and time for each message: for runs that are too long for a list of
 * all that happened.
 *
 * Numbers   A sender gives its messages to one receiver the numbers 0, 1, 2 … and a number again when it was
 *           refused.
 * Losses    The side that knows of a loss books it for the pair before a later number can be handled. A gap
 *           in the numbers that arrive is a message lost without a cause when it is larger than what is
 *           booked.
 * Deaths    What a dead thread had taken and not handled is lost within the *window*, up to INFLIGHT_MAX
 *           frames of each link, or with a mailbox: of an actor that was between two instances, or had not
 *           caught up since.
 */

import { INFLIGHT_MAX } from '../../src/links/ring/inbound-ring.ts'

const VIOLATIONS_MAX = 20

/** How messages were lost. */
export type LedgerLoss = 'window' | 'mailbox' | 'bothDead' | 'senderDead' | 'other'

interface Life {
  readonly thread: number
  isOver: boolean
  openAsks: number
}

export class Ledger {
  readonly lost: Record<LedgerLoss, number> = { window: 0, mailbox: 0, bothDead: 0, senderDead: 0, other: 0 }
  readonly violations: string[] = []
  messages = 0
  asks = 0
  beyondWindow = 0
  twice = 0
  disorders = 0
  /** The most that one death lost of one link, within the window. */
  windowMax = 0
  readonly #size: number
  /** The thread of each actor, by number. */
  readonly #threads: readonly number[]
  readonly #threadCount: number
  // Of each pair, sender first.
  readonly #sent: Int32Array
  readonly #taken: Int32Array
  readonly #handled: Int32Array
  readonly #lost: Int32Array
  readonly #expected: Int32Array
  /** Numbers that were passed over. */
  readonly #passed: Int32Array
  /** The life from which the last message came that was taken. */
  readonly #takenFrom: Int32Array
  // Of each receiver.
  readonly #waiting: Int32Array
  readonly #isHeldUp: Uint8Array
  readonly #lives = new Map<number, Life>()

  /** `threads`: of each actor, the number of its thread; the last actor only sends. */
  constructor(threads: readonly number[]) {
    this.#size = threads.length
    this.#threads = threads
    this.#threadCount = Math.max(...threads) + 1
    const pairs = (): Int32Array => new Int32Array(threads.length ** 2)
    this.#sent = pairs()
    this.#taken = pairs()
    this.#handled = pairs()
    this.#lost = pairs()
    this.#expected = pairs()
    this.#passed = pairs()
    this.#takenFrom = pairs()
    this.#waiting = new Int32Array(threads.length)
    this.#isHeldUp = new Uint8Array(threads.length).fill(1)
  }

  // ── Messages ─────────────────────────────────────────────────────────────────────────────────

  /** The number of the next message from one to another; `sent` follows when it was accepted. */
  next(from: number, to: number): number {
    return this.#sent[from * this.#size + to]!
  }

  sent(from: number, to: number): void {
    this.#sent[from * this.#size + to]!++
    if (this.#threads[from] === this.#threads[to]) this.#waiting[to]!++
  }

  /** The thread of `to` has got it from another, where life `uid` had sent it. */
  taken(from: number, to: number, uid: number): void {
    const pair = from * this.#size + to
    this.#taken[pair]!++
    this.#takenFrom[pair] = uid
    this.#waiting[to]!++
  }

  handled(from: number, to: number, number: number): void {
    const pair = from * this.#size + to
    this.messages++
    const expected = this.#expected[pair]!
    if (number < expected) {
      if (number === expected - 1) this.twice++
      else this.disorders++
      this.violate(`${from} to ${to}: ${number} was handled after ${expected - 1}`)
      return
    }
    if (number > expected) this.#pass(pair, from, to, number - expected)
    this.#expected[pair] = number + 1
    this.#handled[pair]!++
    if (--this.#waiting[to]! === 0) this.#isHeldUp[to] = 0
  }

  #pass(pair: number, from: number, to: number, count: number): void {
    this.#passed[pair]! += count
    const unexplained = this.#passed[pair]! - this.#lost[pair]!
    if (unexplained <= 0) return
    this.#lost[pair]! += unexplained
    this.beyondWindow += unexplained
    this.violate(`${from} to ${to}: ${unexplained} of ${count} were lost without a cause`)
  }

  /** It was lost on its way, for a stated reason. */
  lostOnTheWay(from: number, to: number, loss: LedgerLoss): void {
    this.#lost[from * this.#size + to]!++
    this.lost[loss]++
  }

  // ── Actors and threads ───────────────────────────────────────────────────────────────────────

  begins(uid: number, thread: number): void {
    if (!this.#lives.has(uid)) this.#lives.set(uid, { thread, isOver: false, openAsks: 0 })
  }

  /** The instance of an actor has ended: its mailbox keeps what comes until the next has caught up. */
  fails(actor: number): void {
    this.#isHeldUp[actor] = 1
  }

  /** An instance runs. */
  runs(actor: number): void {
    if (this.#waiting[actor] === 0) this.#isHeldUp[actor] = 0
  }

  /** What the actors of the life had, and had not handled, is lost. */
  ends(uid: number): void {
    const life = this.#lives.get(uid)
    if (life === undefined || life.isOver) return
    life.isOver = true
    life.openAsks = 0
    const window = new Int32Array(this.#threadCount)
    for (let to = 0; to < this.#size; to++) {
      if (this.#threads[to] !== life.thread) continue
      for (let from = 0; from < this.#size; from++) this.#endPair(from, to, window)
      this.#waiting[to] = 0
      this.#isHeldUp[to] = 1
    }
    for (const frames of window) {
      this.lost.window += frames
      this.windowMax = Math.max(this.windowMax, frames)
      if (frames <= INFLIGHT_MAX) continue
      this.beyondWindow += frames - INFLIGHT_MAX
      this.violate(`life ${uid} had taken ${frames} frames of one link when it ended, and not handled them`)
    }
  }

  #endPair(from: number, to: number, window: Int32Array): void {
    const pair = from * this.#size + to
    const fromThread = this.#threads[from]!
    if (fromThread === this.#threads[to]) {
      const left = this.#sent[pair]! - this.#handled[pair]! - this.#lost[pair]!
      this.#lost[pair]! += left
      this.lost.mailbox += left
      return
    }
    const left = this.#taken[pair]! - this.#handled[pair]!
    this.#taken[pair]! -= left
    this.#lost[pair]! += left
    if (this.#isHeldUp[to] === 1) this.lost.mailbox += left
    else if (this.#lives.get(this.#takenFrom[pair]!)?.isOver === true) this.lost.bothDead += left
    else window[fromThread]! += left
  }

  // ── Asks ─────────────────────────────────────────────────────────────────────────────────────

  asked(uid: number): void {
    this.asks++
    this.#lives.get(uid)!.openAsks++
  }

  settled(uid: number): void {
    const life = this.#lives.get(uid)!
    if (!life.isOver) life.openAsks--
  }

  get openAsks(): number {
    let open = 0
    for (const life of this.#lives.values()) open += life.openAsks
    return open
  }

  // ── Rest ─────────────────────────────────────────────────────────────────────────────────────

  /** Messages that are neither handled nor known to be lost. */
  get onTheWay(): number {
    let left = 0
    for (let pair = 0; pair < this.#sent.length; pair++)
      left += this.#sent[pair]! - this.#handled[pair]! - this.#lost[pair]!
    return left
  }

  /** Every message was handled or lost for a reason, and every ask has settled. */
  get isAtRest(): boolean {
    return this.openAsks === 0 && this.onTheWay === 0
  }

  violate(what: string): void {
    if (this.violations.length < VIOLATIONS_MAX) this.violations.push(what)
  }
}
