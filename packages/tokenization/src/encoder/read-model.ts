/**
 * The model of a tokenizer.json, read: tokens as bytes, merges as ids, and the symbols that merging begins
 * with.
 *
 * Both parts of a merge and what they make lie in a row of bytes, so three look-ups in the vocabulary's own
 * table read it. Of a byte-level model the bytes are those of the file (./model-bytes.ts), and no string is
 * made.
 */

import { type JsonObject, wordOf } from '../json-object.ts'
import { buildMerges, type MergeArrays } from './byte-pairs.ts'
import { type ModelBytes, readMergesBytes, readVocabBytes } from './model-bytes.ts'
import { SeamBuilder } from './seams.ts'
import { byteOfUnit, TokenBytes } from './token-bytes.ts'
import { Refusal } from './tokenizer-plan.ts'
import { Vocabulary } from './vocabulary.ts'

/** The model in arrays. */
export interface ModelArrays {
  readonly vocabulary: Vocabulary
  readonly merges: MergeArrays
  /** Of byte-level models: ./seams.ts. */
  readonly seamPairs: Int32Array
  /** By byte: the id of the symbol; -1 where the vocabulary has none and no UTF-8 has the byte. */
  readonly byteIds: Int32Array
  /** The id of a token, as the file has it. */
  readonly idOf: (token: string) => number | undefined
  readonly tokenCount: number
  /** Tokens that no bytes make, with their ids. */
  readonly otherTokens: ReadonlyMap<string, number>
}

type Merges = readonly (string | readonly [string, string])[]

/** Bytes that occur in UTF-8: not C0, C1 and F5 to FF. */
const isUtf8Byte = (byte: number) => byte < 0xc0 || (byte > 0xc1 && byte < 0xf5)
const BYTES_OF_BYTES = /<0x[0-9A-F]{2}>/

/** What a model must have before it is read. Throws Refusal. */
export function checkModel(model: JsonObject, isByteLevel: boolean): void {
  if (model['type'] !== 'BPE') throw new Refusal(`the model is ${wordOf(model['type'])}`)
  if (model['dropout']) throw new Refusal('the model has dropout')
  for (const name of ['continuing_subword_prefix', 'end_of_word_suffix'])
    if (model[name]) throw new Refusal(`the model has a ${name}`)
  if (!isByteLevel && model['byte_fallback'] !== true)
    throw new Refusal('the model has no bytes for characters that it lacks')
}

/**
 * Reads the vocabulary and merges of a byte-level `model` from the bytes of the file; undefined where they
 * are in no plain form. Throws Refusal.
 */
export function readModelBytes(model: JsonObject, file: ModelBytes): ModelArrays | undefined {
  const read = readVocabBytes(file.vocab)
  if (read === undefined) return undefined
  const { vocabulary, otherTokens, tokenCount } = read
  if (model['ignore_merges'] === true) vocabulary.setAllWhole()
  const seams = new SeamBuilder()
  const merges = readMergesBytes(file.merges, vocabulary, (bytes, start, end) => seams.add(bytes, start, end))
  if (merges === undefined) return undefined
  const { left, right, made } = merges
  const tokenBytes = new TokenBytes(true)
  const idOf = (token: string): number | undefined => {
    const other = otherTokens.get(token)
    if (other !== undefined) return other
    const bytes = tokenBytes.of(token)
    const entry = bytes === undefined ? -1 : vocabulary.find(bytes, 0, bytes.length)
    return entry < 0 ? undefined : vocabulary.idAt(entry)
  }
  return {
    vocabulary,
    merges: buildMerges(left, right, made),
    seamPairs: seams.build(),
    byteIds: byteLevelIds(idOf),
    idOf,
    tokenCount,
    otherTokens,
  }
}

/** Reads a `model` that `checkModel` has found to be right. Throws Refusal. */
export function readModel(model: JsonObject, isByteLevel: boolean): ModelArrays {
  const tokenBytes = new TokenBytes(isByteLevel)
  const { vocab, tokenCount, vocabulary, otherTokens } = readVocabulary(model['vocab'], tokenBytes)
  if (model['ignore_merges'] === true) vocabulary.setAllWhole()
  const seams = new SeamBuilder()
  const idOf = (token: string) => (Object.hasOwn(vocab, token) ? vocab[token] : undefined)
  return {
    vocabulary,
    merges: readMerges(mergesOf(model), vocab, vocabulary, tokenBytes, seams),
    seamPairs: seams.build(),
    byteIds: isByteLevel ? byteLevelIds(idOf) : fallbackIds(idOf),
    idOf,
    tokenCount,
    otherTokens,
  }
}

/** The tokens that merges make, as text. */
export function* madeTokens(model: JsonObject): Generator<string> {
  for (const merge of mergesOf(model))
    yield typeof merge === 'string' ? merge.replace(' ', '') : merge.join('')
}

