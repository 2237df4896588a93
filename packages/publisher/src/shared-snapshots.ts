/**
 * Shared snapshots: peers that ask at one state, in one form, get the same snapshot, and the snapshots that
 * are being sent at one time are few, because each has a pointer for every block and keeps blocks that are
 * removed.
 *
 * Invariants
 *   I1  At most SNAPSHOTS_MAX snapshots are open, for however many peers. A peer that asks while as many are
 *       open gets the youngest, if the batches behind it can still be repeated: it asks for those as after
 *       any gap. If they cannot, the oldest snapshot ends, and its peers ask again.
 *   I2  A part is written once for all peers that have it at the same time: a part lives as long as a socket
 *       has it.
 */

import type { SnapshotForm, SnapshotHeader } from '@homing/protocol'

/** A snapshot as it is sent: all parts are of the moment when it was taken. */
export interface Snapshot
  extends Pick<SnapshotHeader, 'nextSequence' | 'isWhole' | 'mayBeStale' | 'parts' | 'form' | 'offersHashes'> {
  /** The payload of a part, 0 … parts − 1; asked for when it is sent. */
  part(index: number): Uint8Array
  /** No part is asked for any more. Idempotent. */
  release(): void
}

/** Snapshots of different moments that are being sent at one time. */
export const SNAPSHOTS_MAX = 4

export interface SharedSnapshotsOptions {
  readonly take: (form: SnapshotForm) => Snapshot
  /** Number of the batch that is published next. */
  readonly nextSequence: () => number
  /** The batches from this one on are still kept. */
  readonly canRepeatFrom: (sequence: number) => boolean
}

interface Open {
  readonly snapshot: Snapshot
  readonly parts: Map<number, WeakRef<Uint8Array>>
  readers: number
  hasEnded: boolean
}

/** What one peer is sent; `part` is undefined once the snapshot has ended before it. */
export interface SharedSnapshot extends Omit<Snapshot, 'part'> {
  part(index: number): Uint8Array | undefined
}

export class SharedSnapshots {
  readonly #options: SharedSnapshotsOptions
  /** The oldest comes first. */
  readonly #open = new Set<Open>()
  #taken = 0

  constructor(options: SharedSnapshotsOptions) {
    this.#options = options
  }

  /** Snapshots that are being sent. */
  get size(): number {
    return this.#open.size
  }

  /** Counter: snapshots that were made; fewer than the peers that got one if they were shared. */
  get taken(): number {
    return this.#taken
  }

  /** A snapshot for one more peer, which must release it. */
  take(form: SnapshotForm): SharedSnapshot {
    const open = this.#shared(form) ?? this.#make(form)
    open.readers++
    let isReleased = false
    return {
      form,
      nextSequence: open.snapshot.nextSequence,
      isWhole: open.snapshot.isWhole,
      mayBeStale: open.snapshot.mayBeStale,
      offersHashes: open.snapshot.offersHashes,
      parts: open.snapshot.parts,
      part: index => partOf(open, index),
      release: () => {
        if (isReleased) return
        isReleased = true
        if (--open.readers === 0) this.#end(open)
      },
    }
  }

  #shared(form: SnapshotForm): Open | undefined {
    const { nextSequence, canRepeatFrom } = this.#options
    const youngest = [...this.#open].findLast(({ snapshot }) => snapshot.form === form)
    if (youngest === undefined) return undefined
    const { snapshot } = youngest
    // Before the first batch a cache may turn from unknown to empty without one.
    if (snapshot.nextSequence > 0 && snapshot.nextSequence === nextSequence()) return youngest
    if (this.#open.size < SNAPSHOTS_MAX) return undefined
    return canRepeatFrom(snapshot.nextSequence) ? youngest : undefined
  }

  #make(form: SnapshotForm): Open {
    for (const oldest of this.#open) {
      if (this.#open.size < SNAPSHOTS_MAX) break
      this.#end(oldest)
    }
    this.#taken++
    const open: Open = { snapshot: this.#options.take(form), parts: new Map(), readers: 0, hasEnded: false }
    this.#open.add(open)
    return open
  }

  #end(open: Open): void {
    if (open.hasEnded) return
    open.hasEnded = true
    open.parts.clear()
    this.#open.delete(open)
    open.snapshot.release()
  }
}

function partOf(open: Open, index: number): Uint8Array | undefined {
  if (open.hasEnded) return undefined
  const written = open.parts.get(index)?.deref()
  if (written !== undefined) return written
  const part = open.snapshot.part(index)
  open.parts.set(index, new WeakRef(part))
  return part
}
