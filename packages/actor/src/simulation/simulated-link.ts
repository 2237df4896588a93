/**
 * SimulatedLink: the link between two virtual threads, with the promises of a RingLink and without its
 * memory.
 *
 *   Pipe    one direction, as the ring: what a life of the writer sent to a thread. It outlives the lives of
 *           its reader; frames behind `published` are seen by the reader, those after it die with the writer
 *   Wire    the connection of two lives, as the port: when one ends, the other is told, some time later
 *
 * A frame is copied when it is sent, so that nothing is shared.
 */

import { OP, type PeerAddress } from '../links/frames.ts'
import type { Frame, LinkHandlers, ThreadLink } from '../links/link.ts'
import { INFLIGHT_MAX } from '../links/ring/ring-link.ts'
import { copyMessage } from './copy.ts'
import type { LossCause } from './faults.ts'
import type { LinkEnd, VirtualThread } from './virtual-thread.ts'
import { Source } from './world.ts'

/** What a link asks and tells its simulation. */
export interface LinkSurroundings {
  /** Frames that a pipe holds, and that wait with its writer. */
  readonly pipeFrames: number
  readonly spillFrames: number
  /** A pipe is read although the actors have more to do. */
  isEager(): boolean
  /** How long a pipe stands still before its next batch; mostly 0. */
  delayMs(pipe: Pipe): number
  /** What becomes of a message on its way. */
  fateOf(pipe: Pipe, frame: Frame): 'deliver' | 'drop' | 'duplicate'
  /** The link has something to publish when this step ends. */
  wrote(link: SimulatedLink): void
  sent(pipe: Pipe, frame: Frame): void
  taken(pipe: Pipe, frame: Frame, thread: VirtualThread): void
  lost(pipe: Pipe, frame: Frame, cause: LossCause): void
  /** Its reader is not coming back, and its writer has given up what was in it. */
  discarded(pipe: Pipe): void
}

export class Pipe {
  readonly id: number
  readonly writer: string
  readonly writerUid: number
  readonly reader: string
  /** The end that writes, once it is open. */
  link: SimulatedLink | undefined = undefined
  /** The end that reads, now. */
  delivery: Delivery | undefined = undefined
  #frames: Frame[] = []
  #head = 0
  /** Frames that the reader can see, counted from the head of `#frames`. */
  #publishedEnd = 0

  constructor(id: number, writer: string, writerUid: number, reader: string) {
    this.id = id
    this.writer = writer
    this.writerUid = writerUid
    this.reader = reader
  }

  get size(): number {
    return this.#frames.length - this.#head
  }

  get readable(): number {
    return this.#publishedEnd - this.#head
  }

  get hasUnpublished(): boolean {
    return this.#publishedEnd < this.#frames.length
  }

  push(frame: Frame): void {
    this.#frames.push(frame)
  }

  publish(): void {
    this.#publishedEnd = this.#frames.length
  }

  take(): Frame {
    const frame = this.#frames[this.#head]!
    this.#frames[this.#head] = undefined as never
    this.#head++
    if (this.#head === this.#frames.length) {
      this.#frames = []
      this.#head = 0
      this.#publishedEnd = 0
    } else if (this.#head > 1024 && this.#head * 2 > this.#frames.length) {
      this.#frames = this.#frames.slice(this.#head)
      this.#publishedEnd -= this.#head
      this.#head = 0
    }
    return frame
  }

  /** The frames that its reader has not taken. */
  get waiting(): readonly Frame[] {
    return this.#frames.slice(this.#head)
  }

  /** Takes back the frames that the reader has not seen. */
  cut(): Frame[] {
    return this.#frames.splice(this.#publishedEnd)
  }
}

/** The connection of two lives. */
export class Wire {
  readonly id: number
  readonly uids: readonly [number, number]
  /** By the life that opened it. */
  readonly ends = new Map<number, InboundEnd>()
  isCut = false
  /** The writer to an heir has said what the heir inherits. */
  isResumed: boolean

