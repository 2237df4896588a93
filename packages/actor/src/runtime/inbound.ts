/**
 * Inbound: frames that come to this thread. Messages go to their mailboxes; other frames go to the part
 * of the runtime that they concern. Frames for an actor that has yet to come wait in limbo.
 */

import { type AskFailure, InboundAsk, type OpenAsk } from '../asks/asks.ts'
import type { PendingAsks } from '../asks/pending-asks.ts'
import type { Cell } from '../cell/cell.ts'
import type { CellTable } from '../cell/cell-table.ts'
import type { Ending } from '../cell/kin.ts'
import type { Ref } from '../cell/ref.ts'
import type { TellStatus } from '../contract/types.ts'
import { type DrainRequest, OP, type PeerLoss, type RuntimeQuery, type SpawnSpec } from '../links/frames.ts'
import type { Frame } from '../links/link.ts'
import type { Peer } from '../links/peer.ts'
import type { DeadLetters } from '../observe/dead-letters.ts'
import { type Patch, type PatchReader, type RefTarget, unpack } from '../packing/pack.ts'
import { uidOf } from '../values/ids.ts'
import type { Message } from '../values/message.ts'
import type { ThreadEnd } from '../values/thread-end.ts'
import { Handover } from './handover.ts'
import type { ThreadKinship } from './kinship.ts'
import type { Held, Limbo } from './limbo.ts'
import type { Outbound } from './outbound.ts'
import type { Peers } from './peers.ts'
import type { Watches } from './watches.ts'

/** The thread that it comes to. */
export interface ReceivingThread {
  readonly thread: string
  readonly deadLetters: DeadLetters
  readonly asks: PendingAsks
  readonly cells: CellTable
  readonly limbo: Limbo
  readonly peers: Peers
  readonly watches: Watches
  readonly kinship: ThreadKinship
  readonly outbound: Outbound
  readonly lives: {
    noteEnd(name: string, uid: number, end: ThreadEnd): void
    lost(name: string, uid: number, end: ThreadEnd): void
  }
  /** Takes the frames that only main or only a thread understands. */
  readonly onControl: ((peer: Peer, frame: Frame) => void) | undefined
  refTo(target: Omit<RefTarget, 'kind'>): Ref
  /** Makes an actor that another thread spawned here. */
  acceptSpawn(spec: SpawnSpec): void
  /** Answers what another thread asks about this one. */
  answer(query: RuntimeQuery, ask: InboundAsk): void
}

export class Inbound {
  /**
   * Messages of other threads are refused, except to control and to the runtime itself: the heap is nearly
   * full.
   */
  isShedding = false
  readonly handover = new Handover()
  readonly #thread: ReceivingThread
  readonly #asks: PendingAsks
  readonly #cells: CellTable
  readonly #reader: PatchReader

