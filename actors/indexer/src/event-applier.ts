/**
 * Event applier: turns the KV events of worker keys into stores and removes of one `BlockIndex`.
 *
 * What counts
 *   R1  CacheReading (packages/protocol) interprets events: groups, copies, tiers. Skipped events are counted
 *       by reason. Each tier is a layer of its own. A placeholder (no tokens, block size 0) names blocks that
 *       another tier holds; blocks that no tier holds are skipped.
 *   R2  Tokens are hashed here, in the namespace of their chain (adapter and cache salt); engine hashes are
 *       handles. A chain whose content is not in its tokens (adapter known by number only, prompt
 *       embeddings) is skipped.
 *   R3  Blocks below the first one of a chain inherit its salt (block-salts.ts). Stores by local hashes are
 *       skipped in salted chains: these are without a salt, and prompts that have none would find the blocks.
 *   R4  Not every event names the separator that distinguishes a chain from others with the same tokens. A
 *       chain and the blocks below it are credited to no worker key if the chain begins like a prompt that
 *       was sent with a separator, and its event does not say that it has none (namespaced-beginnings.ts).
 *       Prompts that bypass the router show as two hashes of equal tokens: then the source is told.
 *   R5  The first block stored on the device decides the block size of a slot; blocks of another size are
 *       skipped. A lower tier that stores larger ones, as LMCache does, is not followed, and the source is
 *       told.
 *   R6  A parent may be on any tier: the device evicts blocks that the host keeps. A clear clears all tiers.
 *
 * Cost: one hash per block, and that of the index. Memory: per slot, one entry per block of a salted
 * chain, within a bound.
 */

import {
  DEFAULT_SEED,
  hashLocals,
  NOBODYS_SEED,
  namespaceSeed,
  type Seed,
  writeStoreLocals,
} from '@homing/blocks'
import {
  type BlockIndex,
  createLabelMemory,
  DEVICE_LAYER,
  HELD_WORDS,
  imageOf,
  KEY_LAYERS,
  type KeyLayer,
  LABEL_SHAPE,
  type LabelShape,
  ORPHAN_WORDS,
  storeImage,
} from '@homing/index'
import {
  ADAPTER,
  ALL_SEPARATORS,
  addsCopies,
  CacheReading,
  HELD_TIERS,
  type HeldTier,
  isContentKnown,
  isPlaceholder,
  type KvCleared,
  type KvEvent,
  type KvRemoved,
  type KvStored,
  type KvTransition,
  SALT,
  type SeparatedPrompt,
} from '@homing/protocol'
import { BlockSalts, type Salt } from './block-salts.ts'
import { EventLabels } from './event-labels.ts'
import { OTHER_LIFE, TWINS, unknownText } from './lacking-texts.ts'
import type { LayerSlots } from './layer-slots.ts'
import type { Churn, KeyImage, ResyncCause, ShardStatus, SkipReason } from './messages.ts'
import { MarkRoom, NamespacedBeginnings } from './namespaced-beginnings.ts'
import { LAYER_OF_TIER, SlotBlocks, withoutLayers } from './slot-blocks.ts'

/** The result of a batch of events. */
export interface ApplyReport {
  /** Why the source must be rebuilt; undefined: it need not be. */
  readonly resync: Resync | undefined
  /** The block size of the engine, when it differs from the size that the caller assumed. */
  readonly learnedBlockSizeTokens: number | undefined
  /** The cache was cleared: guesses about it are void too. */
  readonly wasCleared: boolean
  /** Why the index lacks some of the engine's blocks, reported once per opening; undefined: it lacks none. */
  readonly lacks: string | undefined
  /**
   * Blocks that may belong to prompts with separators are credited to no worker key; reported once per
   * opening.
   */
  readonly isUnclear: boolean
}

export interface Resync {
  readonly cause: ResyncCause
  readonly reason: string
}

const LOWER_LAYERS = [LAYER_OF_TIER.host, LAYER_OF_TIER.disk, LAYER_OF_TIER.external]

const SEEDS_MAX = 4096

