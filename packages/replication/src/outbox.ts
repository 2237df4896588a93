/**
 * Outbox: numbers the operations that a replica tells the others, and knows the open bookings, for replicas
 * that come late.
 *
 * Bounds   OPERATIONS_MAX operations between two calls of `take`: past it all are dropped and a number is
 *          left out, so that the other replicas notice and ask for a snapshot.
 */

import type {
  BookedOperation,
  FreedOperation,
  OpenBooking,
  ReplicaBatch,
  ReplicaOperation,
  ReplicaSnapshot,
} from './types.ts'

const OPERATIONS_MAX = 65_536

export class Outbox {
  /** Of its stream of batches; each life has another one. */
  readonly life: string
  readonly #open = new Map<string, { readonly booked: BookedOperation; hasFirstToken: boolean }>()
  /** By worker key with open bookings. */
  readonly #activeBlocks = new Map<string, OnWorker>()
  #operations: ReplicaOperation[] = []
  #pendingHashes = 0
  #nextSequence = 0

  constructor(life: string) {
    this.life = life
  }

  /** There are operations to take. */
  get isDue(): boolean {
    return this.#operations.length > 0
  }

  get openBookings(): number {
    return this.#open.size
  }

  /** An operation on an own booking that is not open is left out: other replicas do not know it either. */
  add(operation: ReplicaOperation): void {
    if (operation.kind === 'booked') {
      this.#open.set(operation.id, { booked: operation, hasFirstToken: false })
      const on = this.#activeBlocks.get(operation.worker) ?? { blocks: 0, others: undefined, bookings: 0 }
      on.blocks = operation.activeBlocks
      on.others = operation.otherBlocks
      on.bookings++
      this.#pendingHashes += (operation.digest?.hashes.length ?? 0) / 2
      this.#activeBlocks.set(operation.worker, on)
    } else if (operation.kind !== 'reported') {
      const open = this.#open.get(operation.id)
      if (open === undefined) return
      if (operation.kind === 'freed') this.#freed(operation, open.booked.worker)
      else if (open.hasFirstToken) return
      else open.hasFirstToken = true
    }
    if (this.#operations.length < OPERATIONS_MAX) this.#operations.push(operation)
    else {
      this.#operations = []
      this.#pendingHashes = 0
      this.#nextSequence++
    }
  }

  /** Hashes in the digests of the operations that were not taken yet. */
  get pendingHashes(): number {
    return this.#pendingHashes
  }

  /** The operations since the last call; an empty batch says that the replica lives. */
  take(): ReplicaBatch {
    const operations = this.#operations
    this.#operations = []
    this.#pendingHashes = 0
    const sequence = this.#nextSequence
    if (operations.length > 0) this.#nextSequence++
    return { life: this.life, sequence, operations }
  }

  /** The open bookings now. Operations not taken yet come after it, and change nothing then. */
  snapshot(): ReplicaSnapshot {
    const bookings: OpenBooking[] = []
    for (const { booked, hasFirstToken } of this.#open.values()) {
      const on = this.#activeBlocks.get(booked.worker)
      const others = on?.others === undefined ? {} : { otherBlocks: on.others }
      bookings.push({ ...booked, activeBlocks: on?.blocks ?? 0, ...others, hasFirstToken })
    }
    return { life: this.life, nextSequence: this.#nextSequence, bookings }
  }

  #freed({ id, activeBlocks, otherBlocks }: FreedOperation, worker: string): void {
    this.#open.delete(id)
    const on = this.#activeBlocks.get(worker)!
    on.blocks = activeBlocks
    on.others = otherBlocks
    if (--on.bookings === 0) this.#activeBlocks.delete(worker)
  }
}

/** The last figures of a worker key. */
interface OnWorker {
  blocks: number
  others: number | undefined
  bookings: number
}
