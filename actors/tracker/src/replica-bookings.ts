/**
 * Replica bookings: counts the bookings of other router replicas in the load of this one, and collects the
 * bookings of this one for them.
 *
 * A booking of a replica counts as any other, but never expires here: its replica reports the end, or the
 * bridge finds that the replica is gone. A booking on an unknown worker key is skipped; the bridge sends all
 * bookings again when the fleet has new keys. A booking that came late or in a snapshot counts as load, but
 * the step times do not learn from it, because its times are not known.
 *
 * Prompts that are open through several routers count once, as with one router: bookings carry digests of
 * their chains of blocks (packages/load), and beside them the number of active blocks of which no digest
 * tells, such as those of answers. A replica of an earlier version tells only the number of all: it counts
 * whole.
 *
 * Invariant   the blocks of a replica count on a slot only while one of its bookings there does, so all sums
 *             return to exactly 0. What is said here of a booking of a replica is told to it, again each
 *             second, until it says the same.
 * Bounds      DIGEST_HASHES_MAX hashes in the digests of this router, MESSAGE_HASHES_MAX in those of one
 *             batch: a booking beyond them has no digest, and its blocks count whole elsewhere.
 */

import {
  type ActiveLoad,
  type ChainDigest,
  chainDigest,
  digestLength,
  type EngineBook,
  SharedBlocks,
} from '@homing/load'
import {
  DIGEST_HASHES_MAX,
  DIGEST_LENGTH_MAX,
  type FreedOperation,
  MESSAGE_HASHES_MAX,
  type OpenBooking,
  Outbox,
  type ReplicaOperation,
  type ReportedOperation,
} from '@homing/replication'
import type { Booking, TrackerUsage } from './messages.ts'

export interface ReplicaBookingsArgs {
  readonly load: ActiveLoad
  readonly book: EngineBook
  readonly life: string
  readonly nowMs: () => number
  readonly slotOf: (worker: string) => number | undefined
  /** Another replica was told of a booking of this router. */
  readonly reported: (report: ReportedOperation) => void
}

interface Held {
  /** Worker slots of the replica's bookings, by booking id in the load. */
  readonly slots: Map<string, number>
  /** Of bookings that are among the shared blocks. */
  readonly digests: Map<string, ChainDigest>
  readonly on: Map<number, HeldOn>
}

/** The replica's bookings and active blocks on a worker slot. */
interface HeldOn {
  bookings: number
  /** Bookings with a digest. */
  digested: number
  /** Of which no digest tells; all of them, if it sends none. */
  blocks: number
  /** Of prompts whose digests found no room here. */
  readonly unshared: Map<string, number>
}

interface OwnBooking {
  /** Worker key. */
  readonly worker: string
  readonly workerSlot: number
  readonly digest: ChainDigest | undefined
}

/** Most blocks of other replicas that a slot counts: a larger sum is an error, not load. */
const FOREIGN_BLOCKS_MAX = 2 ** 30

export class ReplicaBookings {
  readonly outbox: Outbox
  readonly #args: ReplicaBookingsArgs
  readonly #byReplica = new Map<string, Held>()
  /** This router's own bookings, by decision id. */
  readonly #own = new Map<string, OwnBooking>()
  readonly #shared: SharedBlocks
  /** What was said here of bookings of replicas, until their replica says so; by id: it has ended. */
  readonly #reports = new Map<string, boolean>()
  #ownHashes = 0
  #unbooked = 0

  constructor(args: ReplicaBookingsArgs) {
    this.#args = args
    this.outbox = new Outbox(args.life)
    this.#shared = new SharedBlocks(args.load.workerSlotsMax)
  }

