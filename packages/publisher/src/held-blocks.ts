/**
 * Held blocks: the blocks of one worker key's cache, according to its events, to be published again as
 * stores.
 *
 *   tier  ->  engine hash  ->  { parent, tokens, traits, copies }
 *
 * Invariants
 *   I1  CacheReading (packages/protocol) interprets events: the engine holds every block that is held here. A
 *       block that comes back with another parent or other tokens replaces the held one.
 *   I2  The stores of `freeze().runs`, applied in order to an empty cache, give exactly the blocks and copies
 *       of that moment, even if events are applied meanwhile. Parents come before children if they are held.
 *   I3  `bytes` ≤ `bytesMax`. A block that finds no room is not held, and the record is no longer complete.
 *
 * A freeze (frozen-blocks.ts) has the blocks of one moment. Labels (held-labels.ts) are published with the
 * stores of their blocks. A block that is in a pool, or on its way there, and that no tier holds any more, is
 * kept in a tier of its own: its store says that the block is not local, and which pool has it.
 *
 * Events that say nothing about prefixes that this worker can use are skipped. The record is no longer
 * complete after a store whose tokens do not match its hashes, or an event of an unknown kind.
 *
 * Cost     BLOCK_BYTES and four per token for each block; a copy beyond the first is counted as a block,
 *          since a dump repeats it. Tokens of blocks that are removed while they are frozen stay until the
 *          release of the last freeze that has them: for each open freeze at most as many again. A freeze
 *          takes about an eighth of a microsecond per block, and a pointer for each until the release.
 */

import {
  addsCopies,
  CacheReading,
  HELD_TIERS,
  type HeldTier,
  type KvEvent,
  type KvStored,
  type KvTransition,
  type LeftCopies,
  type RemovableBlocks,
} from '@homing/protocol'
import { keyAt } from './engine-hash.ts'
import { type FrozenBlocks, frozenBlocks, inOrder } from './frozen-blocks.ts'
import { BLOCK_BYTES, bytesOf, type HeldBlock, type Traits } from './held-block.ts'
import { type HeldLabel, HeldLabels, isInPool } from './held-labels.ts'
import { TokenRows } from './token-rows.ts'

const NO_BLOCKS: ReadonlyMap<bigint, HeldBlock> = new Map()

/** The row of a block that is gone. The freezes after `bornAfter`, up to `goneAfter`, have the block. */
interface GoneRow {
  readonly rows: TokenRows
  readonly row: number
  readonly size: number
  readonly bornAfter: number
  readonly goneAfter: number
}

type Blocks = Map<bigint, HeldBlock>

/** Figures of the held blocks. Counters grow from creation; the rest is current. */
export interface HeldStats {
  readonly blocks: number
  /** At least `blocks`: physical copies of one block count each. */
  readonly copies: number
  readonly bytes: number
  /** Counter: blocks and copies that found no room. */
  readonly refusedBlocks: number
  /** Counter: removals of blocks that are not held. */
  readonly unknownRemoves: number
}

export class HeldBlocks implements RemovableBlocks {
  readonly #bytesMax: number
  readonly #tiers = new Map<HeldTier | 'pool', Blocks>()
  readonly #labels = new HeldLabels()
  /** By block size. */
  #rows = new Map<number, TokenRows>()
  #traits: Traits | undefined
  readonly #pooled = new WeakMap<Traits, Traits>()
  #reading = new CacheReading()
  #isWhole = true
  #mayBeStale = false
  #freezes = 0
  /** By number. */
  readonly #openFreezes = new Set<number>()
  /** Those that an open freeze has. */
  #goneRows: GoneRow[] = []
  #blocks = 0
  #copies = 0
  #bytes = 0
  #refusedBlocks = 0
  #unknownRemoves = 0

  constructor({ bytesMax }: { readonly bytesMax: number }) {
    this.#bytesMax = bytesMax
  }

  /** True: the cache holds nothing else that says anything about prefixes. */
  get isWhole(): boolean {
    return this.#isWhole
  }

