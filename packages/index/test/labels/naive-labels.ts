/** NaiveLabels: the definition of the label table, with maps. Blocks and engine hashes are small numbers. */

export interface NaivePlace {
  readonly state: number
  readonly pool: number | undefined
  readonly ids: readonly number[]
  /** Said by stores; transitions leave it. */
  readonly members: string | undefined
}

export interface NaiveRecord {
  block: number
  place: NaivePlace
  isHeld: boolean
}

/** As in packages/protocol. */
const LEGAL: readonly (readonly [from: number, to: number])[] = [
  [0, 1],
  [0, 2],
  [1, 1],
  [1, 2],
  [1, 4],
  [2, 1],
  [2, 2],
  [2, 3],
  [2, 4],
  [3, 1],
  [3, 2],
  [3, 4],
  [4, 1],
  [4, 2],
  [4, 4],
]

export function isLegal(from: number, to: number, hasPool: boolean): boolean {
  return LEGAL.some(([a, b]) => a === from && b === to) && (to !== 2 || hasPool)
}

const UNTOLD: NaivePlace = { state: 0, pool: undefined, ids: [], members: undefined }

export class NaiveLabels {
  readonly slots = new Map<number, Map<number, NaiveRecord>>()
  /** Slots of workers that cannot be heard. */
  readonly parted = new Set<number>()
  /** False: an orphan stays although another one is of the same block and pool. */
  leavesOnce = true
  orphans: { readonly engine: number; readonly record: NaiveRecord }[] = []
  readonly experts = new Map<number, number>()
  /** Members of these. */
  readonly members = new Map<number, string | undefined>()

  stored(
    slot: number,
    engine: number,
    block: number,
    expert?: number,
    place?: NaivePlace,
    isHeld = true,
    members?: string,
  ): void {
    const records = this.#of(slot)
    let record = records.get(engine)
    if (record !== undefined && (record.block !== block || isGone(record))) {
      records.delete(engine)
      record = undefined
      this.#tidy()
    }
    if (record === undefined) {
      if (expert === undefined && place === undefined) return
      record = { block, place: UNTOLD, isHeld }
      records.set(engine, record)
    }
    record.isHeld = isHeld
    if (expert !== undefined) {
      this.experts.set(block, expert)
      this.members.set(block, members)
    }
    if (place !== undefined) record.place = place
    this.#settle(slot, engine, record)
  }

  transition(slot: number, engine: number, to: NaivePlace, block: number | undefined): string {
    const evicted = to.state === 4 ? this.evictedElsewhere(engine, to.pool) : 0
    const records = this.#of(slot)
    const record = records.get(engine)
    if (record !== undefined && isGone(record)) return evicted > 0 ? 'changed' : 'unknown'
    const from = record?.place.state ?? 0
    if (!isLegal(from, to.state, to.pool !== undefined)) {
      if (evicted > 0) return 'changed'
      return record === undefined && block === undefined ? 'unknown' : 'illegal'
    }
    if (record === undefined && block === undefined) return 'unknown'
    const changed = record ?? { block: block!, place: UNTOLD, isHeld: true }
    records.set(engine, changed)
    const { members } = changed.place
    if (to.state === 2) changed.place = { ...to, members }
    else if (to.state === 1) changed.place = { ...UNTOLD, state: 1, members }
    else changed.place = { ...changed.place, state: to.state }
    this.#settle(slot, engine, changed)
    return 'changed'
  }

  /** Another worker says that a pool has a block no more. Returns how many records that ends. */
  evictedElsewhere(engine: number, pool: number | undefined): number {
    const before = this.orphans.length
    this.orphans = this.orphans.filter(
      one => one.engine !== engine || !isSamePool(pool, one.record.place.pool),
    )
    let ended = before - this.orphans.length
    for (const slot of this.parted) {
      const record = this.#of(slot).get(engine)
      if (record === undefined || !isSamePool(pool, record.place.pool)) continue
      this.#of(slot).delete(engine)
      ended++
    }
    this.#tidy()
    return ended
  }

  removed(slot: number, engine: number): void {
    const record = this.#of(slot).get(engine)
    if (record === undefined) return
    record.isHeld = false
    this.#settle(slot, engine, record)
  }

  clear(slot: number): void {
    this.parted.delete(slot)
    this.slots.delete(slot)
    this.#tidy()
  }

  part(slot: number): void {
    for (const [engine, record] of this.#of(slot)) {
      if (isForOthers(record)) record.isHeld = false
      else this.#of(slot).delete(engine)
    }
    this.parted.add(slot)
    this.#tidy()
  }

  release(slot: number): void {
    const before = [...this.orphans]
    for (const [engine, record] of this.#of(slot)) {
      const { block, place } = record
      const isKnown =
        this.leavesOnce &&
        before.some(one => one.record.block === block && one.record.place.pool === place.pool)
      if (isForOthers(record) && !isKnown) this.orphans.push({ engine, record: { ...record, isHeld: false } })
    }
    this.clear(slot)
  }

  /** Who reaches a block: its owners, and the ids of others. */
  reachable(block: number): { readonly owners: readonly number[]; readonly ids: readonly number[] } {
    const owners: number[] = []
    const ids = new Set<number>()
    const look = (owner: number, record: NaiveRecord) => {
      if (record.block !== block || record.place.state !== 3) return
      owners.push(owner)
      for (const id of record.place.ids) ids.add(id)
    }
    for (const [slot, records] of this.slots) for (const record of records.values()) look(slot, record)
    for (const { record } of this.orphans) look(-1, record)
    return { owners: owners.sort((a, b) => a - b), ids: [...ids].sort((a, b) => a - b) }
  }

  #of(slot: number): Map<number, NaiveRecord> {
    let records = this.slots.get(slot)
    if (records === undefined) {
      records = new Map()
      this.slots.set(slot, records)
    }
    return records
  }

  /** Of a block that is nowhere any more only an evicted record stays, for audits. */
  #settle(slot: number, engine: number, record: NaiveRecord): void {
    if (isGone(record) && record.place.state !== 4) this.#of(slot).delete(engine)
    this.#tidy()
  }

  /** The expert of a block goes with its last record. */
  #tidy(): void {
    const blocks = new Set(this.orphans.map(({ record }) => record.block))
    for (const records of this.slots.values()) for (const { block } of records.values()) blocks.add(block)
    for (const block of this.experts.keys()) {
      if (blocks.has(block)) continue
      this.experts.delete(block)
      this.members.delete(block)
    }
  }
}

/** Neither held, nor in a pool, nor on its way there. */
export function isGone({ isHeld, place }: NaiveRecord): boolean {
  return !isHeld && place.state !== 2 && place.state !== 3
}

function isForOthers({ place }: NaiveRecord): boolean {
  return place.state === 3 && place.ids.length > 0
}

/** An eviction without a pool is for all of them. */
function isSamePool(told: number | undefined, pool: number | undefined): boolean {
  return told === undefined || pool === undefined || told === pool
}
