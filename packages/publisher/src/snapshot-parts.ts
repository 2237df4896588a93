/**
 * Snapshot parts: the blocks of a local indexer at one moment, as batches of stores that are written one by
 * one, so that live batches are published in between.
 */

import { encodeKvBatch, type SnapshotForm } from '@homing/protocol'
import { DUMP_EVENT_BLOCKS_MAX, type LocalIndexer } from './local-indexer.ts'
import type { Snapshot } from './shared-snapshots.ts'

/** Tokens in one part: some 35 KB. A peer that does not read leaves a few parts in its socket. */
const PART_TOKENS_MAX = 8192
/** Blocks without tokens there: placeholders, and those that their hashes name, some 33 KB. */
const PART_BLOCKS_MAX = 2048
/**
 * Parts by hashes that are written in one go: their blocks are hashed then, 8192 of them in some 16 ms. Bytes
 * alone would allow eight times as many.
 */
export const BURST_HASHED_PARTS_MAX = 4

/** `batch`: members of the parts' batches other than their events. */
export function snapshotOf(
  local: LocalIndexer,
  batch: { readonly timestampSeconds: number; readonly rank: number | undefined },
  form: SnapshotForm,
): Snapshot {
  const nextSequence = local.nextEventId
  const frozen = local.freeze()
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
  const { isWhole, mayBeStale, offersHashes, release } = frozen
  return { form, nextSequence, isWhole, mayBeStale, offersHashes, parts: starts.length, part, release }
}