  get stats(): HeldStats {
    return {
      blocks: this.#blocks,
      copies: this.#copies,
      bytes: this.#bytes + this.#labels.bytes,
      refusedBlocks: this.#refusedBlocks,
      unknownRemoves: this.#unknownRemoves,
    }
  }

  /**
   * Forgets everything. `isWhole`: the cache is known to be empty; otherwise nothing is known of it any more.
   */
  restart({ isWhole }: { readonly isWhole: boolean }): void {
    this.#forget()
    this.#reading = new CacheReading()
    this.#isWhole = isWhole
  }

  apply(event: KvEvent): void {
    if (event.kind === 'cleared') {
      this.#forget()
      this.#reading.cleared(event)
      this.#isWhole = !event.isWithdrawal
      return
    }
    if (event.kind === 'removed') {
      this.#reading.remove(event, this)
      return
    }
    if (event.kind === 'transition') {
      this.#move(event)
      return
    }
    const { revisions } = this.#reading
    const fault = this.#reading.faultOf(event)
    if (this.#reading.revisions !== revisions) {
      // The group of the held blocks says nothing about prefixes, and the stores of another group were
      // skipped.
      this.#forget()
      this.#isWhole = false
    }
    if (fault === undefined) this.#store(event, event.tier as HeldTier)
    else if (fault === 'remote' && isPoolStore(event)) this.#store(event, 'pool')
    else if (fault === 'unevenTokens') this.#isWhole = false
  }

  /**
   * An event could not be read and may have concerned any block: the cache is not fully known until it is
   * cleared.
   */
  doubt(): void {
    this.#isWhole = false
    this.#mayBeStale = true
  }

