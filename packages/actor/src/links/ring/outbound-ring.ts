/**
 * OutboundRing: the half of a link that this thread writes, over all lives of the other thread.
 *
 *   ring    every frame, in order; only a token for a body that is not a primitive
 *   spill   frames that found no room in the ring, in order behind it
 *   bodies  of tokens, until the tokens are taken
 *
 * One flush per microtask: the bodies are posted, then the tail is published, then a parked peer is woken. So
 * the body of every visible token is available.
 *
 * Ring and spill together hold LINK_FRAMES_MAX frames. How many wait in the ring is known from marks: how far
 * it was written, each MARK_FRAMES frames.
 */

import type { LinkCounts } from '../../observe/counts.ts'
import { OP } from '../frames.ts'
import { type Frame, LINK_FRAMES_MAX, type LinkHandlers } from '../link.ts'
import { corrAt, ENCODING, encodingFor, FRAME, opAt, writeDouble } from './frame-words.ts'
import { KeptBodies } from './kept-bodies.ts'
import { RING_DATA, RingReader, RingWriter } from './ring.ts'
import type { RingPort } from './ring-port.ts'
import { AtomicWords } from './words.ts'

const { HEADER_WORDS, INLINE_WORDS, ENCODING_SHIFT, HIGH } = FRAME
const { TOKEN, INTEGER, DOUBLE } = ENCODING

const FLUSH_FRAMES = 256
const MARK_SHIFT = 8
/** Frames between two marks of how far the ring was written. */
const MARK_FRAMES = 1 << MARK_SHIFT
/** Marks that are kept: for more frames than any ring holds. */
const MARKS = 1024

export class OutboundRing {
  readonly #counts: LinkCounts
  readonly #writer: RingWriter
  readonly #words: Int32Array
  #spill: Frame[] = []
  #spillAt = 0
  /**
   * Frames that were written to the ring; those of them that are known to be taken, MARK_FRAMES at a time.
   */
  #framesWritten = 0
  #framesTaken = 0
  readonly #marks = new Int32Array(MARKS)
  readonly #bodies = new KeptBodies()
  #isFlushPlanned = false
  #framesSinceFlush = 0
  // State of the current life of the other thread.
  #port: RingPort
  #handlers: LinkHandlers

  constructor(ring: SharedArrayBuffer, port: RingPort, handlers: LinkHandlers, counts: LinkCounts) {
    this.#counts = counts
    const words = new AtomicWords(ring)
    this.#writer = new RingWriter(words, words.array.length - RING_DATA)
    this.#words = words.array
    this.#port = port
    this.#handlers = handlers
  }

  /** Goes on with the next life of the other thread, which inherits what it was sent and had not taken. */
  reopen(port: RingPort, handlers: LinkHandlers): void {
    this.#port = port
    this.#handlers = handlers
    this.#bodies.forgetTaken(this.#writer.takenPosition)
    this.#bodies.startAgain()
    this.#postBodies()
    // Last: the heir may read the ring as soon as it has this.
    port.post({ type: 'resume' })
    this.flushSpill()
    this.flush()
  }

  // ── Frames ───────────────────────────────────────────────────────────────────────────────────

