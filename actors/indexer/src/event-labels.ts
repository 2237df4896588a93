/**
 * Event labels: takes the labels that events give to blocks into the label table of the shard.
 *
 *   store          its labels; without any, only that the block is held (again)
 *   transition     the new state, if it may follow the present one (packages/protocol)
 *   removal        a block that no tier holds any more loses its record, unless it is pooled or on its way
 *                  there. In both cases its expert passes to another worker slot of the shard that holds the
 *                  block, if no record but this one has it: a pooled record may end when nothing leads to
 *                  these holders any more. Likewise when all blocks of a worker slot go
 *   clear          takes all records of the worker slot. A release leaves what is pooled, as orphans, and so
 *                  does a clear because the worker cannot be heard; only where this shard hears of every
 *                  eviction, whichever shard it is told to
 *
 * A block is found by its sequence hash. Where the chain above it has a record, it goes on from there; else
 * the index says what is above, once for each event. Blocks of unknown place (their parent is not known)
 * get no label, and are counted.
 *
 * Cost     nothing for worker slots without labels. With them a hash and two searches per block; a search for
 *          each block of a store without labels; for each expert that may pass on, the holders of its block
 *          until one is on the device of another worker. When all blocks of a worker slot go, all of this is
 *          one turn: a pass over the records of the shard, and such a search for each expert that passes on.
 */

import { chainSequence } from '@homing/blocks'
import type { DumpedLabel, DumpedLabels } from '@homing/fleet/dumped-labels'
import {
  type BlockHolder,
  type BlockIndex,
  DEVICE_LAYER,
  type LabelMemory,
  type LabelRecord,
  type LabelSample,
  type LabelSampleOptions,
  type LabelStats,
  LabelTable,
  type LastLabel,
  labelImageOf,
  loadLabels,
  POOL_STATE,
  type PoolPlace,
  type PoolStateCode,
  readLabelImage,
  sampleLabels,
} from '@homing/index'
import {
  isLegalTransition,
  type KvExpert,
  type KvPoolPlace,
  type KvStored,
  type KvTransition,
  POOL_STATES,
  type PoolState,
} from '@homing/protocol'
import type { LayerSlots } from './layer-slots.ts'

export interface LabelStatus extends LabelStats {
  /** Counter: blocks whose labels were not taken, because nothing says what is above them. */
  readonly unplaced: number
  /** Counter: images that left out the labels, because they were too many (LABEL_IMAGE_WORDS_MAX). */
  readonly unsaved: number
  /** Counter: labels whose unknown members could not be kept (packages/protocol, label-members.ts). */
  readonly membersLeftOut: number
}

type Words = readonly [low: number, high: number]

const CODES: Readonly<Record<PoolState, PoolStateCode>> = {
  local_gpu: POOL_STATE.localGpu,
  in_transit: POOL_STATE.inTransit,
  cxl_pooled: POOL_STATE.cxlPooled,
  evicted: POOL_STATE.evicted,
}
const NO_WORDS = new Int32Array(0)

/** A block in a pool, as a dump tells of it: where it is, is known by its sequence hash alone. */
export interface PooledBlock {
  readonly engineHash: readonly [low: number, high: number]
  readonly sequenceHash: readonly [low: number, high: number]
  readonly expert: KvExpert | undefined
  readonly place: KvPoolPlace
}

/** The last label of a block that may go, and another worker slot that holds the block. */
interface LeavingExpert {
  readonly label: LastLabel
  readonly to: BlockHolder
}

/** By position of the low words of their blocks in the removal. */
type LeavingExperts = ReadonlyMap<number, LeavingExpert>

/** Places of records that one part of a dump looks at, in steps, of which the last may be one too many. */
const DUMP_PLACES = 8192
const DUMP_STEP = 64

export class EventLabels implements DumpedLabels {
  readonly #index: BlockIndex
  readonly #layers: LayerSlots
  readonly #table: LabelTable | undefined
  readonly #keepsOrphans: boolean
  readonly #sequence = new Int32Array(2)
  #unplaced = 0
  #unsaved = 0
  #membersLeftOut = 0

