/**
 * Outbound: frames that leave this thread: tells, asks and answers, packed.
 *
 * A reply function in a message travels as the thread and number of its ask. Once it has left, the ask is
 * answered on the other thread and no longer depends on the cell that had it. A call there sends the answer
 * directly to the thread that asked.
 */

import type { Log } from '@homing/base'
import {
  type AskFailure,
  askOf,
  type ForwardedAsk,
  type InboundAsk,
  type InboundHost,
  PendingAsk,
  type ReplyFunction,
  replyTo,
} from '../asks/asks.ts'
import type { PendingAsks } from '../asks/pending-asks.ts'
import type { TellStatus } from '../contract/types.ts'
import { OP, type SpawnSpec } from '../links/frames.ts'
import type { Frame } from '../links/link.ts'
import type { Peer } from '../links/peer.ts'
import type { Counts } from '../observe/counts.ts'
import type { DeadLetters } from '../observe/dead-letters.ts'
import type { FlightRecorder } from '../observe/flight.ts'
import { Moves } from '../packing/moves.ts'
import { type Packed, type Patch, pack, type ReplyTarget } from '../packing/pack.ts'
import { ThreadDownError, UnserializableMessageError } from '../values/errors.ts'
import type { Message } from '../values/message.ts'
import { describe, recordOf } from '../values/thrown.ts'
import type { ThreadKinship } from './kinship.ts'
import type { Peers } from './peers.ts'
import type { RemoteRef } from './remote-ref.ts'

/** The thread that it leaves. */
export interface SendingThread {
  readonly thread: string
  readonly log: Log
  readonly counts: Counts
  readonly flight: FlightRecorder
  readonly deadLetters: DeadLetters
  readonly asks: PendingAsks
  readonly peers: Peers
  readonly kinship: ThreadKinship
}

export class Outbound implements InboundHost {
  readonly #thread: SendingThread
  readonly #counts: Counts
  readonly #asks: PendingAsks
  readonly #peers: Peers

  constructor(thread: SendingThread) {
    this.#thread = thread
    this.#counts = thread.counts
    this.#asks = thread.asks
    this.#peers = thread.peers
  }

  // ── Messages ─────────────────────────────────────────────────────────────────────────────────

  tell(ref: RemoteRef, message: Message, transfer?: readonly ArrayBuffer[]): TellStatus {
    const { peer } = ref
    this.#counts.sent++
    if (!peer.canBeTold) {
      this.#thread.deadLetters.add(ref.name, message.type, 'dead')
      return 'dead'
    }
    if (peer.isShedding && !ref.isControl(message.type)) {
      this.#linkFull(peer)
      return 'full'
    }
    try {
      if (transfer !== undefined) return this.#tellMoving(ref, message, transfer)
      const { body, patches } = pack(message, this.#describeReply)
      if (!peer.offer({ op: OP.TELL, target: ref.id, corr: 0, body, patches })) {
        this.#linkFull(peer)
        return 'full'
      }
      if (patches !== 0) this.#handOver(patches, peer.name)
      return 'ok'
    } catch (error) {
      this.#reportUnserializable(ref.name, message.type, error)
      return 'dead'
    }
  }

  /** Apart from `tell`, which is small enough so to be compiled in one piece with what calls it. */
  #tellMoving({ peer, id }: RemoteRef, message: Message, transfer: readonly ArrayBuffer[]): TellStatus {
    const moves = new Moves(transfer)
    const { body, patches } = this.pack(message, moves)
    if (!offerMoving(peer, { op: OP.TELL, target: id, corr: 0, body, patches }, moves)) {
      this.#linkFull(peer)
      return 'full'
    }
    if (patches !== 0) this.#handOver(patches, peer.name)
    return 'ok'
  }

  ask(
    ref: RemoteRef,
    message: { readonly type: string },
    ask: PendingAsk,
    transfer?: readonly ArrayBuffer[],
  ): void {
    const { peer } = ref
    this.#counts.sent++
    if (!peer.isReachable) {
      ask.reject(
        new ThreadDownError(
          peer.name,
          peer.state === 'gone' ? 'it is not coming back' : 'it is being replaced',
          false,
          peer.end,
        ),
      )
      return
    }
    if (peer.isShedding && ref.id !== 0 && !ref.isControl(message.type)) {
      this.#linkFull(peer)
      ask.fail('refused', `the heap of thread ${peer.name}`)
      return
    }
    try {
      const moves = transfer === undefined ? undefined : new Moves(transfer)
      const { body, patches } = this.pack(message, moves)
      const corr = this.#asks.numberOf(ask)
      ask.thread = peer.name
      const frame: Frame = { op: OP.ASK, target: ref.id, corr, body, patches }
      // The runtime itself is asked past the bound: it is asked seldom, and to end what fills the link.
      if (ref.id === 0) peer.send(frame)
      else if (!offerMoving(peer, frame, moves)) {
        this.#linkFull(peer)
        ask.fail('refused', `the link to thread ${peer.name}`)
        return
      }
      if (patches !== 0) this.#handOver(patches, peer.name)
    } catch (error) {
      ask.reject(unserializable(error))
    }
  }

