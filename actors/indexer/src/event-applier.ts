/**
 * Event applier: turns the KV events of worker keys into stores and removes of one `BlockIndex`.
 *
 * What counts
 *   R1  Only whole prefixes of the worker itself: events of other places and of cache groups without full
 *       attention are skipped, counted by reason. Each tier is a layer of its own. A placeholder (no tokens, block
 *       size 0) names blocks that another tier holds; those that none holds are skipped.
 *   R2  Tokens are hashed here, in the namespace of their chain (adapter and cache salt); engine hashes are
 *       handles. A chain whose content is not in its tokens (adapter known by number only, prompt
 *       embeddings) is skipped.
 *   R3  vLLM names the salt on the first block of a chain only; the blocks below inherit it. So the engine
 *       hashes of salted chains are kept per slot until they are removed.
 *   R4  A block is held once per physical copy: stored, stored, removed is held. But a store that
 *       begins at token 0 with two blocks or more says the same thing again where blocks are known: that is
 *       how vLLM re-reports a prefix on request ("full" report mode), unmarked and never
 *       removed again. A true second copy of such a run needs a request that was forbidden to read
 *       the cache; counting it once loses an overlap early, counting a report twice would keep
 *       a block for ever. One block alone at token 0 is counted: a prompt of exactly one block is
 *       stored anew by every request. Lower tiers hold a block once, however often they say so.
 *   R5  The first block stored on the device decides the block size of a slot; what has another size is skipped.
 *   R6  A parent may be on any tier: the device evicts what the host keeps. A clear clears all tiers.
 *
 * Costs one hash per block and what the index costs. Memory: per slot, one entry per block of a salted
 * chain, at most `saltedBlocksMax`; past it the salted chains lose their children, never their salt.
 */

import { DEFAULT_SEED, hashLocals, mediaOfBlocks, namespaceSeed, type Seed } from '@homing/blocks'
import {
  type BlockIndex,
  DEVICE_LAYER,
  HELD_WORDS,
  imageOf,
  KEY_LAYERS,
  type KeyLayer,
  ORPHAN_WORDS,
  storeImage,
} from '@homing/index'
import {
  type AttentionGroupRecord,
  AttentionGroups,
  isContentKnown,
  type KvEvent,
  type KvRemoved,
  type KvStored,
  type KvTier,
} from '@homing/protocol'
import type { LayerSlots } from './layer-slots.ts'
import type { IndexedBlock, KeyImage, ResyncCause, ShardStatus, SkipReason } from './messages.ts'

/** What became of a batch of events. */
export interface ApplyReport {
  /** Why the source must be rebuilt; undefined: all is well. */
  readonly resync: Resync | undefined
  /** The block size of the engine, when it is another than the caller assumed. */
  readonly learnedBlockSizeTokens: number | undefined
  /** The cache was cleared: what was predicted of it is gone too. */
  readonly wasCleared: boolean
  /** Why not all of it is in the index, said once per opening; undefined: all is well. */
  readonly lacks: string | undefined
}

export interface Resync {
  readonly cause: ResyncCause
  readonly reason: string
}

/** A tier of an unknown name has none. */
const LAYER_OF_TIER: Readonly<Record<Exclude<KvTier, 'unknown'>, number>> = {
  device: DEVICE_LAYER,
  host: KEY_LAYERS.indexOf('host'),
  disk: KEY_LAYERS.indexOf('disk'),
  external: KEY_LAYERS.indexOf('external'),
}
const LOWER_LAYERS = [LAYER_OF_TIER.host, LAYER_OF_TIER.disk, LAYER_OF_TIER.external]

const SALTED_BLOCKS_MAX = 1 << 17
const SEEDS_MAX = 4096

/** What is known of a worker slot since it was opened. */
interface Slot {
  readonly groups: AttentionGroups
  blockSizeTokens: number | undefined
  /** Engine hash of each block of a salted chain -> its salt. */
  readonly salts: Map<bigint, string>
  /** Orphans went beyond their bound and the source knows; said once per opening. */
  isOverflown: boolean
  /** A tier found no room among the layers; the source knows. */
  lacksLayer: boolean
}

const NO_LAYER = 'more lower tiers of worker keys are in use than the index has room for (--worker-slots-max)'