  /** Everything held now, parents first and further copies last. */
  freeze(): FrozenBlocks {
    const number = ++this.#freezes
    this.#openFreezes.add(number)
    return frozenBlocks({
      entries: inOrder(
        HELD_TIERS.map(tier => this.#tiers.get(tier) ?? NO_BLOCKS),
        this.#tiers.get('pool') ?? NO_BLOCKS,
      ),
      isWhole: this.#isWhole,
      mayBeStale: this.#mayBeStale,
      rows: this.#rows,
      labels: this.#labels.copy(),
      released: () => {
        this.#openFreezes.delete(number)
        this.#freeGoneRows()
      },
    })
  }

  /** For the reading of a removal. */
  remove(tier: HeldTier, hashes: Int32Array, copies: 'count' | 'set', left: LeftCopies): number {
    const blocks = this.#tiers.get(tier)
    let found = 0
    for (let i = 0; i < hashes.length / 2; i++) {
      const held = blocks?.get(keyAt(hashes, i))
      if (held === undefined) {
        this.#unknownRemoves++
        continue
      }
      found++
      if (copies === 'count' && held.copies > 1) {
        held.copies--
        this.#count(0, -1, -bytesOf(held))
      } else {
        if (held.copies > 1) left(hashes[2 * i]!, hashes[2 * i + 1]!, held.copies - 1)
        const tokens = this.#labels.isPooled(held.key) ? this.#tokensIn(held) : undefined
        this.#drop(blocks!, held)
        if (!this.#isHeld(held.key)) this.#leave(held, tokens)
      }
    }
    if (blocks?.size === 0) this.#tiers.delete(tier)
    return found
  }

  /** No tier holds the block any more. `tokens`: if it is in a pool and has any. */
  #leave(held: HeldBlock, tokens: Int32Array | undefined): void {
    const { key, traits } = held
    if (tokens === undefined) {
      this.#labels.removed(key)
      return
    }
    const bytes = bytesOf(held)
    if (this.#bytes + bytes > this.#bytesMax) {
      this.#refusedBlocks++
      this.#labels.removed(key)
      return
    }
    const pool = this.#tiers.get('pool') ?? new Map<bigint, HeldBlock>()
    // A store has told of it there already.
    if (pool.has(key)) return
    const row = this.#rowsOf(traits.blockSizeTokens).add(tokens, 0)
    const bornAfter = this.#freezes
    pool.set(key, { ...held, traits: this.#pooledTraits(traits), row, copies: 1, bornAfter })
    this.#tiers.set('pool', pool)
    this.#count(1, 1, bytes)
  }

  #tokensIn({ row, traits: { blockSizeTokens } }: HeldBlock): Int32Array | undefined {
    if (row < 0) return undefined
    const tokens = new Int32Array(blockSizeTokens)
    this.#rowsOf(blockSizeTokens).copyTo(row, tokens, 0)
    return tokens
  }

  #move(event: KvTransition): void {
    const pool = this.#tiers.get('pool')
    for (let i = 0; i < event.hashes.length / 2; i++) {
      const key = keyAt(event.hashes, i)
      const isHeld = this.#isHeld(key)
      if (!isHeld && this.#labels.get(key) === undefined) continue
      this.#labels.moved(key, event, this.#bytesMax)
      if (isHeld || this.#labels.isPooled(key)) continue
      const held = pool?.get(key)
      if (held !== undefined) this.#drop(pool!, held)
      this.#labels.removed(key)
    }
    if (pool?.size === 0) this.#tiers.delete('pool')
  }

  #isHeld(key: bigint): boolean {
    return HELD_TIERS.some(tier => this.#tiers.get(tier)?.has(key) === true)
  }

  #store(event: KvStored, tier: HeldTier | 'pool'): void {
    const { hashes, tokens, blockSizeTokens } = event
    const isPlaceholder = tokens.length === 0
    const isCopy = tier !== 'pool' && addsCopies(event)
    const pool = tier === 'pool' ? undefined : this.#tiers.get('pool')
    const blocks = this.#tiers.get(tier) ?? new Map<bigint, HeldBlock>()
    const traits = this.#traitsOf(event)
    const bytes = BLOCK_BYTES + 4 * (isPlaceholder ? 0 : blockSizeTokens)
    let parent = event.parent === undefined ? undefined : keyAt(event.parent, 0)
    for (let i = 0; i < hashes.length / 2; i++) {
      const key = keyAt(hashes, i)
      const label = { expert: event.labels?.experts[i], place: event.labels?.places[i] }
      if (tier === 'pool' && (this.#isHeld(key) || !isInPool(label.place))) {
        this.#labelKnown(key, label, blocks)
        parent = key
        continue
      }
      const inPool = pool?.get(key)
      if (inPool !== undefined) {
        if (!this.#isSame(inPool, parent, tokens, i * blockSizeTokens)) this.#labels.removed(key)
        this.#drop(pool!, inPool)
      }
      let held = blocks.get(key)
      if (held !== undefined && !this.#isSame(held, parent, tokens, i * blockSizeTokens)) {
        // What was said of another block under this hash is not said of this one.
        this.#labels.removed(key)
        this.#drop(blocks, held)
        held = undefined
      }
      if (held === undefined || isCopy) {
        if (this.#bytes + bytes > this.#bytesMax) {
          this.#refusedBlocks++
          this.#isWhole = false
        } else if (held !== undefined) {
          held.copies++
          this.#count(0, 1, bytes)
        } else {
          const row = isPlaceholder ? -1 : this.#rowsOf(blockSizeTokens).add(tokens, i * blockSizeTokens)
          const media = event.mediaHashes?.[i]
          blocks.set(key, {
            key,
            parent,
            traits,
            row,
            media: media === undefined || media.length === 0 ? undefined : media,
            copies: 1,
            bornAfter: this.#freezes,
          })
          this.#count(1, 1, bytes)
        }
      }
      if (isLabelled(label) && blocks.has(key)) this.#labels.stored(key, label, this.#bytesMax)
      parent = key
    }
    if (blocks.size > 0) this.#tiers.set(tier, blocks)
    else this.#tiers.delete(tier)
    if (pool?.size === 0) this.#tiers.delete('pool')
  }

  /** A store of another place says this of a block: that is news only if a tier holds it, or a pool. */
  #labelKnown(key: bigint, label: HeldLabel, pool: Blocks): void {
    const isHeld = this.#isHeld(key)
    const inPool = pool.get(key)
    if (!isLabelled(label) || (!isHeld && inPool === undefined)) return
    this.#labels.stored(key, label, this.#bytesMax)
    if (isHeld || this.#labels.isPooled(key)) return
    this.#labels.removed(key)
    this.#drop(pool, inPool!)
  }

  /** The traits of a block that is in a pool alone; blocks with the same ones share them. */
  #pooledTraits(traits: Traits): Traits {
    let pooled = this.#pooled.get(traits)
    if (pooled === undefined) {
      pooled = { ...traits, tier: 'external', isLocal: false }
      this.#pooled.set(traits, pooled)
    }
    return pooled
  }

  /** All copies. */
  #drop(blocks: Blocks, held: HeldBlock): void {
    blocks.delete(held.key)
    this.#count(-1, -held.copies, -held.copies * bytesOf(held))
    if (held.row < 0) return
    const { row, bornAfter } = held
    const size = held.traits.blockSizeTokens
    const gone: GoneRow = { rows: this.#rowsOf(size), row, size, bornAfter, goneAfter: this.#freezes }
    if (this.#isFrozen(gone)) this.#goneRows.push(gone)
    else this.#free(gone)
  }

  #isFrozen({ bornAfter, goneAfter }: GoneRow): boolean {
    for (const freeze of this.#openFreezes) if (freeze > bornAfter && freeze <= goneAfter) return true
    return false
  }

  #freeGoneRows(): void {
    const stillFrozen: GoneRow[] = []
    for (const gone of this.#goneRows) {
      if (this.#isFrozen(gone)) stillFrozen.push(gone)
      else this.#free(gone)
    }
    this.#goneRows = stillFrozen
  }

  #free({ rows, row, size }: GoneRow): void {
    rows.free(row)
    if (rows.size === 0 && this.#rows.get(size) === rows) this.#rows.delete(size)
  }

  #forget(): void {
    this.#mayBeStale = false
    this.#tiers.clear()
    this.#labels.forget()
    // Not emptied: freezes still read it.
    this.#rows = new Map()
    this.#goneRows = []
    this.#traits = undefined
    this.#blocks = 0
    this.#copies = 0
    this.#bytes = 0
  }

  #count(blocks: number, copies: number, bytes: number): void {
    this.#blocks += blocks
    this.#copies += copies
    this.#bytes += bytes
  }

  #isSame(held: HeldBlock, parent: bigint | undefined, tokens: Int32Array, from: number): boolean {
    // A placeholder says nothing of parent and tokens.
    if (tokens.length === 0) return true
    if (held.row < 0) return false
    return held.parent === parent && this.#rowsOf(held.traits.blockSizeTokens).equals(held.row, tokens, from)
  }

  #rowsOf(blockSizeTokens: number): TokenRows {
    let rows = this.#rows.get(blockSizeTokens)
    if (rows === undefined) {
      rows = new TokenRows(blockSizeTokens)
      this.#rows.set(blockSizeTokens, rows)
    }
    return rows
  }

