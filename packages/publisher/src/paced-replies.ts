/**
 * Paced replies: sends long answers to the peers of a ROUTER a burst at a time, so that live batches are
 * published in between, and no faster than each peer reads.
 *
 *   begin  ->  burst  ->  PACE_MS  ->  burst  ->  …  ->  done
 *                 └ full ->  a growing pause  ->  burst       for STALL_MS_MAX without progress: given up
 *
 * Order    one answer per peer at a time: a further request of the same peer ends the answer before. Every
 *          answer has its own turns, so that a peer that reads is served whatever others do.
 * Bounds   per peer: the socket holds at most its high-water mark of messages, and `peerBytesMax` in all are
 *          sent over one connection; a burst is REPLY_BURST_MESSAGES_MAX messages or BURST_BYTES_MAX bytes,
 *          or less, if making its messages takes long: their source says where it ends (BURST_END).
 *          Over all: `peersMax` answers at full speed. If more peers read, all are slower, by turns; past
 *          REPLY_TURNS_MAX times `peersMax` answers the one whose peer has taken nothing for longest is
 *          given up, if that is STALLED_MS. So N silent peers hold N times the high-water mark, and a peer
 *          that reads gets what it would get without them.
 */

import type { Clock, Timer } from '@homing/base'
import type { Frames, Offered } from '@homing/transport'

const REPLY_BURST_MESSAGES_MAX = 64
const BURST_BYTES_MAX = 2 ** 20
const PACE_MS = 1
const OFFER_RETRY_MS_MIN = 1
const OFFER_RETRY_MS_MAX = 64
const STALLED_MS = 100
const STALL_MS_MAX = 5000
/** Peers whose sent bytes are remembered; the transport knows as many peers. */
const KNOWN_PEERS_MAX = 16_384
/** Answers at one time, with those whose peers do not read, for each that goes at full speed. */
export const REPLY_TURNS_MAX = 64

/** Among the messages of an answer: the next one is made in another burst. */
export const BURST_END: unique symbol = Symbol('the burst ends')

export type PacedMessage = Frames | typeof BURST_END

export interface PacedRepliesOptions {
  readonly clock: Clock
  readonly peersMax: number
  readonly peerBytesMax: number
  /** As of a RouterSocket. */
  readonly offer: (identity: Uint8Array, frames: Frames) => Offered | Promise<Offered>
  /** Called when an answer ends because its peer took nothing of it. */
  readonly givenUp?: () => void
}

interface Answer {
  readonly identity: Uint8Array
  readonly messages: Iterator<PacedMessage>
  /** Not taken yet. */
  refused: Frames | undefined
  /** Tries since a message was taken. */
  retries: number
  timer: Timer | undefined
  lastProgressMs: number
  /** Of the burst under way. */
  count: number
  bytes: number
  isOver: boolean
}

export class PacedReplies {
  readonly #options: PacedRepliesOptions
  /** By the peer's identity as hexadecimal text. */
  readonly #answers = new Map<string, Answer>()
  /** Bytes sent, by peer; the peer silent for longest comes first. */
  readonly #sent = new Map<string, number>()
  #idle: PromiseWithResolvers<void> | undefined
  #givenUp = 0

  constructor(options: PacedRepliesOptions) {
    this.#options = options
  }

  /** Answers under way. */
  get size(): number {
    return this.#answers.size
  }

  /** Counter: answers that ended because their peer took nothing of them. */
  get givenUp(): number {
    return this.#givenUp
  }