  /** `memory`: of the table, empty; undefined keeps no labels. `keepsOrphans`: see IndexerArgs. */
  constructor(index: BlockIndex, layers: LayerSlots, memory: LabelMemory | undefined, keepsOrphans: boolean) {
    this.#keepsOrphans = keepsOrphans
    this.#index = index
    this.#layers = layers
    this.#table =
      memory &&
      new LabelTable(memory, (from, to, hasPool) =>
        isLegalTransition(nameOf(from), nameOf(to) as PoolState, hasPool),
      )
  }

  /** Undefined: none are kept. */
  get memory(): LabelMemory | undefined {
    return this.#table?.memory
  }

  status(): LabelStatus | undefined {
    const stats = this.#table?.stats()
    return (
      stats && {
        ...stats,
        unplaced: this.#unplaced,
        unsaved: this.#unsaved,
        membersLeftOut: this.#membersLeftOut,
      }
    )
  }

  /** Whether anything was ever said of a block. */
  get hasRecords(): boolean {
    return this.#table !== undefined && this.#table.recordPlaces > 0
  }

  /** Undefined: none are kept. */
  sample(options: LabelSampleOptions): LabelSample | undefined {
    return this.#table && sampleLabels(this.#table, options)
  }

  /** Whether a store concerns labels. */
  concerns(workerSlot: number, event: KvStored): boolean {
    const table = this.#table
    return table !== undefined && (event.labels !== undefined || table.has(workerSlot))
  }

