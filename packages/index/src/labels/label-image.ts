/**
 * Label image: the records of a worker slot as words, for checkpoints and snapshots. No words: no records.
 *
 *   image    IMAGE_FORMAT, number of sets, the sets, the records; with texts, if there are any:
 *            TEXTS_FORMAT, number of sets, the sets, number of texts, the texts, the records
 *   set      number of ids, 2 words for each id
 *   text     number of bytes, words with the bytes of its UTF-8
 *   record   engine hash (2), sequence hash (2), flags, layer, expert, group, state, pool, set: 0 for none,
 *            or its place in the list of sets, from 1; with texts: text of the expert, text of the place,
 *            likewise
 */

import type { LabelRecord } from './label-record.ts'
import type { LabelTable } from './label-table.ts'
import type { PoolStateCode } from './pool-states.ts'

/** An image of another form does not begin like this. */
const IMAGE_FORMAT = 0x4c42_0002
const TEXTS_FORMAT = 0x4c42_0003
const IMAGE_HEAD_WORDS = 2
const IMAGE_RECORD_WORDS = 11
const TEXTS_OF_RECORD = 2
const HELD = 1
const LABELLED = 2
const GROUPED = 4
const IN_POOL = 8
const STATES = 5
/** 64 MiB: about 1.5 million records. */
export const LABEL_IMAGE_WORDS_MAX = 1 << 24

const NO_IDS = new Int32Array(0)
const UTF8 = new TextEncoder()
const FROM_UTF8 = new TextDecoder()

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
  const texts = new ImageTexts(records)
  for (const { engineHash, sequenceHash, moe, place, isHeld } of table.records(workerSlot)) {
    if (size + texts.add(moe?.members, place.members) > wordsMax) return undefined
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
  const words = new Int32Array(size + texts.words)
  words[0] = texts.words === 0 ? IMAGE_FORMAT : TEXTS_FORMAT
  words[1] = sets.size
  let end = IMAGE_HEAD_WORDS
  for (const ids of sets.keys()) {
    words[end] = ids.length / 2
    words.set(ids, end + 1)
    end += 1 + ids.length
  }
  if (texts.words === 0) words.set(recordWords, end)
  else texts.write(words, end, recordWords)
  return words
}

/** Texts of the records of an image, each once, and by record. Nothing where no record has any. */
class ImageTexts {
  readonly #records: number
  readonly #numbers = new Map<string, number>()
  #ofRecords: Int32Array | undefined
  #added = 0
  /** What they add to the image. */
  words = 0

  constructor(records: number) {
    this.#records = records
  }

  /** The texts of the next record. Returns `words`. */
  add(ofExpert: string | undefined, ofPlace: string | undefined): number {
    const record = this.#added++
    if (ofExpert === undefined && ofPlace === undefined) return this.words
    if (this.#ofRecords === undefined) {
      this.#ofRecords = new Int32Array(TEXTS_OF_RECORD * this.#records)
      this.words = 1 + this.#ofRecords.length
    }
    this.#ofRecords[TEXTS_OF_RECORD * record] = this.#numberOf(ofExpert)
    this.#ofRecords[TEXTS_OF_RECORD * record + 1] = this.#numberOf(ofPlace)
    return this.words
  }

  /** All that follows the sets. */
  write(words: Int32Array, from: number, recordWords: Int32Array): void {
    let at = from
    words[at++] = this.#numbers.size
    for (const text of this.#numbers.keys()) {
      const bytes = UTF8.encode(text)
      words[at++] = bytes.length
      new Uint8Array(words.buffer, words.byteOffset).set(bytes, 4 * at)
      at += wordsOf(bytes.length)
    }
    for (let record = 0; record < this.#records; record++) {
      words.set(recordWords.subarray(IMAGE_RECORD_WORDS * record, IMAGE_RECORD_WORDS * (record + 1)), at)
      at += IMAGE_RECORD_WORDS
      words[at++] = this.#ofRecords![TEXTS_OF_RECORD * record]!
      words[at++] = this.#ofRecords![TEXTS_OF_RECORD * record + 1]!
    }
  }

  #numberOf(text: string | undefined): number {
    if (text === undefined) return 0
    const known = this.#numbers.get(text)
    if (known !== undefined) return known
    this.#numbers.set(text, this.#numbers.size + 1)
    this.words += 1 + wordsOf(UTF8.encode(text).length)
    return this.#numbers.size
  }
}

function wordsOf(bytes: number): number {
  return Math.ceil(bytes / 4)
}

/** Undefined: they are not the words of an image. */
export function readLabelImage(words: Int32Array): readonly LabelRecord[] | undefined {
  if (words.length === 0) return []
  if (words.length < IMAGE_HEAD_WORDS) return undefined
  const hasTexts = words[0] === TEXTS_FORMAT
  if (!hasTexts && words[0] !== IMAGE_FORMAT) return undefined
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
  const texts: (string | undefined)[] = [undefined]
  if (hasTexts) {
    const textsEnd = words[at++] ?? -1
    if (textsEnd < 0) return undefined
    while (texts.length <= textsEnd) {
      const count = words[at++] ?? -1
      if (!(count >= 0 && at + wordsOf(count) <= words.length)) return undefined
      texts.push(FROM_UTF8.decode(new Uint8Array(words.slice(at, at + wordsOf(count)).buffer, 0, count)))
      at += wordsOf(count)
    }
  }
  const recordWords = IMAGE_RECORD_WORDS + (hasTexts ? TEXTS_OF_RECORD : 0)
  if ((words.length - at) % recordWords !== 0) return undefined
  const records: LabelRecord[] = []
  for (; at < words.length; at += recordWords) {
    const flags = words[at + 4]!
    const state = words[at + 8]!
    const workerIds = sets[words[at + 10]!]
    if (!(state >= 0 && state < STATES) || workerIds === undefined) return undefined
    const [ofExpert, ofPlace] = hasTexts ? [words[at + 11]!, words[at + 12]!] : [0, 0]
    if (!(ofExpert in texts && ofPlace in texts)) return undefined
    const [expertMembers, placeMembers] = [texts[ofExpert], texts[ofPlace]]
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
              ...(expertMembers !== undefined && { members: expertMembers }),
            },
      place: {
        state: state as PoolStateCode,
        poolId: (flags & IN_POOL) === 0 ? undefined : words[at + 9]! >>> 0,
        workerIds,
        ...(placeMembers !== undefined && { members: placeMembers }),
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