  /**
   * 'busy': too many other peers are being answered. 'excess': this peer has received as much as it may. The
   * first burst is offered before this returns.
   */
  begin(identity: Uint8Array, messages: Iterable<PacedMessage>): 'begun' | 'busy' | 'excess' {
    const { clock, peerBytesMax } = this.#options
    const name = Buffer.from(identity).toString('hex')
    const before = this.#answers.get(name)
    if (before === undefined && !this.#hasPlace()) return 'busy'
    if (before !== undefined) abandon(before)
    if (this.#sentTo(name) >= peerBytesMax) {
      if (before !== undefined) this.#end(name, before)
      return 'excess'
    }
    const answer: Answer = {
      identity,
      messages: messages[Symbol.iterator](),
      refused: undefined,
      retries: 0,
      timer: undefined,
      lastProgressMs: clock.nowMs(),
      count: 0,
      bytes: 0,
      isOver: false,
    }
    this.#answers.set(name, answer)
    this.#burst(name, answer)
    return 'begun'
  }

  /** Resolves when no answer is under way. */
  whenIdle(): Promise<void> {
    if (this.#answers.size === 0) return Promise.resolve()
    this.#idle ??= Promise.withResolvers()
    return this.#idle.promise
  }

  /** Ends all answers where they are. */
  close(): void {
    for (const answer of this.#answers.values()) abandon(answer)
    this.#answers.clear()
    this.#idle?.resolve()
  }

  /** Peers that do not read make room. */
  #hasPlace(): boolean {
    const { clock, peersMax } = this.#options
    if (this.#answers.size < peersMax * REPLY_TURNS_MAX) return true
    let longest: [string, Answer] | undefined
    for (const entry of this.#answers) {
      if (longest === undefined || entry[1].lastProgressMs < longest[1].lastProgressMs) longest = entry
    }
    if (longest === undefined || clock.nowMs() - longest[1].lastProgressMs < STALLED_MS) return false
    this.#giveUp(...longest)
    return true
  }

  /** Until the next burst of an answer: so that all together are as fast as `peersMax` at full speed. */
  #paceMs(): number {
    const { peersMax } = this.#options
    if (this.#answers.size <= peersMax) return PACE_MS
    let reading = 0
    for (const { refused } of this.#answers.values()) if (refused === undefined) reading++
    return PACE_MS * Math.max(1, Math.ceil(reading / peersMax))
  }

  #burst(name: string, answer: Answer): void {
    answer.timer = undefined
    answer.count = 0
    answer.bytes = 0
    this.#goOn(name, answer)
  }

  #goOn(name: string, answer: Answer): void {
    const { clock, offer } = this.#options
    while (answer.count < REPLY_BURST_MESSAGES_MAX && answer.bytes < BURST_BYTES_MAX) {
      const frames: PacedMessage | undefined = answer.refused ?? answer.messages.next().value
      if (frames === BURST_END) break
      if (frames === undefined) {
        this.#end(name, answer)
        return
      }
      const offered = offer(answer.identity, frames)
      if (typeof offered !== 'string') {
        void offered.then(outcome => {
          if (!answer.isOver && this.#offered(name, answer, frames, outcome)) this.#goOn(name, answer)
        })
        return
      }
      if (!this.#offered(name, answer, frames, offered)) return
    }
    answer.timer = clock.after(this.#paceMs(), () => this.#burst(name, answer))
  }

  /** True: the burst goes on. */
  #offered(name: string, answer: Answer, frames: Frames, outcome: Offered): boolean {
    const { clock } = this.#options
    if (outcome === 'taken') {
      answer.refused = undefined
      answer.retries = 0
      answer.lastProgressMs = clock.nowMs()
      answer.count++
      answer.bytes += this.#count(name, frames)
      return true
    }
    answer.refused = frames
    if (outcome === 'gone' || clock.nowMs() - answer.lastProgressMs >= STALL_MS_MAX) {
      this.#giveUp(name, answer)
      return false
    }
    answer.retries++
    const delayMs = Math.min(OFFER_RETRY_MS_MAX, OFFER_RETRY_MS_MIN * 2 ** (answer.retries - 1))
    answer.timer = clock.after(delayMs, () => this.#burst(name, answer))
    return false
  }

  /** The peer is the last that is forgotten. */
  #sentTo(name: string): number {
    const sentBytes = this.#sent.get(name) ?? 0
    this.#sent.delete(name)
    this.#sent.set(name, sentBytes)
    if (this.#sent.size > KNOWN_PEERS_MAX) {
      for (const silentLongest of this.#sent.keys()) {
        this.#sent.delete(silentLongest)
        break
      }
    }
    return sentBytes
  }

  #count(name: string, frames: Frames): number {
    let bytes = 0
    for (const frame of frames) bytes += frame.length
    this.#sent.set(name, (this.#sent.get(name) ?? 0) + bytes)
    return bytes
  }

  #giveUp(name: string, answer: Answer): void {
    this.#givenUp++
    this.#options.givenUp?.()
    abandon(answer)
    this.#end(name, answer)
  }

  #end(name: string, answer: Answer): void {
    answer.isOver = true
    this.#answers.delete(name)
    if (this.#answers.size > 0) return
    this.#idle?.resolve()
    this.#idle = undefined
  }
}

/** Lets the source of the messages release what it holds. */
function abandon(answer: Answer): void {
  answer.isOver = true
  answer.timer?.cancel()
  answer.messages.return?.()
}
