/**
 * Inbound: what comes to this thread. Messages go to their mailboxes; what else threads tell each other goes to the part
 * of the runtime that it concerns. What is meant for an actor that has yet to come waits in limbo.
 */

import { InboundAsk, type OpenAsk } from './asks.ts'
import type { Cell } from './cell.ts'
import type { CellTable } from './cell-table.ts'
import {
  type AskFailure,
  type Ending,
  type Halt,
  type HaltRequest,
  OP,
  type RuntimeQuery,
  type SpawnSpec,
} from './frames.ts'
import { Handover } from './handover.ts'
import { uidOf } from './ids.ts'
import type { Held } from './limbo.ts'
import type { Frame } from './link.ts'
import { type Patch, type PatchReader, unpack } from './pack.ts'
import type { Peer } from './peer.ts'
import type { PendingAsks } from './pending-asks.ts'
import type { Runtime } from './runtime.ts'
import type { Message, TellStatus } from './types.ts'

export class Inbound {
  /** Messages of other threads are refused, except to control and to the runtime itself: the heap is nearly full. */
  isShedding = false
  readonly handover = new Handover()
  readonly #runtime: Runtime
  readonly #asks: PendingAsks
  readonly #cells: CellTable
  readonly #reader: PatchReader

  constructor(runtime: Runtime) {
    this.#runtime = runtime
    this.#asks = runtime.asks
    this.#cells = runtime.cells
    this.#reader = {
      ref: target => runtime.refTo(target),
      reply: target => runtime.outbound.replyFor(target),
    }
  }

  /** The value that another thread packed; `body` is changed in place. */
  unpack(body: unknown, patches: readonly Patch[] | 0): unknown {
    return unpack(body, patches, this.#reader)
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
      this.#runtime.deadLetter(cell.name, message.type, 'shed', cell.id)
    else this.#deliverTell(cell, message)
  }

  #deliverTell(cell: Cell, message: Message): void {
    this.#makeRoom(cell)
    if (cell.enqueue(message) === 'full') this.#runtime.deadLetter(cell.name, message.type, 'overflow')
    this.handover.note(cell)
  }

  /** Takes a message for an actor of this thread that is not here: it may be on its way. */
  tellMissing(id: number, name: string, message: Message): TellStatus {
    const held: Held = {
      deliver: cell => this.#deliverTell(cell, message),
      giveUp: () => this.#runtime.deadLetter(name, message.type, 'dead'),
    }
    if (this.#runtime.peers.isAwaited(id) && this.#runtime.limbo.hold(id, held)) return 'ok'
    held.giveUp()
    return 'dead'
  }

  #takeAsk(peer: Peer, frame: Frame): void {
    const { target, corr } = frame
    const ask = new InboundAsk(this.#runtime.outbound, peer.name, corr)
    peer.inboundAsks.add(ask)
    const message = unpack(frame.body, frame.patches, this.#reader) as Message
    if (target === 0) {
      this.#runtime.answer(message as RuntimeQuery, ask)
      return
    }
    const deliver = (to: Cell): void => {
      ask.layout = to.layout
      ask.variant = ask.layout?.variantOf(message.type)
      this.#makeRoom(to)
      to.enqueueInbound(message, ask)
      this.handover.note(to)
    }
    const cell = this.#cells.get(target)
    if (this.isShedding && cell?.isControl(message) === false) {
      this.#runtime.deadLetter(cell.name, message.type, 'shed', cell.id)
      ask.fail('refused', new Error(`the heap of thread ${this.#runtime.thread}`))
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
        this.#runtime.deadLetter(name, type, 'dead')
        ask.fail('terminated')
      },
    }
    if (!this.#runtime.peers.isAwaited(id) || !this.#runtime.limbo.hold(id, held)) held.giveUp()
  }

  /** A batch of frames may hold more than a mailbox: an actor that can run empties it first. */
  #makeRoom(cell: Cell): void {
    if (cell.isFullButRunnable) cell.work()
  }

  /** What is no message, and no answer to one. */
  #takeOther(peer: Peer, frame: Frame): void {
    const runtime = this.#runtime
    const { watches, kinship } = runtime
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
        runtime.peers.greeted(peer, frame.target)
        return
      case OP.SPAWN:
        if (uidOf(frame.target) === peer.uid) peer.lastSpawnId = frame.target
        runtime.acceptSpawn(frame.body as SpawnSpec)
        return
      case OP.STOP:
        kinship.takeStop(frame.target, frame.body === true)
        return
      case OP.CHILD_ENDED:
        kinship.takeEnded(frame.target, frame.corr, frame.body as Ending)
        return
      case OP.HALT:
        kinship.takeHalt(frame.target, frame.body as HaltRequest)
        return
      case OP.HALTED:
        kinship.takeHalted(peer, frame.target, frame.corr, frame.body as Halt)
        return
      case OP.RELEASE:
        kinship.takeRelease(frame.target)
        return
      default:
        runtime.onControl?.(peer, frame)
    }
  }
}
