/**
 * Stream order: the batches of one life as they are in a stream, brought into the order of their sequences.
 *
 *   read      packs that were refused once are behind later ones (stream-position.ts): batches behind a gap
 *             wait for WAITED_MESSAGES_MAX messages of the stream, and then the gap is a hole
 *   repeated  one that was stored, but whose publisher did not hear so, may be in the stream again
 *   late      one of just before the first that is told
 *   another   anything else before what was told is of another history under the same life: the engine
 *             restarted, and nothing tells its lives apart
 *
 * Bounds   what waits: WAITED_MESSAGES_MAX messages of the stream; digests: UNSTORED_MESSAGES_MAX, no more
 *          than a publisher keeps and may store again.
 */

import { hash } from 'node:crypto'
import { UNSTORED_MESSAGES_MAX } from './stream-copy.ts'
import { DISORDER_BATCHES_MAX, type StreamBatch } from './stream-position.ts'
import { UNDER_WAY_MAX } from './streams.ts'

/** Those that were under way with it, each of which may be there twice. */
const WAITED_MESSAGES_MAX = 2 * UNDER_WAY_MAX

export class StreamOrder {
  readonly #from: number
  readonly #digests = new Map<number, string>()
  readonly #waiting = new Map<number, StreamBatch>()
  /** The first that was told, and the one that comes next; undefined: none was told. */
  #first: number | undefined
  #next: number | undefined
  /** Messages that came while batches waited. */
  #waited = 0
  #isEnd = false

  /** `from`: the first that is wanted. */
  constructor(from: number) {
    this.#from = from
  }

  /** What comes after the last that was told; undefined: none was told. */
  get next(): number | undefined {
    return this.#next
  }

  /** The batches of one message of the stream. Answers the sequence of one that is of another history. */
  add(batches: readonly StreamBatch[]): number | undefined {
    const hadWaiting = this.#waiting.size > 0
    for (const batch of batches) if (!this.#add(batch)) return batch.sequence
    if (hadWaiting && batches.length > 0) this.#waited++
    return undefined
  }

  /** Nothing more comes. */
  end(): void {
    this.#isEnd = true
  }

  get isAtEnd(): boolean {
    return this.#isEnd
  }

  /** The next in order; undefined: it is not there yet, or never. */
  take(): StreamBatch | undefined {
    const wanted = this.#next ?? this.#from
    let batch = this.#waiting.get(wanted)
    if (batch === undefined && this.#next === undefined && this.#isOver) batch = this.#firstWaiting
    if (batch === undefined) return undefined
    const { sequence } = batch
    this.#waiting.delete(sequence)
    this.#first ??= sequence
    this.#next = sequence + 1
    this.#waited = 0
    return batch
  }

  /** The first batch behind a hole, if `take` stops at one. */
  get behindHole(): StreamBatch | undefined {
    return this.#next !== undefined && this.#isOver ? this.#firstWaiting : undefined
  }

  get #isOver(): boolean {
    return this.#isEnd || this.#waited >= WAITED_MESSAGES_MAX
  }

  get #firstWaiting(): StreamBatch | undefined {
    let first: StreamBatch | undefined
    for (const batch of this.#waiting.values())
      if (first === undefined || batch.sequence < first.sequence) first = batch
    return first
  }

  #add(batch: StreamBatch): boolean {
    const { sequence } = batch
    const digest = digestOf(batch)
    const before = this.#digests.get(sequence)
    if (before !== undefined) return before === digest
    this.#digests.set(sequence, digest)
    this.#digests.delete(sequence - UNSTORED_MESSAGES_MAX)
    if (sequence >= (this.#next ?? this.#from)) this.#waiting.set(sequence, batch)
    else if (this.#first !== undefined)
      return sequence < this.#first && sequence >= this.#first - DISORDER_BATCHES_MAX
    return true
  }
}

function digestOf({ frames }: StreamBatch): string {
  return hash('sha1', frames[2]!, 'base64')
}