export class EventApplier {
  readonly #index: BlockIndex
  readonly #layers: LayerSlots
  readonly #slots = new Map<number, Slot>()
  /** What was learned of slots that are to be rebuilt because of it: else the rebuild would have to learn it again. */
  readonly #revisedGroups = new Map<number, readonly AttentionGroupRecord[]>()
  readonly #seeds = new Map<string, Seed>()
  #locals = new Int32Array(1024)
  readonly #applied = { stored: 0, removed: 0, cleared: 0 }
  readonly #skipped: Record<SkipReason, number> = {
    otherTier: 0,
    remote: 0,
    otherGroup: 0,
    noBlocks: 0,
    unevenTokens: 0,
    unplaced: 0,
    noLayer: 0,
    blockSize: 0,
    unknownContent: 0,
    unopened: 0,
  }

  constructor(index: BlockIndex, layers: LayerSlots) {
    this.#index = index
    this.#layers = layers
  }

  /** Forgets all of a worker slot; events of it are taken from here on. */
  open(workerSlot: number): void {
    this.#clearTiers(workerSlot)
    const slot = newSlot()
    slot.groups.learn(this.#revisedGroups.get(workerSlot) ?? [])
    this.#revisedGroups.delete(workerSlot)
    this.#slots.set(workerSlot, slot)
  }

  /** Forgets all of a worker slot; events of it are refused until it is opened again. */
  release(workerSlot: number): void {
    this.#clearTiers(workerSlot)
    this.#slots.delete(workerSlot)
    this.#revisedGroups.delete(workerSlot)
  }

  /** Tidies up for a moment; true when there is more to do. */
  maintain(): boolean {
    return this.#index.maintain()
  }

  isOpen(workerSlot: number): boolean {
    return this.#slots.has(workerSlot)
  }

  openSlots(): readonly number[] {
    return [...this.#slots.keys()]
  }

  /** Applies events of one worker key in order. `blockSizeTokens` is what the caller assumes. */
  apply(workerSlot: number, blockSizeTokens: number | undefined, events: readonly KvEvent[]): ApplyReport {
    const slot = this.#slots.get(workerSlot)
    if (slot === undefined) {
      this.#skipped.unopened += events.length
      return {
        resync: { cause: 'lost', reason: 'the index began anew' },
        learnedBlockSizeTokens: undefined,
        wasCleared: false,
        lacks: undefined,
      }
    }
    const { noLayer } = this.#skipped
    const revisions = slot.groups.revisions
    let overflows = false
    let wasCleared = false
    for (const event of events) {
      if (event.kind === 'stored') {
        if (!this.#store(workerSlot, slot, event, blockSizeTokens)) overflows = true
      } else if (event.kind === 'removed') {
        this.#remove(workerSlot, slot, event)
      } else {
        this.#applied.cleared++
        wasCleared = true
        this.#clearTiers(workerSlot)
        slot.salts.clear()
      }
    }
    const learned = slot.blockSizeTokens
    const learnedBlockSizeTokens = learned === blockSizeTokens ? undefined : learned
    const lacks = this.#skipped.noLayer > noLayer && !slot.lacksLayer ? NO_LAYER : undefined
    if (lacks !== undefined) slot.lacksLayer = true
    const report = { learnedBlockSizeTokens, wasCleared, lacks }
    if (slot.groups.revisions !== revisions) {
      this.#revisedGroups.set(workerSlot, slot.groups.records())
      const reason = 'a cache group turned out not to keep whole prefixes'
      return { ...report, resync: { cause: 'lost', reason } }
    }
    if (overflows && !slot.isOverflown) {
      slot.isOverflown = true
      const reason = 'too many blocks whose parent is unknown'
      return { ...report, resync: { cause: 'orphans', reason } }
    }
    return { ...report, resync: undefined }
  }

  status(): Omit<ShardStatus, 'predictions'> {
    const stats = this.#index.stats()
    const blocksHeld: Record<number, number> = {}
    for (const workerSlot of this.#slots.keys()) blocksHeld[workerSlot] = this.#index.blocksHeld(workerSlot)
    return {
      bytesUsed: stats.bytesUsed,
      bytesLimit: stats.bytesLimit,
      blocksDistinct: stats.blocksDistinct,
      memberships: stats.memberships,
      orphanBlocks: stats.orphanBlocks,
      eventsApplied: { ...this.#applied },
      eventsSkipped: { ...this.#skipped },
      blocksRefused: stats.refusedBlocks,
      blocksEvicted: stats.evictedForSpace,
      unknownRemoves: stats.unknownRemoves,
      blocksHeld,
      layersHeld: this.#layersHeld(),
    }
  }

  dump(workerSlot: number): readonly IndexedBlock[] {
    const blocks: IndexedBlock[] = []
    if (!this.#slots.has(workerSlot)) return blocks
    for (const { engineHash, parentEngineHash, localHash } of this.#index.dump(workerSlot)) {
      blocks.push({
        engineHash: hexOf(engineHash[0], engineHash[1]),
        parentEngineHash: parentEngineHash && hexOf(parentEngineHash[0], parentEngineHash[1]),
        localHash: hexOf(localHash[0], localHash[1]),
      })
    }
    return blocks
  }

  /**
   * All that is known of a worker slot, what was predicted of it left out; undefined: it is not open, or holds more than
   * `blocksMax` blocks.
   */
  image(workerSlot: number, blocksMax?: number): KeyImage | undefined {
    const slot = this.#slots.get(workerSlot)
    if (slot === undefined) return undefined
    const used = [DEVICE_LAYER, ...LOWER_LAYERS.filter(layer => isIn(this.#layers.maskOf(workerSlot), layer))]
    const layers = used.map(layer => ({ layer, slot: this.#layers.slotOf(workerSlot, layer) }))
    const blocks = imageOf(this.#index, layers, blocksMax)
    if (blocks === undefined) return undefined
    return {
      blockSizeTokens: slot.blockSizeTokens,
      salts: [...slot.salts].map(([key, salt]) => [
        Number(BigInt.asIntN(32, key)),
        Number(key >> 32n) | 0,
        salt,
      ]),
      groups: slot.groups.records(),
      ...blocks,
    }
  }

  /** Takes over what an image says of a worker slot, which was just opened. False: not all of it found room. */
  load(workerSlot: number, image: KeyImage): boolean {
    const slot = this.#slots.get(workerSlot)
    if (slot === undefined) throw new Error(`worker slot ${workerSlot} is not open`)
    slot.blockSizeTokens = image.blockSizeTokens
    for (const [low, high, salt] of image.salts) slot.salts.set(keyOf(low, high), salt)
    slot.groups.learn(image.groups)
    const layers = new Set<number>()
    for (let i = 1; i < image.held.length; i += HELD_WORDS) layers.add(image.held[i]!)
    for (let i = 0; i < image.orphans.length; i += ORPHAN_WORDS) layers.add(image.orphans[i]!)
    const missing = [...layers].filter(layer => !this.#layers.take(workerSlot, layer))
    if (missing.length > 0) {
      this.load(workerSlot, withoutLayers(image, missing))
      return false
    }
    const slotOf = (layer: number) => this.#layers.slotOf(workerSlot, layer)
    return storeImage(this.#index, image, slotOf, layer => this.#layers.othersOf(workerSlot, layer))
  }

  #layersHeld(): ShardStatus['layersHeld'] {
    const held: Record<number, Partial<Record<KeyLayer, number>>> = {}
    for (const [keySlot, mask] of this.#layers.used()) {
      const blocks: Partial<Record<KeyLayer, number>> = {}
      for (const [layer, name] of KEY_LAYERS.entries()) {
        if (layer === DEVICE_LAYER || !isIn(mask, layer)) continue
        blocks[name] = this.#index.blocksHeld(this.#layers.slotOf(keySlot, layer))
      }
      held[keySlot] = blocks
    }
    return held
  }

  /** False: the index has no place for orphans any more. */
  #store(workerSlot: number, slot: Slot, event: KvStored, assumedSizeTokens: number | undefined): boolean {
    const { tier } = event
    if (tier === 'unknown') {
      this.#skipped.otherTier++
      return true
    }
    const layer = LAYER_OF_TIER[tier]
    const reason = this.#whySkipped(slot, event, layer, assumedSizeTokens)
    if (reason !== undefined) {
      this.#skipped[reason]++
      return true
    }
    if (!this.#layers.take(workerSlot, layer)) {
      this.#skipped.noLayer++
      return true
    }
    const { hashes, parent, tokens, blockSizeTokens } = event
    const count = hashes.length / 2
    const layerSlot = this.#layers.slotOf(workerSlot, layer)
    const others = this.#layers.othersOf(workerSlot, layer)
    if (isPlaceholder(event)) {
      if (this.#index.storeKnown(layerSlot, others, hashes, count) === 0) this.#skipped.unplaced++
      else this.#applied.stored++
      return true
    }
    const salt = this.#saltOf(slot, event)
    if (this.#locals.length < hashes.length) this.#locals = new Int32Array(hashes.length * 2)
    const seed = this.#seed(event.loraName ?? '', salt)
    hashLocals(tokens, blockSizeTokens, seed, this.#locals, 0, { media: mediaOfBlocks(event.mediaHashes) })
    const repeats = layer !== DEVICE_LAYER || (parent === undefined && count > 1)
    const copies = repeats ? 'set' : 'count'
    const outcome = this.#index.store(layerSlot, parent, hashes, this.#locals, count, copies, others)
    if (salt !== '') keepSalts(slot, hashes, salt)
    this.#applied.stored++
    return outcome !== 'overflow'
  }

  #remove(workerSlot: number, slot: Slot, event: KvRemoved): void {
    const { hashes, tier, isLocal } = event
    if (tier === 'unknown' || !isLocal || !slot.groups.accepts(event)) {
      this.#skipped[tier === 'unknown' ? 'otherTier' : isLocal ? 'otherGroup' : 'remote']++
      return
    }
    const layer = LAYER_OF_TIER[tier]
    this.#index.remove(this.#layers.slotOf(workerSlot, layer), hashes, hashes.length / 2)
    this.#applied.removed++
    if (slot.salts.size === 0) return
    const tiers = [this.#layers.slotOf(workerSlot, layer), ...this.#layers.othersOf(workerSlot, layer)]
    for (let i = 0; i < hashes.length; i += 2) {
      const key = keyOf(hashes[i]!, hashes[i + 1]!)
      if (!slot.salts.has(key)) continue
      const hash = hashes.subarray(i, i + 2)
      if (!tiers.some(tier => this.#index.has(tier, hash))) slot.salts.delete(key)
    }
  }

  /** All that events speak of. */
  #clearTiers(workerSlot: number): void {
    this.#index.clear(this.#layers.slotOf(workerSlot, DEVICE_LAYER))
    for (const layer of LOWER_LAYERS) {
      this.#index.clear(this.#layers.slotOf(workerSlot, layer))
      this.#layers.giveBack(workerSlot, layer)
    }
  }

  #whySkipped(
    slot: Slot,
    event: KvStored,
    layer: number,
    assumedSizeTokens: number | undefined,
  ): SkipReason | undefined {
    const { hashes, tokens, blockSizeTokens } = event
    if (!event.isLocal) return 'remote'
    // Also learns the groups, so it comes before what looks at the content.
    if (!slot.groups.accepts(event)) return 'otherGroup'
    if (hashes.length === 0) return 'noBlocks'
    if (isPlaceholder(event)) return undefined
    if (tokens.length === 0 || blockSizeTokens <= 0) return 'noBlocks'
    if (tokens.length !== (hashes.length / 2) * blockSizeTokens) return 'unevenTokens'
    if (layer === DEVICE_LAYER) slot.blockSizeTokens ??= blockSizeTokens
    // What a lower tier calls a block may be several of the device.
    if ((slot.blockSizeTokens ?? assumedSizeTokens ?? blockSizeTokens) !== blockSizeTokens) return 'blockSize'
    if (!isContentKnown(event)) return 'unknownContent'
    return undefined
  }

  /** The salt of the chain: named here, or by a block above. '' is none. */
  #saltOf(slot: Slot, event: KvStored): string {
    if (event.cacheSalt !== undefined) return event.cacheSalt
    const { parent } = event
    if (parent === undefined || slot.salts.size === 0) return ''
    return slot.salts.get(keyOf(parent[0]!, parent[1]!)) ?? ''
  }

  #seed(loraName: string, salt: string): Seed {
    if (loraName === '' && salt === '') return DEFAULT_SEED
    const key = `${loraName.length}:${loraName}${salt}`
    let seed = this.#seeds.get(key)
    if (seed === undefined) {
      seed = namespaceSeed({ loraName, cacheSalt: salt })
      if (this.#seeds.size >= SEEDS_MAX) this.#seeds.clear()
      this.#seeds.set(key, seed)
    }
    return seed
  }
}

/** What the other layers hold. */
function withoutLayers(image: KeyImage, missing: readonly number[]): KeyImage {
  const kept = (words: Int32Array, size: number, layerAt: number): Int32Array => {
    const records = Array.from({ length: words.length / size }, (_, i) =>
      words.subarray(i * size, (i + 1) * size),
    )
    const left = records.filter(record => !missing.includes(record[layerAt]!))
    return Int32Array.from(left.flatMap(record => [...record]))
  }
  const held = kept(image.held, HELD_WORDS, 1)
  return { ...image, held, orphans: kept(image.orphans, ORPHAN_WORDS, 0) }
}

function isIn(mask: number, layer: number): boolean {
  return (mask & (1 << layer)) !== 0
}

/** Names blocks that another tier holds, and not what is in them. */
function isPlaceholder({ tokens, blockSizeTokens }: KvStored): boolean {
  return tokens.length === 0 && blockSizeTokens === 0
}

function newSlot(): Slot {
  return {
    groups: new AttentionGroups(),
    blockSizeTokens: undefined,
    salts: new Map(),
    isOverflown: false,
    lacksLayer: false,
  }
}

function keepSalts(slot: Slot, hashes: Int32Array, salt: string): void {
  for (let i = 0; i < hashes.length && slot.salts.size < SALTED_BLOCKS_MAX; i += 2) {
    slot.salts.set(keyOf(hashes[i]!, hashes[i + 1]!), salt)
  }
}

function keyOf(low: number, high: number): bigint {
  return (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0)
}

function hexOf(low: number, high: number): string {
  return (high >>> 0).toString(16).padStart(8, '0') + (low >>> 0).toString(16).padStart(8, '0')
}
