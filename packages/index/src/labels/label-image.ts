/**
 * Label image: the records of a worker slot as words, for checkpoints and snapshots. No words: no records.
 *
 *   image    IMAGE_FORMAT, number of sets, the sets, the records
 *   set      number of ids, 2 words for each id
 *   record   engine hash (2), sequence hash (2), flags, layer, expert, group, state, pool, set: 0 for none,
 *            or its place in the list of sets, from 1
 */

import type { LabelRecord } from './label-record.ts'
import type { LabelTable } from './label-table.ts'
import type { PoolStateCode } from './pool-states.ts'

/** An image of another form does not begin like this. */
const IMAGE_FORMAT = 0x4c42_0002
const IMAGE_HEAD_WORDS = 2
const IMAGE_RECORD_WORDS = 11
const HELD = 1
const LABELLED = 2
const GROUPED = 4
const IN_POOL = 8
const STATES = 5
/** 64 MiB: about 1.5 million records. */
export const LABEL_IMAGE_WORDS_MAX = 1 << 24

const NO_IDS = new Int32Array(0)

/** Undefined: it would have more than `wordsMax` words. */
export function labelImageOf(
  table: LabelTable,
  workerSlot: number,
  wordsMax = LABEL_IMAGE_WORDS_MAX,
): Int32Array | undefined {
  // The table gives the same array for the same set.
  const sets = new Map<Int32Array, number>()
  const records = table.recordsOf(workerSlot)
  if (records === 0) return NO_IDS
  let size = IMAGE_HEAD_WORDS + IMAGE_RECORD_WORDS * records
  if (size > wordsMax) return undefined
  const recordWords = new Int32Array(IMAGE_RECORD_WORDS * records)
  let at = 0
  for (const { engineHash, sequenceHash, moe, place, isHeld } of table.records(workerSlot)) {
    const { state, poolId, workerIds } = place
    let set = workerIds.length === 0 ? 0 : sets.get(workerIds)
    if (set === undefined) {
      set = sets.size + 1
      sets.set(workerIds, set)
      size += 1 + workerIds.length
      if (size > wordsMax) return undefined
    }
    recordWords[at++] = engineHash[0]
    recordWords[at++] = engineHash[1]
    recordWords[at++] = sequenceHash[0]
    recordWords[at++] = sequenceHash[1]
    recordWords[at++] =
      (isHeld ? HELD : 0) |
      (moe === undefined ? 0 : LABELLED) |
      (moe?.expertGroup === undefined ? 0 : GROUPED) |
      (poolId === undefined ? 0 : IN_POOL)
    recordWords[at++] = moe?.layerId ?? 0
    recordWords[at++] = moe?.expertId ?? 0
    recordWords[at++] = moe?.expertGroup ?? 0
    recordWords[at++] = state
    recordWords[at++] = poolId ?? 0
    recordWords[at++] = set
  }
  const words = new Int32Array(size)
  words[0] = IMAGE_FORMAT
  words[1] = sets.size
  let end = IMAGE_HEAD_WORDS
  for (const ids of sets.keys()) {
    words[end] = ids.length / 2
    words.set(ids, end + 1)
    end += 1 + ids.length
  }
  words.set(recordWords, end)
  return words
}

/** Undefined: they are not the words of an image. */
export function readLabelImage(words: Int32Array): readonly LabelRecord[] | undefined {
  if (words.length === 0) return []
  if (words.length < IMAGE_HEAD_WORDS || words[0] !== IMAGE_FORMAT) return undefined
  const setsEnd = words[1]!
  const sets: Int32Array[] = [NO_IDS]
  let at = IMAGE_HEAD_WORDS
  while (sets.length <= setsEnd) {
    const count = words[at] ?? -1
    const end = at + 1 + 2 * count
    if (!(count >= 0 && end <= words.length)) return undefined
    sets.push(words.slice(at + 1, end))
    at = end
  }
  if ((words.length - at) % IMAGE_RECORD_WORDS !== 0) return undefined
  const records: LabelRecord[] = []
  for (; at < words.length; at += IMAGE_RECORD_WORDS) {
    const flags = words[at + 4]!
    const state = words[at + 8]!
    const workerIds = sets[words[at + 10]!]
    if (!(state >= 0 && state < STATES) || workerIds === undefined) return undefined
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
        workerIds,
      },
      isHeld: (flags & HELD) !== 0,
    })
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
