/**
 * Open dump: the dump that is being made, whose pieces are fetched one by one, by the gateway or by the
 * console's own port. One at a time, because index shards give no memory back meanwhile; a few requests wait
 * in line for it, the others are refused.
 *
 * A dump is ended when its next piece is not fetched within IDLE_MS_MAX (its client has left, or takes
 * nothing) and after DUMP_MS_MAX: a client that reads slowly must not keep the others from theirs.
 */

import type { Clock, Timer } from '@homing/base'
import { DumpsBusyError, type Piece, Turns } from '@homing/http'
import { DumpCutError } from './errors.ts'

/** Routers and people that ask at about the same time are served one after the other. */
const DUMPS_WAITING_MAX = 4
const DUMP_WAIT_MS_MAX = 20_000
const IDLE_MS_MAX = 30_000
const DUMP_MS_MAX = 600_000

type Pieces = AsyncIterator<Uint8Array, void, undefined>

interface Opened {
  readonly number: number
  readonly pieces: Pieces
  readonly over: () => void
  readonly startedMs: number
  idle: Timer | undefined
}

export class OpenDump {
  readonly turns: Turns
  readonly #clock: Clock
  #open: Opened | undefined
  #number = 0

  constructor(clock: Clock) {
    this.#clock = clock
    this.turns = new Turns({
      clock,
      atOnceMax: 1,
      waitingMax: DUMPS_WAITING_MAX,
      waitMsMax: DUMP_WAIT_MS_MAX,
      refusal: () => new DumpsBusyError(),
    })
  }

  /** Waits for its turn; the number with which its pieces are fetched. Rejects with DumpsBusyError. */
  async begin(pieces: () => Pieces): Promise<number> {
    const over = await this.turns.take()
    this.#number++
    this.#open = {
      number: this.#number,
      pieces: pieces(),
      over,
      startedMs: this.#clock.nowMs(),
      idle: undefined,
    }
    this.#watch(this.#open)
    return this.#number
  }

  /** Rejects with DumpCutError if it was ended, and as the pieces do. */
  async next(number: number): Promise<Piece> {
    const open = this.#open
    if (open?.number !== number) throw new DumpCutError('its next part was not fetched in time')
    if (this.#clock.nowMs() - open.startedMs > DUMP_MS_MAX) {
      this.end(number)
      throw new DumpCutError(`it has taken ${DUMP_MS_MAX / 1000} s`)
    }
    open.idle?.cancel()
    open.idle = undefined
    try {
      const next = await open.pieces.next()
      if (next.done === true) {
        this.end(number)
        return { bytes: new Uint8Array(0), isLast: true }
      }
      if (this.#open === open) this.#watch(open)
      return { bytes: next.value, isLast: false }
    } catch (thrown) {
      this.end(number)
      throw thrown
    }
  }

  /** Also if it is not open any more. */
  end(number: number): void {
    const open = this.#open
    if (open?.number !== number) return
    this.#open = undefined
    open.idle?.cancel()
    // A dump that has failed ends itself.
    void open.pieces.return?.()?.catch(() => {})
    open.over()
  }

  #watch(open: Opened): void {
    open.idle = this.#clock.after(IDLE_MS_MAX, () => this.end(open.number), { unref: true })
  }
}