function readVocabulary(value: unknown, tokenBytes: TokenBytes) {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new Refusal('the model has no vocabulary')
  const vocab = value as Readonly<Record<string, number>>
  const tokens = Object.keys(vocab)
  const tokenCount = tokens.length
  const otherTokens = new Map<string, number>()
  const starts = new Int32Array(tokenCount + 1)
  const ids = new Int32Array(tokenCount)
  const isTaken = new Uint8Array(tokenCount * 2 + 0x1_0000)
  let bytes = new Uint8Array(tokenCount * 8 + 1024)
  let used = 0
  let count = 0
  for (const token of tokens) {
    const id = vocab[token]!
    if (!(Number.isInteger(id) && id >= 0 && id < isTaken.length))
      throw new Refusal(`the id of token ${JSON.stringify(token)} is ${wordOf(id)}`)
    if (isTaken[id] === 1) throw new Refusal(`two tokens have id ${id}`)
    isTaken[id] = 1
    if (used + token.length * 3 > bytes.length) {
      const grown = new Uint8Array((used + token.length * 3) * 2)
      grown.set(bytes.subarray(0, used))
      bytes = grown
    }
    const end = tokenBytes.write(token, 0, token.length, bytes, used)
    if (end <= used) {
      otherTokens.set(token, id)
      continue
    }
    starts[count] = used
    ids[count++] = id
    used = end
  }
  starts[count] = used
  const vocabulary = Vocabulary.build(starts.slice(0, count + 1), bytes.slice(0, used), ids.slice(0, count))
  return { vocab, tokenCount, vocabulary, otherTokens }
}

/** The merges of the file; a line with the version is none, as the reference has it. */
function mergesOf(model: JsonObject): Merges {
  const value = model['merges']
  if (!Array.isArray(value)) throw new Refusal('the model has no merges')
  return value.length > 0 && typeof value[0] === 'string'
    ? value.filter(merge => typeof merge !== 'string' || !merge.startsWith('#version'))
    : value
}

/** Merges of tokens that no bytes make are counted, and can never come up. */
function readMerges(
  merges: Merges,
  vocab: Readonly<Record<string, number>>,
  vocabulary: Vocabulary,
  tokenBytes: TokenBytes,
  seams: SeamBuilder,
): MergeArrays {
  const left = new Int32Array(merges.length).fill(-1)
  const right = new Int32Array(merges.length).fill(-1)
  const made = new Int32Array(merges.length).fill(-1)
  let scratch = new Uint8Array(4096)
  // Tokens are mostly in the order of the merges that make them.
  let last = 0
  for (let rank = 0; rank < merges.length; rank++) {
    const merge = merges[rank]!
    let first = merge as string
    let second = first
    let firstEnd = 0
    let secondStart = 0
    if (typeof merge === 'string') {
      firstEnd = merge.indexOf(' ')
      secondStart = firstEnd + 1
      if (firstEnd <= 0 || secondStart === merge.length || merge.indexOf(' ', secondStart) >= 0)
        throw new Refusal(`a merge is no pair: ${merge}`)
    } else {
      first = pairOf(merge)[0]
      second = pairOf(merge)[1]
      firstEnd = first.length
    }
    if ((firstEnd + second.length) * 3 > scratch.length)
      scratch = new Uint8Array((firstEnd + second.length) * 6)
    const middle = tokenBytes.write(first, 0, firstEnd, scratch, 0)
    const end = middle < 0 ? -1 : tokenBytes.write(second, secondStart, second.length, scratch, middle)
    if (end < 0) {
      const parts = [first.slice(0, firstEnd), second.slice(secondStart)]
      if (![...parts, parts.join('')].every(part => Object.hasOwn(vocab, part))) throw unknownMerge(merge)
      continue
    }
    const a = vocabulary.find(scratch, 0, middle)
    const b = vocabulary.find(scratch, middle, end)
    const c = vocabulary.findNear(last, scratch, 0, end)
    if (a < 0 || b < 0 || c < 0) throw unknownMerge(merge)
    if (!tokenBytes.isByteLevel && (isByteName(scratch, 0, middle) || isByteName(scratch, middle, end)))
      throw new Refusal('the model merges bytes that stand for characters')
    if (tokenBytes.isByteLevel) seams.add(scratch, 0, end)
    left[rank] = vocabulary.idAt(a)
    right[rank] = vocabulary.idAt(b)
    made[rank] = vocabulary.idAt(c)
    last = c
  }
  return buildMerges(left, right, made)
}

function pairOf(merge: unknown): readonly [string, string] {
  const isPair =
    Array.isArray(merge) && merge.length === 2 && merge.every(part => typeof part === 'string' && part !== '')
  if (!isPair) throw new Refusal(`a merge is no pair: ${JSON.stringify(merge)}`)
  return merge as unknown as readonly [string, string]
}

function unknownMerge(merge: unknown): Refusal {
  return new Refusal(`a merge names what is no token: ${JSON.stringify(merge)}`)
}

/** Whether these bytes read `<0x0A>` or the like. */
function isByteName(bytes: Uint8Array, start: number, end: number): boolean {
  return (
    end - start === 6 &&
    bytes[start] === 0x3c &&
    BYTES_OF_BYTES.test(String.fromCharCode(...bytes.subarray(start, end)))
  )
}

function byteLevelIds(idOf: ModelArrays['idOf']): Int32Array {
  const byteIds = new Int32Array(256).fill(-1)
  for (const [unit, byte] of byteOfUnit().entries()) {
    if (byte < 0) continue
    const id = idOf(String.fromCharCode(unit))
    if (id !== undefined) byteIds[byte] = id
    else if (isUtf8Byte(byte)) throw new Refusal(`the vocabulary lacks byte ${byte}`)
  }
  return byteIds
}

function fallbackIds(idOf: ModelArrays['idOf']): Int32Array {
  return Int32Array.from({ length: 256 }, (_, byte) => {
    const name = `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`
    const id = idOf(name)
    if (id === undefined) throw new Refusal(`the vocabulary lacks ${name}`)
    return id
  })
}