  /** `locals`: pairs of the local hashes of its blocks. `isHeld`: the worker slot holds them itself. */
  stored(
    workerSlot: number,
    { hashes, parent, labels }: Pick<KvStored, 'hashes' | 'parent' | 'labels'>,
    locals: Int32Array,
    isHeld: boolean,
  ): void {
    const table = this.#table
    if (table === undefined) return
    this.#membersLeftOut += labels?.membersLeftOut ?? 0
    // Without labels it is news only to blocks that have a record.
    if (labels === undefined && !this.#hasRecord(workerSlot, hashes)) return
    const count = hashes.length / 2
    const above = parent === undefined ? undefined : this.#sequenceOf(workerSlot, parent[0]!, parent[1]!)
    if (parent !== undefined && above === undefined) {
      if (labels !== undefined) this.#unplaced += count
      return
    }
    const sequence = chainSequence(locals, count, above && { lo: above[0], hi: above[1] })
    for (let i = 0; i < count; i++) {
      const place = labels?.places[i]
      table.stored({
        workerSlot,
        engineHash: [hashes[2 * i]!, hashes[2 * i + 1]!],
        sequenceHash: [sequence[2 * i]!, sequence[2 * i + 1]!],
        moe: labels?.experts[i],
        place: place && placeOf(place),
        isHeld: isHeld || this.#isHeld(workerSlot, hashes.subarray(2 * i, 2 * i + 2)),
      })
    }
  }

  /** A dump has told of a block that the worker does not hold itself. */
  pooled(workerSlot: number, { engineHash, sequenceHash, expert, place }: PooledBlock): void {
    const said = { workerSlot, engineHash, sequenceHash, moe: expert, place: placeOf(place) }
    this.#table?.stored({ ...said, isHeld: false })
  }

  /** Forgets what was said of these blocks. */
  forget(workerSlot: number, hashes: Int32Array): void {
    if (this.#table?.has(workerSlot) !== true) return
    for (let i = 0; i < hashes.length; i += 2) this.#table.forget(workerSlot, hashes[i]!, hashes[i + 1]!)
  }

  /** Blocks that a worker slot has in a pool. */
  pooledOf(workerSlot: number): number {
    return this.#table?.pooledOf(workerSlot) ?? 0
  }

  // For dumps.

  has(workerSlot: number): boolean {
    return this.#table?.has(workerSlot) === true
  }

  of(
    workerSlot: number,
    low: number,
    high: number,
    idsBySet: Map<number, Int32Array>,
  ): DumpedLabel | undefined {
    const record = this.#table?.recordOf(workerSlot, low, high, idsBySet)
    return record && dumpedOf(record)
  }

  apart(
    workerSlot: number,
    from: number,
    hasRoom: (label: DumpedLabel) => boolean,
  ): ReturnType<DumpedLabels['apart']> {
    const labels: DumpedLabel[] = []
    if (this.#table === undefined) return { labels, next: undefined }
    const device = this.#layers.slotOf(workerSlot, DEVICE_LAYER)
    const idsBySet = new Map<number, Int32Array>()
    let next: number | undefined = from
    for (let isFull = false; next !== undefined && next < from + DUMP_PLACES && !isFull; ) {
      const part: ReturnType<LabelTable['recordsFrom']> = this.#table.recordsFrom(
        workerSlot,
        next,
        DUMP_STEP,
        idsBySet,
      )
      for (const record of part.records) {
        const { state } = record.place
        const isInPool = state === POOL_STATE.cxlPooled || state === POOL_STATE.inTransit
        if (!isInPool || this.#index.has(device, record.engineHash)) continue
        const label = dumpedOf(record)
        labels.push(label)
        if (!hasRoom(label)) isFull = true
      }
      next = part.next
    }
    return { labels, next }
  }

  transition(workerSlot: number, event: KvTransition): void {
    const { hashes } = event
    const place = placeOf(event)
    const known = new Map<number, Words>()
    for (let i = 0; i < hashes.length; i += 2) {
      const [low, high] = [hashes[i]!, hashes[i + 1]!]
      this.#table?.transition(workerSlot, [low, high], place, () =>
        this.#sequenceOf(workerSlot, low, high, known),
      )
    }
  }

  /** Before a removal, which may be refused: experts that pass on if it takes their blocks; for `removed`. */
  leaving(workerSlot: number, hashes: Int32Array): LeavingExperts | undefined {
    if (this.#table?.has(workerSlot) !== true) return undefined
    const leaving = new Map<number, LeavingExpert>()
    for (let i = 0; i < hashes.length; i += 2) {
      const label = this.#table.lastLabelOf(workerSlot, hashes[i]!, hashes[i + 1]!)
      const to = label && this.#otherHolder(workerSlot, label)
      if (to !== undefined) leaving.set(i, { label: label!, to })
    }
    return leaving
  }

  /** A removal was applied. `leaving`: as it was before; undefined: no expert passes on. */
  removed(workerSlot: number, hashes: Int32Array, leaving?: LeavingExperts): void {
    const table = this.#table
    if (table?.has(workerSlot) !== true) return
    for (let i = 0; i < hashes.length; i += 2) {
      const hash = hashes.subarray(i, i + 2)
      if (this.#isHeld(workerSlot, hash)) continue
      // First: the record may leave its room to that of the other worker.
      table.removed(workerSlot, hash[0]!, hash[1]!)
      const expert = leaving?.get(i)
      if (expert !== undefined) this.#passOn(expert)
    }
  }

  /** All blocks of a worker slot are about to go. */
  leavingAll(workerSlot: number): void {
    const table = this.#table
    if (table === undefined) return
    for (const label of table.lastLabels(workerSlot)) {
      const to = this.#otherHolder(workerSlot, label)
      if (to === undefined) continue
      table.removed(workerSlot, ...label.engineHash)
      this.#passOn({ label, to })
    }
  }

  clear(workerSlot: number): void {
    this.#table?.clear(workerSlot)
  }

  /** The worker cannot be heard: what others reach of it stays, until it can, or has left. */
  part(workerSlot: number): void {
    if (this.#keepsOrphans) this.#table?.part(workerSlot)
    else this.#table?.clear(workerSlot)
  }

  /** A worker of another shard has said so. */
  evictedElsewhere({ hashes, poolId }: KvTransition): void {
    for (let i = 0; i < hashes.length; i += 2)
      this.#table?.evictedElsewhere([hashes[i]!, hashes[i + 1]!], poolId)
  }

  release(workerSlot: number): void {
    if (this.#keepsOrphans) this.#table?.release(workerSlot)
    else this.#table?.clear(workerSlot)
  }

  /** The records of a worker slot, as words; none where they are too many, which is counted. */
  image(workerSlot: number): Int32Array {
    if (this.#table === undefined) return NO_WORDS
    const words = labelImageOf(this.#table, workerSlot)
    if (words === undefined) this.#unsaved++
    return words ?? NO_WORDS
  }

  load(workerSlot: number, words: Int32Array): void {
    const records = readLabelImage(words)
    if (records !== undefined && this.#table !== undefined) loadLabels(this.#table, workerSlot, records)
  }

  /** Another worker slot of the shard that holds the block on its device. */
  #otherHolder(workerSlot: number, { engineHash }: LastLabel): BlockHolder | undefined {
    const own = this.#slotsOf(workerSlot)
    for (const slot of own) {
      const block = this.#index.blockOf(slot, engineHash)
      if (block === undefined) continue
      for (const other of this.#index.holdersOf(block))
        if (other.workerSlot < this.#layers.keysMax && !own.includes(other.workerSlot)) return other
    }
    return undefined
  }

  #passOn({ label: { sequenceHash, moe }, to }: LeavingExpert): void {
    this.#table!.stored({ ...to, sequenceHash, moe, place: undefined, isHeld: true })
  }

  /** Whether one of its tiers has the block. */
  #isHeld(workerSlot: number, hash: Int32Array): boolean {
    return this.#slotsOf(workerSlot).some(slot => this.#index.has(slot, hash))
  }

  /** Whether one of these blocks has a record. */
  #hasRecord(workerSlot: number, hashes: Int32Array): boolean {
    for (let i = 0; i < hashes.length; i += 2) {
      if (this.#table?.sequenceOf(workerSlot, hashes[i]!, hashes[i + 1]!, this.#sequence) === true)
        return true
    }
    return false
  }

  /** Undefined: the block is not known. `known`: sequence hashes by block of the index, to be added to. */
  #sequenceOf(
    workerSlot: number,
    low: number,
    high: number,
    known: Map<number, Words> = new Map(),
  ): Words | undefined {
    const target = this.#sequence
    if (this.#table?.sequenceOf(workerSlot, low, high, target) === true) return [target[0]!, target[1]!]
    for (const slot of this.#slotsOf(workerSlot)) {
      const block = this.#index.blockOf(slot, [low, high])
      if (block !== undefined) return this.#sequenceAt(block, known)
    }
    return undefined
  }

  #sequenceAt(block: number, known: Map<number, Words>): Words {
    const path: number[] = []
    let at = block
    while (at !== 0 && !known.has(at)) {
      path.push(at)
      at = this.#index.placeOf(at).parentBlock
    }
    const above = known.get(at)
    const locals = new Int32Array(2 * path.length)
    path.reverse()
    for (const [i, each] of path.entries()) locals.set(this.#index.placeOf(each).localHash, 2 * i)
    const sequence = chainSequence(locals, path.length, above && { lo: above[0], hi: above[1] })
    for (const [i, each] of path.entries()) known.set(each, [sequence[2 * i]!, sequence[2 * i + 1]!])
    return known.get(block)!
  }

  /** The slots of the index that events of this worker slot fill. */
  #slotsOf(workerSlot: number): readonly number[] {
    const device = this.#layers.slotOf(workerSlot, DEVICE_LAYER)
    return [device, ...this.#layers.othersOf(workerSlot, DEVICE_LAYER)]
  }
}

function placeOf({ state, poolId, accessibleWorkers, members }: KvPoolPlace): PoolPlace {
  const place = { state: CODES[state], poolId, workerIds: accessibleWorkers }
  return members === undefined ? place : { ...place, members }
}

function dumpedOf({ engineHash, sequenceHash, moe, place }: LabelRecord): DumpedLabel {
  const { state, poolId, workerIds, members } = place
  const name = nameOf(state)
  return {
    engineHash,
    sequenceHash,
    moe,
    place:
      name === 'untold'
        ? undefined
        : { state: name, poolId, accessibleWorkers: workerIds, ...(members !== undefined && { members }) },
  }
}

function nameOf(code: PoolStateCode): PoolState | 'untold' {
  return POOL_STATES[code - 1] ?? 'untold'
}
