/**
 * Frozen blocks: the held blocks of one moment, in the order in which their stores give them again, and these
 * stores, in runs of neighbours.
 *
 * Parents come before children if they are held, and further copies last. In the form `hashes` a store names
 * its blocks by the hashes of what they hold, where nothing else says what that is.
 */

import { DEFAULT_SEED, hashLocals, mediaOfBlocks, namespaceSeed } from '@homing/blocks'
import { ALL_SEPARATORS, type KvStored, kvStored, type SnapshotForm } from '@homing/protocol'
import { wordsOf } from './engine-hash.ts'
import { type HeldBlock, type Traits, tokensOf } from './held-block.ts'
import { type HeldLabel, labelsOf } from './held-labels.ts'
import type { TokenRows } from './token-rows.ts'

/** Everything held at one moment. Must be released, or it keeps its memory. */
export interface FrozenBlocks {
  /** Blocks and further copies. */
  readonly size: number
  readonly isWhole: boolean
  /** A removal may have been among what could not be read. */
  readonly mayBeStale: boolean
  /** In the form `hashes` some blocks go by their hashes; else that form is of no use. */
  readonly offersHashes: boolean
  /** Tokens of entry i in its store; 0 for a placeholder. */
  tokensAt(index: number, form?: SnapshotForm): number
  /**
   * Stores for entries `from` to `to` − 1, in runs of at most `eventBlocksMax` blocks. `form`: how they name
   * their blocks, where they can; default `tokens`.
   */
  runs(from: number, to: number, eventBlocksMax: number, form?: SnapshotForm): Generator<KvStored>
  /** Idempotent. */
  release(): void
}

/** What a freeze takes. */
export interface FrozenParts extends Pick<FrozenBlocks, 'isWhole' | 'mayBeStale'> {
  /** In the order of `inOrder`. */
  readonly entries: HeldBlock[]
  /** By block size. */
  readonly rows: ReadonlyMap<number, TokenRows>
  readonly labels: ReadonlyMap<bigint, HeldLabel>
  /** Called once. */
  readonly released: () => void
}

/** Keeps `entries` until the release. */
export function frozenBlocks({
  entries,
  isWhole,
  mayBeStale,
  rows,
  labels,
  released,
}: FrozenParts): FrozenBlocks {
  const isHashed = isAnySalted(entries) ? () => false : hasLocalHash
  let isOpen = true
  return {
    size: entries.length,
    isWhole,
    mayBeStale,
    offersHashes: entries.some(isHashed),
    tokensAt: (index, form) => {
      const block = entries[index]!
      return form === 'hashes' && isHashed(block) ? 0 : tokensOf(block)
    },
    runs: (from, to, eventBlocksMax, form) => {
      const named = form === 'hashes' ? isHashed : () => false
      return runs(entries, { from, to, eventBlocksMax }, named, rows, labels)
    },
    release: () => {
      if (!isOpen) return
      isOpen = false
      entries.length = 0
      released()
    },
  }
}

/**
 * The blocks of all tiers, parents first and further copies last. `tiers`: the device first, since a block
 * that is known there may be stored elsewhere without its tokens. `pool`: blocks that are in a pool alone.
 */
export function inOrder(
  tiers: readonly ReadonlyMap<bigint, HeldBlock>[],
  pool: ReadonlyMap<bigint, HeldBlock>,
): HeldBlock[] {
  const entries: HeldBlock[] = []
  for (const blocks of tiers) {
    let repeated = putParentsFirst(blocks, entries)
    for (let copy = 2; repeated.length > 0; copy++) {
      for (const block of repeated) entries.push(block)
      repeated = repeated.filter(({ copies }) => copies > copy)
    }
  }
  for (const block of putParentsFirst(pool, entries)) entries.push(block)
  return entries
}

/**
 * Appends the blocks in the order of their stores, but for parents that came back later than a child. Answers
 * those with more copies than one, in that order.
 */
