/**
 * Model bytes: vocabulary and merges of a byte-level tokenizer.json, read from the file's bytes.
 *
 *   {"version": …, "model": {"type": "BPE", …, "vocab": {"!": 0, …}, "merges": ["Ġ t", …]}}
 *    └── rest: JSON.parse, as it is small      └── these two: no string and no object is made of them
 *
 * JSON.parse and the collector take most of the time to start with 128 k tokens and 280 k merges. A file that
 * is not in the plain form (an escape of half a character, a number that is no id, a merge of a text that is
 * no token, anything twice) is not read here: JSON.parse reads the whole file then, so that faults are found
 * and reported in one place.
 */

import { isUtf8 } from 'node:buffer'
import { parseJson } from '@homing/base'
import type { JsonObject } from '../json-object.ts'
import { byteOfUnit } from './token-bytes.ts'
import { Vocabulary } from './vocabulary.ts'

/** Where the two large members are. */
export interface ModelBytes {
  /** With its braces. */
  readonly vocab: Uint8Array
  /** With its brackets. */
  readonly merges: Uint8Array
  /** All of the file, parsed; with `vocab` and `merges`. */
  whole(): JsonObject
}

export interface VocabularyRead {
  readonly vocabulary: Vocabulary
  readonly otherTokens: ReadonlyMap<string, number>
  readonly tokenCount: number
}

/** Merges by rank, as ids. */
export interface MergesRead {
  readonly left: Int32Array
  readonly right: Int32Array
  readonly made: Int32Array
}

const QUOTE = 0x22
const BACKSLASH = 0x5c
const OPEN_BRACE = 0x7b
const CLOSE_BRACE = 0x7d
const OPEN_BRACKET = 0x5b
const CLOSE_BRACKET = 0x5d
const COMMA = 0x2c
const COLON = 0x3a
const BLANK = 0x20
const ID_DIGITS_MAX = 9
/** Of what a merge makes. */
const TOKEN_BYTES_MAX = 1 << 16
/** What an escape of one letter stands for. */
const ESCAPES: Readonly<Record<number, number>> = {
  34: 0x22,
  92: 0x5c,
  47: 0x2f,
  98: 0x08,
  102: 0x0c,
  110: 0x0a,
  114: 0x0d,
  116: 0x09,
}
const VERSION_LINE = Buffer.from('#version')

/** The file without the two members, parsed, and where these are; undefined where it must be parsed whole. */
export function splitModel(
  file: Uint8Array,
): { readonly rest: JsonObject; readonly vocab: Uint8Array; readonly merges: Uint8Array } | undefined {
  if (!isUtf8(file)) return undefined
  let vocab: Range | undefined
  let merges: Range | undefined
  let models = 0
  let larges = 0
  const member = (name: string, start: number): number => {
    const end = endOfValue(file, start)
    if (name === 'vocab') vocab = { start, end }
    if (name === 'merges') merges = { start, end }
    if (name === 'vocab' || name === 'merges') larges++
    return end
  }
  const end = walkMembers(file, skipSpace(file, 0), (name, start) => {
    if (name !== 'model') return endOfValue(file, start)
    models++
    return walkMembers(file, start, member)
  })
  if (end < 0 || models !== 1 || larges !== 2 || vocab === undefined || merges === undefined) return undefined
  if (file[vocab.start] !== OPEN_BRACE || file[merges.start] !== OPEN_BRACKET) return undefined
  const text = (start: number, end: number): string => Buffer.from(file.subarray(start, end)).toString()
  const [first, second] = vocab.start < merges.start ? [vocab, merges] : [merges, vocab]
  const instead = first === vocab ? ['{}', '[]'] : ['[]', '{}']
  const parts = [
    text(0, first.start),
    instead[0],
    text(first.end, second.start),
    instead[1],
    text(second.end, file.length),
  ]
  try {
    const rest = parseJson(parts.join(''))
    if (typeof rest !== 'object' || rest === null) return undefined
    return {
      rest: rest as JsonObject,
      vocab: file.subarray(vocab.start, vocab.end),
      merges: file.subarray(merges.start, merges.end),
    }
  } catch {
    // JSON.parse of the whole file reports the fault.
    return undefined
  }
}

