/**
 * Added tokens: found in a text before it is split, from left to right, the longest that begins at a place.
 *
 * This is the reference's search (Aho-Corasick, leftmost-longest, over the bytes of the text), with what it
 * does around a match:
 *
 *   single_word   a match beside a letter, digit, mark or underscore is dropped, and the search goes on
 *                 behind it: a shorter token at the same place is not tried
 *   lstrip        white space before the match belongs to it, as far back as the end of the match before
 *   rstrip        white space after the match belongs to it
 *
 * Tokens that are not `normalized` are found in the text as given. The others are found in the normalized
 * text between those, by their own normalized form. So there are two searches, each over a trie of UTF-16
 * units.
 */

import type { CharTable } from './char-table.ts'
import { SPACE } from './scan-words.ts'

/** An added token of a tokenizer.json. */
export interface AddedToken {
  readonly id: number
  readonly content: string
  /** The searched text: the content, normalized if the token says so. */
  readonly pattern: string
  readonly isSingleWord: boolean
  readonly stripsLeft: boolean
  readonly stripsRight: boolean
  readonly isNormalized: boolean
}

/** Key of the child of a node by a unit. */
const NODE_SPAN = 0x1_0000

/** Finds tokens; holds the last match. One thread. */
export class TokenFinder {
  readonly isEmpty: boolean
  /** The last match of `next`: white space that belongs to it included. */
  start = 0
  end = 0
  id = 0
  /**
   * Whether nothing that follows the text can change the last match, given the text is certain up to `open`.
   */
  isFirm = false
  readonly #tokens: readonly AddedToken[]
  readonly #children = new Map<number, number>()
  /** By node: index of the token that ends there, or -1. */
  readonly #endOf: number[] = [-1]
  readonly #hasChildren: boolean[] = [false]
  /** 1 for units that a token begins with. */
  readonly #firsts = new Uint8Array(0x1_0000)
  /** The unit that all tokens begin with, or -1. */
  readonly #onlyFirst: number
  readonly #lengthMax: number
  readonly #stripsLeft: boolean
  readonly #classes: CharTable
  readonly #words: CharTable

  constructor(tokens: readonly AddedToken[], classes: CharTable, words: CharTable) {
    this.#tokens = tokens
    this.#classes = classes
    this.#words = words
    this.isEmpty = tokens.length === 0
    this.#lengthMax = tokens.reduce((most, { pattern }) => Math.max(most, pattern.length), 0)
    const firsts = new Set(tokens.map(({ pattern }) => pattern.charCodeAt(0)))
    this.#onlyFirst = firsts.size === 1 ? [...firsts][0]! : -1
    this.#stripsLeft = tokens.some(token => token.stripsLeft)
    for (const [index, { pattern }] of tokens.entries()) {
      let node = 0
      for (let i = 0; i < pattern.length; i++) {
        const key = node * NODE_SPAN + pattern.charCodeAt(i)
        let child = this.#children.get(key)
        if (child === undefined) {
          child = this.#endOf.length
          this.#endOf.push(-1)
          this.#hasChildren.push(false)
          this.#children.set(key, child)
          this.#hasChildren[node] = true
        }
        node = child
      }
      this.#endOf[node] = index
      this.#firsts[pattern.charCodeAt(0)] = 1
    }
  }

  /**
   * Finds the next token from `from` on, in a text that begins at `textStart` and ends at `end`. White space
   * before `from` is not taken. False when there is none.
   */
  next(units: Uint16Array, textStart: number, from: number, end: number, open: number): boolean {
    if (this.isEmpty) return false
    let at = from
    for (;;) {
      at = this.#nextFirst(units, at, end)
      if (at >= end) return false
      const index = this.#longestAt(units, at, end)
      if (index < 0) {
        at++
        continue
      }
      const token = this.#tokens[index]!
      const after = at + token.pattern.length
      if (token.isSingleWord && this.#touchesWord(units, textStart, at, after, end)) {
        at = after
        continue
      }
      this.id = token.id
      this.start = token.stripsLeft ? this.#beforeSpace(units, from, at) : at
      this.end = token.stripsRight ? this.#classes.runEnd(units, after, end, SPACE) : after
      this.isFirm =
        this.end <= open && (token.stripsRight ? this.end < open : !token.isSingleWord || after < open)
      return true
    }
  }

  /** The next unit that a token begins with; all tokens of most models begin with the same. */
  #nextFirst(units: Uint16Array, from: number, end: number): number {
    if (this.#onlyFirst >= 0) {
      // The array goes on behind the text, and there is room for one unit; it stops the search.
      const after = units[end]!
      units[end] = this.#onlyFirst
      const found = units.indexOf(this.#onlyFirst, from)
      units[end] = after
      return found
    }
    const firsts = this.#firsts
    let at = from
    while (at < end && firsts[units[at]!] === 0) at++
    return at
  }

  /**
   * The position before which no token begins that further text could still complete. A token may begin at
   * the end, or have begun before it, with the white space that it would take.
   */
  openFrom(units: Uint16Array, start: number, end: number): number {
    let open = end
    for (let at = Math.max(start, end - this.#lengthMax + 1); at < end; at++) {
      if (this.#firsts[units[at]!] === 1 && this.#isBegunAt(units, at, end)) {
        open = at
        break
      }
    }
    return this.#stripsLeft ? this.#beforeSpace(units, start, open) : open
  }

  #longestAt(units: Uint16Array, at: number, end: number): number {
    let node = 0
    let longest = -1
    for (let i = at; i < end; i++) {
      const child = this.#children.get(node * NODE_SPAN + units[i]!)
      if (child === undefined) break
      node = child
      if (this.#endOf[node]! >= 0) longest = this.#endOf[node]!
    }
    return longest
  }

  #isBegunAt(units: Uint16Array, at: number, end: number): boolean {
    let node = 0
    for (let i = at; i < end; i++) {
      const child = this.#children.get(node * NODE_SPAN + units[i]!)
      if (child === undefined) return false
      node = child
    }
    return this.#hasChildren[node]!
  }

  #touchesWord(units: Uint16Array, textStart: number, at: number, after: number, end: number): boolean {
    if (after < end && this.#words.flagsAt(units, after) !== 0) return true
    if (at === textStart) return false
    const before = (units[at - 1]! & 0xfc00) === 0xdc00 ? at - 2 : at - 1
    return this.#words.flagsAt(units, before) !== 0
  }

  #beforeSpace(units: Uint16Array, from: number, at: number): number {
    const { bmp } = this.#classes
    let i = at
    while (i > from && (bmp[units[i - 1]!]! & SPACE) !== 0) i--
    return i
  }
}

/**
 * Whether a token of these begins with white space; with one that takes white space after it, their matches
 * could overlap.
 */
export function mayOverlap(tokens: readonly AddedToken[]): boolean {
  return tokens.some(token => token.stripsRight) && tokens.some(({ pattern }) => /^[\s\u0085]/.test(pattern))
}
