/**
 * Paced replies: sends long answers to the peers of a ROUTER a burst at a time, so that live batches are
 * published in between.
 *
 *   begin  ->  burst  ->  PACE_MS  ->  burst  ->  …  ->  done
 *                 └ refused ->  REPLY_RETRY_MS  ->  burst      for STALL_MS_MAX without progress: given up
 *
 * Order    one answer per peer at a time: a further request of the same peer ends the answer before.
 * Bounds   `peersMax` answers at one time; a burst is REPLY_BURST_MESSAGES_MAX messages or
 *          BURST_BYTES_MAX bytes. Messages that a peer has not read wait in its socket, up to the high-water
 *          mark: an answer of fewer messages than that loses none. The mark counts messages, and ZeroMQ does
 *          not tell how many were read. So a peer, which is one connection, gets no further answer once it
 *          was sent `peerBytesMax`: at most that and one answer wait for it.
 */

import type { Clock, Timer } from '@homing/base'
import type { Frames } from '@homing/transport'

const REPLY_BURST_MESSAGES_MAX = 64
const BURST_BYTES_MAX = 2 ** 20
const PACE_MS = 1
const REPLY_RETRY_MS = 10
const STALL_MS_MAX = 5000
/** Peers whose sent bytes are remembered; the transport knows as many peers. */
const KNOWN_PEERS_MAX = 16_384

export interface PacedRepliesOptions {
  readonly clock: Clock
  readonly peersMax: number
  readonly peerBytesMax: number
  /** False: not taken now, or the peer has gone. */
  readonly send: (identity: Uint8Array, frames: Frames) => boolean
}

interface Answer {
  readonly identity: Uint8Array
  readonly messages: Iterator<Frames>
  /** Not taken yet. */
  refused: Frames | undefined
  timer: Timer | undefined
  lastProgressMs: number
}

export class PacedReplies {
  readonly #options: PacedRepliesOptions
  /** By the peer's identity as hexadecimal text. */
  readonly #answers = new Map<string, Answer>()
  /** Bytes sent, by peer; the peer silent for longest comes first. */
  readonly #sent = new Map<string, number>()
  #idle: PromiseWithResolvers<void> | undefined

  constructor(options: PacedRepliesOptions) {
    this.#options = options
  }

  /**
   * 'busy': too many other peers are being answered. 'excess': this peer has received as much as it may. The
   * first burst is sent before this returns.
   */
  begin(identity: Uint8Array, messages: Iterable<Frames>): 'begun' | 'busy' | 'excess' {
    const { peersMax, peerBytesMax } = this.#options
    const name = Buffer.from(identity).toString('hex')
    const before = this.#answers.get(name)
    if (before === undefined && this.#answers.size >= peersMax) return 'busy'
    if (before !== undefined) abandon(before)
    if (this.#sentTo(name) >= peerBytesMax) {
      if (before !== undefined) this.#end(name)
      return 'excess'
    }
    const answer: Answer = {
      identity,
      messages: messages[Symbol.iterator](),
      refused: undefined,
      timer: undefined,
      lastProgressMs: this.#options.clock.nowMs(),
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

  #burst(name: string, answer: Answer): void {
    const { clock, send } = this.#options
    answer.timer = undefined
    let bytes = 0
    for (let count = 0; count < REPLY_BURST_MESSAGES_MAX && bytes < BURST_BYTES_MAX; count++) {
      const frames = answer.refused ?? answer.messages.next().value
      if (frames === undefined) {
        this.#end(name)
        return
      }
      if (!send(answer.identity, frames)) {
        answer.refused = frames
        if (clock.nowMs() - answer.lastProgressMs >= STALL_MS_MAX) {
          abandon(answer)
          this.#end(name)
        } else answer.timer = clock.after(REPLY_RETRY_MS, () => this.#burst(name, answer))
        return
      }
      answer.refused = undefined
      answer.lastProgressMs = clock.nowMs()
      bytes += this.#count(name, frames)
    }
    answer.timer = clock.after(PACE_MS, () => this.#burst(name, answer))
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

  #end(name: string): void {
    this.#answers.delete(name)
    if (this.#answers.size > 0) return
    this.#idle?.resolve()
    this.#idle = undefined
  }
}

/** Lets the source of the messages release what it holds. */
function abandon({ timer, messages }: Answer): void {
  timer?.cancel()
  messages.return?.()
}
