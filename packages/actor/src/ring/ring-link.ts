/**
 * RingLink: the link to another thread over two rings in shared memory and a port.
 *
 *   ring   every frame, in order. A body that a layout describes is written field by field, a primitive as
 *          itself; of any other the frame is only a *token* with a number
 *   port   the bodies of tokens, many in one post, and doorbells (any number)
 *
 * One flush per microtask: the bodies are posted, then the tail is published, then a parked peer is woken. So
 * the body of a token that can be seen can be had.
 *
 * The outbound half outlives the other thread. Bodies are kept until the head of the ring has passed their
 * tokens; `reopen` posts those again to the next life, with the layouts, before it reads its first frame. An
 * heir is given tells only, until a frame HELLO shows that the sender knows of it: of this life, since what was said
 * to several lives before may wait here.
 */

import { type MessagePort, receiveMessageOnPort, type Transferable } from 'node:worker_threads'
import { OP, type PeerAddress } from '../frames.ts'
import type { RingViews } from '../layout/codec.ts'
import { type CompiledLayout, compileLayout, type VariantCodec } from '../layout/compile.ts'
import type { LayoutDescription } from '../layout/description.ts'
import { type CodedStatus, type Frame, LINK_FRAMES_MAX, type LinkHandlers, type ThreadLink } from '../link.ts'
import type { LinkCounts } from '../observe/counts.ts'
import type { Patch } from '../pack.ts'
import type { Runtime } from '../runtime.ts'
import { RING_DATA, RingReader, RingWriter } from './ring.ts'
import { AtomicWords } from './words.ts'

/** Frames taken from the ring before their actors have run: what a thread that dies may lose of a link. */
export const INFLIGHT_MAX = 64
const FLUSH_FRAMES = 256
const MARK_SHIFT = 8
/** Frames between two marks of how far the ring was written. */
const MARK_FRAMES = 1 << MARK_SHIFT
/** Marks that are kept: for more frames than any ring holds. */
const MARKS = 1024
/** Empty looks at the ring, one for each round of the event loop, that a flood earns before its reader parks. */
const LOOKS_MAX = 64
/** Frames that earn a look. */
const LOOK_FRAMES = 8
/** Batches handed over before the event loop goes round. */
const TURN_BATCHES_MAX = 64

// A frame: size | op, encoding, variant, layout | target (2 words) | corr (2 words) | body
const HEADER_WORDS = 6
const TOKEN_WORDS = 2
const DOUBLE_WORDS = 2
const ENCODING_SHIFT = 6
const VARIANT_SHIFT = 10
const LAYOUT_SHIFT = 19
const OP_MASK = 0x3f
const ENCODING_MASK = 0xf
const VARIANT_MASK = 0x1ff
const LAYOUTS_MAX = 1 << 13

const TOKEN = 0
const CODED = 1
const CODED_REPLY = 2
const UNDEFINED = 3
const NULL = 4
const FALSE = 5
const TRUE = 6
const INTEGER = 7
const DOUBLE = 8

const ID_SPAN = 2 ** 32
const DOORBELL = 0
/** In place of patches: the body could not be cloned. */
const LOST = -1

type MutableFrame = { -readonly [K in keyof Omit<Frame, 'transfer'>]: Frame[K] }

/** A frame that found no room in the ring. */
interface Spilled extends Frame {
  readonly layout?: CompiledLayout
  readonly variant?: VariantCodec
}

/** A body whose token may not have been taken. */
interface KeptBody {
  readonly number: number
  /** Where its token ends. */
  readonly position: number
  readonly frame: Frame
}

/** The post that lets an heir read: after the bodies of what waits for it. */
interface Resumption {
  readonly layouts: readonly LayoutDescription[]
}