  get counts(): { readonly bookings: number; readonly unbooked: number } {
    let bookings = 0
    for (const { slots } of this.#byReplica.values()) bookings += slots.size
    return { bookings, unbooked: this.#unbooked }
  }

  /**
   * Takes off `newBlocks` of a prompt, by worker slot, what replicas have active of it. `sequenceHashes`: of
   * all its blocks.
   */
  lessNew(sequenceHashes: Int32Array, workerSlots: ArrayLike<number>, newBlocks: Int32Array): void {
    const count = sequenceHashes.length / 2
    if (count === 0 || this.#shared.nodes === 0) return
    let digest: ChainDigest | undefined
    for (let i = 0; i < workerSlots.length; i++) {
      const slot = workerSlots[i]!
      if (newBlocks[i] === 0 || this.#shared.otherBlocks(slot) === 0) continue
      digest ??= chainDigest(sequenceHashes, count)
      newBlocks[i] = Math.min(newBlocks[i]!, count - this.#shared.heldBlocks(slot, digest))
    }
  }

  /** This router booked a request. `sequenceHashes`: empty if its blocks are its own whatever they hold. */
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
    sequenceHashes: Int32Array,
  ): void {
    const digest = this.#ownDigest(workerSlot, sequenceHashes)
    this.#own.set(decisionId, { worker, workerSlot, digest })
    if (digest !== undefined) this.#countOthers(workerSlot)
    this.outbox.add({
      kind: 'booked',
      id: decisionId,
      worker,
      ...this.#ownFigures(workerSlot),
      digest,
      promptTokens,
      prefillTokens,
      countsPrefill,
      isStream,
      waitedMs,
      stepTokens,
      session,
    })
  }

  /** A replica has this id open. */
  holds(id: string): boolean {
    for (const [replica, { slots }] of this.#byReplica) if (slots.has(localId(replica, id))) return true
    return false
  }

  /** Tells the replica that has this id open what was said of it here. False: none has. */
  report(id: string, isFreed: boolean): boolean {
    if (!this.holds(id)) return false
    this.#reports.set(id, isFreed || this.#reports.get(id) === true)
    this.outbox.add({ kind: 'reported', id, isFreed })
    return true
  }

  /** Reports again what no replica has acted on: a message may be lost, or a replica not connected yet. */
  reportAgain(): void {
    for (const [id, isFreed] of this.#reports) this.outbox.add({ kind: 'reported', id, isFreed })
  }

  firstToken(id: string): void {
    this.outbox.add({ kind: 'firstToken', id })
  }

  /**
   * This router freed a booking. Call it after the load has freed it. `session`: one that its worker has
   * taken over; undefined: none.
   */
  freed(id: string, { outputTokens, cachedShare }: TrackerUsage, session?: string): void {
    const own = this.#own.get(id)
    if (own === undefined) return
    this.#own.delete(id)
    const { worker, workerSlot, digest } = own
    if (digest !== undefined) {
      this.#shared.remove(workerSlot, digest, true)
      this.#ownHashes -= digest.hashes.length / 2
      this.#countOthers(workerSlot)
    }
    const moved = session === undefined ? undefined : { session, worker }
    this.outbox.add({ kind: 'freed', id, ...this.#ownFigures(workerSlot), outputTokens, cachedShare, moved })
  }

  #ownDigest(workerSlot: number, sequenceHashes: Int32Array): ChainDigest | undefined {
    const count = sequenceHashes.length / 2
    const length = digestLength(count)
    if (count === 0 || length > DIGEST_LENGTH_MAX) return undefined
    if (this.#ownHashes + length > DIGEST_HASHES_MAX) return undefined
    if (this.outbox.pendingHashes + length > MESSAGE_HASHES_MAX) return undefined
    const digest = chainDigest(sequenceHashes, count)
    if (!this.#shared.add(workerSlot, digest, true)) return undefined
    this.#ownHashes += length
    return digest
  }

  #ownFigures(workerSlot: number): { readonly activeBlocks: number; readonly otherBlocks: number } {
    const activeBlocks = this.#args.load.ownBlocks(workerSlot)
    // Of long prompts, a digest may tell a few blocks more than there are.
    return { activeBlocks, otherBlocks: Math.max(0, activeBlocks - this.#shared.ownBlocks(workerSlot)) }
  }

  /** `isLate`: the operations happened some time ago. Returns true if load fell. */
  apply(replica: string, operations: readonly ReplicaOperation[], isLate = false): boolean {
    let isLess = false
    for (const operation of operations) {
      if (operation.kind === 'reported') {
        if (this.#own.has(operation.id)) this.#args.reported(operation)
        continue
      }
      const id = localId(replica, operation.id)
      if (isLate) this.#args.book.late(id)
      if (operation.kind === 'booked')
        isLess = this.#book(replica, { ...operation, hasFirstToken: false }, isLate) || isLess
      else if (operation.kind === 'firstToken') isLess = this.#firstToken(id, operation.id) || isLess
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
      if (booking.hasFirstToken) isLess = this.#firstToken(id, booking.id) || isLess
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
    const { worker, promptTokens, isStream, waitedMs, stepTokens, hasFirstToken, digest } = booking
    const id = localId(replica, booking.id)
    const held: Held = this.#byReplica.get(replica) ?? {
      slots: new Map(),
      digests: new Map(),
      on: new Map(),
    }
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
      const on: HeldOn = held.on.get(slot) ?? { bookings: 0, digested: 0, blocks: 0, unshared: new Map() }
      on.bookings++
      held.on.set(slot, on)
      const newTokens = booking.prefillTokens
      const sent = { promptTokens, newTokens, isStream, waitedMs, isOwn: false, nowMs }
      if (isLate) book.resumed(id, slot, { ...sent, hasFirstToken }, stepTokens)
      else book.sent(id, slot, sent, stepTokens)
    }
    const on = held.on.get(slot)!
    // A snapshot may have the digest that a batch had lost.
    if (digest !== undefined && !held.digests.has(id) && !on.unshared.has(id)) {
      on.digested++
      if (this.#shared.add(slot, digest, false)) held.digests.set(id, digest)
      else on.unshared.set(id, digest.count)
    }
    this.#setBlocks(held, slot, booking)
    return isLess
  }

  #firstToken(id: string, ownId: string): boolean {
    if (this.#reports.get(ownId) === false) this.#reports.delete(ownId)
    const { load, book, nowMs } = this.#args
    const isLess = load.prefillComplete(id, nowMs())
    book.firstToken(id, nowMs())
    return isLess
  }

  #free(replica: string, operation: FreedOperation): boolean {
    const { id, outputTokens, cachedShare } = operation
    const own = localId(replica, id)
    const held = this.#byReplica.get(replica)
    const slot = held?.slots.get(own)
    if (held === undefined || slot === undefined) return false
    this.#setBlocks(held, slot, operation)
    this.#drop(replica, held, own, slot)
    return this.#end(own, { outputTokens, cachedShare })
  }

  /** The last booking on a slot takes the replica's blocks there with it; the last of all, its entry. */
  #drop(replica: string, held: Held, id: string, slot: number): void {
    held.slots.delete(id)
    this.#reports.delete(id.slice(replica.length + 1))
    const on = held.on.get(slot)!
    const digest = held.digests.get(id)
    if (on.unshared.delete(id) || digest !== undefined) on.digested--
    if (digest !== undefined) {
      held.digests.delete(id)
      this.#shared.remove(slot, digest, false)
    }
    if (--on.bookings === 0) held.on.delete(slot)
    this.#countOthers(slot)
    if (held.slots.size === 0) this.#byReplica.delete(replica)
  }

  #end(id: string, said: TrackerUsage): boolean {
    const { load, book, nowMs } = this.#args
    const isFreed = load.free(id)
    const { outputTokens, cachedShare } = book.believed(id, said, nowMs())
    book.ended(id, nowMs(), outputTokens, cachedShare)
    return isFreed
  }

  /** Sets the replica's active blocks on a slot. */
  #setBlocks(
    held: Held,
    slot: number,
    { activeBlocks, otherBlocks }: Pick<OpenBooking, 'activeBlocks' | 'otherBlocks'>,
  ): void {
    held.on.get(slot)!.blocks = otherBlocks ?? activeBlocks
    this.#countOthers(slot)
  }

  /** What all replicas have on a slot and this router has not, in the load. */
  #countOthers(slot: number): void {
    let sum = this.#shared.otherBlocks(slot)
    let outputs = 0
    for (const { on } of this.#byReplica.values()) {
      const there = on.get(slot)
      if (there === undefined) continue
      sum += there.blocks
      // Of every prompt a digest tells: the rest is answers.
      if (there.digested === there.bookings) outputs += there.blocks
      for (const blocks of there.unshared.values()) sum += blocks
    }
    const [blocks, outputBlocks] = [sum, outputs].map(each => Math.min(each, FOREIGN_BLOCKS_MAX))
    this.#args.load.setForeignBlocks(slot, blocks!, outputBlocks)
  }
}

const NO_HASHES = new Int32Array(0)

function localId(replica: string, id: string): string {
  return `${replica}|${id}`
}
