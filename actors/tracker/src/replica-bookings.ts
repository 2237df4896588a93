/**
 * Replica bookings: what other replicas of the router have booked, in the load of this one, and what this one tells them.
 *
 * Their bookings count as any other, but nobody here frees them for silence: their replica says when they end, or that it is gone is found
 * by the bridge. A booking on a worker key that is not known here is not booked; the bridge tells all again when the fleet has changed.
 */

import type { ActiveLoad, EngineBook } from '@homing/load'
import {
  type BookedOperation,
  type FreedOperation,
  type OpenBooking,
  Outbox,
  type ReplicaOperation,
} from '@homing/replication'
import type { Booking, TrackerUsage } from './messages.ts'

export interface ReplicaBookingsArgs {
  readonly load: ActiveLoad
  readonly book: EngineBook
  readonly life: string
  readonly nowMs: () => number
  readonly slotOf: (worker: string) => number | undefined
}

interface Held {
  /** Worker slots of its bookings, by id in the load. */
  readonly slots: Map<string, number>
  /** Blocks that it has active, by worker slot. */
  readonly blocks: Map<number, number>
}

export class ReplicaBookings {
  readonly outbox: Outbox
  readonly #args: ReplicaBookingsArgs
  readonly #byReplica = new Map<string, Held>()
  /** Worker slots of what is booked here. */
  readonly #ownSlots = new Map<string, number>()
  #unbooked = 0

  constructor(args: ReplicaBookingsArgs) {
    this.#args = args
    this.outbox = new Outbox(args.life)
  }

  get counts(): { readonly bookings: number; readonly unbooked: number } {
    let bookings = 0
    for (const { slots } of this.#byReplica.values()) bookings += slots.size
    return { bookings, unbooked: this.#unbooked }
  }

  /** It was booked here. */
  booked(
    {
      decisionId,
      workerSlot,
      promptTokens,
      prefillTokens,
      isStream,
      waitedMs = 0,
      stepTokens,
      session,
    }: Booking,
    worker: string,
    countsPrefill: boolean,
  ): void {
    this.#ownSlots.set(decisionId, workerSlot)
    this.outbox.add({
      kind: 'booked',
      id: decisionId,
      worker,
      activeBlocks: this.#args.load.ownBlocks(workerSlot),
      promptTokens,
      prefillTokens,
      countsPrefill,
      isStream,
      waitedMs,
      stepTokens,
      session,
    })
  }

  firstToken(id: string): void {
    this.outbox.add({ kind: 'firstToken', id })
  }

  /** It was freed, in the load, too. */
  freed(id: string, { outputTokens, cachedShare }: TrackerUsage): void {
    const workerSlot = this.#ownSlots.get(id)
    if (workerSlot === undefined) return
    this.#ownSlots.delete(id)
    const activeBlocks = this.#args.load.ownBlocks(workerSlot)
    this.outbox.add({ kind: 'freed', id, activeBlocks, outputTokens, cachedShare })
  }

  /** True: load fell somewhere. */
  apply(replica: string, operations: readonly ReplicaOperation[]): boolean {
    let isLess = false
    for (const operation of operations) {
      if (operation.kind === 'booked') this.#book(replica, operation)
      else if (operation.kind === 'firstToken')
        isLess = this.#firstToken(localId(replica, operation.id)) || isLess
      else isLess = this.#free(replica, operation) || isLess
    }
    return isLess
  }

  /** True: load fell somewhere. */
  reset(replica: string, bookings: readonly OpenBooking[]): boolean {
    const before = this.#byReplica.get(replica)
    const still = new Set(bookings.map(({ id }) => localId(replica, id)))
    let isLess = false
    for (const [id, slot] of [...(before?.slots ?? [])]) {
      if (still.has(id)) continue
      before!.slots.delete(id)
      this.#setBlocks(before!, slot, 0)
      isLess = this.#end(id, {}) || isLess
    }
    for (const booking of bookings) {
      this.#book(replica, booking)
      if (booking.hasFirstToken) isLess = this.#firstToken(localId(replica, booking.id)) || isLess
    }
    if (bookings.length === 0) this.#byReplica.delete(replica)
    return isLess
  }

  /** Its worker is gone, and the load has freed it. */
  forgotten(id: string, workerSlot: number): void {
    for (const held of this.#byReplica.values())
      if (held.slots.delete(id)) this.#setBlocks(held, workerSlot, 0)
  }

  /** Silence here is no sign of anything. */
  keepAlive(): void {
    const nowMs = this.#args.nowMs()
    for (const { slots } of this.#byReplica.values())
      for (const id of slots.keys()) this.#args.load.touch(id, nowMs)
  }

  #book(replica: string, operation: BookedOperation): void {
    const { load, book, slotOf, nowMs } = this.#args
    const { worker, activeBlocks, promptTokens, prefillTokens, isStream, waitedMs, stepTokens } = operation
    const id = localId(replica, operation.id)
    const held: Held = this.#byReplica.get(replica) ?? { slots: new Map(), blocks: new Map() }
    const slot = slotOf(worker)
    if (slot === undefined) {
      this.#unbooked++
      return
    }
    if (!held.slots.has(id)) {
      const figures = {
        sequenceHashes: NO_HASHES,
        count: 0,
        promptTokens,
        prefillTokens: operation.countsPrefill ? prefillTokens : 0,
        nowMs: nowMs(),
      }
      if (load.book(id, slot, figures) !== 'booked') {
        this.#unbooked++
        return
      }
      this.#byReplica.set(replica, held)
      held.slots.set(id, slot)
      const sent = { promptTokens, newTokens: prefillTokens, isStream, waitedMs, nowMs: nowMs() }
      book.sent(id, slot, sent, stepTokens)
    }
    this.#setBlocks(held, slot, activeBlocks)
  }

  #firstToken(id: string): boolean {
    const { load, book, nowMs } = this.#args
    const isLess = load.prefillComplete(id, nowMs())
    book.firstToken(id, nowMs())
    return isLess
  }

  #free(replica: string, { id, activeBlocks, ...usage }: FreedOperation): boolean {
    const own = localId(replica, id)
    const held = this.#byReplica.get(replica)
    const slot = held?.slots.get(own)
    if (held === undefined || slot === undefined) return false
    held.slots.delete(own)
    this.#setBlocks(held, slot, activeBlocks)
    if (held.slots.size === 0) this.#byReplica.delete(replica)
    return this.#end(own, usage)
  }

  #end(id: string, { outputTokens, cachedShare }: TrackerUsage): boolean {
    const { load, book, nowMs } = this.#args
    const isFreed = load.free(id)
    book.ended(id, nowMs(), outputTokens, cachedShare)
    return isFreed
  }

  /** What all replicas together have active on a slot. */
  #setBlocks(held: Held, slot: number, blocks: number): void {
    if (blocks === 0) held.blocks.delete(slot)
    else held.blocks.set(slot, blocks)
    let sum = held.blocks.get(slot) ?? 0
    for (const other of this.#byReplica.values()) if (other !== held) sum += other.blocks.get(slot) ?? 0
    this.#args.load.setForeignBlocks(slot, sum)
  }
}

const NO_HASHES = new Int32Array(0)

function localId(replica: string, id: string): string {
  return `${replica}|${id}`
}
