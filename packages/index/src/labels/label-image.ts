/**
 * Label image: the records of a worker slot as words, for checkpoints and snapshots.
 *
 *   record   engine hash (2), sequence hash (2), flags, layer, expert, group, state, pool, number of ids,
 *            2 words for each id
 */

import type { LabelRecord, LabelTable } from './label-table.ts'
import type { PoolStateCode } from './pool-states.ts'

const FIXED_WORDS = 11
const HELD = 1
const LABELLED = 2
const GROUPED = 4
const IN_POOL = 8
const STATES = 5

export function labelImageOf(table: LabelTable, workerSlot: number): Int32Array {
  const words: number[] = []
  for (const { engineHash, sequenceHash, moe, place, isHeld } of table.records(workerSlot)) {
    const { state, poolId, workerIds } = place
    const flags =
      (isHeld ? HELD : 0) |
      (moe === undefined ? 0 : LABELLED) |
      (moe?.expertGroup === undefined ? 0 : GROUPED) |
      (poolId === undefined ? 0 : IN_POOL)
    words.push(...engineHash, ...sequenceHash, flags)
    words.push(moe?.layerId ?? 0, moe?.expertId ?? 0, moe?.expertGroup ?? 0)
    words.push(state, poolId ?? 0, workerIds.length / 2, ...workerIds)
  }
  return Int32Array.from(words)
}

/** Undefined: they are not the words of an image. */
export function readLabelImage(words: Int32Array): readonly LabelRecord[] | undefined {
  const records: LabelRecord[] = []
  for (let at = 0; at < words.length; ) {
    if (at + FIXED_WORDS > words.length) return undefined
    const flags = words[at + 4]!
    const state = words[at + 8]!
    const end = at + FIXED_WORDS + 2 * words[at + 10]!
    if (!(state >= 0 && state < STATES) || !(end >= at + FIXED_WORDS && end <= words.length)) return undefined
    records.push({
      engineHash: [words[at]!, words[at + 1]!],
      sequenceHash: [words[at + 2]!, words[at + 3]!],
      moe:
        (flags & LABELLED) === 0
          ? undefined
          : {
              layerId: words[at + 5]! >>> 0,
              expertId: words[at + 6]! >>> 0,
              expertGroup: (flags & GROUPED) === 0 ? undefined : words[at + 7]! >>> 0,
            },
      place: {
        state: state as PoolStateCode,
        poolId: (flags & IN_POOL) === 0 ? undefined : words[at + 9]! >>> 0,
        workerIds: words.slice(at + FIXED_WORDS, end),
      },
      isHeld: (flags & HELD) !== 0,
    })
    at = end
  }
  return records
}

/** Adds the records of an image to a worker slot. False: some found no room. */
export function loadLabels(table: LabelTable, workerSlot: number, records: readonly LabelRecord[]): boolean {
  let hasRoom = true
  for (const record of records) {
    const isTold = record.moe !== undefined || record.place.state !== 0
    if (isTold) hasRoom = table.stored({ workerSlot, ...record }) && hasRoom
  }
  return hasRoom
}
