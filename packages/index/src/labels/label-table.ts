/**
 * Label table: what engines say of blocks beside who holds them, for one shard. Experts are of a block; the
 * state in pooled memory is of a block and a worker slot. Where blocks and records lie is in label-places.ts.
 *
 * Invariants
 *   I1  A record is reachable only while its state is pooled: `L_POOLED` counts these.
 *   I2  States change as the rule of the table allows; only a store may say any state.
 *   I3  Records of ORPHAN_SLOT are pooled, for some worker. They are of workers that have left.
 *   I4  If the worker of a record neither holds the block nor has it in a pool, or on its way there, the
 *       state of the record is evicted. Such a record is only for audits: events of the worker treat the
 *       block as one without a record.
 *
 * Protocol  label-words.ts. One write section is of one block or record.
 * Full      evicted records make room, but for those that alone say the expert of a block that is held; then
 *           those of workers that have left. If none is found in ROOM_STEPS steps each, the new record is
 *           refused.
 * Cost      a store or transition: a search of two chains of about one entry. A clear or release: one pass
 *           over all records, only if the worker slot has any.
 */

import { LabelPlaces } from './label-places.ts'
import type {
  LabelInput,
  LabelRecord,
  LabelStats,
  LastLabel,
  PlacedRecord,
  PoolPlace,
  TransitionOutcome,
} from './label-record.ts'
import { LabelTexts } from './label-texts.ts'
import {
  B_EXPERT,
  B_FLAGS,
  B_GROUP,
  B_LAYER,
  B_RECORD,
  B_SEQUENCE,
  BLOCK_WORDS,
  HAS_GROUP,
  HAS_POOL,
  IS_HELD,
  IS_LABELLED,
  L_LABELLED,
  L_NODE_BASE,
  L_NODES_MAX,
  L_POOLED,
  LABEL_HEADER_WORDS,
  type LabelMemory,
  type MoeLabel,
  NODE_WORDS,
  ORPHAN_SLOT,
  R_BLOCK,
  R_ENGINE,
  R_FLAGS,
  R_NEXT,
  R_POOL,
  R_SET,
  R_SLOT,
  R_STATE,
  RECORD_WORDS,
  TEXT_SHIFT,
} from './label-words.ts'
import { POOL_STATE, type PoolStateCode, type TransitionRule } from './pool-states.ts'
import { WorkerIdSets } from './worker-id-sets.ts'

const ROOM_STEPS = 256
const NO_IDS = new Int32Array(0)

export class LabelTable {
  readonly memory: LabelMemory
  readonly #isLegal: TransitionRule
  readonly #places: LabelPlaces
  readonly #sets: WorkerIdSets
  /** What else stores say of experts and places: the flags of blocks and records have their numbers. */
  readonly #texts: LabelTexts
  /** The record that is looked at next where room is needed. */
  #hand = 0
  readonly #bySlot = new Map<number, number>()
  /** Those of them that are pooled. */
  readonly #pooledBySlot = new Map<number, number>()
  /**
   * Slots of workers that cannot be heard; what others say of an eviction holds for these, too. Slots without
   * records are among them, because an image may bring them some later. So an eviction costs a search for
   * each of these slots that has records, and a look for each that has none.
   */
  readonly #parted = new Set<number>()
  readonly #byState = [0, 0, 0, 0, 0]
  readonly #transitions: Record<TransitionOutcome, number> = { changed: 0, illegal: 0, unknown: 0, full: 0 }
  #dropped = 0
  #refused = 0

  /** `memory`: made by `createLabelMemory`, never written before. */
  constructor(memory: LabelMemory, isLegal: TransitionRule) {
    this.memory = memory
    this.#isLegal = isLegal
    const words = new Int32Array(memory)
    this.#places = new LabelPlaces(words)
    this.#sets = new WorkerIdSets(words, words[L_NODE_BASE]!, words[L_NODES_MAX]!)
    this.#texts = new LabelTexts(this.#sets, Math.floor(words[L_NODES_MAX]! / 2))
  }