  constructor(id: number, uids: readonly [number, number], isResumed: boolean) {
    this.id = id
    this.uids = uids
    this.isResumed = isResumed
  }
}

/** What a life reads from a life of the other thread. */
export interface InboundEnd {
  readonly link: SimulatedLink
  readonly handlers: LinkHandlers
  readonly pipe: Pipe
  readonly wire: Wire
  readonly delivery: Delivery
  readonly isHeir: boolean
  isBeforeHello: boolean
  /** The pipe stands still. */
  isDelayed: boolean
  /** It may be read once, whatever the actors have to do. */
  isEager: boolean
  /** Messages that the thread had been handed over, of all links, when it was last read. */
  handedOver: number
  isClosed: boolean
}

/** An address as it travels in a simulation: numbers in place of port and rings. */
export function addressOf(
  name: string,
  uid: number,
  wire: number,
  out: number,
  into: number,
  isHeir: boolean,
): PeerAddress {
  return { name, uid, port: wire as never, out: out as never, in: into as never, isHeir }
}

export class SimulatedLink implements ThreadLink, LinkEnd {
  readonly thread: VirtualThread
  readonly #surroundings: LinkSurroundings
  readonly #out: Pipe
  readonly #doorbell: Doorbell
  #spill: Frame[] = []
  #spillAt = 0
  #inbound: InboundEnd
  #isDirty = false

  constructor(
    thread: VirtualThread,
    surroundings: LinkSurroundings,
    out: Pipe,
    into: Pipe,
    wire: Wire,
    isHeir: boolean,
    handlers: LinkHandlers,
  ) {
    this.thread = thread
    this.#surroundings = surroundings
    this.#out = out
    this.#doorbell = new Doorbell(this)
    out.link = this
    thread.links.add(this)
    this.#inbound = this.#open(into, wire, isHeir, handlers)
  }

  /** Goes on with the next life of the other thread. */
  reopen(into: Pipe, wire: Wire, handlers: LinkHandlers): void {
    wire.isResumed = true
    this.#inbound = this.#open(into, wire, false, handlers)
    this.flushSpill()
    this.publish()
    this.#out.delivery?.plan()
  }