interface Inbound {
  readonly port: MessagePort
  readonly handlers: LinkHandlers
  readonly reader: RingReader
  readonly views: RingViews
  /** Batches of bodies: the number of the first, then body and patches of each. */
  readonly bodies: unknown[][]
  readonly layouts: (CompiledLayout | undefined)[]
  /** An heir waits for the resumption before it reads the ring. */
  isResumed: boolean
  isBeforeHello: boolean
  isDrainPlanned: boolean
  isClosed: boolean
  /** This thread is about to be replaced: frames wait for its heir. */
  isPaused: boolean
  /** It waits for a doorbell. */
  isParked: boolean
  /** Times that an empty ring is looked at once more before this side parks. */
  looks: number
  /** Messages that this thread had been handed over, of all links, after the last batch. */
  handedOver: number
  /** Batches handed over since the event loop went round. */
  turnBatches: number
  readonly drainNext: () => void
}

/** Links `runtime` with the (next) life of the thread at `address`. */
export function openRing(runtime: Runtime, address: PeerAddress): void {
  runtime.peers.connect(address.name, address.uid, (handlers, previous) => {
    if (!(previous instanceof RingLink)) return new RingLink(address, runtime.uid, handlers, runtime.counts)
    previous.reopen(address, handlers)
    return previous
  })
}