/** The vocabulary of a byte-level model, or undefined: see above. */
export function readVocabBytes(vocab: Uint8Array): VocabularyRead | undefined {
  const reader = new TokenReader(vocab)
  const otherTokens = new Map<string, number>()
  let starts = new Int32Array(1 << 16)
  let ids = new Int32Array(1 << 16)
  // A token has no more bytes than its text in the file.
  const bytes = new Uint8Array(vocab.length)
  let used = 0
  let count = 0
  if (!reader.takes(OPEN_BRACE)) return undefined
  if (reader.takes(CLOSE_BRACE)) return undefined
  do {
    const start = reader.skipSpace()
    const end = reader.token(bytes, used, false)
    if (end === FAULT || !reader.takes(COLON)) return undefined
    const after = reader.tokenEnd
    const id = reader.id()
    if (id < 0) return undefined
    if (end === OTHER || end === used) {
      const text = JSON.parse(Buffer.from(vocab.subarray(start, after)).toString()) as string
      if (otherTokens.has(text)) return undefined
      otherTokens.set(text, id)
      continue
    }
    if (count + 1 >= starts.length) {
      starts = grown(starts)
      ids = grown(ids)
    }
    starts[count] = used
    ids[count++] = id
    used = end
  } while (reader.takes(COMMA))
  if (!reader.takes(CLOSE_BRACE)) return undefined
  starts[count] = used
  const tokenCount = count + otherTokens.size
  if (!areIds(ids.subarray(0, count), otherTokens.values(), tokenCount)) return undefined
  const vocabulary = Vocabulary.build(starts.slice(0, count + 1), bytes.slice(0, used), ids.slice(0, count))
  return vocabulary.hasTwins ? undefined : { vocabulary, otherTokens, tokenCount }
}

/**
 * The merges of a byte-level model, or undefined: see above. `onMade` gets the bytes of each token that a
 * merge makes.
 */
export function readMergesBytes(
  merges: Uint8Array,
  vocabulary: Vocabulary,
  onMade: (bytes: Uint8Array, start: number, end: number) => void,
): MergesRead | undefined {
  const reader = new TokenReader(merges)
  let left = new Int32Array(1 << 16)
  let right = new Int32Array(1 << 16)
  let made = new Int32Array(1 << 16)
  const scratch = new Uint8Array(TOKEN_BYTES_MAX)
  let count = 0
  // Tokens are mostly in the order of the merges that make them.
  let last = 0
  if (!reader.takes(OPEN_BRACKET)) return undefined
  if (reader.takes(CLOSE_BRACKET)) return undefined
  do {
    const start = reader.skipSpace()
    const isList = reader.takes(OPEN_BRACKET)
    if (!isList && reader.startsWith(VERSION_LINE, start + 1)) return undefined
    const middle = reader.token(scratch, 0, !isList)
    if (middle <= 0 || (isList && !reader.takes(COMMA))) return undefined
    const end = isList ? reader.token(scratch, middle, false) : reader.restOfToken(scratch, middle)
    if (end <= middle || (isList && !reader.takes(CLOSE_BRACKET))) return undefined
    const a = vocabulary.find(scratch, 0, middle)
    const b = vocabulary.find(scratch, middle, end)
    const c = vocabulary.findNear(last, scratch, 0, end)
    if (a < 0 || b < 0 || c < 0) return undefined
    onMade(scratch, 0, end)
    if (count === left.length) {
      left = grown(left)
      right = grown(right)
      made = grown(made)
    }
    left[count] = vocabulary.idAt(a)
    right[count] = vocabulary.idAt(b)
    made[count++] = vocabulary.idAt(c)
    last = c
  } while (reader.takes(COMMA))
  if (!reader.takes(CLOSE_BRACKET)) return undefined
  return { left: left.slice(0, count), right: right.slice(0, count), made: made.slice(0, count) }
}

/** Not a token in the plain form. */
const FAULT = -1
/** A token that no bytes make. */
const OTHER = -2

/** Reads JSON of tokens and ids from left to right. */
class TokenReader {
  /** Where the last token ended, behind its quote. */
  tokenEnd = 0
  readonly #json: Uint8Array
  readonly #byteOf = byteOfUnit()
  #at = 0

  constructor(json: Uint8Array) {
    this.#json = json
  }

  skipSpace(): number {
    const json = this.#json
    let at = this.#at
    while (isSpace(json[at]!)) at++
    this.#at = at
    return at
  }

