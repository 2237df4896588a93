/**
 * KeptBodies: the bodies whose frames are only tokens in the ring. They are posted many at a time, and kept
 * until their tokens are taken, so that the next life of the other thread can get those that this one left.
 */

import type { Transferable } from 'node:worker_threads'
import { OP } from '../frames.ts'
import type { Frame } from '../link.ts'
import { LOST } from './frame-words.ts'
import type { BodyBatch, RingPort } from './ring-port.ts'

/** Taken bodies are forgotten, this many at least at a time. */
const FORGET_MIN = 1024

/** A body whose token may not have been taken. */
interface KeptBody {
  readonly number: number
  /** Where its token ends. */
  readonly position: number
  readonly frame: Frame
}

/** A frame that could not be posted, and why. */
export type Unsendable = readonly [frame: Frame, error: unknown]

export class KeptBodies {
  #kept: KeptBody[] = []
  /** Number of the first kept body. */
  #keptAt = 0
  /** Number of the first body that was not posted. */
  #postedAt = 0
  #nextNumber = 0

  /** Number of the next body; numbers wrap at 2³². */
  get nextNumber(): number {
    return this.#nextNumber
  }

  get hasUnposted(): boolean {
    return this.#postedAt < this.#kept.length
  }

  /** Keeps the body of a frame whose token, with `nextNumber`, ends at `position`. */
  add(frame: Frame, position: number): void {
    this.#kept.push({ number: this.#nextNumber, position, frame })
    this.#nextNumber = (this.#nextNumber + 1) | 0
  }

  /** Posts what was not, unless it was taken up to `taken`. Returns those that cannot go. */
  post(port: RingPort, taken: number): readonly Unsendable[] {
    this.forgetTaken(taken)
    const from = this.#postedAt
    const kept = this.#kept
    if (from >= kept.length) return []
    const batch: BodyBatch = [kept[from]!.number]
    let transfer: Transferable[] | undefined
    for (let at = from; at < kept.length; at++) {
      const { frame } = kept[at]!
      batch.push(frame.body, frame.patches)
      if (frame.transfer === undefined) continue
      transfer ??= []
      for (const item of frame.transfer) transfer.push(item)
    }
    this.#postedAt = kept.length
    try {
      port.post(batch, transfer)
      return []
    } catch {
      return postOneByOne(port, kept.slice(from))
    }
  }

  /** Forgets what was taken up to position `taken`. */
  forgetTaken(taken: number): void {
    const kept = this.#kept
    while (this.#keptAt < kept.length && ((kept[this.#keptAt]!.position - taken) | 0) <= 0) {
      kept[this.#keptAt] = undefined as never
      this.#keptAt++
    }
    if (this.#postedAt < this.#keptAt) this.#postedAt = this.#keptAt
    if (this.#keptAt > FORGET_MIN && this.#keptAt * 2 > kept.length) {
      this.#kept = kept.slice(this.#keptAt)
      this.#postedAt -= this.#keptAt
      this.#keptAt = 0
    }
  }

  /**
   * For an heir: all are to be posted again, but only the tells. The rest is void, and a port in it may be
   * gone already.
   */
  startAgain(): void {
    for (let at = this.#keptAt; at < this.#kept.length; at++) {
      if (this.#kept[at]!.frame.op !== OP.TELL) this.#void(at)
    }
    this.#postedAt = this.#keptAt
  }

  #void(at: number): void {
    const { number, position, frame } = this.#kept[at]!
    const { op, target, corr } = frame
    this.#kept[at] = { number, position, frame: { op, target, corr, body: null, patches: LOST as never } }
  }

  clear(): void {
    this.#kept = []
    this.#keptAt = 0
    this.#postedAt = 0
  }
}

/** One that cannot go, or whose port is closed by now, must not take the others with it. */
function postOneByOne(port: RingPort, all: readonly KeptBody[]): Unsendable[] {
  const unsendable: Unsendable[] = []
  for (const { number, frame } of all) {
    try {
      port.post([number, frame.body, frame.patches], frame.transfer)
    } catch (error) {
      port.post([number, null, LOST])
      unsendable.push([frame, error])
    }
  }
  return unsendable
}
