/**
 * MemberTap: finds the watched top-level members of a JSON object in its bytes, which may be cut anywhere.
 * The members of `response` count as top-level members; below that nothing is looked at but quotes and
 * brackets, and whether an element of `choices` has a finish reason. Names with escapes in them are not
 * recognised.
 */

type WatchedName = 'usage' | 'error' | 'object' | 'choices' | 'type' | 'response' | 'id'
const WATCHED: readonly WatchedName[] = ['usage', 'error', 'object', 'choices', 'type', 'response', 'id']
const CHOICES = WATCHED.indexOf('choices')
const RESPONSE = WATCHED.indexOf('response')
const WATCHED_BYTES = WATCHED.map(name => Buffer.from(name))
/** A usage object has some 300 bytes; of a longer value only the beginning is seen. */
const CAPTURE_BYTES_MAX = 4096
/** The value of `object` in an error that is not wrapped. */
const FLAT_ERROR = Buffer.from('"error"')
const RESPONSE_OBJECT = Buffer.from('"response"')

/** States of a MemberTap at depth 1; below that depth nothing is looked at but quotes and brackets. */
const NO_OBJECT = 0
const NAME_EXPECTED = 1
const NAME = 2
const COLON_EXPECTED = 3
const VALUE = 4
const WATCHED_VALUE = 5

/** Members found in an object; `usage` only if it is not null. */
export interface MembersFound {
  /** Undefined: it is null. */
  usage(text: string | undefined): void
  /** `error`, or `"object": "error"`. */
  error(): void
  /** Whether the list is empty; called as soon as that is known, and perhaps again at its end. */
  choices(isEmpty: boolean): void
  /** An element of `choices` has a `finish_reason`, or a chunk ends where that would be seen. */
  choiceEnd(): void
  /** The value of `type`, as JSON. */
  type(text: string): void
  /** The value of `id`, as JSON, of a response, or of the one object of a body. */
  id(text: string): void
  /** `"object": "response"`. */
  responseObject(): void
}

const FINISH_REASON = Buffer.from('finish_reason')

/** Finds the watched top-level members of a JSON object. */
export class MemberTap {
  readonly #found: MembersFound
  /** It is not one of many: its id is looked at. */
  readonly #isBody: boolean
  #depth = 0
  #state = NO_OBJECT
  #isInString = false
  #isEscaped = false
  /** 1 inside the value of `response`, whose members count as top-level members; else 0. */
  #base = 0
  /** Index in WATCHED of the member under way; −1: not watched. */
  #watched = -1
  /** What earlier chunks held of the name or watched value under way; most answers cut none. */
  #captured: Uint8Array | undefined
  #capturedBytes = 0
  hasObject = false

  constructor(found: MembersFound, isBody: boolean) {
    this.#found = found
    this.#isBody = isBody
  }

  /** An object or list is open. */
  get isInside(): boolean {
    return this.#depth > 0
  }

  /** What comes now is in a string, and neither a name nor a value that is looked at. */
  get isInText(): boolean {
    return this.#isInString && (this.#depth - this.#base > 1 || this.#state === VALUE)
  }

  /** Forgets the object that is under way. */
  reset(): void {
    this.#depth = 0
    this.#base = 0
    this.#state = NO_OBJECT
    this.#isInString = false
    this.#isEscaped = false
    this.#capturedBytes = 0
  }