  #linkFull(peer: Peer): void {
    this.#counts.refused++
    this.#thread.flight.note('overflow', 0, peer.name, 1)
  }

  /** A value as it can travel. Throws UnserializableMessageError when something in it cannot. */
  pack(value: unknown, moves?: Moves): Packed {
    if (moves === undefined) return pack(value, this.#describeReply)
    const { body, patches } = pack(moves.lift(value, this.#describeReply), this.#describeReply)
    return { body: moves.putBack(body), patches }
  }

  /** How the reply of an ask travels. Gives an ask of this thread its number. */
  readonly #describeReply = (reply: (value: never) => void): ReplyTarget | undefined => {
    const ask = (reply as ReplyFunction)[askOf]
    if (ask === undefined) return undefined
    if (ask instanceof PendingAsk)
      return { kind: 'reply', thread: this.#thread.thread, corr: this.#asks.numberOf(ask) }
    const { thread, corr } = ask as InboundAsk | ForwardedAsk
    return { kind: 'reply', thread, corr }
  }

  /** The replies in a message that left are answered over there now, not by the cell that had them. */
  #handOver(patches: readonly Patch[], toThread: string): void {
    for (const patch of patches) {
      if (patch.kind !== 'reply') continue
      if (patch.thread === this.#thread.thread) {
        const ask = this.#asks.get(patch.corr)
        ask?.unlink()
        if (ask !== undefined) ask.thread = toThread
      } else {
        const peer = this.#peers.get(patch.thread)
        peer?.inboundAsks.get(patch.corr)?.release()
        peer?.inboundAsks.delete(patch.corr)
      }
    }
  }

  // ── Answers ──────────────────────────────────────────────────────────────────────────────────

  reply(ask: InboundAsk, value: unknown, transfer?: readonly ArrayBuffer[]): void {
    const peer = this.#peers.get(ask.thread)
    if (peer === undefined) return
    peer.inboundAsks.delete(ask.corr)
    this.#sendReply(ask.thread, ask.corr, value, transfer)
  }

  failed(ask: InboundAsk, failure: AskFailure): void {
    const peer = this.#peers.get(ask.thread)
    peer?.inboundAsks.delete(ask.corr)
    peer?.send({ op: OP.ASK_FAILED, target: 0, corr: ask.corr, body: failure, patches: 0 })
  }

  #sendReply(thread: string, corr: number, value: unknown, transfer?: readonly ArrayBuffer[]): void {
    const peer = this.#peers.get(thread)
    if (peer === undefined) return
    try {
      const moves = transfer === undefined ? undefined : new Moves(transfer)
      const { body, patches } = this.pack(value, moves)
      const frame: Frame = { op: OP.REPLY, target: 0, corr, body, patches }
      // It is always taken, and may be nothing but a buffer.
      peer.send(moves === undefined ? frame : { ...frame, body: moves.commit(body), transfer: moves.buffers })
      if (patches !== 0) this.#handOver(patches, peer.name)
    } catch (error) {
      this.#sendReplyFailure(peer, corr, unserializable(error))
    }
  }

  #sendReplyFailure(peer: Peer, corr: number, error: unknown): void {
    this.#thread.log.warn({ peer: peer.name, error: describe(error) }, 'answer cannot be sent')
    const failure: AskFailure = { kind: 'failed', error: recordOf(error) }
    peer.send({ op: OP.ASK_FAILED, target: 0, corr, body: failure, patches: 0 })
  }

  /** The reply function for an ask that another thread passed on in a message. */
  replyFor(target: ReplyTarget): ReplyFunction {
    const { thread, corr } = target
    if (thread === this.#thread.thread) {
      const ask = this.#asks.get(corr)
      return ask === undefined ? () => {} : replyTo(ask)
    }
    let isAnswered = false
    const reply: ReplyFunction = (value, options) => {
      if (isAnswered) return
      isAnswered = true
      this.#peers.to(thread)
      this.#sendReply(thread, corr, value, options?.transfer)
    }
    const forwarded: ForwardedAsk = { thread, corr }
    reply[askOf] = forwarded
    return reply
  }

  // ── Failures ─────────────────────────────────────────────────────────────────────────────────

  /** The link could not send the body of a frame: its sender is told. */
  unsendable(peer: Peer, frame: Frame, cause: unknown): void {
    const why = cause instanceof Error ? cause.message : String(cause)
    const error = new UnserializableMessageError('a value', why)
    if (frame.op === OP.ASK) this.#asks.get(frame.corr)?.reject(error)
    else if (frame.op === OP.REPLY) this.#sendReplyFailure(peer, frame.corr, error)
    else if (frame.op === OP.SPAWN)
      this.#thread.kinship.unspawned(frame.target, frame.body as SpawnSpec, error)
    else {
      const type = (frame.body as Partial<Message> | undefined)?.type ?? `frame ${frame.op}`
      this.#reportUnserializable(`#${frame.target}`, type, error)
    }
  }

  #reportUnserializable(actor: string, type: string, error: unknown): void {
    this.#thread.deadLetters.add(actor, type, 'unserializable', 0, recordOf(error).message)
  }
}

/** False when the link is full: then nothing has moved. */
function offerMoving(peer: Peer, frame: Frame, moves: Moves | undefined): boolean {
  if (moves === undefined) return peer.offer(frame)
  if (!peer.offer({ ...frame, transfer: moves.buffers })) return false
  moves.commit(frame.body)
  return true
}

/** A value that throws while it is read is as one that cannot be cloned. */
function unserializable(error: unknown): UnserializableMessageError {
  if (error instanceof UnserializableMessageError) return error
  return new UnserializableMessageError('a value', `it cannot be read: ${recordOf(error).message}`)
}