export class RingLink implements ThreadLink {
  readonly #counts: LinkCounts
  /** The life that has this end. */
  readonly #ownUid: number
  // Outbound, over all lives of the other thread.
  readonly #writer: RingWriter
  readonly #views: RingViews
  readonly #frameWordsMax: number
  readonly #layoutIndexes = new Map<CompiledLayout, number>()
  readonly #layouts: CompiledLayout[] = []
  #lastLayout: CompiledLayout | undefined = undefined
  #lastLayoutIndex = 0
  #spill: Spilled[] = []
  #spillAt = 0
  /** Frames that were written to the ring; those of them that are known to be taken, MARK_FRAMES at a time. */
  #framesWritten = 0
  #framesTaken = 0
  readonly #marks = new Int32Array(MARKS)
  #bodyCount = 0
  #kept: KeptBody[] = []
  #keptAt = 0
  /** Position in `#kept` of the first body that was not posted. */
  #postedAt = 0
  #isFlushPlanned = false
  #framesSinceFlush = 0
  // Inbound, one life of it.
  #inbound: Inbound
  readonly #batch: MutableFrame[] = Array.from({ length: INFLIGHT_MAX }, () => ({
    op: 0,
    target: 0,
    corr: 0,
    body: undefined,
    patches: 0,
  }))

  constructor(address: PeerAddress, ownUid: number, handlers: LinkHandlers, counts: LinkCounts) {
    this.#ownUid = ownUid
    this.#counts = counts
    const words = new AtomicWords(address.out)
    const capacity = words.array.length - RING_DATA
    this.#writer = new RingWriter(words, capacity)
    this.#views = viewsOf(address.out)
    this.#frameWordsMax = capacity >> 2
    this.#inbound = this.#open(address, handlers)
  }

  /** Goes on with the next life of the other thread, which inherits what it was sent and had not taken. */
  reopen(address: PeerAddress, handlers: LinkHandlers): void {
    this.#inbound = this.#open(address, handlers)
    this.#forgetTakenBodies()
    this.#keepTellsOnly()
    this.#postedAt = this.#keptAt
    this.#postBodies()
    // Last: the heir may read the ring as soon as it has this.
    const resumption: Resumption = { layouts: this.#layouts.map(({ description }) => description) }
    address.port.postMessage(resumption)
    this.#flushSpill()
    this.#flush()
  }

  #open(address: PeerAddress, handlers: LinkHandlers): Inbound {
    const words = new AtomicWords(address.in)
    const reader = new RingReader(words, words.array.length - RING_DATA)
    const inbound: Inbound = {
      port: address.port,
      handlers,
      reader,
      views: viewsOf(address.in),
      bodies: [],
      layouts: [],
      isResumed: !address.isHeir,
      isBeforeHello: address.isHeir,
      isDrainPlanned: false,
      isClosed: false,
      isPaused: false,
      isParked: false,
      looks: 0,
      handedOver: 0,
      turnBatches: 0,
      drainNext: () => this.#drainBatch(inbound),
    }
    reader.unpark()
    address.port.on('message', (message: unknown) => {
      if (inbound.isClosed) return
      this.#takePost(inbound, message)
      this.#flushSpill()
      // Many posts may come in one round of the event loop.
      if (!inbound.isDrainPlanned) this.#drain(inbound)
    })
    address.port.on('messageerror', handlers.onUnreadable)
    address.port.on('close', () => this.#finish(inbound))
    // What was published before this side was there rang no doorbell.
    this.#planDrain(inbound)
    return inbound
  }

  // ── Out ──────────────────────────────────────────────────────────────────────────────────────

  offer(frame: Frame): boolean {
    if (this.#isFull()) return false
    this.#put(frame)
    return true
  }

  send(frame: Frame): void {
    if (!this.#inbound.isClosed) this.#put(frame)
  }

  offerCoded(
    op: number,
    target: number,
    corr: number,
    layout: CompiledLayout,
    variant: VariantCodec,
    body: unknown,
  ): CodedStatus {
    const codec = op === OP.REPLY ? variant.reply! : variant.body
    const size = codec.sizeOf(body)
    if (size < 0 || HEADER_WORDS + size > this.#frameWordsMax) {
      this.#counts.layoutMisfits++
      return 'misfit'
    }
    const layoutIndex = layout === this.#lastLayout ? this.#lastLayoutIndex : this.#indexOf(layout)
    if (layoutIndex < 0 || variant.number > VARIANT_MASK) return 'misfit'
    if (op !== OP.REPLY && this.#isFull()) return 'full'
    const index = this.#spilledCount > 0 ? -1 : this.#reserve(HEADER_WORDS + size)
    if (index < 0) this.#spillOver({ op, target, corr, body, patches: 0, layout, variant })
    else this.#writeCoded(index, op, target, corr, layoutIndex, variant, body)
    return 'ok'
  }

  #writeCoded(
    index: number,
    op: number,
    target: number,
    corr: number,
    layoutIndex: number,
    variant: VariantCodec,
    body: unknown,
  ): void {
    const isReply = op === OP.REPLY
    const words = this.#views.words
    words[index + 1] =
      op |
      ((isReply ? CODED_REPLY : CODED) << ENCODING_SHIFT) |
      (variant.number << VARIANT_SHIFT) |
      (layoutIndex << LAYOUT_SHIFT)
    words[index + 2] = target | 0
    words[index + 3] = (target - (target >>> 0)) / ID_SPAN
    words[index + 4] = corr | 0
    words[index + 5] = (corr - (corr >>> 0)) / ID_SPAN
    const codec = isReply ? variant.reply! : variant.body
    this.#counts.framesOutCoded++
    this.#commit(index, HEADER_WORDS + codec.write(body, this.#views, index + HEADER_WORDS))
  }

  #indexOf(layout: CompiledLayout): number {
    const index = this.#layoutIndexes.get(layout) ?? this.#introduce(layout)
    if (index >= 0) {
      this.#lastLayout = layout
      this.#lastLayoutIndex = index
    }
    return index
  }

  /** Tells the other side of a layout before its first use; −1 when there are too many. */
  #introduce(layout: CompiledLayout): number {
    const index = this.#layouts.length
    if (index >= LAYOUTS_MAX) return -1
    this.#layouts.push(layout)
    this.#layoutIndexes.set(layout, index)
    this.#put({ op: OP.LAYOUT, target: 0, corr: index, body: layout.description, patches: 0 })
    return index
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

  get #spilledCount(): number {
    return this.#spill.length - this.#spillAt
  }

  #put(frame: Frame): void {
    if (this.#spilledCount > 0 || !this.#write(frame)) this.#spillOver(frame)
  }

  #spillOver(frame: Spilled): void {
    this.#spill.push(frame)
    this.#counts.raiseSpill(this.#spilledCount)
  }

  /** Writes a frame without a codec; false when there is no room. */
  #write(frame: Frame): boolean {
    const { op, target, corr, body } = frame
    const encoding = frame.patches === 0 && frame.transfer === undefined ? encodingOf(body) : TOKEN
    const index = this.#reserve(HEADER_WORDS + DOUBLE_WORDS)
    if (index < 0) return false
    const words = this.#views.words
    words[index + 1] = op | (encoding << ENCODING_SHIFT)
    words[index + 2] = target | 0
    words[index + 3] = (target - (target >>> 0)) / ID_SPAN
    words[index + 4] = corr | 0
    words[index + 5] = (corr - (corr >>> 0)) / ID_SPAN
    let size = HEADER_WORDS
    if (encoding === TOKEN) {
      words[index + HEADER_WORDS] = this.#bodyCount
      size += TOKEN_WORDS
    } else if (encoding === INTEGER) {
      words[index + HEADER_WORDS] = body as number
      size += TOKEN_WORDS
    } else if (encoding === DOUBLE) {
      doubleView[0] = body as number
      words[index + HEADER_WORDS] = doubleWords[0]!
      words[index + HEADER_WORDS + 1] = doubleWords[1]!
      size += DOUBLE_WORDS
    }
    if (encoding === TOKEN) {
      // Before the commit, which may flush: the body goes first.
      this.#kept.push({ number: this.#bodyCount, position: (this.#writer.position + size) | 0, frame })
      this.#bodyCount = (this.#bodyCount + 1) | 0
      this.#counts.framesOutObject++
    } else this.#counts.framesOutInline++
    this.#commit(index, size)
    return true
  }

  #reserve(size: number): number {
    const index = this.#writer.reserve((size + 1) & ~1)
    if (index >= 0) return index
    // The reader must see what there is, or it would never make room.
    this.#flush()
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
    if (this.#framesSinceFlush >= FLUSH_FRAMES) this.#flush()
    else if (!this.#isFlushPlanned) {
      this.#isFlushPlanned = true
      queueMicrotask(this.#plannedFlush)
      // After a rest the other side wakes up while the rest of the burst is written.
      const isRested = this.#inbound.isParked && this.#postedAt === this.#kept.length
      if (isRested && this.#writer.isReaderParked) this.#flush()
    }
  }

  /**
   * A post costs more than all else. While the other thread has frames to take anyway, bodies wait for more of them,
   * until the event loop goes round.
   */
  readonly #plannedFlush = (): void => {
    const isBusy =
      this.#postedAt < this.#kept.length && this.#writer.publishedPosition !== this.#writer.takenPosition
    if (isBusy) setImmediate(this.#lateFlush)
    else this.#lateFlush()
  }

  readonly #lateFlush = (): void => {
    this.#isFlushPlanned = false
    this.#flush()
  }

  #flush(): void {
    this.#framesSinceFlush = 0
    if (this.#postedAt < this.#kept.length) this.#postBodies()
    if (!this.#writer.hasUnpublished) return
    if (this.#writer.publish() && !this.#inbound.isClosed) this.#ring(this.#inbound)
  }

  #ring(inbound: Inbound): void {
    this.#counts.doorbells++
    inbound.port.postMessage(DOORBELL)
  }

  #postBodies(): void {
    if (this.#inbound.isClosed) return
    this.#forgetTakenBodies()
    const from = this.#postedAt
    const kept = this.#kept
    if (from >= kept.length) return
    const batch: unknown[] = [kept[from]!.number]
    let transfer: Transferable[] | undefined
    for (let at = from; at < kept.length; at++) {
      const { frame } = kept[at]!
      batch.push(frame.body, frame.patches)
      if (frame.transfer !== undefined) transfer = [...(transfer ?? []), ...frame.transfer]
    }
    this.#postedAt = kept.length
    const { port } = this.#inbound
    try {
      port.postMessage(batch, transfer)
    } catch {
      this.#postOneByOne(kept.slice(from))
    }
  }

  /** One that cannot go, or whose port is closed by now, must not take the others with it. */
  #postOneByOne(all: readonly KeptBody[]): void {
    const { port, handlers } = this.#inbound
    const unsendable: [Frame, unknown][] = []
    for (const { number, frame } of all) {
      try {
        port.postMessage([number, frame.body, frame.patches], frame.transfer)
      } catch (error) {
        port.postMessage([number, null, LOST])
        unsendable.push([frame, error])
      }
    }
    for (const [frame, error] of unsendable) handlers.onUnsendable(frame, error)
  }

  /** What else an earlier life was sent is void; a port in it may be gone already. */
  #keepTellsOnly(): void {
    for (let at = this.#keptAt; at < this.#kept.length; at++) {
      const { number, position, frame } = this.#kept[at]!
      if (frame.op === OP.TELL) continue
      const { op, target, corr } = frame
      this.#kept[at] = { number, position, frame: { op, target, corr, body: null, patches: LOST as never } }
    }
  }

  #forgetTakenBodies(): void {
    const taken = this.#writer.takenPosition
    const kept = this.#kept
    while (this.#keptAt < kept.length && ((kept[this.#keptAt]!.position - taken) | 0) <= 0) {
      kept[this.#keptAt] = undefined as never
      this.#keptAt++
    }
    if (this.#postedAt < this.#keptAt) this.#postedAt = this.#keptAt
    if (this.#keptAt > 1024 && this.#keptAt * 2 > kept.length) {
      this.#kept = kept.slice(this.#keptAt)
      this.#postedAt -= this.#keptAt
      this.#keptAt = 0
    }
  }

  #flushSpill(): void {
    while (this.#spillAt < this.#spill.length) {
      if (!this.#writeSpilled(this.#spill[this.#spillAt]!)) return
      this.#spill[this.#spillAt] = undefined as never
      this.#spillAt++
    }
    this.#spill = []
    this.#spillAt = 0
  }

  #writeSpilled(frame: Spilled): boolean {
    const { op, target, corr, body, layout, variant } = frame
    if (layout === undefined || variant === undefined) return this.#write(frame)
    const codec = op === OP.REPLY ? variant.reply! : variant.body
    const size = codec.sizeOf(body)
    // Its sender has changed it since: it may fit no more.
    if (size < 0 || HEADER_WORDS + size > this.#frameWordsMax) return this.#write(frame)
    const index = this.#reserve(HEADER_WORDS + size)
    if (index < 0) return false
    this.#writeCoded(index, op, target, corr, this.#layoutIndexes.get(layout)!, variant, body)
    return true
  }

  // ── In ───────────────────────────────────────────────────────────────────────────────────────

  #takePost(inbound: Inbound, message: unknown): void {
    if (Array.isArray(message)) inbound.bodies.push(message)
    else if (typeof message === 'object') {
      const { layouts } = message as Resumption
      for (const description of layouts) inbound.layouts.push(compileLayout(description))
      inbound.isResumed = true
    }
  }

  #planDrain(inbound: Inbound): void {
    if (inbound.isDrainPlanned || inbound.isClosed) return
    inbound.isDrainPlanned = true
    setImmediate(() => {
      inbound.isDrainPlanned = false
      this.#drain(inbound)
    })
  }

  #drain(inbound: Inbound): void {
    inbound.isParked = false
    inbound.turnBatches = 0
    this.#drainBatch(inbound)
  }

  /**
   * Takes one batch. The next comes after the microtasks of this one, so that what its actors sent is on its way, and
   * the other thread at work on it, while this one goes on.
   */
  #drainBatch(inbound: Inbound): void {
    if (inbound.isClosed || inbound.isPaused || !inbound.isResumed) return
    const { handlers, reader } = inbound
    // What is taken now would wait in mailboxes, and be lost with them: what was taken before comes first.
    if (!handlers.onBatch() && !handlers.isHandled(inbound.handedOver)) {
      this.#planDrain(inbound)
      return
    }
    if (inbound.isClosed || inbound.isPaused) return
    let passed = this.#takeBatch(inbound)
    if (passed === 0) {
      if (inbound.looks >= 1) {
        // More may come soon; the doorbell that a park costs takes the other side 10 µs.
        inbound.looks--
        this.#planDrain(inbound)
        return
      }
      if (inbound.isDrainPlanned) return
      if (reader.park()) {
        inbound.isParked = true
        this.#counts.parks++
        return
      }
      passed = this.#takeBatch(inbound)
    }
    inbound.looks = Math.min(LOOKS_MAX, Math.max(1, inbound.looks + passed / LOOK_FRAMES))
    if (inbound.isClosed || inbound.isPaused) return
    inbound.turnBatches++
    if (!handlers.onBatch() || inbound.turnBatches >= TURN_BATCHES_MAX) this.#planDrain(inbound)
    else queueMicrotask(inbound.drainNext)
  }

  /** Hands over up to INFLIGHT_MAX frames; returns how many it went past. */
  #takeBatch(inbound: Inbound): number {
    const { handlers, reader } = inbound
    const batch = this.#batch
    let count = 0
    let passed = 0
    while (count < INFLIGHT_MAX) {
      const index = reader.next()
      if (index < 0) break
      if (passed === 0) this.#counts.raiseRing(reader.knownSize * Int32Array.BYTES_PER_ELEMENT)
      passed++
      if (this.#read(inbound, index, batch[count]!)) count++
      reader.skip(index)
    }
    if (passed === 0) return 0
    this.#counts.inboundBatches++
    // From here on the frames are this side's to lose.
    if (reader.release()) this.#ring(inbound)
    for (let i = 0; i < count; i++) {
      const frame = batch[i]!
      handlers.onFrame(frame)
      frame.body = undefined
    }
    inbound.handedOver = handlers.handedOver()
    return passed
  }

  /** Reads the frame at `index`; false when it is not for the runtime. */
  #read(inbound: Inbound, index: number, frame: MutableFrame): boolean {
    const { words } = inbound.views
    const head = words[index + 1]!
    frame.op = head & OP_MASK
    frame.target = words[index + 3]! * ID_SPAN + (words[index + 2]! >>> 0)
    frame.corr = words[index + 5]! * ID_SPAN + (words[index + 4]! >>> 0)
    frame.patches = 0
    const at = index + HEADER_WORDS
    const encoding = (head >> ENCODING_SHIFT) & ENCODING_MASK
    switch (encoding) {
      case TOKEN:
        this.#counts.framesInObject++
        if (!this.#readBody(inbound, words[at]!, frame)) return false
        break
      case CODED:
      case CODED_REPLY: {
        const layout = inbound.layouts[head >>> LAYOUT_SHIFT]!
        const variant = layout.variants[(head >>> VARIANT_SHIFT) & VARIANT_MASK]!
        const codec = encoding === CODED ? variant.body : variant.reply!
        frame.body = codec.read(inbound.views, at)
        this.#counts.framesInCoded++
        break
      }
      case INTEGER:
        this.#counts.framesInInline++
        frame.body = words[at]!
        break
      case DOUBLE:
        this.#counts.framesInInline++
        doubleWords[0] = words[at]!
        doubleWords[1] = words[at + 1]!
        frame.body = doubleView[0]!
        break
      default:
        this.#counts.framesInInline++
        frame.body = PRIMITIVES[encoding]
    }
    if (frame.op === OP.LAYOUT) {
      inbound.layouts[frame.corr] = compileLayout(frame.body as LayoutDescription)
      return false
    }
    if (inbound.isBeforeHello) {
      if (frame.op === OP.HELLO && frame.corr === this.#ownUid) inbound.isBeforeHello = false
      else return frame.op === OP.TELL
    }
    return true
  }

  /** Finds the body of a token; false when it is lost. */
  #readBody(inbound: Inbound, number: number, frame: MutableFrame): boolean {
    const { bodies } = inbound
    for (;;) {
      const batch = bodies[0]
      if (batch === undefined) {
        const post = receiveMessageOnPort(inbound.port)
        if (post === undefined) break
        this.#takePost(inbound, post.message)
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
    inbound.handlers.onUnreadable(new Error(`the body of frame ${number} did not arrive`))
    return false
  }

  // ── Ends ─────────────────────────────────────────────────────────────────────────────────────

  close(): void {
    this.#flush()
    this.#finish(this.#inbound)
  }

  #finish(inbound: Inbound): void {
    if (inbound.isClosed) return
    while (inbound.isResumed && !inbound.isPaused && this.#takeBatch(inbound) > 0 && !inbound.isClosed);
    if (inbound.isClosed) return
    inbound.isClosed = true
    inbound.port.close()
    inbound.handlers.onClosed()
  }

  pause(): void {
    this.#inbound.isPaused = true
  }

  untakenAsks(): ReadonlySet<number> {
    const asks = new Set<number>()
    for (let at = this.#spillAt; at < this.#spill.length; at++) {
      const { op, corr } = this.#spill[at]!
      if (op === OP.ASK) asks.add(corr)
    }
    const { words } = this.#views
    this.#visitUntaken(index => {
      if ((words[index + 1]! & OP_MASK) === OP.ASK)
        asks.add(words[index + 5]! * ID_SPAN + (words[index + 4]! >>> 0))
    })
    return asks
  }

  takeBackTells(target: number): readonly Frame[] {
    const tells: Frame[] = []
    const isMeant = ({ op, target: to }: Frame): boolean => op === OP.TELL && to === target
    const { words } = this.#views
    const kept = new Map<number, number>()
    for (let at = this.#keptAt; at < this.#kept.length; at++) kept.set(this.#kept[at]!.number, at)
    this.#visitUntaken(index => {
      const head = words[index + 1]!
      const to = words[index + 3]! * ID_SPAN + (words[index + 2]! >>> 0)
      if ((head & OP_MASK) !== OP.TELL || to !== target) return
      // An heir passes over it, as over everything but tells that was meant for the life before.
      words[index + 1] = (head & ~OP_MASK) | OP.CANCEL
      const encoding = (head >> ENCODING_SHIFT) & ENCODING_MASK
      if (encoding === CODED) {
        const variant =
          this.#layouts[head >>> LAYOUT_SHIFT]!.variants[(head >> VARIANT_SHIFT) & VARIANT_MASK]!
        const body = variant.body.read(this.#views, index + HEADER_WORDS)
        tells.push({ op: OP.TELL, target, corr: 0, body, patches: 0 })
        return
      }
      const at = kept.get(words[index + HEADER_WORDS]!)
      if (at === undefined) return
      const { number, position, frame } = this.#kept[at]!
      tells.push(frame)
      this.#kept[at] = { number, position, frame: { ...frame, body: null, patches: LOST as never } }
    })
    const spilled = this.#spill.slice(this.#spillAt)
    tells.push(...spilled.filter(isMeant))
    this.#spill = spilled.filter(frame => !isMeant(frame))
    this.#spillAt = 0
    return tells
  }

  /** Goes over the frames that the other thread, which has ended, did not take. */
  #visitUntaken(visit: (index: number) => void): void {
    this.#flush()
    const { words } = this.#views
    const shared = new AtomicWords(words.buffer as SharedArrayBuffer)
    const reader = new RingReader(shared, words.length - RING_DATA)
    for (let index = reader.next(); index >= 0; index = reader.next()) {
      visit(index)
      reader.skip(index)
    }
  }

  discard(): number {
    this.#finish(this.#inbound)
    let tells = 0
    for (let at = this.#spillAt; at < this.#spill.length; at++) if (this.#spill[at]!.op === OP.TELL) tells++
    this.#spill = []
    this.#spillAt = 0
    this.#flush()
    const { words } = this.#views
    const shared = new AtomicWords(words.buffer as SharedArrayBuffer)
    const reader = new RingReader(shared, words.length - RING_DATA)
    for (let index = reader.next(); index >= 0; index = reader.next()) {
      if ((words[index + 1]! & OP_MASK) === OP.TELL) tells++
      reader.skip(index)
    }
    reader.release()
    this.#kept = []
    this.#keptAt = 0
    this.#postedAt = 0
    return tells
  }
}

const doubleView = new Float64Array(1)
const doubleWords = new Int32Array(doubleView.buffer)

const PRIMITIVES: readonly unknown[] = [undefined, undefined, undefined, undefined, null, false, true]

/** Where the mark of a multiple of MARK_FRAMES is kept. */
function markOf(frames: number): number {
  return (frames >>> MARK_SHIFT) & (MARKS - 1)
}

function encodingOf(body: unknown): number {
  switch (typeof body) {
    case 'number':
      return (body | 0) === body && !Object.is(body, -0) ? INTEGER : DOUBLE
    case 'undefined':
      return UNDEFINED
    case 'boolean':
      return body ? TRUE : FALSE
    default:
      return body === null ? NULL : TOKEN
  }
}

function viewsOf(buffer: SharedArrayBuffer): RingViews {
  return { words: new Int32Array(buffer), bytes: new Uint8Array(buffer) }
}
