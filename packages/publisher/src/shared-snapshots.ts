/**
 * Shared snapshots: peers that ask at one state get the same snapshot, each in the form that it asked for,
 * and the snapshots that are being sent at one time are few, because each has a pointer for every block and
 * keeps blocks that are removed.
 *
 * Invariants
 *   I1  At most SNAPSHOTS_MAX snapshots are open, for however many peers, in whichever forms. A peer that
 *       asks while as many are open gets the youngest, if the batches behind it can still be repeated: it
 *       asks for those as after any gap. If they cannot, the oldest snapshot ends, and its peers ask again.
 *   I2  A part is written once for all peers that have it at the same time, in one form: a part lives as long
 *       as a socket has it.
 */

import type { SnapshotForm, SnapshotHeader } from '@homing/protocol'

/** A snapshot as it is sent: all parts are of the moment when it was taken. */
export interface Snapshot
  extends Pick<SnapshotHeader, 'nextSequence' | 'isWhole' | 'mayBeStale' | 'offersHashes'> {
  /** Its parts in a form. */
  in(form: SnapshotForm): SnapshotParts
  /** No part is asked for any more. Idempotent. */
  release(): void
}

export interface SnapshotParts {
  /** At least 1. */
  readonly count: number
  /** The payload of a part, 0 … count − 1; asked for when it is sent. */
  part(index: number): Uint8Array
}

/** Snapshots of different moments that are being sent at one time. */
export const SNAPSHOTS_MAX = 4

export interface SharedSnapshotsOptions {
  readonly take: () => Snapshot
  /** Number of the batch that is published next. */
  readonly nextSequence: () => number
  /** The batches from this one on are still kept. */
  readonly canRepeatFrom: (sequence: number) => boolean
}

interface OpenParts extends SnapshotParts {
  readonly written: Map<number, WeakRef<Uint8Array>>
}

interface Open {
  readonly snapshot: Snapshot
  readonly forms: Map<SnapshotForm, OpenParts>
  readers: number
  hasEnded: boolean
}

/** What one peer is sent. */
export interface SharedSnapshot extends Omit<Snapshot, 'in'> {
  readonly form: SnapshotForm
  readonly parts: number
  /** Undefined once the snapshot has ended. */
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
    const open = this.#shared() ?? this.#make()
    const parts = partsIn(open, form)
    open.readers++
    let isReleased = false
    return {
      form,
      nextSequence: open.snapshot.nextSequence,
      isWhole: open.snapshot.isWhole,
      mayBeStale: open.snapshot.mayBeStale,
      offersHashes: open.snapshot.offersHashes,
      parts: parts.count,
      part: index => (open.hasEnded ? undefined : partOf(parts, index)),
      release: () => {
        if (isReleased) return
        isReleased = true
        if (--open.readers === 0) this.#end(open)
      },
    }
  }

  #shared(): Open | undefined {
    const { nextSequence, canRepeatFrom } = this.#options
    const youngest = [...this.#open].at(-1)
    if (youngest === undefined) return undefined
    const { snapshot } = youngest
    // Before the first batch a cache may turn from unknown to empty without one.
    if (snapshot.nextSequence > 0 && snapshot.nextSequence === nextSequence()) return youngest
    if (this.#open.size < SNAPSHOTS_MAX) return undefined
    return canRepeatFrom(snapshot.nextSequence) ? youngest : undefined
  }

  #make(): Open {
    for (const oldest of this.#open) {
      if (this.#open.size < SNAPSHOTS_MAX) break
      this.#end(oldest)
    }
    this.#taken++
    const open: Open = { snapshot: this.#options.take(), forms: new Map(), readers: 0, hasEnded: false }
    this.#open.add(open)
    return open
  }

  #end(open: Open): void {
    if (open.hasEnded) return
    open.hasEnded = true
    open.forms.clear()
    this.#open.delete(open)
    open.snapshot.release()
  }
}

function partsIn(open: Open, form: SnapshotForm): OpenParts {
  let parts = open.forms.get(form)
  if (parts === undefined) {
    const { count, part } = open.snapshot.in(form)
    parts = { count, part, written: new Map() }
    open.forms.set(form, parts)
  }
  return parts
}

function partOf({ written, part }: OpenParts, index: number): Uint8Array {
  const before = written.get(index)?.deref()
  if (before !== undefined) return before
  const payload = part(index)
  written.set(index, new WeakRef(payload))
  return payload
}