/** What is known of a worker slot since it was opened. */
interface Slot {
  readonly reading: CacheReading
  blockSizeTokens: number | undefined
  readonly salts: BlockSalts
  /** Separators that some event has named. An engine that names one once always names it. */
  told: number
  /** Separators that the chain of some event may have, though the event names none. */
  untold: number
  /** Separators of prompts that were sent to this slot and whose tokens are unknown. */
  unknownSeparators: number
  /** There were more orphans than allowed; reported to the source once per opening. */
  isOverflown: boolean
  /** Why blocks of equal tokens have several hashes; undefined: none have. */
  twins: string | undefined
  /** It was reported that blocks are credited to no worker key. */
  isUnclear: boolean
  /** The source knows that the index lacks some of its blocks; a clear ends this. */
  isLacking: boolean
  /** On the device since `takeChurn`: blocks that went, and blocks that were stored while they were held. */
  removedBlocks: number
  repeatedBlocks: number
}

/** Why a skipped event leaves the index without something that the engine holds. */
const LACKS: Readonly<Partial<Record<SkipReason, string>>> = {
  noLayer: 'the index has no room for another lower tier of a worker key (--worker-slots-max)',
  unevenTokens: 'its engine stores blocks whose token count does not match their number',
  otherTier: 'its engine stores blocks on a tier whose name is not known',
  tierBlockSize:
    'its engine stores blocks of another size on the host or on disk than on the device: only those on the device count; have both stored in blocks of one size',
  unnamedAdapter:
    'its events name an adapter by number only, so blocks of adapters are credited to no worker: vLLM names them since 0.13',
}