  #open(pipe: Pipe, wire: Wire, isHeir: boolean, handlers: LinkHandlers): InboundEnd {
    const delivery = new Delivery(this)
    const inbound: InboundEnd = {
      link: this,
      handlers,
      pipe,
      wire,
      delivery,
      isHeir,
      isBeforeHello: isHeir,
      isDelayed: false,
      isEager: false,
      handedOver: 0,
      isClosed: false,
    }
    delivery.inbound = inbound
    pipe.delivery = delivery
    wire.ends.set(this.thread.uid, inbound)
    delivery.plan()
    return inbound
  }

  // ── Out ──────────────────────────────────────────────────────────────────────────────────────

  offer(frame: Frame): boolean {
    if (this.#spilledCount >= this.#surroundings.spillFrames) return false
    this.#send(frame)
    return true
  }

  send(frame: Frame): void {
    if (!this.#inbound.isClosed) this.#send(frame)
  }

  #send(frame: Frame): void {
    const { op, target, corr, body, patches } = frame
    let copy: unknown
    try {
      copy = copyMessage(body)
    } catch (error) {
      this.thread.task(7, () => this.#inbound.handlers.onUnsendable(frame, error))
      return
    }
    this.#put({ op, target, corr, body: copy, patches: patches === 0 ? 0 : structuredClone(patches) })
  }

  #put(frame: Frame): void {
    // Leftovers of a dead thread send nothing.
    if (!this.thread.isAlive) return
    this.#surroundings.sent(this.#out, frame)
    if (this.#spilledCount > 0 || this.#out.size >= this.#surroundings.pipeFrames) this.#spill.push(frame)
    else {
      this.#out.push(frame)
      this.#touch()
    }
  }

  #touch(): void {
    if (this.#isDirty) return
    this.#isDirty = true
    this.#surroundings.wrote(this)
  }

  get #spilledCount(): number {
    return this.#spill.length - this.#spillAt
  }

  /** There is room: what waited moves up. */
  flushSpill(): void {
    if (this.#spilledCount === 0) return
    while (this.#spillAt < this.#spill.length && this.#out.size < this.#surroundings.pipeFrames) {
      this.#out.push(this.#spill[this.#spillAt]!)
      this.#spillAt++
    }
    this.#touch()
    if (this.#spillAt < this.#spill.length) return
    this.#spill = []
    this.#spillAt = 0
  }

  /** Lets the reader see what was sent. */
  publish(): void {
    this.#isDirty = false
    if (!this.#out.hasUnpublished || !this.thread.isAlive) return
    this.#out.publish()
    this.#out.delivery?.plan()
  }

  /** The reader has made room. */
  ring(): void {
    if (this.#spilledCount > 0) this.thread.world.ready(this.#doorbell)
  }

  // ── In ───────────────────────────────────────────────────────────────────────────────────────

  /** False when there is nothing that may be read. */
  isReadable(inbound: InboundEnd): boolean {
    if (inbound.isClosed || (inbound.isHeir && !inbound.wire.isResumed)) return false
    return inbound.pipe.readable > 0
  }

  /**
   * What is taken now would wait in mailboxes, and be lost with them: what was taken before comes first, as
   * with a RingLink. When actors have had a turn, `turned` looks again.
   */
  mayRead(inbound: InboundEnd): boolean {
    if (inbound.isDelayed || !this.isReadable(inbound)) return false
    return inbound.isEager || inbound.handlers.isHandled(inbound.handedOver)
  }

  /** The actors of the thread have had a turn. */
  turned(): void {
    const inbound = this.#inbound
    if (this.#surroundings.isEager()) inbound.isEager = true
    inbound.delivery.plan()
  }

  takeBatch(inbound: InboundEnd): void {
    if (!this.mayRead(inbound)) return
    const { thread } = this
    const { world } = thread
    const delayMs = this.#surroundings.delayMs(inbound.pipe)
    if (delayMs > 0) {
      inbound.isDelayed = true
      world.timer(thread, delayMs, () => {
        inbound.isDelayed = false
        if (this.mayRead(inbound)) this.#take(inbound, world.roll(INFLIGHT_MAX) + 1)
        inbound.delivery.plan()
      })
      return
    }
    this.#take(inbound, world.roll(INFLIGHT_MAX) + 1)
    inbound.delivery.plan()
  }

  /** Takes up to `count` frames and hands them over. */
  #take(inbound: InboundEnd, count: number): void {
    if (!this.isReadable(inbound)) return
    const { thread } = this
    const { world } = thread
    const { pipe, handlers } = inbound
    const surroundings = this.#surroundings
    inbound.isEager = false
    const batch: Frame[] = []
    for (let left = Math.min(count, pipe.readable); left > 0; left--) batch.push(pipe.take())
    pipe.link?.ring()
    world.mix(batch.length)
    if (thread.doom !== undefined && thread.diesAt('afterTake')) {
      for (const frame of batch) surroundings.lost(pipe, frame, 'taken')
      return
    }
    const middle = thread.doom === 'midBatch' ? batch.length >> 1 : -1
    for (let position = 0; position < batch.length; position++) {
      // A frame may have closed another link, and the thread have died of what that took.
      if (!thread.isAlive || (position === middle && thread.diesAt('midBatch'))) {
        for (; position < batch.length; position++) surroundings.lost(pipe, batch[position]!, 'taken')
        return
      }
      try {
        this.#hand(inbound, batch[position]!, handlers)
      } catch (thrown) {
        for (position++; position < batch.length; position++)
          surroundings.lost(pipe, batch[position]!, 'taken')
        throw thrown
      }
    }
    inbound.handedOver = handlers.handedOver()
    if (thread.doom !== undefined) thread.diesAt('afterBatch')
  }

  #hand(inbound: InboundEnd, frame: Frame, handlers: LinkHandlers): void {
    const { pipe } = inbound
    const { op, target, corr } = frame
    const surroundings = this.#surroundings
    const { world } = this.thread
    world.mix(op)
    world.mix(target | 0)
    world.mix(corr | 0)
    if (inbound.isBeforeHello && op !== OP.TELL) {
      // An heir may inherit what was said to several lives before it.
      if (op !== OP.HELLO || corr !== this.thread.uid) {
        surroundings.lost(pipe, frame, 'void')
        return
      }
      inbound.isBeforeHello = false
    }
    if (op <= OP.REPLY) {
      const fate = surroundings.fateOf(pipe, frame)
      if (fate === 'drop') {
        surroundings.lost(pipe, frame, 'dropped')
        return
      }
      surroundings.taken(pipe, frame, this.thread)
      if (fate === 'duplicate') {
        handlers.onFrame({ ...frame, body: copyMessage(frame.body) })
        surroundings.taken(pipe, frame, this.thread)
      }
    }
    handlers.onFrame(frame)
  }

  // ── Ends ─────────────────────────────────────────────────────────────────────────────────────

  close(): void {
    this.publish()
    this.finish(this.#inbound)
  }

  /** Takes what has arrived, then says that the other life is over. */
  finish(inbound: InboundEnd): void {
    if (inbound.isClosed) return
    while (this.isReadable(inbound)) {
      this.#take(inbound, INFLIGHT_MAX)
      if (!this.thread.isAlive) return
    }
    if (inbound.isClosed) return
    inbound.isClosed = true
    if (inbound.isHeir && !inbound.wire.isResumed) {
      // The writer died before it could say what the heir inherits.
      const { pipe } = inbound
      while (pipe.readable > 0) this.#surroundings.lost(pipe, pipe.take(), 'orphaned')
    }
    this.thread.world.withdraw(inbound.delivery)
    inbound.handlers.onClosed()
  }

  untakenAsks(): ReadonlySet<number> {
    const untaken = [...this.#out.waiting, ...this.#spill.slice(this.#spillAt)]
    return new Set(untaken.filter(({ op }) => op === OP.ASK).map(({ corr }) => corr))
  }

  discard(): number {
    this.finish(this.#inbound)
    const frames = this.#spill.slice(this.#spillAt)
    this.#spill = []
    this.#spillAt = 0
    this.#out.publish()
    while (this.#out.readable > 0) frames.push(this.#out.take())
    for (const frame of frames) this.#surroundings.lost(this.#out, frame, 'gone')
    this.#surroundings.discarded(this.#out)
    return frames.filter(({ op }) => op === OP.TELL).length
  }

  /** The life that owns it has ended: frames that were not seen are lost. */
  die(): void {
    const lost = [...this.#out.cut(), ...this.#spill.slice(this.#spillAt)]
    this.#spill = []
    this.#spillAt = 0
    for (const frame of lost) this.#surroundings.lost(this.#out, frame, 'unpublished')
    if (this.#out.link === this) this.#out.link = undefined
    const { pipe, delivery } = this.#inbound
    if (pipe.delivery === delivery) pipe.delivery = undefined
  }
}

/** A batch of frames of one link. */
class Delivery extends Source {
  readonly code = 4
  readonly #link: SimulatedLink
  inbound: InboundEnd | undefined = undefined

  constructor(link: SimulatedLink) {
    super(link.thread)
    this.#link = link
  }

  plan(): void {
    if (this.#link.mayRead(this.inbound!)) this.#link.thread.world.ready(this)
  }

  run(): void {
    this.#link.takeBatch(this.inbound!)
  }
}

class Doorbell extends Source {
  readonly code = 5
  readonly #link: SimulatedLink

  constructor(link: SimulatedLink) {
    super(link.thread)
    this.#link = link
  }

  run(): void {
    this.#link.flushSpill()
  }
}
