/**
 * Mirror: the open bookings of another replica, as far as its messages tell.
 *
 *   unknown ──connected──▶ asking ──snapshot──▶ live ──next batch──▶ live
 *      ▲                     ▲                    │
 *      │ gone                └──── a number is missing, or another life
 *
 * Invariants
 *   I1  In `live`, the bookings open here are those that were open there when it sent the last batch that
 *       came.
 *   I2  An operation that the snapshot already includes changes nothing: a known booking is not added, a
 *       closed one not freed.
 *
 * Bounds   PENDING_MAX batches that come while it asks, with PENDING_OPERATIONS_MAX operations: past it the
 *          oldest are dropped, and it asks again; BOOKINGS_MAX bookings; HASHES_MAX hashes in their digests,
 *          of which further ones are dropped.
 * Pure.
 */

import { DIGEST_HASHES_MAX } from './digest-bounds.ts'
import type { OpenBooking, ReplicaBatch, ReplicaOperation, ReplicaSnapshot } from './types.ts'

const PENDING_MAX = 1024
/** In those: as many as there may be bookings; a batch has up to 65,536. */
const PENDING_OPERATIONS_MAX = 1_048_576
const BOOKINGS_MAX = 1_048_576
/** Twice as many as a replica that keeps to its own bound tells. */
const HASHES_MAX = 2 * DIGEST_HASHES_MAX

export type MirrorState = 'unknown' | 'asking' | 'live'

/** What the owner of the mirror does. */
export interface MirrorEffects {
  /** Ask for a snapshot, at once. */
  ask(): void
  /** Operations of the other replica; each changes something. `isLate`: they waited for a snapshot. */
  apply(operations: readonly ReplicaOperation[], isLate: boolean): void
  /** All bookings that are open there. */
  reset(bookings: readonly OpenBooking[]): void
}

export interface MirrorCounters {
  /** Numbers that were missing. */
  readonly gaps: number
  readonly snapshots: number
  readonly batches: number
  readonly operations: number
}

export class Mirror {
  readonly #effects: MirrorEffects
  readonly #open = new Map<string, OpenBooking>()
  #hashes = 0
  #state: MirrorState = 'unknown'
  #hasWord = false
  #life = ''
  #nextSequence = 0
  #pending: ReplicaBatch[] = []
  #gaps = 0
  #snapshots = 0
  #batches = 0
  #operations = 0

  constructor(effects: MirrorEffects) {
    this.#effects = effects
  }

  get state(): MirrorState {
    return this.#state
  }

  /** The open bookings are known, or known not to count; false: no message ever came. */
  get hasWord(): boolean {
    return this.#hasWord
  }

  get openBookings(): number {
    return this.#open.size
  }

  get bookings(): Iterable<OpenBooking> {
    return this.#open.values()
  }

  get counters(): MirrorCounters {
    return {
      gaps: this.#gaps,
      snapshots: this.#snapshots,
      batches: this.#batches,
      operations: this.#operations,
    }
  }

  /** The replica can be heard, again or for the first time. Its bookings stay until the snapshot comes. */
  connected(): void {
    this.#pending = []
    this.#ask()
  }

  heard(batch: ReplicaBatch): void {
    if (this.#state === 'unknown') return
    this.#batches++
    this.#heard(batch, false)
  }

  #heard(batch: ReplicaBatch, isLate: boolean): void {
    if (this.#state === 'asking') {
      if (batch.operations.length === 0) return
      this.#pending.push(batch)
      let count = this.#pending.reduce((sum, { operations }) => sum + operations.length, 0)
      while (this.#pending.length > PENDING_MAX || count > PENDING_OPERATIONS_MAX)
        count -= this.#pending.shift()!.operations.length
      return
    }
    const { life, sequence, operations } = batch
    if (life === this.#life && sequence < this.#nextSequence) return
    if (life !== this.#life || sequence > this.#nextSequence) {
      this.#gaps++
      this.#pending = operations.length === 0 ? [] : [batch]
      this.#ask()
      return
    }
    if (operations.length === 0) return
    this.#nextSequence++
    this.#apply(operations, isLate)
  }

  /** The whole answer to `ask`. */
  snapshot({ life, nextSequence, bookings }: ReplicaSnapshot): void {
    if (this.#state !== 'asking') return
    this.#snapshots++
    this.#state = 'live'
    this.#life = life
    this.#nextSequence = nextSequence
    this.#clear()
    for (const booking of bookings) {
      if (this.#open.size >= BOOKINGS_MAX) break
      this.#keep(booking)
    }
    this.#reset()
    const pending = this.#pending
    this.#pending = []
    for (const batch of pending) if (batch.life === life) this.#heard(batch, true)
  }

  /** The replica has not answered for too long: its bookings no longer count. It is still asked. */
  expire(): void {
    this.#clear()
    this.#reset()
  }

  /** The replica is known to be gone, or has been silent for too long. */
  gone(): void {
    this.#state = 'unknown'
    this.#life = ''
    this.#pending = []
    this.#clear()
    this.#reset()
  }

  #clear(): void {
    this.#open.clear()
    this.#hashes = 0
  }

  #keep(booking: OpenBooking): void {
    const hashes = hashesOf(booking)
    const isTooMuch = this.#hashes + hashes > HASHES_MAX
    if (!isTooMuch) this.#hashes += hashes
    this.#open.set(booking.id, isTooMuch ? { ...booking, digest: undefined } : booking)
  }

  #reset(): void {
    this.#hasWord = true
    this.#effects.reset([...this.#open.values()])
  }

  #ask(): void {
    this.#state = 'asking'
    this.#effects.ask()
  }

  #apply(operations: readonly ReplicaOperation[], isLate: boolean): void {
    const changes = operations.filter(operation => this.#changes(operation))
    this.#operations += changes.length
    if (changes.length > 0) this.#effects.apply(changes, isLate)
  }

  #changes(operation: ReplicaOperation): boolean {
    const { id } = operation
    const open = this.#open.get(id)
    switch (operation.kind) {
      case 'booked':
        if (open !== undefined || this.#open.size >= BOOKINGS_MAX) return false
        this.#keep({ ...operation, hasFirstToken: false })
        return true
      case 'firstToken':
        if (open === undefined || open.hasFirstToken) return false
        this.#open.set(id, { ...open, hasFirstToken: true })
        return true
      case 'freed':
        if (open !== undefined) this.#hashes -= hashesOf(open)
        return this.#open.delete(id)
      case 'reported':
        // Of a booking of another replica: who has it knows.
        return true
    }
  }
}

function hashesOf({ digest }: OpenBooking): number {
  return digest === undefined ? 0 : digest.hashes.length / 2
}
