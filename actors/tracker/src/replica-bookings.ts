/**
 * Replica bookings: counts the bookings of other router replicas in the load of this one, and collects the
 * bookings of this one for them.
 *
 * A booking of a replica counts as any other, but never expires here: its replica reports the end, or the
 * bridge finds that the replica is gone. A booking on an unknown worker key is skipped; the bridge sends all
 * bookings again when the fleet has new keys. A booking that came late or in a snapshot counts as load, but
 * the step times do not learn from it, because its times are not known.
 *
 * Invariant   the blocks of a replica count on a slot only while one of its bookings there does, so all sums
 *             return to exactly 0.
 */

import type { ActiveLoad, EngineBook } from '@homing/load'
import { type FreedOperation, type OpenBooking, Outbox, type ReplicaOperation } from '@homing/replication'
import type { Booking, TrackerUsage } from './messages.ts'

export interface ReplicaBookingsArgs {
  readonly load: ActiveLoad
  readonly book: EngineBook
  readonly life: string
  readonly nowMs: () => number
  readonly slotOf: (worker: string) => number | undefined
}

interface Held {
  /** Worker slots of the replica's bookings, by booking id in the load. */
  readonly slots: Map<string, number>
  /** The replica's bookings and active blocks, by worker slot. */
  readonly on: Map<number, { bookings: number; blocks: number }>
}

/** Most blocks of other replicas that a slot counts: a larger sum is an error, not load. */
const FOREIGN_BLOCKS_MAX = 2 ** 30

export class ReplicaBookings {
  readonly outbox: Outbox
  readonly #args: ReplicaBookingsArgs
  readonly #byReplica = new Map<string, Held>()
  /** Worker slots of this router's own bookings, by decision id. */
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

  /** This router booked a request. */
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

  /** This router freed a booking. Call it after the load has freed it. */
  freed(id: string, { outputTokens, cachedShare }: TrackerUsage): void {
    const workerSlot = this.#ownSlots.get(id)
    if (workerSlot === undefined) return
    this.#ownSlots.delete(id)
    const activeBlocks = this.#args.load.ownBlocks(workerSlot)
    this.outbox.add({ kind: 'freed', id, activeBlocks, outputTokens, cachedShare })
  }

  /** `isLate`: the operations happened some time ago. Returns true if load fell. */
  apply(replica: string, operations: readonly ReplicaOperation[], isLate = false): boolean {
    let isLess = false
    for (const operation of operations) {
      const id = localId(replica, operation.id)
      if (isLate) this.#args.book.late(id)
      if (operation.kind === 'booked')
        isLess = this.#book(replica, { ...operation, hasFirstToken: false }, isLate) || isLess
      else if (operation.kind === 'firstToken') isLess = this.#firstToken(id) || isLess
      else isLess = this.#free(replica, operation) || isLess
    }
    return isLess
  }

  /** Replaces all bookings of a replica. Returns true if load fell. */
  reset(replica: string, bookings: readonly OpenBooking[]): boolean {
    const before = this.#byReplica.get(replica)
    const still = new Set(bookings.map(({ id }) => localId(replica, id)))
    let isLess = false
    for (const [id, slot] of [...(before?.slots ?? [])]) {
      if (still.has(id)) continue
      this.#drop(replica, before!, id, slot)
      isLess = this.#end(id, {}) || isLess
    }
    for (const booking of bookings) {
      const id = localId(replica, booking.id)
      if (booking.hasFirstToken) this.#args.book.late(id)
      isLess = this.#book(replica, booking, true) || isLess
      if (booking.hasFirstToken) isLess = this.#firstToken(id) || isLess
    }
    return isLess
  }

