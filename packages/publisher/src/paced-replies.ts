/**
 * Paced replies: sends long answers to the peers of a ROUTER a burst at a time, so that live batches are published in between.
 *
 *   begin  ->  burst  ->  PACE_MS  ->  burst  ->  …  ->  done
 *                 └ refused ->  RETRY_MS  ->  burst      for STALL_MS_MAX without progress: given up
 *
 * Order    one answer per peer at a time: a further request of the same peer ends the answer before.
 * Bounds   `peersMax` answers at one time; a burst is BURST_MESSAGES_MAX messages or BURST_BYTES_MAX bytes.
 *          What a peer has not read waits in its socket, up to the high-water mark: an answer of fewer messages than that
 *          loses none.
 */

import type { Clock, Timer } from '@homing/clock'
import type { Frames } from '@homing/transport'

const BURST_MESSAGES_MAX = 64
const BURST_BYTES_MAX = 2 ** 20
const PACE_MS = 1
const RETRY_MS = 10
const STALL_MS_MAX = 5000

export interface PacedRepliesOptions {
  readonly clock: Clock
  readonly peersMax: number
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
  #idle: PromiseWithResolvers<void> | undefined

  constructor(options: PacedRepliesOptions) {
    this.#options = options
  }

  /** False: too many others are being answered. The first burst is sent before this returns. */
  begin(identity: Uint8Array, messages: Iterable<Frames>): boolean {
    const name = Buffer.from(identity).toString('hex')
    const before = this.#answers.get(name)
    if (before === undefined && this.#answers.size >= this.#options.peersMax) return false
    if (before !== undefined) abandon(before)
    const answer: Answer = {
      identity,
      messages: messages[Symbol.iterator](),
      refused: undefined,
      timer: undefined,
      lastProgressMs: this.#options.clock.nowMs(),
    }
    this.#answers.set(name, answer)
    this.#burst(name, answer)
    return true
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
    for (let count = 0; count < BURST_MESSAGES_MAX && bytes < BURST_BYTES_MAX; count++) {
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
        } else answer.timer = clock.after(RETRY_MS, () => this.#burst(name, answer))
        return
      }
      answer.refused = undefined
      answer.lastProgressMs = clock.nowMs()
      for (const frame of frames) bytes += frame.length
    }
    answer.timer = clock.after(PACE_MS, () => this.#burst(name, answer))
  }

  #end(name: string): void {
    this.#answers.delete(name)
    if (this.#answers.size > 0) return
    this.#idle?.resolve()
    this.#idle = undefined
  }
}

/** Lets the source of the messages give back what it holds. */
function abandon({ timer, messages }: Answer): void {
  timer?.cancel()
  messages.return?.()
}