  /** Events in a row mostly have the same traits, and share them. */
  #traitsOf(event: KvStored): Traits {
    const last = this.#traits
    if (
      last !== undefined &&
      last.blockSizeTokens === event.blockSizeTokens &&
      last.tier === event.tier &&
      last.loraName === event.loraName &&
      last.loraId === event.loraId &&
      last.cacheSalt === event.cacheSalt &&
      last.hasUnknownExtraKeys === event.hasUnknownExtraKeys &&
      last.group === event.group &&
      last.attention === event.attention &&
      last.tells === event.tells &&
      last.isLocal === event.isLocal
    ) {
      return last
    }
    const { blockSizeTokens, tier, loraName, loraId, cacheSalt, hasUnknownExtraKeys } = event
    const { group, attention, tells, isLocal } = event
    this.#traits = {
      blockSizeTokens,
      tier,
      loraName,
      loraId,
      cacheSalt,
      hasUnknownExtraKeys,
      group,
      attention,
      tells,
      isLocal,
    }
    return this.#traits
  }
}

/** A store that says something of blocks in pools. */
function isPoolStore({ labels, hashes, tokens, blockSizeTokens }: KvStored): boolean {
  if (tokens.length === 0 || tokens.length !== (hashes.length / 2) * blockSizeTokens) return false
  return labels !== undefined
}

function isLabelled({ expert, place }: HeldLabel): boolean {
  return expert !== undefined || place !== undefined
}
