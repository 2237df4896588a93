/**
 * Snapshot parts: the blocks of a local indexer at one moment, as batches of stores that are written one by
 * one, so that live batches are published in between.
 */

import { encodeKvBatch, type KvBatch, type SnapshotForm } from '@homing/protocol'
import type { FrozenBlocks } from './frozen-blocks.ts'
import { DUMP_EVENT_BLOCKS_MAX, type LocalIndexer } from './local-indexer.ts'
import type { Snapshot, SnapshotParts } from './shared-snapshots.ts'

/** Tokens in one part: some 35 KB. A peer that does not read leaves a few parts in its socket. */
const PART_TOKENS_MAX = 8192
/** Blocks without tokens there: placeholders, and those that their hashes name, some 33 KB. */
const PART_BLOCKS_MAX = 2048
/**
 * Parts by hashes that are written in one go: their blocks are hashed then, 8192 of them in some 16 ms. Bytes
 * alone would allow eight times as many.
 */
export const BURST_HASHED_PARTS_MAX = 4

/** Members of the parts' batches other than their events. */
type PartBatch = Pick<KvBatch, 'timestampSeconds' | 'rank'>

export function snapshotOf(local: LocalIndexer, batch: PartBatch): Snapshot {
  const nextSequence = local.nextEventId
  const frozen = local.freeze()
  const { isWhole, mayBeStale, offersHashes, release } = frozen
  return {
    nextSequence,
    isWhole,
    mayBeStale,
    offersHashes,
    in: form => partsOf(frozen, batch, form),
    release,
  }
}

function partsOf(frozen: FrozenBlocks, batch: PartBatch, form: SnapshotForm): SnapshotParts {
  // Where each part begins; an empty cache has one part without events.
  const starts = [0]
  let tokens = 0
  for (let i = 0; i < frozen.size; i++) {
    if (tokens >= PART_TOKENS_MAX || i - starts.at(-1)! >= PART_BLOCKS_MAX) {
      starts.push(i)
      tokens = 0
    }
    tokens += frozen.tokensAt(i, form)
  }
  const part = (index: number): Uint8Array => {
    const to = starts[index + 1] ?? frozen.size
    const events = [...frozen.runs(starts[index]!, to, DUMP_EVENT_BLOCKS_MAX, form)]
    return encodeKvBatch({ ...batch, events }, 'vllm-map')
  }
  return { count: starts.length, part }
}