  /** Whether anything is known of blocks of this worker slot. */
  has(workerSlot: number): boolean {
    return this.#bySlot.has(workerSlot)
  }

  /** The sequence hash of a block with a record, into `target`. False: it has none. */
  sequenceOf(workerSlot: number, low: number, high: number, target: Int32Array): boolean {
    const record = this.#find(workerSlot, low, high)
    if (record === 0) return false
    this.#places.sequenceOf(record, target)
    return true
  }

  /**
   * A worker slot has stored a block. What it says of it holds, whatever was told before; without a word the
   * earlier ones hold. False: it found no room.
   */
  stored(record: LabelInput): boolean {
    const { workerSlot, engineHash, sequenceHash, moe, place } = record
    const isNew = moe !== undefined || place !== undefined
    if (!isNew && !this.has(workerSlot)) return true
    let found = this.#find(workerSlot, engineHash[0], engineHash[1])
    if (found !== 0 && (this.#isGone(found) || !this.#places.isAt(found, sequenceHash))) {
      this.#write(() => this.#drop(found))
      found = 0
    }
    if (found === 0) {
      if (!isNew) return true
      found = this.#add(workerSlot, engineHash, sequenceHash)
      if (found === 0) return this.#refuse()
    }
    let hasRoom = true
    this.#write(() => {
      const flags = this.#record(found, R_FLAGS)
      this.#setRecord(found, R_FLAGS, record.isHeld ? flags | IS_HELD : flags & ~IS_HELD)
      if (moe !== undefined) hasRoom = this.#label(this.#record(found, R_BLOCK), moe)
      if (place !== undefined) {
        hasRoom = this.#place(found, place) && hasRoom
        hasRoom = this.#say(found, place.members) && hasRoom
      }
      this.#settle(found)
    })
    return hasRoom || this.#refuse()
  }

  /**
   * A worker slot says that the state of a block has changed. `sequenceHash`: where the block is, asked for
   * only if it has no record yet; undefined: nowhere. An eviction also ends orphans of that block.
   */
  transition(
    workerSlot: number,
    engineHash: readonly [number, number],
    place: PoolPlace,
    sequenceHash: () => readonly [number, number] | undefined,
  ): TransitionOutcome {
    const outcome = this.#transition(workerSlot, engineHash, place, sequenceHash)
    this.#transitions[outcome]++
    return outcome
  }

  /** A worker slot does not hold these blocks any more. What is pooled, or on its way, stays. */
  removed(workerSlot: number, low: number, high: number): void {
    const record = this.#find(workerSlot, low, high)
    if (record === 0) return
    this.#write(() => {
      this.#setRecord(record, R_FLAGS, this.#record(record, R_FLAGS) & ~IS_HELD)
      this.#settle(record)
    })
  }

  /**
   * The expert of a block of which no other worker slot that holds it has a record. Undefined: the block has
   * no expert, or another such record.
   */
  lastLabelOf(workerSlot: number, low: number, high: number): LastLabel | undefined {
    const record = this.#find(workerSlot, low, high)
    return record === 0 || !this.#isLastLabel(record) ? undefined : this.#lastLabel(record)
  }

  /** The same of all records of a worker slot. Records may come and go while they are read. */
  *lastLabels(workerSlot: number): Generator<LastLabel, void, undefined> {
    if (!this.has(workerSlot) || this.#places.words[L_LABELLED] === 0) return
    const end = this.#places.touchedRecords
    for (let record = 1; record <= end; record++) {
      if (this.#record(record, R_BLOCK) === 0 || this.#record(record, R_SLOT) !== workerSlot) continue
      if (this.#isLastLabel(record)) yield this.#lastLabel(record)
    }
  }

  /** Forgets everything that a worker slot has said. */
  clear(workerSlot: number): void {
    this.#parted.delete(workerSlot)
    this.#eachOf(workerSlot, record => this.#drop(record))
  }

  /**
   * The worker of a slot cannot be heard, and may be dead: what it has pooled for other workers stays, under
   * its slot, until it is cleared or released. What the worker itself held is not known any more.
   */
  part(workerSlot: number): void {
    this.#eachOf(workerSlot, record => {
      if (!this.#isForOthers(record)) this.#drop(record)
      else this.#setRecord(record, R_FLAGS, this.#record(record, R_FLAGS) & ~IS_HELD)
    })
    this.#parted.add(workerSlot)
  }

  /**
   * A worker of another table has said that a block is evicted: ends what workers that have left, or cannot
   * be heard, had of it in that pool. Returns how many there were.
   */
  evictedElsewhere([low, high]: readonly [number, number], poolId: number | undefined): number {
    return this.#evictOrphans(low, high, poolId)
  }

  /** The worker of a slot has left: what it has pooled stays for the workers that reach it, once. */
  release(workerSlot: number): void {
    this.#parted.delete(workerSlot)
    this.#eachOf(workerSlot, record => {
      if (!this.#canBeOrphan(record)) this.#drop(record)
    })
    this.#eachOf(workerSlot, record => {
      this.#setSlot(record, ORPHAN_SLOT)
      this.#setRecord(record, R_FLAGS, this.#record(record, R_FLAGS) & ~IS_HELD)
    })
  }

  /** How many records a worker slot has. */
  recordsOf(workerSlot: number): number {
    return this.#bySlot.get(workerSlot) ?? 0
  }

  /** How many of them are pooled. */
  pooledOf(workerSlot: number): number {
    return this.#pooledBySlot.get(workerSlot) ?? 0
  }

  /**
   * What a worker slot has said, in no order. Of ORPHAN_SLOT: what is left of workers that have left. Records
   * with the same workers have the same array of them.
   */
  *records(workerSlot: number): Generator<LabelRecord, void, undefined> {
    if (!this.has(workerSlot)) return
    const idsBySet = new Map<number, Int32Array>()
    for (let record = 1; record <= this.#places.touchedRecords; record++) {
      if (this.#record(record, R_BLOCK) === 0 || this.#record(record, R_SLOT) !== workerSlot) continue
      yield this.#read(record, idsBySet)
    }
  }

  /**
   * What a worker slot has said of a block; undefined: nothing. `idsBySet`: the workers of sets that were
   * read, to be added to, so that records with the same workers have the same array of them.
   */
  recordOf(
    workerSlot: number,
    low: number,
    high: number,
    idsBySet: Map<number, Int32Array>,
  ): LabelRecord | undefined {
    const record = this.#find(workerSlot, low, high)
    return record === 0 ? undefined : this.#read(record, idsBySet)
  }

  /**
   * What a worker slot has said, in parts: the records in `placesMax` places from `from` on (0 at first), and
   * where the next part begins; undefined: nowhere. Records that come and go meanwhile may be in no part.
   * `idsBySet` as in `recordOf`.
   */
  recordsFrom(
    workerSlot: number,
    from: number,
    placesMax: number,
    idsBySet: Map<number, Int32Array>,
  ): { readonly records: readonly LabelRecord[]; readonly next: number | undefined } {
    if (!this.has(workerSlot)) return { records: [], next: undefined }
    const end = Math.min(this.#places.touchedRecords, from + placesMax)
    const records: LabelRecord[] = []
    for (let record = from + 1; record <= end; record++) {
      if (this.#record(record, R_BLOCK) === 0 || this.#record(record, R_SLOT) !== workerSlot) continue
      records.push(this.#read(record, idsBySet))
    }
    return { records, next: end < this.#places.touchedRecords ? end : undefined }
  }

  /** Forgets what a worker slot has said of a block. */
  forget(workerSlot: number, low: number, high: number): void {
    const record = this.#find(workerSlot, low, high)
    if (record !== 0) this.#write(() => this.#drop(record))
  }

  /** Every `stride`-th record, from the one at `first` on, of all worker slots. */
  *everyNth(first: number, stride: number): Generator<PlacedRecord, void, undefined> {
    for (let record = 1 + first; record <= this.#places.touchedRecords; record += stride)
      if (this.#record(record, R_BLOCK) !== 0) yield this.#placed(record)
  }

  /** The records of the block with this sequence hash. */
  *recordsAt(low: number, high: number): Generator<PlacedRecord, void, undefined> {
    const block = this.#places.findBlock(low, high)
    let record = block === 0 ? 0 : this.#block(block, B_RECORD)
    for (; record !== 0; record = this.#record(record, R_NEXT)) yield this.#placed(record)
  }

  /** The workers of a set that a record names, pairs [lo, hi]; undefined: they are more than `idsMax`. */
  workerIdsOf(set: number, idsMax: number): Int32Array | undefined {
    return this.#sets.someIdsOf(set, idsMax)
  }

  /** Places of records that were ever used: where `everyNth` looks. */
  get recordPlaces(): number {
    return this.#places.touchedRecords
  }

  stats(): LabelStats {
    const records = this.#recordsUsed
    const { buckets, words, usedBlocks: blocks, blocksMax, recordsMax } = this.#places
    const nodes = this.#sets.nodesUsed
    const fixed = LABEL_HEADER_WORDS + 2 * buckets
    return {
      bytesUsed: 4 * (fixed + blocks * BLOCK_WORDS + records * RECORD_WORDS + nodes * NODE_WORDS),
      bytesLimit: this.memory.byteLength,
      blocks,
      labelledBlocks: words[L_LABELLED]!,
      records,
      fullness: {
        blocks: share(blocks, blocksMax),
        records: share(records, recordsMax),
        workers: share(nodes, words[L_NODES_MAX]!),
      },
      byState: [...this.#byState],
      orphans: this.#bySlot.get(ORPHAN_SLOT) ?? 0,
      transitions: { ...this.#transitions },
      dropped: this.#dropped,
      refused: this.#refused,
    }
  }

  #transition(
    workerSlot: number,
    [low, high]: readonly [number, number],
    place: PoolPlace,
    sequenceHash: () => readonly [number, number] | undefined,
  ): TransitionOutcome {
    const hasPool = place.poolId !== undefined
    const evicted = place.state === POOL_STATE.evicted ? this.#evictOrphans(low, high, place.poolId) : 0
    let record = this.#find(workerSlot, low, high)
    // What is neither held nor in a pool cannot go anywhere: a snapshot of the worker has no such block.
    if (record !== 0 && this.#isGone(record)) return evicted > 0 ? 'changed' : 'unknown'
    const from = record === 0 ? POOL_STATE.untold : (this.#record(record, R_STATE) as PoolStateCode)
    if (!this.#isLegal(from, place.state, hasPool)) {
      if (evicted > 0) return 'changed'
      return record === 0 && sequenceHash() === undefined ? 'unknown' : 'illegal'
    }
    if (record === 0) {
      const sequence = sequenceHash()
      if (sequence === undefined) return 'unknown'
      record = this.#add(workerSlot, [low, high], sequence)
      if (record === 0) return 'full'
      this.#setRecordNow(record, R_FLAGS, IS_HELD)
    }
    let hasRoom = true
    this.#write(() => {
      switch (place.state) {
        case POOL_STATE.inTransit:
          hasRoom = this.#place(record, place)
          break
        case POOL_STATE.localGpu:
          this.#place(record, { ...place, poolId: undefined, workerIds: NO_IDS })
          break
        default:
          // Pool and workers are those of the way there; an eviction keeps them for audits.
          this.#setState(record, place.state)
      }
      this.#settle(record)
    })
    return hasRoom ? 'changed' : 'full'
  }

  /** Whether its worker neither holds the block nor has it in a pool, or on its way there. */
  #isGone(record: number): boolean {
    if ((this.#record(record, R_FLAGS) & IS_HELD) !== 0) return false
    const state = this.#record(record, R_STATE)
    return state !== POOL_STATE.inTransit && state !== POOL_STATE.cxlPooled
  }

  /** Drops a record of a block that is nowhere any more, unless it was evicted: see I4. */
  #settle(record: number): void {
    if (this.#isGone(record) && this.#record(record, R_STATE) !== POOL_STATE.evicted) this.#drop(record)
  }

  /** Whether its block has an expert, and no other record is of a worker slot that holds the block. */
  #isLastLabel(record: number): boolean {
    const block = this.#record(record, R_BLOCK)
    if ((this.#block(block, B_FLAGS) & IS_LABELLED) === 0) return false
    for (let at = this.#block(block, B_RECORD); at !== 0; at = this.#record(at, R_NEXT))
      if (at !== record && (this.#record(at, R_FLAGS) & IS_HELD) !== 0) return false
    return true
  }

  #lastLabel(record: number): LastLabel {
    const block = this.#record(record, R_BLOCK)
    return {
      engineHash: [this.#record(record, R_ENGINE), this.#record(record, R_ENGINE + 1)],
      sequenceHash: [this.#block(block, B_SEQUENCE), this.#block(block, B_SEQUENCE + 1)],
      moe: this.#moeOf(block)!,
    }
  }

  #isForOthers(record: number): boolean {
    return this.#record(record, R_STATE) === POOL_STATE.cxlPooled && this.#record(record, R_SET) !== 0
  }

  /** Whether it is of use to others, and no other worker has left the same. */
  #canBeOrphan(record: number): boolean {
    if (!this.#isForOthers(record)) return false
    const [pool, hasPool] = [this.#record(record, R_POOL), this.#record(record, R_FLAGS) & HAS_POOL]
    let at = this.#block(this.#record(record, R_BLOCK), B_RECORD)
    for (; at !== 0; at = this.#record(at, R_NEXT)) {
      if (this.#record(at, R_SLOT) !== ORPHAN_SLOT || this.#record(at, R_POOL) !== pool) continue
      if ((this.#record(at, R_FLAGS) & HAS_POOL) === hasPool) return false
    }
    return true
  }

  /** How many there were. */
  #evictOrphans(low: number, high: number, poolId: number | undefined): number {
    const found: number[] = []
    for (const slot of [ORPHAN_SLOT, ...this.#parted]) {
      for (let at = this.#find(slot, low, high); at !== 0; at = this.#places.findNext(at, slot, low, high)) {
        const hasPool = (this.#record(at, R_FLAGS) & HAS_POOL) !== 0
        if (poolId === undefined || !hasPool || this.#record(at, R_POOL) === (poolId | 0)) found.push(at)
      }
    }
    // No worker is left that could speak of them again.
    for (const record of found) this.#write(() => this.#drop(record))
    return found.length
  }

  get #recordsUsed(): number {
    let used = 0
    for (const count of this.#bySlot.values()) used += count
    return used
  }

  #refuse(): false {
    this.#refused++
    return false
  }

  #read(record: number, idsBySet: Map<number, Int32Array>): LabelRecord {
    const set = this.#record(record, R_SET)
    const workerIds = idsBySet.get(set) ?? this.#sets.idsOf(set)
    idsBySet.set(set, workerIds)
    const block = this.#record(record, R_BLOCK)
    const flags = this.#record(record, R_FLAGS)
    const members = this.#texts.textOf(flags >>> TEXT_SHIFT)
    return {
      engineHash: [this.#record(record, R_ENGINE), this.#record(record, R_ENGINE + 1)],
      sequenceHash: [this.#block(block, B_SEQUENCE), this.#block(block, B_SEQUENCE + 1)],
      moe: this.#moeOf(block),
      place: {
        state: this.#record(record, R_STATE) as PoolStateCode,
        poolId: (flags & HAS_POOL) === 0 ? undefined : this.#record(record, R_POOL) >>> 0,
        workerIds,
        ...(members !== undefined && { members }),
      },
      isHeld: (flags & IS_HELD) !== 0,
    }
  }

  #placed(record: number): PlacedRecord {
    const flags = this.#record(record, R_FLAGS)
    return {
      workerSlot: this.#record(record, R_SLOT),
      moe: this.#moeOf(this.#record(record, R_BLOCK)),
      state: this.#record(record, R_STATE) as PoolStateCode,
      poolId: (flags & HAS_POOL) === 0 ? undefined : this.#record(record, R_POOL) >>> 0,
      workerSet: this.#record(record, R_SET),
    }
  }

  #moeOf(block: number): MoeLabel | undefined {
    const flags = this.#block(block, B_FLAGS)
    if ((flags & IS_LABELLED) === 0) return undefined
    const members = this.#texts.textOf(flags >>> TEXT_SHIFT)
    return {
      layerId: this.#block(block, B_LAYER) >>> 0,
      expertId: this.#block(block, B_EXPERT) >>> 0,
      expertGroup: (flags & HAS_GROUP) === 0 ? undefined : this.#block(block, B_GROUP) >>> 0,
      ...(members !== undefined && { members }),
    }
  }

  /** False: there is no room for its members. */
  #label(block: number, { layerId, expertId, expertGroup, members }: MoeLabel): boolean {
    const before = this.#block(block, B_FLAGS)
    if ((before & IS_LABELLED) === 0) this.#count(L_LABELLED, 1)
    const text = this.#texts.replace(before >>> TEXT_SHIFT, members)
    this.#setBlock(block, B_LAYER, layerId)
    this.#setBlock(block, B_EXPERT, expertId)
    this.#setBlock(block, B_GROUP, expertGroup ?? 0)
    const flags = IS_LABELLED | (expertGroup === undefined ? 0 : HAS_GROUP)
    this.#setBlock(block, B_FLAGS, flags | ((text ?? 0) << TEXT_SHIFT))
    return text !== undefined
  }

  /** What else is said of the place of a record. False: there is no room for it. */
  #say(record: number, members: string | undefined): boolean {
    const flags = this.#record(record, R_FLAGS)
    const text = this.#texts.replace(flags >>> TEXT_SHIFT, members)
    this.#setRecord(record, R_FLAGS, (flags & ~(-1 << TEXT_SHIFT)) | ((text ?? 0) << TEXT_SHIFT))
    return text !== undefined
  }

  /** False: there is no room for its workers, so no worker reaches it. */
  #place(record: number, { state, poolId, workerIds }: PoolPlace): boolean {
    const set = this.#sets.take(workerIds)
    this.#sets.give(this.#record(record, R_SET))
    this.#setRecord(record, R_SET, set ?? 0)
    this.#setRecord(record, R_POOL, poolId ?? 0)
    const flags = this.#record(record, R_FLAGS) & ~HAS_POOL
    this.#setRecord(record, R_FLAGS, poolId === undefined ? flags : flags | HAS_POOL)
    this.#setState(record, state)
    return set !== undefined
  }

  #setState(record: number, state: PoolStateCode): void {
    const before = this.#record(record, R_STATE)
    this.#byState[before]!--
    this.#byState[state]!++
    if (before === POOL_STATE.cxlPooled) this.#countPooled(record, -1)
    if (state === POOL_STATE.cxlPooled) this.#countPooled(record, 1)
    this.#setRecord(record, R_STATE, state)
  }

  #countPooled(record: number, by: 1 | -1): void {
    this.#count(L_POOLED, by)
    this.#countPooledOf(this.#record(record, R_SLOT), by)
  }

  #countPooledOf(workerSlot: number, by: 1 | -1): void {
    const pooled = this.pooledOf(workerSlot) + by
    if (pooled === 0) this.#pooledBySlot.delete(workerSlot)
    else this.#pooledBySlot.set(workerSlot, pooled)
  }

  /** A new record that says nothing yet; 0: there is no room. */
  #add(
    workerSlot: number,
    engineHash: readonly [number, number],
    sequenceHash: readonly [number, number],
  ): number {
    const places = this.#places
    while (!places.hasRoom(places.findBlock(sequenceHash[0], sequenceHash[1]) === 0)) {
      if (!this.#makeRoom()) return 0
    }
    let record = 0
    this.#write(() => {
      record = places.add(workerSlot, engineHash, sequenceHash)
      this.#setRecord(record, R_STATE, POOL_STATE.untold)
      this.#setRecord(record, R_POOL, 0)
      this.#setRecord(record, R_SET, 0)
      this.#setRecord(record, R_FLAGS, 0)
      this.#byState[POOL_STATE.untold]!++
      this.#bySlot.set(workerSlot, (this.#bySlot.get(workerSlot) ?? 0) + 1)
    })
    return record
  }

  /** Drops an evicted record, else one of a worker that has left. False: none was found near. */
  #makeRoom(): boolean {
    const { evicted } = POOL_STATE
    if (this.#byState[evicted]! > 0 && this.#dropNext(record => this.#isSpare(record))) return true
    return this.has(ORPHAN_SLOT) && this.#dropNext(record => this.#record(record, R_SLOT) === ORPHAN_SLOT)
  }

  /** Whether it is evicted, and no held block would lose its expert with it. */
  #isSpare(record: number): boolean {
    if (this.#record(record, R_STATE) !== POOL_STATE.evicted) return false
    return (this.#record(record, R_FLAGS) & IS_HELD) === 0 || !this.#isLastLabel(record)
  }

  /** Drops the next record that may go. False: none was found near. */
  #dropNext(mayGo: (record: number) => boolean): boolean {
    const steps = Math.min(ROOM_STEPS, this.#places.touchedRecords)
    for (let step = 0; step < steps; step++) {
      this.#hand = (this.#hand % this.#places.touchedRecords) + 1
      const record = this.#hand
      if (this.#record(record, R_BLOCK) === 0 || !mayGo(record)) continue
      this.#write(() => this.#drop(record))
      this.#dropped++
      return true
    }
    return false
  }

  /** With its block, if it was the last record of it. */
  #drop(record: number): void {
    this.#setState(record, POOL_STATE.untold)
    this.#byState[POOL_STATE.untold]!--
    this.#sets.give(this.#record(record, R_SET))
    this.#texts.give(this.#record(record, R_FLAGS) >>> TEXT_SHIFT)
    const block = this.#record(record, R_BLOCK)
    this.#leaveSlot(record)
    this.#places.drop(record)
    if (this.#block(block, B_RECORD) === 0) this.#texts.give(this.#block(block, B_FLAGS) >>> TEXT_SHIFT)
  }

  #eachOf(workerSlot: number, then: (record: number) => void): void {
    if (!this.has(workerSlot)) return
    for (let record = 1; record <= this.#places.touchedRecords; record++) {
      if (this.#record(record, R_BLOCK) !== 0 && this.#record(record, R_SLOT) === workerSlot)
        this.#write(() => then(record))
    }
  }

  /** 0: there is none. */
  #find(workerSlot: number, low: number, high: number): number {
    return this.has(workerSlot) ? this.#places.find(workerSlot, low, high) : 0
  }

  #setSlot(record: number, workerSlot: number): void {
    if (this.#record(record, R_STATE) === POOL_STATE.cxlPooled) {
      this.#countPooledOf(this.#record(record, R_SLOT), -1)
      this.#countPooledOf(workerSlot, 1)
    }
    this.#leaveSlot(record)
    this.#bySlot.set(workerSlot, (this.#bySlot.get(workerSlot) ?? 0) + 1)
    this.#places.setSlot(record, workerSlot)
  }

  #leaveSlot(record: number): void {
    const slot = this.#record(record, R_SLOT)
    const left = this.#bySlot.get(slot)! - 1
    if (left === 0) this.#bySlot.delete(slot)
    else this.#bySlot.set(slot, left)
  }

  #block(block: number, word: number): number {
    return this.#places.block(block, word)
  }

  #setBlock(block: number, word: number, value: number): void {
    this.#places.setBlock(block, word, value)
  }

  #record(record: number, word: number): number {
    return this.#places.record(record, word)
  }

  #setRecord(record: number, word: number, value: number): void {
    this.#places.setRecord(record, word, value)
  }

  #setRecordNow(record: number, word: number, value: number): void {
    this.#write(() => this.#setRecord(record, word, value))
  }

  #count(word: number, by: number): void {
    this.#places.count(word, by)
  }

  #write(change: () => void): void {
    this.#places.write(change)
  }
}

/** What has no room is full. */
function share(used: number, max: number): number {
  return max === 0 ? 1 : used / max
}