  /** Forgets every replica that is not listed. Returns true if load fell. */
  retain(replicas: readonly string[]): boolean {
    const kept = new Set(replicas)
    let isLess = false
    for (const replica of [...this.#byReplica.keys()])
      if (!kept.has(replica)) isLess = this.reset(replica, []) || isLess
    return isLess
  }

  /** The worker of a booking is gone, and the load has freed the booking. */
  forgotten(id: string, workerSlot: number): void {
    for (const [replica, held] of [...this.#byReplica])
      if (held.slots.has(id)) this.#drop(replica, held, id, workerSlot)
  }

  /** Touches all bookings of replicas: only their replica ends them, not a timeout. */
  keepAlive(): void {
    const nowMs = this.#args.nowMs()
    for (const { slots } of this.#byReplica.values())
      for (const id of slots.keys()) this.#args.load.touch(id, nowMs)
  }

  /** Returns true if load fell, because the id was booked on another worker before. */
  #book(replica: string, booking: OpenBooking, isLate: boolean): boolean {
    const { load, book, slotOf } = this.#args
    const { worker, activeBlocks, promptTokens, isStream, waitedMs, stepTokens, hasFirstToken } = booking
    const id = localId(replica, booking.id)
    const held: Held = this.#byReplica.get(replica) ?? { slots: new Map(), on: new Map() }
    const slot = slotOf(worker)
    const before = held.slots.get(id)
    let isLess = false
    if (before !== undefined && before !== slot) {
      // The same id on another worker: the last booking counts.
      this.#drop(replica, held, id, before)
      isLess = this.#end(id, {})
    }
    if (slot === undefined) {
      this.#unbooked++
      return isLess
    }
    if (!held.slots.has(id)) {
      const nowMs = this.#args.nowMs()
      const figures = {
        sequenceHashes: NO_HASHES,
        count: 0,
        promptTokens,
        prefillTokens: booking.countsPrefill ? booking.prefillTokens : 0,
        nowMs,
      }
      if (load.book(id, slot, figures) !== 'booked') {
        this.#unbooked++
        return isLess
      }
      this.#byReplica.set(replica, held)
      held.slots.set(id, slot)
      const on = held.on.get(slot) ?? { bookings: 0, blocks: 0 }
      on.bookings++
      held.on.set(slot, on)
      const newTokens = booking.prefillTokens
      const sent = { promptTokens, newTokens, isStream, waitedMs, isOwn: false, nowMs }
      if (isLate) book.resumed(id, slot, { ...sent, hasFirstToken }, stepTokens)
      else book.sent(id, slot, sent, stepTokens)
    }
    this.#setBlocks(held, slot, activeBlocks)
    return isLess
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
    this.#setBlocks(held, slot, activeBlocks)
    this.#drop(replica, held, own, slot)
    return this.#end(own, usage)
  }

  /** The last booking on a slot takes the replica's blocks there with it; the last of all, its entry. */
  #drop(replica: string, held: Held, id: string, slot: number): void {
    held.slots.delete(id)
    const on = held.on.get(slot)!
    if (--on.bookings === 0) {
      this.#setBlocks(held, slot, 0)
      held.on.delete(slot)
    }
    if (held.slots.size === 0) this.#byReplica.delete(replica)
  }

  #end(id: string, { outputTokens, cachedShare }: TrackerUsage): boolean {
    const { load, book, nowMs } = this.#args
    const isFreed = load.free(id)
    book.ended(id, nowMs(), outputTokens, cachedShare)
    return isFreed
  }

  /** Sets the replica's active blocks on a slot, and the sum of all replicas in the load. */
  #setBlocks(held: Held, slot: number, blocks: number): void {
    held.on.get(slot)!.blocks = blocks
    let sum = 0
    for (const { on } of this.#byReplica.values()) sum += on.get(slot)?.blocks ?? 0
    this.#args.load.setForeignBlocks(slot, Math.min(sum, FOREIGN_BLOCKS_MAX))
  }
}

const NO_HASHES = new Int32Array(0)

function localId(replica: string, id: string): string {
  return `${replica}|${id}`
}