function putParentsFirst(blocks: ReadonlyMap<bigint, HeldBlock>, entries: HeldBlock[]): readonly HeldBlock[] {
  const repeated: HeldBlock[] = []
  const path: HeldBlock[] = []
  for (const block of blocks.values()) {
    // A block that was seen ends the path: it stands in front already, or the parents go in a circle.
    for (let at: HeldBlock | undefined = block; at !== undefined && at.bornAfter >= 0; ) {
      at.bornAfter = ~at.bornAfter
      path.push(at)
      // Mostly the parent is the one before, and needs no search.
      at = at.parent === undefined || at.parent === entries.at(-1)?.key ? undefined : blocks.get(at.parent)
    }
    for (let next = path.pop(); next !== undefined; next = path.pop()) {
      entries.push(next)
      if (next.copies > 1) repeated.push(next)
    }
  }
  for (const block of blocks.values()) block.bornAfter = ~block.bornAfter
  return repeated
}

/**
 * Below the first block of a chain events do not name its salt, so here it is not known which blocks are
 * salted where any is.
 */
function isAnySalted(entries: readonly HeldBlock[]): boolean {
  let last: Traits | undefined
  for (const { traits } of entries) {
    if (traits === last) continue
    if (traits.cacheSalt !== undefined) return true
    last = traits
  }
  return false
}

/** What the block holds is in its tokens, its media and the name of its adapter. */
function hasLocalHash(block: HeldBlock): boolean {
  const { row, traits, parent } = block
  if (row < 0 || !traits.isLocal || traits.hasUnknownExtraKeys) return false
  if (traits.loraId !== undefined && traits.loraName === undefined) return false
  // A reader compares the beginning of a prompt that may have separators which the events do not name.
  return parent !== undefined || traits.tells === ALL_SEPARATORS
}

interface Range {
  readonly from: number
  readonly to: number
  readonly eventBlocksMax: number
}

/** Stores of neighbours that follow each other in a prompt. */
function* runs(
  entries: readonly HeldBlock[],
  { from: start, to: end, eventBlocksMax }: Range,
  isHashed: (block: HeldBlock) => boolean,
  rows: ReadonlyMap<number, TokenRows>,
  labels: ReadonlyMap<bigint, HeldLabel>,
): Generator<KvStored> {
  let from = start
  for (let i = start + 1; i <= end; i++) {
    const before = entries[i - 1]!
    const block = i < end ? entries[i]! : undefined
    const goesOn =
      block !== undefined &&
      i - from < eventBlocksMax &&
      block.parent === before.key &&
      block.traits === before.traits &&
      block.row < 0 === before.row < 0 &&
      isHashed(block) === isHashed(before)
    if (goesOn) continue
    const run = runOf(entries.slice(from, i), rows, labels)
    yield isHashed(before) ? named(run) : run
    from = i
  }
}

function runOf(
  blocks: readonly HeldBlock[],
  rows: ReadonlyMap<number, TokenRows>,
  labels: ReadonlyMap<bigint, HeldLabel>,
): KvStored {
  const first = blocks[0]!
  const keys = blocks.map(({ key }) => key)
  const size = tokensOf(first)
  const tokens = new Int32Array(blocks.length * size)
  if (size > 0) {
    const rowsOfSize = rows.get(size)!
    for (let i = 0; i < blocks.length; i++) rowsOfSize.copyTo(blocks[i]!.row, tokens, i * size)
  }
  return kvStored({
    ...first.traits,
    hashes: wordsOf(keys),
    labels: labelsOf(keys, labels),
    parent: first.parent === undefined ? undefined : wordsOf([first.parent]),
    tokens,
    mediaHashes: blocks.some(({ media }) => media !== undefined)
      ? blocks.map(({ media }) => media ?? [])
      : undefined,
  })
}

const NO_TOKENS = new Int32Array(0)

/** The same store, by local hashes. */
function named(run: KvStored): KvStored {
  const { hashes, tokens, blockSizeTokens, loraName, mediaHashes } = run
  const seed = loraName === undefined ? DEFAULT_SEED : namespaceSeed({ loraName })
  const localHashes = new Int32Array(hashes.length)
  hashLocals(tokens, blockSizeTokens, seed, localHashes, 0, { media: mediaOfBlocks(mediaHashes) })
  return { ...run, tokens: NO_TOKENS, mediaHashes: undefined, localHashes }
}