  constructor(thread: ReceivingThread) {
    this.#thread = thread
    this.#asks = thread.asks
    this.#cells = thread.cells
    this.#reader = {
      ref: target => thread.refTo(target),
      reply: target => thread.outbound.replyFor(target),
    }
  }

  /** The value that another thread packed; `body` is changed in place. */
  unpack(body: unknown, patches: readonly Patch[] | 0): unknown {
    return unpack(body, patches, this.#reader)
  }

  /** Refuses messages of other threads from now on, or no more, and tells them. */
  shed(isShedding: boolean): void {
    this.isShedding = isShedding
    for (const peer of this.#thread.peers.values()) if (peer.state === 'up') this.tellShedding(peer)
  }

  tellShedding(peer: Peer): void {
    peer.send({ op: OP.SHED, target: 0, corr: 0, body: this.isShedding, patches: 0 })
  }

  /** Takes a frame that came over the link of the peer. */
  take(peer: Peer, frame: Frame): void {
    switch (frame.op) {
      case OP.TELL:
        this.#takeTell(frame)
        return
      case OP.ASK:
        this.#takeAsk(peer, frame)
        return
      case OP.REPLY:
        this.#asks.get(frame.corr)?.answer(unpack(frame.body, frame.patches, this.#reader))
        return
      case OP.ASK_FAILED:
        this.#asks.get(frame.corr)?.failRemotely(frame.body as AskFailure)
        return
      case OP.CANCEL:
        peer.inboundAsks.get(frame.corr)?.release()
        peer.inboundAsks.delete(frame.corr)
        return
      default:
        this.#takeOther(peer, frame)
    }
  }

  #takeTell(frame: Frame): void {
    const message = unpack(frame.body, frame.patches, this.#reader) as Message
    const cell = this.#cells.get(frame.target)
    if (cell === undefined) this.tellMissing(frame.target, `#${frame.target}`, message)
    else if (this.isShedding && !cell.isControl(message))
      this.#thread.deadLetters.add(cell.name, message.type, 'shed', cell.id)
    else this.#deliverTell(cell, message)
  }

  #deliverTell(cell: Cell, message: Message): void {
    this.#makeRoom(cell)
    if (cell.enqueueFrame(message) === 'full')
      this.#thread.deadLetters.add(cell.name, message.type, 'overflow')
    this.handover.note(cell)
  }

  /** Takes a message for an actor of this thread that is not here: it may be on its way. */
  tellMissing(id: number, name: string, message: Message): TellStatus {
    const held: Held = {
      deliver: cell => this.#deliverTell(cell, message),
      giveUp: () => this.#thread.deadLetters.add(name, message.type, 'dead'),
    }
    if (this.#thread.peers.isAwaited(id) && this.#thread.limbo.hold(id, held)) return 'ok'
    held.giveUp()
    return 'dead'
  }

  #takeAsk(peer: Peer, frame: Frame): void {
    const { target, corr } = frame
    const ask = new InboundAsk(this.#thread.outbound, peer.name, corr)
    peer.inboundAsks.add(ask)
    const message = unpack(frame.body, frame.patches, this.#reader) as Message
    if (target === 0) {
      this.#thread.answer(message as RuntimeQuery, ask)
      return
    }
    const deliver = (to: Cell): void => {
      this.#makeRoom(to)
      to.enqueueInbound(message, ask)
      this.handover.note(to)
    }
    const cell = this.#cells.get(target)
    if (this.isShedding && cell?.isControl(message) === false) {
      this.#thread.deadLetters.add(cell.name, message.type, 'shed', cell.id)
      ask.fail('refused', new Error(`the heap of thread ${this.#thread.thread}`))
      return
    }
    if (cell === undefined) this.askMissing(target, `#${target}`, message.type, ask, deliver)
    else deliver(cell)
  }

  /** Takes an ask of an actor of this thread that is not here: it may be on its way. */
  askMissing(id: number, name: string, type: string, ask: OpenAsk, deliver: (cell: Cell) => void): void {
    const held: Held = {
      deliver(cell) {
        if (!ask.isSettled) deliver(cell)
      },
      giveUp: () => {
        this.#thread.deadLetters.add(name, type, 'dead')
        ask.fail('terminated')
      },
    }
    if (!this.#thread.peers.isAwaited(id) || !this.#thread.limbo.hold(id, held)) held.giveUp()
  }

  /** A batch of frames may hold more than a mailbox: an actor that can run empties it first. */
  #makeRoom(cell: Cell): void {
    if (cell.isFullButRunnable) cell.work()
  }

  /** Handles frames that are neither messages nor answers. */
  #takeOther(peer: Peer, frame: Frame): void {
    const thread = this.#thread
    const { peers, watches, kinship } = thread
    switch (frame.op) {
      case OP.WATCH:
        watches.takeWatch(peer, frame.target)
        return
      case OP.UNWATCH:
        watches.takeUnwatch(peer, frame.target)
        return
      case OP.TERMINATED:
        watches.takeTerminated(peer, frame.target, frame.body as Ending)
        return
      case OP.HELLO:
        peers.greeted(peer, frame.target)
        return
      case OP.SPAWN:
        if (uidOf(frame.target) === peer.uid) peer.lastSpawnId = frame.target
        thread.acceptSpawn(frame.body as SpawnSpec)
        return
      case OP.STOP:
        kinship.takeStop(frame.target, frame.body as boolean | DrainRequest)
        return
      case OP.CHILD_ENDED:
        kinship.takeEnded(frame.target, frame.corr, frame.body as Ending)
        return
      case OP.DRAINS:
        kinship.takeDrains(frame.target, frame.corr, frame.body as number)
        return
      case OP.SHED:
        peer.isShedding = frame.body === true
        return
      case OP.ENDING: {
        const { name, uid, end } = frame.body as PeerLoss
        thread.lives.noteEnd(name, uid, end)
        // Its own last word: nothing comes after it, and its port closes only when the worker has been
        // cleared away. Later, because the batch that this frame came with is still being taken.
        if (name === peer.name) queueMicrotask(() => thread.lives.lost(name, uid, end))
        return
      }
      default:
        thread.onControl?.(peer, frame)
    }
  }
}