  /** Goes behind this byte, where it is the next one that is no space. */
  takes(byte: number): boolean {
    if (this.#json[this.skipSpace()] !== byte) return false
    this.#at++
    return true
  }

  startsWith(prefix: Uint8Array, at: number): boolean {
    return prefix.every((byte, i) => this.#json[at + i] === byte)
  }

  /**
   * Writes the bytes of the string at hand; where they end, or FAULT or OTHER. `isPair`: ends before a blank,
   * behind which `restOfToken` goes on.
   */
  token(target: Uint8Array, to: number, isPair: boolean): number {
    if (!this.takes(QUOTE)) return FAULT
    return this.#write(target, to, isPair ? BLANK : QUOTE)
  }

  restOfToken(target: Uint8Array, to: number): number {
    return this.#write(target, to, QUOTE)
  }

  /** A number without sign, point and exponent, or FAULT. */
  id(): number {
    const json = this.#json
    const start = this.skipSpace()
    let at = start
    let id = 0
    for (; at - start < ID_DIGITS_MAX && json[at]! >= 0x30 && json[at]! <= 0x39; at++)
      id = id * 10 + json[at]! - 0x30
    if (at === start || (json[start] === 0x30 && at > start + 1)) return FAULT
    this.#at = at
    const after = json[this.skipSpace()]
    return after === COMMA || after === CLOSE_BRACE ? id : FAULT
  }

  #write(target: Uint8Array, to: number, stop: number): number {
    const json = this.#json
    const byteOf = this.#byteOf
    let at = this.#at
    let end = to
    let isOther = false
    for (;;) {
      let unit = json[at++]
      if (unit === undefined || unit < BLANK) return FAULT
      if (unit === stop) break
      if (unit === QUOTE) return FAULT
      if (unit === BACKSLASH) {
        const letter = json[at++]!
        const plain = ESCAPES[letter]
        if (plain === undefined) {
          const hex = letter === 0x75 ? Buffer.from(json.subarray(at, at + 4)).toString() : ''
          if (!/^[0-9a-fA-F]{4}$/.test(hex)) return FAULT
          unit = Number.parseInt(hex, 16)
          at += 4
          if ((unit & 0xf800) === 0xd800) return FAULT
        } else unit = plain
      } else if (unit >= 0x80) {
        // Two bytes are all that a byte is written with; longer characters stand for none.
        if (unit < 0xe0) unit = ((unit & 0x1f) << 6) | (json[at++]! & 0x3f)
        else {
          at += unit < 0xf0 ? 2 : 3
          unit = byteOf.length
        }
      }
      const byte = unit < byteOf.length ? byteOf[unit]! : -1
      if (byte < 0) isOther = true
      else if (!isOther) {
        if (end >= target.length) return FAULT
        target[end++] = byte
      }
    }
    this.#at = at
    this.tokenEnd = at
    return isOther ? OTHER : end
  }
}

interface Range {
  readonly start: number
  readonly end: number
}

/**
 * Goes through the object at `from`. `onMember` gets the name and the position of the value, and returns the
 * value's end. Returns the end of the object, or -1.
 */
function walkMembers(
  json: Uint8Array,
  from: number,
  onMember: (name: string, start: number) => number,
): number {
  if (json[from] !== OPEN_BRACE) return -1
  let at = from + 1
  for (;;) {
    const start = skipSpace(json, at)
    if (json[start] !== QUOTE) return -1
    const end = endOfString(json, start)
    const name = end < 0 ? '\\' : Buffer.from(json.subarray(start + 1, end - 1)).toString()
    if (name.includes('\\')) return -1
    const colon = skipSpace(json, end)
    if (json[colon] !== COLON) return -1
    const stop = onMember(name, skipSpace(json, colon + 1))
    if (stop < 0) return -1
    at = skipSpace(json, stop)
    if (json[at] === CLOSE_BRACE) return at + 1
    if (json[at] !== COMMA) return -1
    at++
  }
}

/**
 * The position after the value at `at`, or -1. Brackets are counted, not matched: JSON.parse finds their
 * faults.
 */
function endOfValue(json: Uint8Array, at: number): number {
  const first = json[at]
  if (first === QUOTE) return endOfString(json, at)
  let i = at
  let depth = 0
  for (; i < json.length; i++) {
    const byte = json[i]!
    if (byte === QUOTE) {
      const end = endOfString(json, i)
      if (end < 0) return -1
      i = end - 1
    } else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) depth++
    else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
      if (depth === 0) return i > at ? i : -1
      if (--depth === 0) return i + 1
    } else if (byte === COMMA && depth === 0) return i > at ? i : -1
  }
  return -1
}

function endOfString(json: Uint8Array, at: number): number {
  for (let i = at + 1; i < json.length; i++) {
    const byte = json[i]!
    if (byte === BACKSLASH) i++
    else if (byte === QUOTE) return i + 1
  }
  return -1
}

function skipSpace(json: Uint8Array, from: number): number {
  let at = from
  while (isSpace(json[at]!)) at++
  return at
}

function isSpace(byte: number): boolean {
  return byte === BLANK || byte === 0x0a || byte === 0x0d || byte === 0x09
}

/** Whether they are ids of their own, as ./read-model.ts wants them. */
function areIds(ids: Int32Array, others: Iterable<number>, tokenCount: number): boolean {
  const isTaken = new Uint8Array(tokenCount * 2 + 0x1_0000)
  const takes = (id: number): boolean => {
    if (id >= isTaken.length || isTaken[id] === 1) return false
    isTaken[id] = 1
    return true
  }
  for (const id of others) if (!takes(id)) return false
  for (let i = 0; i < ids.length; i++) if (!takes(ids[i]!)) return false
  return true
}

function grown(array: Int32Array<ArrayBuffer>): Int32Array<ArrayBuffer> {
  const larger = new Int32Array(array.length * 2)
  larger.set(array)
  return larger
}