  offer(frame: Frame): boolean {
    if (this.#isFull()) return false
    this.#put(frame)
    return true
  }

  send(frame: Frame): void {
    if (!this.#port.isClosed) this.#put(frame)
  }

  /** True when no more frames may wait for the other thread, in the ring and behind it. */
  #isFull(): boolean {
    const waitingMax = LINK_FRAMES_MAX - this.#spilledCount
    return (
      ((this.#framesWritten - this.#framesTaken) | 0) >= waitingMax && this.#waitingInRing() >= waitingMax
    )
  }

  /** Frames in the ring, at most MARK_FRAMES too many. */
  #waitingInRing(): number {
    const taken = this.#writer.takenPosition
    for (;;) {
      const next = (this.#framesTaken + MARK_FRAMES) | 0
      if (((this.#framesWritten - next) | 0) < 0) break
      if (((this.#marks[markOf(next)]! - taken) | 0) > 0) break
      this.#framesTaken = next
    }
    return (this.#framesWritten - this.#framesTaken) | 0
  }

  #put(frame: Frame): void {
    if (this.#spilledCount > 0 || !this.#write(frame)) this.#spillOver(frame)
  }

  /** Writes a frame; false when there is no room. */
  #write(frame: Frame): boolean {
    const { op, target, corr, body } = frame
    const encoding = frame.patches === 0 && frame.transfer === undefined ? encodingFor(body) : TOKEN
    const index = this.#reserve(HEADER_WORDS + INLINE_WORDS)
    if (index < 0) return false
    const words = this.#words
    words[index + 1] = op | (encoding << ENCODING_SHIFT)
    words[index + 2] = target | 0
    words[index + 3] = (target - (target >>> 0)) / HIGH
    words[index + 4] = corr | 0
    words[index + 5] = (corr - (corr >>> 0)) / HIGH
    const at = index + HEADER_WORDS
    let size = HEADER_WORDS
    if (encoding === TOKEN) {
      words[at] = this.#bodies.nextNumber
      size += INLINE_WORDS
    } else if (encoding === INTEGER) {
      words[at] = body as number
      size += INLINE_WORDS
    } else if (encoding === DOUBLE) {
      writeDouble(words, at, body as number)
      size += INLINE_WORDS
    }
    if (encoding === TOKEN) {
      // Before the commit, which may flush: the body goes first.
      this.#bodies.add(frame, (this.#writer.position + size) | 0)
      this.#counts.framesOutObject++
    } else this.#counts.framesOutInline++
    this.#commit(index, size)
    return true
  }

  #reserve(size: number): number {
    const index = this.#writer.reserve((size + 1) & ~1)
    if (index >= 0) return index
    // The reader must see what there is, or it would never make room.
    this.flush()
    while (!this.#writer.awaitSpace()) {
      const again = this.#writer.reserve((size + 1) & ~1)
      if (again >= 0) return again
    }
    return -1
  }

  #commit(index: number, size: number): void {
    this.#writer.commit(index, (size + 1) & ~1)
    this.#framesWritten = (this.#framesWritten + 1) | 0
    if ((this.#framesWritten & (MARK_FRAMES - 1)) === 0) {
      this.#marks[markOf(this.#framesWritten)] = this.#writer.position
    }
    this.#framesSinceFlush++
    if (this.#framesSinceFlush >= FLUSH_FRAMES) this.flush()
    else if (!this.#isFlushPlanned) {
      this.#isFlushPlanned = true
      queueMicrotask(this.#plannedFlush)
      // After a rest the other side wakes up while the rest of the burst is written.
      const isRested = this.#port.isParked && !this.#bodies.hasUnposted
      if (isRested && this.#writer.isReaderParked) this.flush()
    }
  }

  // ── Flush ────────────────────────────────────────────────────────────────────────────────────

  /**
   * A post costs more than all else. While the other thread has frames to take anyway, bodies wait for more
   * of them, until the event loop goes round.
   */
  readonly #plannedFlush = (): void => {
    const isBusy = this.#bodies.hasUnposted && this.#writer.publishedPosition !== this.#writer.takenPosition
    if (isBusy) setImmediate(this.#lateFlush)
    else this.#lateFlush()
  }

  readonly #lateFlush = (): void => {
    this.#isFlushPlanned = false
    this.flush()
  }

  /** Lets the other thread have what was written. */
  flush(): void {
    this.#framesSinceFlush = 0
    if (this.#bodies.hasUnposted) this.#postBodies()
    if (!this.#writer.hasUnpublished) return
    if (this.#writer.publish() && !this.#port.isClosed) this.#port.ring()
  }

  #postBodies(): void {
    if (this.#port.isClosed) return
    const unsendable = this.#bodies.post(this.#port, this.#writer.takenPosition)
    for (const [frame, error] of unsendable) this.#handlers.onUnsendable(frame, error)
  }

  // ── Spill ────────────────────────────────────────────────────────────────────────────────────

  get #spilledCount(): number {
    return this.#spill.length - this.#spillAt
  }

  #spillOver(frame: Frame): void {
    this.#spill.push(frame)
    this.#counts.raiseSpill(this.#spilledCount)
  }

  /** Writes what waits behind the ring, as far as there is room. */
  flushSpill(): void {
    while (this.#spillAt < this.#spill.length) {
      if (!this.#write(this.#spill[this.#spillAt]!)) return
      this.#spill[this.#spillAt] = undefined as never
      this.#spillAt++
    }
    this.#clearSpill()
  }

  #clearSpill(): void {
    this.#spill = []
    this.#spillAt = 0
  }

  // ── What the other thread, which has ended, did not take ─────────────────────────────────────

  untakenAsks(): ReadonlySet<number> {
    const asks = new Set<number>()
    for (const { op, corr } of this.#spill.slice(this.#spillAt)) if (op === OP.ASK) asks.add(corr)
    const words = this.#words
    this.#visitUntaken(index => {
      if (opAt(words, index) === OP.ASK) asks.add(corrAt(words, index))
    })
    return asks
  }

  /** Drops all of it; the number of tells among it. */
  discard(): number {
    let tells = 0
    for (const { op } of this.#spill.slice(this.#spillAt)) if (op === OP.TELL) tells++
    this.#clearSpill()
    const words = this.#words
    const reader = this.#visitUntaken(index => {
      if (opAt(words, index) === OP.TELL) tells++
    })
    reader.release()
    this.#bodies.clear()
    return tells
  }

  #visitUntaken(visit: (index: number) => void): RingReader {
    this.flush()
    const words = this.#words
    const shared = new AtomicWords(words.buffer as SharedArrayBuffer)
    const reader = new RingReader(shared, words.length - RING_DATA)
    for (let index = reader.next(); index >= 0; index = reader.next()) {
      visit(index)
      reader.skip(index)
    }
    return reader
  }
}

/** Where the mark of a multiple of MARK_FRAMES is kept. */
function markOf(frames: number): number {
  return (frames >>> MARK_SHIFT) & (MARKS - 1)
}
