/**
 * InboundRing: the half of a link that this thread reads, for one life of the other thread.
 *
 * A batch of up to INFLIGHT_MAX frames is taken, then its actors run, then the next: frames that are taken
 * and not handled are lost with this thread. A reader that finds the ring empty looks again for a while, and
 * then parks: the other side wakes it with a doorbell.
 *
 * An heir reads nothing before its resumption, and gets only tells until a frame HELLO shows that the sender
 * knows this life, because frames for several earlier lives may wait here.
 */

import { receiveMessageOnPort } from 'node:worker_threads'
import type { LinkCounts } from '../../observe/counts.ts'
import type { Patch } from '../../packing/pack.ts'
import { OP, type PeerAddress } from '../frames.ts'
import type { Frame, LinkHandlers } from '../link.ts'
import { ENCODING, FRAME, LOST, PRIMITIVES, readDouble } from './frame-words.ts'
import { RING_DATA, RingReader } from './ring.ts'
import type { BodyBatch, RingPort } from './ring-port.ts'
import { AtomicWords } from './words.ts'

const { HEADER_WORDS, OP_MASK, ENCODING_SHIFT, ENCODING_MASK, HIGH } = FRAME
const { TOKEN, INTEGER, DOUBLE } = ENCODING

/** Frames taken from the ring before their actors have run: what a thread that dies may lose of a link. */
export const INFLIGHT_MAX = 64
/**
 * Empty looks at the ring, one for each round of the event loop, that a flood earns before its reader parks.
 */
const LOOKS_MAX = 64
/** Frames that earn a look. */
const LOOK_FRAMES = 8
/** Batches handed over before the event loop goes round. */
const TURN_BATCHES_MAX = 64

type MutableFrame = { -readonly [K in keyof Omit<Frame, 'transfer'>]: Frame[K] }

