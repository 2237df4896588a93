/**
 * CopiedPlaces: production may place two actors on different threads. Between them, a test on one thread
 * copies messages, answers and args as a link does, and refuses values that cannot travel. Without copies,
 * code that relies on a shared object would pass its test and fail in production.
 *
 * Each actor has a *place*: the thread that its spawn names, or that of its parent. A ref belongs to the
 * place that has it: a PlacedRef copies when the place of its target is another. In a copy the refs belong to
 * the place where it arrives.
 */

import {
  askOf,
  type ForwardedAsk,
  InboundAsk,
  OpenAsk,
  type PendingAsk,
  type ReplyFunction,
} from '../asks/asks.ts'
import { LocalRef, type LocalRefHost } from '../cell/local-ref.ts'
import type { SpawnOptions, TellStatus, ThreadPlacement } from '../contract/types.ts'
import { MAIN } from '../links/life.ts'
import { Moves } from '../packing/moves.ts'
import { type PatchReader, pack, unpack } from '../packing/pack.ts'
import { boundsOf } from '../runtime/placement.ts'
import type { Places } from '../runtime/places.ts'
import { UnserializableMessageError } from '../values/errors.ts'
import { type Message, type TransferOptions, typeOf } from '../values/message.ts'
import { recordOf } from '../values/thrown.ts'
import { copyMessage } from './copy.ts'

export class CopiedPlaces implements Places {
  /** Places other than main, by actor. */
  readonly #places = new Map<number, string>()
  /** Asks that crossed and are not answered, by their number. */
  readonly #asks = new Map<number, InboundAsk>()
  #host: LocalRefHost | undefined = undefined

  enter(id: number, parentId: number, placement: SpawnOptions<unknown>['thread'], args: unknown): unknown {
    const from = this.of(parentId)
    const place = placeOf(placement, id, from)
    if (place !== MAIN) this.#places.set(id, place)
    return place === from ? args : this.carry(args, place)
  }

  refFor(ref: LocalRef, parentId: number): LocalRef {
    this.#host = ref.host
    return this.#refAt(ref.id, ref.name, this.of(parentId))
  }

  leave(id: number): void {
    this.#places.delete(id)
  }

  /** Where an actor is; one that has ended is on main. */
  of(id: number): string {
    return this.#places.get(id) ?? MAIN
  }

  #refAt(id: number, name: string, place: string): LocalRef {
    return new PlacedRef(this.#host!, id, name, this, place)
  }

  /**
   * The value as it arrives at `place`. Throws UnserializableMessageError when something in it cannot travel.
   */
  carry(value: unknown, place: string, transfer?: readonly ArrayBuffer[]): unknown {
    // What cannot move is refused here as well.
    if (transfer !== undefined) new Moves(transfer)
    const replies: ReplyFunction[] = []
    const { body, patches } = pack(value, given => {
      const reply = given as ReplyFunction
      if (reply[askOf] === undefined) return undefined
      replies.push(reply)
      return { kind: 'reply', thread: place, corr: replies.length - 1 }
    })
    const reader: PatchReader = {
      ref: ({ id, name }) => this.#refAt(id, name, place),
      reply: ({ corr }) => this.#replyFrom(replies[corr]!),
    }
    return unpack(copyMessage(body), patches, reader)
  }

  /** A reply that was passed on to another place is answered there, not by the actor that had it. */
  #replyFrom(reply: ReplyFunction): ReplyFunction {
    const ask = reply[askOf]
    // It was passed on before.
    if (!(ask instanceof OpenAsk)) return reply
    ask.unlink()
    const asker = ask instanceof InboundAsk ? ask.thread : MAIN
    const passedOn: ReplyFunction = (value, options) => {
      if (ask.isSettled) return
      try {
        ask.answer(this.carry(value, asker, options?.transfer))
        detach(options?.transfer)
      } catch (error) {
        ask.fail('failed', error)
      }
    }
    passedOn[askOf] = { thread: asker, corr: 0 } satisfies ForwardedAsk
    return passedOn
  }

  /** The ask as the other place has it, until it is answered there or its asker no longer waits. */
  ask(pending: PendingAsk, from: string): InboundAsk {
    const { corr } = pending
    const crossing = new InboundAsk(
      {
        reply: (_, value, transfer) => {
          this.#asks.delete(corr)
          try {
            pending.answer(this.carry(value, from, transfer))
            detach(transfer)
          } catch (error) {
            pending.failRemotely({ kind: 'failed', error: recordOf(error) })
          }
        },
        failed: (_, failure) => {
          this.#asks.delete(corr)
          pending.failRemotely(failure)
        },
      },
      from,
      corr,
    )
    this.#asks.set(corr, crossing)
    return crossing
  }

  cancelAsk(corr: number): void {
    this.#asks.get(corr)?.release()
    this.#asks.delete(corr)
  }
}

function placeOf(placement: SpawnOptions<unknown>['thread'], id: number, from: string): string {
  if (placement === undefined || placement === 'here') return from
  if (boundsOf(placement) !== undefined) return `dedicated-${id}`
  const shared = placement as Exclude<ThreadPlacement, { readonly dedicated: unknown }>
  return typeof shared === 'string' ? shared : `${shared.pool} for ${shared.key}`
}

/** A ref of one place: what it sends to another is copied. */
class PlacedRef extends LocalRef {
  readonly #places: CopiedPlaces
  readonly #place: string

  constructor(host: LocalRefHost, id: number, name: string, places: CopiedPlaces, place: string) {
    super(host, id, name, undefined)
    this.#places = places
    this.#place = place
  }

  override tell(message: Message, options?: TransferOptions): TellStatus {
    const to = this.#places.of(this.id)
    if (to === this.#place || this.cell === undefined || typeOf(message) === undefined)
      return super.tell(message)
    try {
      const status = super.tell(this.#places.carry(message, to, options?.transfer) as Message)
      if (status !== 'full') detach(options?.transfer)
      return status
    } catch (error) {
      this.host.counts.sent++
      this.host.deadLetters.add(this.name, message.type, 'unserializable', 0, recordOf(error).message)
      return 'dead'
    }
  }

  protected override send(message: Message, ask: PendingAsk, transfer?: readonly ArrayBuffer[]): void {
    const to = this.#places.of(this.id)
    const { cell } = this
    if (to === this.#place || cell === undefined) {
      super.send(message, ask)
      return
    }
    this.host.counts.sent++
    let copy: Message
    try {
      copy = this.#places.carry(message, to, transfer) as Message
      detach(transfer)
    } catch (error) {
      ask.reject(error instanceof UnserializableMessageError ? error : unreadable(error))
      return
    }
    // Known by its number, so that it is taken back where it is not answered in time.
    this.host.asks.numberOf(ask)
    ask.thread = to
    cell.enqueueInbound(copy, this.#places.ask(ask, this.#place))
  }
}

/** Its sender is not to see what has moved. */
function detach(transfer: readonly ArrayBuffer[] | undefined): void {
  for (const buffer of transfer ?? []) if (!buffer.detached) buffer.transfer()
}

function unreadable(error: unknown): UnserializableMessageError {
  return new UnserializableMessageError('a value', `it cannot be read: ${recordOf(error).message}`)
}