  push(bytes: Uint8Array, from: number, to: number): void {
    // Relative to the object whose members are read.
    let depth = this.#depth - this.#base
    let state = this.#state
    let isInString = this.#isInString
    let isEscaped = this.#isEscaped
    // The part of the name or watched value under way that this chunk has begins here.
    let begin = from
    // The string under way begins behind this; one that an earlier chunk began is none that is looked for.
    let stringAt = -FINISH_REASON.length
    for (let at = from; at < to; at++) {
      const byte = bytes[at]!
      if (isInString) {
        if (isEscaped) isEscaped = false
        else if (byte === 0x5c) isEscaped = true
        else if (byte === 0x22) {
          isInString = false
          if (state === NAME && depth === 1) {
            this.#watched = this.#endName(bytes, begin, at)
            state = COLON_EXPECTED
          } else if (depth === 3 && at - stringAt === FINISH_REASON.length + 1) {
            this.#endNameOfChoice(bytes, stringAt + 1, at + 1, to)
          }
        }
        continue
      }
      if (byte === 0x22) {
        isInString = true
        stringAt = at
        if (state === NAME_EXPECTED && depth === 1) {
          state = NAME
          begin = at + 1
        }
      } else if (byte === 0x7b || byte === 0x5b) {
        depth++
        if (
          depth === 2 &&
          byte === 0x7b &&
          state === WATCHED_VALUE &&
          this.#watched === RESPONSE &&
          this.#base === 0
        ) {
          this.#base = 1
          depth = 1
          this.#capturedBytes = 0
        }
        if (depth === 1) {
          state = byte === 0x7b ? NAME_EXPECTED : NO_OBJECT
          this.hasObject ||= byte === 0x7b
        } else if (depth === 3 && state === WATCHED_VALUE && this.#watched === CHOICES) {
          this.#found.choices(false)
        }
      } else if (byte === 0x7d || byte === 0x5d) {
        if (depth === 1) {
          if (state === WATCHED_VALUE) this.#endValue(bytes, begin, at)
          if (this.#base === 1) {
            // Back at the top, behind the value of `response`.
            this.#base = 0
            depth = 2
            state = VALUE
          } else state = NO_OBJECT
        }
        if (depth > 0) depth--
      } else if (depth !== 1) {
        // Commas and colons count in the object itself only.
      } else if (byte === 0x2c) {
        if (state === WATCHED_VALUE) this.#endValue(bytes, begin, at)
        if (state !== NO_OBJECT) state = NAME_EXPECTED
      } else if (byte === 0x3a && state === COLON_EXPECTED) {
        state = this.#watched < 0 ? VALUE : WATCHED_VALUE
        begin = at + 1
      }
    }
    if (state === NAME || state === WATCHED_VALUE) this.#capture(bytes, begin, to)
    // What a chunk cuts may be the name that is looked for.
    if (state === WATCHED_VALUE && this.#watched === CHOICES) this.#found.choiceEnd()
    this.#depth = depth + this.#base
    this.#state = state
    this.#isInString = isInString
    this.#isEscaped = isEscaped
  }

  /** Bytes past the bound are dropped: a longer text is no name or value that is searched for. */
  #capture(bytes: Uint8Array, from: number, to: number): void {
    const count = Math.min(to - from, CAPTURE_BYTES_MAX - this.#capturedBytes)
    this.#captured ??= new Uint8Array(CAPTURE_BYTES_MAX)
    this.#captured.set(bytes.subarray(from, from + count), this.#capturedBytes)
    this.#capturedBytes += count
  }

  /** A string of this length ended in an element of a list; `behind` is the byte after its quote. */
  #endNameOfChoice(bytes: Uint8Array, from: number, behind: number, to: number): void {
    if (this.#watched !== CHOICES || !startsWith(bytes, from, FINISH_REASON)) return
    let at = behind
    while (at < to && (bytes[at]! <= 0x20 || bytes[at] === 0x3a)) at++
    // null is its value in all chunks but the last.
    if (at === to || (at > behind && bytes[at] !== 0x6e)) this.#found.choiceEnd()
  }

  /** Index in WATCHED of the name, −1 when it is not there. */
  #endName(bytes: Uint8Array, from: number, to: number): number {
    if (this.#captured === undefined || this.#capturedBytes === 0) return watchedIndex(bytes, from, to)
    this.#capture(bytes, from, to)
    const index = watchedIndex(this.#captured, 0, this.#capturedBytes)
    this.#capturedBytes = 0
    return index
  }

  #endValue(bytes: Uint8Array, from: number, to: number): void {
    const name = WATCHED[this.#watched]!
    let source = bytes
    let start = from
    let end = to
    if (this.#captured !== undefined && this.#capturedBytes > 0) {
      this.#capture(bytes, from, to)
      source = this.#captured
      start = 0
      end = this.#capturedBytes
      this.#capturedBytes = 0
    }
    // The same bound whether the value came in one chunk or in several.
    end = Math.min(end, start + CAPTURE_BYTES_MAX)
    while (start < end && source[start]! <= 0x20) start++
    if (start === end) return
    // null is the value of `usage` in all chunks but the last, and no error.
    if (source[start] === 0x6e) {
      if (name === 'usage') this.#found.usage(undefined)
    } else if (name === 'usage') {
      this.#found.usage(textOf(source, start, end))
    } else if (name === 'type') {
      this.#found.type(textOf(source, start, end))
    } else if (name === 'id') {
      if (this.#base === 1 || this.#isBody) this.#found.id(textOf(source, start, end))
    } else if (name === 'choices') {
      this.#found.choices(isEmptyList(source, start, end))
    } else if (name === 'error' || startsWith(source, start, FLAT_ERROR)) {
      this.#found.error()
    } else if (name === 'object' && startsWith(source, start, RESPONSE_OBJECT)) {
      this.#found.responseObject()
    }
  }
}

function textOf(bytes: Uint8Array, from: number, to: number): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset + from, to - from)
    .toString()
    .trimEnd()
}

function startsWith(bytes: Uint8Array, at: number, word: Uint8Array): boolean {
  for (let i = 0; i < word.length; i++) if (bytes[at + i] !== word[i]) return false
  return true
}

function isEmptyList(bytes: Uint8Array, start: number, end: number): boolean {
  let at = start + 1
  while (at < end && bytes[at]! <= 0x20) at++
  return bytes[start] === 0x5b && at < end && bytes[at] === 0x5d
}

function watchedIndex(bytes: Uint8Array, from: number, to: number): number {
  for (let index = 0; index < WATCHED_BYTES.length; index++) {
    const name = WATCHED_BYTES[index]!
    if (name.length === to - from && startsWith(bytes, from, name)) return index
  }
  return -1
}