export class EventApplier {
  readonly labels: EventLabels
  readonly #index: BlockIndex
  readonly #layers: LayerSlots
  readonly #removable: SlotBlocks
  readonly #slots = new Map<number, Slot>()
  /**
   * By worker slot, from the first such prompt until its key is gone: the events after another opening may
   * contain the blocks of these prompts again.
   */
  readonly #separated = new Map<number, NamespacedBeginnings>()
  readonly #markRoom = new MarkRoom()
  /** By worker slot with earlier keys: prompts of an earlier epoch were sent to those keys. */
  readonly #separatedFrom = new Map<number, number>()
  /**
   * Slots to be rebuilt because of their cache groups; the rebuilt slot keeps what it learned of the groups.
   */
  readonly #revised = new Set<number>()
  readonly #seeds = new Map<string, Seed>()
  #locals = new Int32Array(1024)
  #unclear = 0
  readonly #applied = { stored: 0, removed: 0, cleared: 0, transition: 0 }
  readonly #skipped: Record<SkipReason, number> = {
    otherTier: 0,
    remote: 0,
    otherGroup: 0,
    noBlocks: 0,
    unevenTokens: 0,
    unplaced: 0,
    noLayer: 0,
    blockSize: 0,
    tierBlockSize: 0,
    unknownContent: 0,
    unnamedAdapter: 0,
    unopened: 0,
  }

  /** `labelBytes`: of the label table; 0 keeps no labels. `keepsOrphans`: see IndexerArgs. */
  constructor(
    index: BlockIndex,
    layers: LayerSlots,
    labelBytes = 0,
    keepsOrphans = false,
    labelShape: LabelShape = LABEL_SHAPE,
  ) {
    this.#index = index
    this.#layers = layers
    const memory = labelBytes === 0 ? undefined : createLabelMemory(labelBytes, labelShape)
    this.labels = new EventLabels(index, layers, memory, keepsOrphans)
    this.#removable = new SlotBlocks(index, layers)
  }

  /**
   * Forgets everything about a worker slot; from now on its events are accepted. `isParted`: its worker
   * cannot be heard, and what it has pooled for others stays.
   */
  open(workerSlot: number, isParted = false): void {
    this.labels.leavingAll(workerSlot)
    this.#clearTiers(workerSlot)
    if (isParted) this.labels.part(workerSlot)
    else this.labels.clear(workerSlot)
    const slot = newSlot()
    // Read only now: since the revision the slot may have learned more groups, or been released.
    const before = this.#revised.delete(workerSlot) ? this.#slots.get(workerSlot) : undefined
    if (before !== undefined) slot.reading.learn({ groups: before.reading.record().groups })
    this.#slots.set(workerSlot, slot)
  }

  /**
   * A prompt with separators is being sent to a worker slot, or may have been. Returns what its source must
   * be told when neither the router nor the events tell which blocks belong to the prompt. `epoch`: of the
   * worker key that the prompt is sent to; undefined: of the key that has the slot.
   */
  separated(workerSlot: number, prompt: SeparatedPrompt, epoch?: number): string | undefined {
    if (epoch !== undefined && epoch < (this.#separatedFrom.get(workerSlot) ?? 0)) return undefined
    let prompts = this.#separated.get(workerSlot)
    if (prompts === undefined) {
      prompts = new NamespacedBeginnings(this.#markRoom)
      this.#separated.set(workerSlot, prompts)
    }
    prompts.add(prompt)
    const slot = this.#slots.get(workerSlot)
    if (slot === undefined) return undefined
    slot.unknownSeparators |= prompts.unknownOf(slot.untold)
    if (slot.unknownSeparators === 0 || slot.isLacking) return undefined
    slot.isLacking = true
    return unknownText(slot.unknownSeparators)
  }

  /**
   * The key of a worker slot is gone: requests sent to the slot before this epoch say nothing about the next
   * key.
   */
  forgetSeparated(workerSlot: number, epoch: number): void {
    this.#separatedFrom.set(workerSlot, epoch)
    this.#separated.get(workerSlot)?.end()
    this.#separated.delete(workerSlot)
  }

  /**
   * Forgets what events said about a worker slot, but for what it has pooled; its events are refused until it
   * is opened again.
   */
  release(workerSlot: number): void {
    this.labels.leavingAll(workerSlot)
    this.#clearTiers(workerSlot)
    this.labels.release(workerSlot)
    this.#slots.delete(workerSlot)
    this.#revised.delete(workerSlot)
  }

  /** Does one bounded step of maintenance; true when more is due. */
  maintain(): boolean {
    return this.#index.maintain()
  }

  /** What went and what came twice on the device since the last call, or since the slot was opened. */
  takeChurn(workerSlot: number): Churn {
    const slot = this.#slots.get(workerSlot)
    if (slot === undefined) return { removedBlocks: 0, repeatedBlocks: 0 }
    const { removedBlocks, repeatedBlocks } = slot
    slot.removedBlocks = slot.repeatedBlocks = 0
    return { removedBlocks, repeatedBlocks }
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
        resync: { cause: 'lost', reason: 'the index was reset' },
        learnedBlockSizeTokens: undefined,
        wasCleared: false,
        lacks: undefined,
        isUnclear: false,
      }
    }
    const unclear = this.#unclear
    const revisions = slot.reading.revisions
    let overflows = false
    let wasCleared = false
    let lacks: string | undefined
    for (const event of events) {
      if (event.kind === 'cleared') {
        this.#clear(workerSlot, slot, event)
        wasCleared = true
        lacks = undefined
        continue
      }
      const outcome =
        event.kind === 'stored'
          ? this.#store(workerSlot, slot, event, blockSizeTokens)
          : event.kind === 'removed'
            ? this.#remove(workerSlot, slot, event)
            : this.#move(workerSlot, event)
      if (outcome === 'overflow') overflows = true
      else if (outcome !== 'applied') {
        this.#skipped[outcome]++
        if (!slot.isLacking) lacks ??= LACKS[outcome]
      }
      if (slot.isLacking) continue
      if (slot.unknownSeparators !== 0) lacks ??= unknownText(slot.unknownSeparators)
      else if (slot.twins !== undefined) lacks ??= slot.twins
    }
    if (lacks !== undefined) slot.isLacking = true
    const learned = slot.blockSizeTokens
    const learnedBlockSizeTokens = learned === blockSizeTokens ? undefined : learned
    const isUnclear = this.#unclear > unclear && !slot.isUnclear
    if (isUnclear) slot.isUnclear = true
    const report = { learnedBlockSizeTokens, wasCleared, lacks, isUnclear }
    if (slot.reading.revisions !== revisions) {
      this.#revised.add(workerSlot)
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

  status(): Omit<ShardStatus, 'guesses'> {
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
      unclearStores: this.#unclear,
      blocksRefused: stats.refusedBlocks,
      blocksEvicted: stats.evictedForSpace,
      unknownRemoves: stats.unknownRemoves,
      blocksHeld,
      layersHeld: this.#layersHeld(),
      labels: this.labels.status(),
    }
  }

  /**
   * Everything known of a worker slot, without guesses. Undefined: the slot is not open, or holds more than
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
      salts: slot.salts.image(),
      reading: slot.reading.record(),
      ...blocks,
      labels: this.labels.image(workerSlot),
    }
  }

  /** Takes over the image of a worker slot, which was just opened. False: some blocks found no room. */
  load(workerSlot: number, image: KeyImage): boolean {
    const slot = this.#slots.get(workerSlot)
    if (slot === undefined) throw new Error(`worker slot ${workerSlot} is not open`)
    slot.blockSizeTokens = image.blockSizeTokens
    slot.salts.load(image.salts)
    slot.reading.learn(image.reading)
    const layers = new Set<number>()
    for (let i = 1; i < image.held.length; i += HELD_WORDS) layers.add(image.held[i]!)
    for (let i = 0; i < image.orphans.length; i += ORPHAN_WORDS) layers.add(image.orphans[i]!)
    const missing = [...layers].filter(layer => !this.#layers.take(workerSlot, layer))
    if (missing.length > 0) {
      this.load(workerSlot, withoutLayers(image, missing))
      return false
    }
    const slotOf = (layer: number) => this.#layers.slotOf(workerSlot, layer)
    this.labels.load(workerSlot, image.labels)
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

  /** `overflow`: the index has no room for more orphans. */
  #store(
    workerSlot: number,
    slot: Slot,
    event: KvStored,
    assumedSizeTokens: number | undefined,
  ): 'applied' | 'overflow' | SkipReason {
    const fault = slot.reading.faultOf(event)
    if (fault === 'remote' && this.#labelElsewhere(workerSlot, slot, event)) return 'applied'
    if (fault !== undefined) return fault
    slot.told |= separatorsOf(event)
    const layer = LAYER_OF_TIER[event.tier as HeldTier]
    const { hashes, parent, blockSizeTokens } = event
    const count = hashes.length / 2
    if (!isPlaceholder(event)) {
      if (layer === DEVICE_LAYER) slot.blockSizeTokens ??= blockSizeTokens
      // One block of a lower tier may be several blocks of the device.
      if ((slot.blockSizeTokens ?? assumedSizeTokens ?? blockSizeTokens) !== blockSizeTokens)
        return layer === DEVICE_LAYER ? 'blockSize' : 'tierBlockSize'
      if (!isContentKnown(event)) return event.hasUnknownExtraKeys ? 'unknownContent' : 'unnamedAdapter'
    }
    if (!this.#layers.take(workerSlot, layer)) return 'noLayer'
    const layerSlot = this.#layers.slotOf(workerSlot, layer)
    const others = this.#layers.othersOf(workerSlot, layer)
    if (isPlaceholder(event)) {
      if (this.#index.storeKnown(layerSlot, others, hashes, count) === 0) return 'unplaced'
      this.#applied.stored++
      return 'applied'
    }
    const untold = ALL_SEPARATORS & ~(event.tells | slot.told)
    slot.untold |= untold
    const salt = this.#saltOf(workerSlot, slot, event, untold)
    // Local hashes without the salt of their chain are those of other prompts.
    if (event.localHashes !== undefined && salt !== null && salt !== '') return 'unknownContent'
    this.#hash(event, salt)
    if (parent === undefined && salt !== null && layer === DEVICE_LAYER && slot.twins === undefined) {
      if (this.#index.isHeldOtherwise(layerSlot, this.#locals, hashes))
        slot.twins = untold === 0 ? OTHER_LIFE : TWINS
    }
    const copies = addsCopies(event) ? 'count' : 'set'
    const repeated = this.#index.duplicateStores
    const outcome = this.#index.store(layerSlot, parent, hashes, this.#locals, count, copies, others)
    if (layer === DEVICE_LAYER) slot.repeatedBlocks += this.#index.duplicateStores - repeated
    if (this.labels.concerns(workerSlot, event)) this.labels.stored(workerSlot, event, this.#locals, true)
    slot.salts.keep(hashes, salt)
    this.#applied.stored++
    if (salt === null) this.#unclear++
    return outcome === 'overflow' ? 'overflow' : 'applied'
  }

  /** Local hashes of its blocks, into `#locals`. */
  #hash(event: KvStored, salt: Salt): void {
    const { hashes, loraName } = event
    if (this.#locals.length < hashes.length) this.#locals = new Int32Array(hashes.length * 2)
    writeStoreLocals(event, this.#seed(loraName ?? '', salt ?? ''), this.#locals)
    // The hash of their hash, which is the same whichever of the two the event has.
    if (salt === null) hashLocals(this.#locals.slice(0, hashes.length), 2, NOBODYS_SEED, this.#locals)
  }

  /** Blocks that are in a pool alone. False: it says nothing of pools, or not what the blocks hold. */
  #labelElsewhere(workerSlot: number, slot: Slot, event: KvStored): boolean {
    const { labels, hashes, tokens, blockSizeTokens } = event
    if (labels === undefined || !isContentKnown(event) || blockSizeTokens === 0) return false
    if (tokens.length !== (hashes.length / 2) * blockSizeTokens) return false
    if ((slot.blockSizeTokens ?? blockSizeTokens) !== blockSizeTokens) return false
    const salt = this.#saltOf(workerSlot, slot, event, ALL_SEPARATORS & ~(event.tells | slot.told))
    this.#hash(event, salt)
    this.labels.stored(workerSlot, event, this.#locals, false)
    slot.salts.keep(hashes, salt)
    return true
  }

  #remove(workerSlot: number, slot: Slot, event: KvRemoved): 'applied' | SkipReason {
    this.#removable.workerSlot = workerSlot
    this.#removable.fromDevice = 0
    const leaving = this.labels.leaving(workerSlot, event.hashes)
    const fault = slot.reading.remove(event, this.#removable)
    slot.removedBlocks += this.#removable.fromDevice
    if (fault !== undefined) return fault
    this.#applied.removed++
    this.labels.removed(workerSlot, event.hashes, leaving)
    slot.salts.removed(event.hashes, hash =>
      HELD_TIERS.some(tier => this.#index.has(this.#layers.slotOf(workerSlot, LAYER_OF_TIER[tier]), hash)),
    )
    return 'applied'
  }

  #move(workerSlot: number, event: KvTransition): 'applied' {
    this.labels.transition(workerSlot, event)
    this.#applied.transition++
    return 'applied'
  }

  #clear(workerSlot: number, slot: Slot, event: KvCleared): void {
    this.#applied.cleared++
    slot.removedBlocks += this.#index.blocksHeld(this.#layers.slotOf(workerSlot, DEVICE_LAYER))
    this.labels.leavingAll(workerSlot)
    this.#clearTiers(workerSlot)
    this.labels.clear(workerSlot)
    slot.salts.clear()
    slot.reading.cleared(event)
    slot.told = 0
    slot.untold = 0
    slot.unknownSeparators = 0
    slot.twins = undefined
    slot.isLacking = false
  }

  /** Clears every tier that events can fill. */
  #clearTiers(workerSlot: number): void {
    this.#index.clear(this.#layers.slotOf(workerSlot, DEVICE_LAYER))
    for (const layer of LOWER_LAYERS) {
      this.#index.clear(this.#layers.slotOf(workerSlot, layer))
      this.#layers.giveBack(workerSlot, layer)
    }
  }

  /**
   * The salt of the chain, named by this event or by a block above. '': no salt; null: the chain is credited
   * to no worker key.
   */
  #saltOf(workerSlot: number, slot: Slot, event: KvStored, untold: number): Salt {
    const { parent, hashes, tokens, cacheSalt, loraName } = event
    if (parent !== undefined) return cacheSalt === undefined ? slot.salts.of(parent) : cacheSalt
    const separated = untold === 0 ? undefined : this.#separated.get(workerSlot)
    if (separated !== undefined) {
      slot.unknownSeparators |= separated.unknownOf(untold)
      if (separated.mayBegin(tokens, this.#seed(loraName ?? '', cacheSalt ?? ''), untold)) return null
    }
    if (cacheSalt !== undefined) return cacheSalt
    if (untold === 0) return ''
    // A block already known under this engine hash is the same block, with the same salt.
    const known = slot.salts.of(hashes)
    return known === null || (untold & SALT) !== 0 ? known : ''
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

function isIn(mask: number, layer: number): boolean {
  return (mask & (1 << layer)) !== 0
}

function newSlot(): Slot {
  return {
    reading: new CacheReading(),
    blockSizeTokens: undefined,
    salts: new BlockSalts(),
    told: 0,
    untold: 0,
    unknownSeparators: 0,
    twins: undefined,
    isUnclear: false,
    isOverflown: false,
    isLacking: false,
    removedBlocks: 0,
    repeatedBlocks: 0,
  }
}

/** The separators that the event names. */
function separatorsOf({ cacheSalt, loraName, loraId }: KvStored): number {
  return (cacheSalt === undefined ? 0 : SALT) | ((loraName ?? loraId) === undefined ? 0 : ADAPTER)
}
