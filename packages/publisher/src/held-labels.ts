/**
 * Held labels: what events said of blocks beside who holds them, by engine hash, to be published again with
 * their stores.
 *
 * States change as the router's index has them change (POOL_TRANSITIONS of packages/protocol), so a snapshot
 * says the same as all events before it. A block that no tier holds, and that is neither in a pool nor on its
 * way there, has none: nothing can be said of it until it is stored again. Labels are never changed, only
 * replaced: a copy of the map is the labels of a moment.
 */

import { isLegalTransition, type KvExpert, type KvLabels, type KvPoolPlace } from '@homing/protocol'

export interface HeldLabel {
  readonly expert: KvExpert | undefined
  readonly place: KvPoolPlace | undefined
}

/** Measured on the heap: a label with expert and place, without its workers. */
const LABEL_BYTES = 320

export class HeldLabels {
  #byKey = new Map<bigint, HeldLabel>()
  #bytes = 0

  get bytes(): number {
    return this.#bytes
  }

  get(key: bigint): HeldLabel | undefined {
    return this.#byKey.get(key)
  }

  /** Whether a block is in a pool, or on its way: its worker need not hold it itself. */
  isPooled(key: bigint): boolean {
    return isInPool(this.#byKey.get(key)?.place)
  }

  /** A store says this of a block; what it does not say stays. Nothing happens past `bytesMax`. */
  stored(key: bigint, label: HeldLabel, bytesMax: number): void {
    const known = this.#byKey.get(key)
    this.#put(key, { expert: label.expert ?? known?.expert, place: label.place ?? known?.place }, bytesMax)
  }

  /** The state of a block that is known has changed. An illegal change is passed over. */
  moved(key: bigint, { state, poolId, accessibleWorkers }: KvPoolPlace, bytesMax: number): void {
    const known = this.#byKey.get(key)
    if (!isLegalTransition(known?.place?.state ?? 'untold', state, poolId !== undefined)) return
    const before = known?.place
    const place: KvPoolPlace =
      state === 'in_transit'
        ? { state, poolId, accessibleWorkers }
        : state === 'local_gpu' || before === undefined
          ? { state, poolId: undefined, accessibleWorkers: new Int32Array(0) }
          : { ...before, state }
    const members = before?.members
    const kept = members === undefined ? place : { ...place, members }
    this.#put(key, { expert: known?.expert, place: kept }, bytesMax)
  }

  removed(key: bigint): void {
    const known = this.#byKey.get(key)
    if (known === undefined) return
    this.#byKey.delete(key)
    this.#bytes -= bytesOf(known)
  }

  forget(): void {
    // Not emptied: freezes still read it.
    this.#byKey = new Map()
    this.#bytes = 0
  }

  /** The labels of this moment. */
  copy(): ReadonlyMap<bigint, HeldLabel> {
    return this.#byKey.size === 0 ? NO_LABELS : new Map(this.#byKey)
  }

  #put(key: bigint, label: HeldLabel, bytesMax: number): void {
    const known = this.#byKey.get(key)
    const more = bytesOf(label) - (known === undefined ? 0 : bytesOf(known))
    // Without room nothing is said of the block: it counts as one without labels.
    if (this.#bytes + more > bytesMax) {
      this.removed(key)
      return
    }
    this.#byKey.set(key, label)
    this.#bytes += more
  }
}

const NO_LABELS: ReadonlyMap<bigint, HeldLabel> = new Map()

/** Whether a block is in a pool, or on its way there. */
export function isInPool(place: KvPoolPlace | undefined): boolean {
  return place?.state === 'in_transit' || place?.state === 'cxl_pooled'
}

/** The labels of the blocks of a store; undefined: none has any. */
export function labelsOf(
  keys: readonly bigint[],
  labels: ReadonlyMap<bigint, HeldLabel>,
): KvLabels | undefined {
  if (labels.size === 0 || !keys.some(key => labels.has(key))) return undefined
  return {
    experts: keys.map(key => labels.get(key)?.expert),
    places: keys.map(key => labels.get(key)?.place),
  }
}

function bytesOf({ expert, place }: HeldLabel): number {
  const membersBytes = 2 * ((expert?.members?.length ?? 0) + (place?.members?.length ?? 0))
  return LABEL_BYTES + 4 * (place?.accessibleWorkers.length ?? 0) + membersBytes
}
