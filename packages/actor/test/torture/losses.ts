/**
 * Losses of a torture run: each message that is missing is lost for a reason, or is a violation.
 *
 * Reasons    window    the thread of the receiver died: at most INFLIGHT_MAX frames of each link to it
 *            mailbox   …, when the receiver had been in a backoff, or its thread was starting: its mailbox as
 *                      well
 *            sender    the thread of the sender died before it had published them
 *            local     both on one thread, which died
 *            both      the threads of both died
 *            Any other loss is a violation.
 */

import { type Board, DRIVER, type Gap, MAIN_INDEX } from './board.ts'

/** What a thread that dies may lose of a link, as docs/actor-runtime.md says. */
const INFLIGHT_MAX = 64

export type Reason = 'window' | 'mailbox' | 'sender' | 'local' | 'both'

export class Losses {
  readonly lost: Record<Reason, number> = { window: 0, mailbox: 0, sender: 0, local: 0, both: 0 }
  /** The most frames of one link that one death lost. */
  windowMax = 0
  beyondWindow = 0
  readonly #board: Board
  readonly #violate: (what: string) => void
  /** Missing messages of each pair. */
  readonly #missing = new Map<string, number>()
  /**
   * Messages that were lost of a link before a life, by the deaths that may have lost them: the last, the
   * last two …
   */
  readonly #windows = new Map<string, number[]>()
  /** Lives whose start was killed, and the lives after them. */
  readonly #killedStarts = new Set<string>()
  /** The last deaths. */
  readonly #ways: string[] = []

  constructor(board: Board, violate: (what: string) => void) {
    this.#board = board
    this.#violate = violate
  }

  /** For reports: a thread is about to die. */
  note(way: string): void {
    this.#ways.push(way)
    if (this.#ways.length > 20) this.#ways.shift()
  }

  /**
   * The start of this life is killed: messages that the next life receives while its actors load wait in
   * their mailboxes.
   */
  killedStart(thread: number, life: number): void {
    this.#killedStarts.add(`${thread} ${life}`).add(`${thread} ${life + 1}`)
  }

  /** Takes what the board has found missing. */
  take(isAtRest: boolean): void {
    for (const gap of this.#board.takeGaps(isAtRest)) {
      const key = `${gap.sender} ${gap.receiver}`
      this.#missing.set(key, (this.#missing.get(key) ?? 0) + gap.size)
      const reason = this.#reasonFor(gap)
      if (reason === undefined) {
        this.beyondWindow += gap.size
        this.#violate(
          `lost without a reason: ${JSON.stringify(gap)}, sender on ${this.#board.threadOf(gap.sender)}, receiver on ${this.#board.threadOf(gap.receiver)}; deaths before: ${this.#ways.slice(-6).join('; ')}`,
        )
      } else this.lost[reason] += gap.size
    }
  }

  /** Sent is handled and lost with a reason: of each pair, and exactly. */
  account(senders: readonly number[], receivers: readonly number[]): void {
    for (const sender of senders) {
      for (const receiver of receivers) {
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

  /** Whether the deaths before a life can explain this loss of a link, together with its known losses. */
  #isInWindow(link: string, { lives, size }: Gap): boolean {
    const sizes = this.#windows.get(link) ?? []
    this.#windows.set(link, sizes)
    if (this.#windows.size > 1000) this.#windows.delete(this.#windows.keys().next().value!)
    sizes[lives] = (sizes[lives] ?? 0) + size
    let isWithin = true
    let total = 0
    // Numbers missing since one death were lost at that death; numbers missing since two deaths, at either.
    for (let deaths = 1; deaths < sizes.length; deaths++) {
      total += sizes[deaths] ?? 0
      if (deaths < lives) continue
      this.windowMax = Math.max(this.windowMax, Math.ceil(total / deaths))
      isWithin &&= total <= INFLIGHT_MAX * deaths
    }
    if (!isWithin) this.#ways.push(`${link} lost ${sizes.join('+')}`)
    return isWithin
  }
}