export class InboundRing {
  readonly #counts: LinkCounts
  /** The life that reads. */
  readonly #ownUid: number
  readonly #port: RingPort
  readonly #handlers: LinkHandlers
  readonly #reader: RingReader
  readonly #words: Int32Array
  readonly #bodies: BodyBatch[] = []
  /** An heir waits for the resumption before it reads the ring. */
  #isResumed: boolean
  #isBeforeHello: boolean
  #isDrainPlanned = false
  /** This thread is about to be replaced: frames wait for its heir. */
  #isPaused = false
  /** Times that an empty ring is looked at once more before this side parks. */
  #looks = 0
  /** Messages that this thread had been handed over, of all links, after the last batch. */
  #handedOver = 0
  /** Batches handed over since the event loop went round. */
  #turnBatches = 0
  readonly #batch: MutableFrame[] = Array.from({ length: INFLIGHT_MAX }, () => ({
    op: 0,
    target: 0,
    corr: 0,
    body: undefined,
    patches: 0,
  }))

  constructor(
    address: PeerAddress,
    port: RingPort,
    ownUid: number,
    handlers: LinkHandlers,
    counts: LinkCounts,
  ) {
    this.#counts = counts
    this.#ownUid = ownUid
    this.#port = port
    this.#handlers = handlers
    const words = new AtomicWords(address.in)
    this.#reader = new RingReader(words, words.array.length - RING_DATA)
    this.#words = words.array
    this.#isResumed = !address.isHeir
    this.#isBeforeHello = address.isHeir
    this.#reader.unpark()
    // Frames that were published before this side existed rang no doorbell.
    this.#planDrain()
  }

  /** Something came over the port: bodies, the resumption, or a doorbell. */
  takePost(post: unknown): void {
    if (Array.isArray(post)) this.#bodies.push(post)
    else if (typeof post === 'object') this.#isResumed = true
  }

  #planDrain(): void {
    if (this.#isDrainPlanned || this.#port.isClosed) return
    this.#isDrainPlanned = true
    setImmediate(this.#plannedDrain)
  }

  readonly #plannedDrain = (): void => {
    this.#isDrainPlanned = false
    this.#drain()
  }

  /**
   * Something came over the port: there may be frames. Many posts may come in one round of the event loop.
   */
  wake(): void {
    if (!this.#isDrainPlanned) this.#drain()
  }

  #drain(): void {
    this.#port.isParked = false
    this.#turnBatches = 0
    this.#drainBatch()
  }

  /**
   * Takes one batch. The next comes after the microtasks of this one, so that what its actors sent is on its
   * way, and the other thread at work on it, while this one goes on.
   */
  readonly #drainBatch = (): void => {
    if (!this.#mayRead) return
    const handlers = this.#handlers
    // Frames taken now would wait in mailboxes and die with the thread: handle the earlier ones first.
    if (!handlers.onBatch() && !handlers.isHandled(this.#handedOver)) {
      this.#planDrain()
      return
    }
    if (!this.#mayRead) return
    let passed = this.#takeBatch()
    if (passed === 0) {
      if (this.#looks >= 1) {
        // More may come soon; the doorbell that a park costs takes the other side 10 µs.
        this.#looks--
        this.#planDrain()
        return
      }
      if (this.#isDrainPlanned) return
      if (this.#reader.park()) {
        this.#port.isParked = true
        this.#counts.parks++
        return
      }
      passed = this.#takeBatch()
    }
    this.#looks = Math.min(LOOKS_MAX, Math.max(1, this.#looks + passed / LOOK_FRAMES))
    if (!this.#mayRead) return
    this.#turnBatches++
    if (!handlers.onBatch() || this.#turnBatches >= TURN_BATCHES_MAX) this.#planDrain()
    else queueMicrotask(this.#drainBatch)
  }

  get #mayRead(): boolean {
    return !this.#port.isClosed && !this.#isPaused && this.#isResumed
  }

  /** Takes all that is left, unless an heir is to have it. */
  drainAll(): void {
    while (this.#mayRead && this.#takeBatch() > 0);
  }

  pause(): void {
    this.#isPaused = true
  }

  // ── Frames ───────────────────────────────────────────────────────────────────────────────────

  /** Hands over up to INFLIGHT_MAX frames; returns how many it went past. */
  #takeBatch(): number {
    const reader = this.#reader
    const handlers = this.#handlers
    const batch = this.#batch
    let count = 0
    let passed = 0
    while (count < INFLIGHT_MAX) {
      const index = reader.next()
      if (index < 0) break
      if (passed === 0) this.#counts.raiseRing(reader.knownSize * Int32Array.BYTES_PER_ELEMENT)
      passed++
      if (this.#read(index, batch[count]!)) count++
      reader.skip(index)
    }
    if (passed === 0) return 0
    this.#counts.inboundBatches++
    // From here on the frames are this side's to lose.
    if (reader.release()) this.#port.ring()
    for (let i = 0; i < count; i++) {
      const frame = batch[i]!
      handlers.onFrame(frame)
      frame.body = undefined
    }
    this.#handedOver = handlers.handedOver()
    return passed
  }

  /** Reads the frame at `index`; false when its body is lost, or it is for an earlier life. */
  #read(index: number, frame: MutableFrame): boolean {
    const words = this.#words
    const head = words[index + 1]!
    frame.op = head & OP_MASK
    frame.target = words[index + 3]! * HIGH + (words[index + 2]! >>> 0)
    frame.corr = words[index + 5]! * HIGH + (words[index + 4]! >>> 0)
    frame.patches = 0
    const at = index + HEADER_WORDS
    const encoding = (head >> ENCODING_SHIFT) & ENCODING_MASK
    switch (encoding) {
      case TOKEN:
        this.#counts.framesInObject++
        if (!this.#readBody(words[at]!, frame)) return false
        break
      case INTEGER:
        this.#counts.framesInInline++
        frame.body = words[at]!
        break
      case DOUBLE:
        this.#counts.framesInInline++
        frame.body = readDouble(words, at)
        break
      default:
        this.#counts.framesInInline++
        frame.body = PRIMITIVES[encoding]
    }
    if (this.#isBeforeHello) {
      if (frame.op === OP.HELLO && frame.corr === this.#ownUid) this.#isBeforeHello = false
      else return frame.op === OP.TELL
    }
    return true
  }

  /** Finds the body of a token; false when it is lost. */
  #readBody(number: number, frame: MutableFrame): boolean {
    const bodies = this.#bodies
    for (;;) {
      const batch = bodies[0]
      if (batch === undefined) {
        const post = receiveMessageOnPort(this.#port.port)
        if (post === undefined) break
        this.takePost(post.message)
        continue
      }
      const offset = (number - (batch[0] as number)) | 0
      if (offset < 0) break
      const at = 1 + 2 * offset
      if (at >= batch.length) {
        bodies.shift()
        continue
      }
      frame.body = batch[at]
      const patches = batch[at + 1] as readonly Patch[] | 0 | typeof LOST
      if (patches === LOST) return false
      frame.patches = patches
      batch[at] = undefined
      if (at + 2 === batch.length) bodies.shift()
      return true
    }
    this.#handlers.onUnreadable(new Error(`the body of frame ${number} did not arrive`))
    return false
  }
}
