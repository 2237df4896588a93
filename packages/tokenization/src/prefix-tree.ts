/**
 * Prefix tree: what is known of the beginnings of long sequences (bodies, prompt texts), in windows of a
 * fixed length.
 *
 *   sequence   |  window 0  |  window 1  |  window 2  |  rest   |
 *   tree       root ─▶ node ─▶ node ─▶ node
 *
 * A node stands for everything from the start of the sequence to the end of its window, and carries what its
 * user has worked out up to there.
 *
 * Invariants
 *   I1  A node is found only by comparing its whole window, and that of each node above it: a hash only finds
 *       candidates.
 *   I2  The bytes held, as accounted by the user, are at most `bytesMax` after each `grow`.
 *   I3  In the list by use, a node stands behind the one above it; so the last of the list has no node below
 *       it.
 *
 * Bounds   `bytesMax`; CANDIDATES_MAX nodes of equal hash: texts that are made to collide push each other
 *          out, or are not remembered.
 * Cost     a comparison of memory for each known window; a look at one unit in SAMPLE_STRIDE where sequences
 *          part.
 */

import type { ReadableText } from './long-text.ts'

/** A sequence in windows. `Piece` is a copy of one window, made to be kept. */
export interface WindowSource<Piece> {
  /** Whole windows in it. */
  readonly windows: number
  /** A hash of some units of window `number`; any 32-bit integer. */
  hash(number: number): number
  equals(number: number, piece: Piece): boolean
  /** A copy that keeps nothing else alive. */
  copy(number: number): Piece
  /** Bytes of a copy. */
  sizeOf(piece: Piece): number
}

/** What a node carries, and how many bytes that takes. */
export interface Carried<Payload> {
  readonly payload: Payload
  readonly bytes: number
}

export interface PrefixNode<Payload> {
  /** Its window, from 0. */
  readonly number: number
  readonly payload: Payload
}

class Node<Piece, Payload> implements PrefixNode<Payload> {
  readonly number: number
  readonly payload: Payload
  readonly piece: Piece
  readonly key: number
  readonly parent: Node<Piece, Payload> | undefined
  readonly bytes: number
  /** Distinguishes the nodes below different ones. */
  readonly salt: number
  readonly scope: number
  childCount = 0
  /** The one below that was found or added last. */
  latestChild: Node<Piece, Payload> | undefined
  newer: Node<Piece, Payload> | undefined
  older: Node<Piece, Payload> | undefined

  constructor(
    number: number,
    key: number,
    parent: Node<Piece, Payload> | undefined,
    piece: Piece,
    { payload, bytes }: Carried<Payload>,
    salt: number,
    scope: number,
  ) {
    this.scope = scope
    this.number = number
    this.key = key
    this.parent = parent
    this.piece = piece
    this.payload = payload
    this.bytes = bytes
    this.salt = salt
  }
}

/** Units between two that are hashed. */
export const SAMPLE_STRIDE = 64
const PREFIX_CANDIDATES_MAX = 4
/** Of the bytes, the most that one call of `grow` adds. */
const ADDED_SHARE_MAX = 0.25
/** A node and its place in the map, about. */
const NODE_BYTES = 240

export class PrefixTree<Piece, Payload> {
  readonly #bytesMax: number
  readonly #nodes = new Map<number, Node<Piece, Payload>[]>()
  #newest: Node<Piece, Payload> | undefined
  #oldest: Node<Piece, Payload> | undefined
  #bytes = 0
  #salt = 0
  #changes = 0

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  /** Bytes held: windows, what nodes carry, and the nodes. */
  get bytes(): number {
    return this.#bytes
  }

  /** Another number as soon as nodes have come or gone: as long as it is the same, `find` finds the same. */
  get changes(): number {
    return this.#changes
  }

  /**
   * The nodes of the longest known beginning, from window 0 on; they count as used. Sequences of different
   * scopes (integers) have nothing in common.
   */
  find(scope: number, source: WindowSource<Piece>): readonly PrefixNode<Payload>[] {
    const path: Node<Piece, Payload>[] = []
    for (let number = 0; number < source.windows; number++) {
      const parent = path.at(-1)
      // The sequence mostly goes on as the last one did: a comparison shows that without a hash.
      const latest = parent?.latestChild
      const node =
        latest !== undefined && source.equals(number, latest.piece)
          ? latest
          : this.#lookUp(scope, parent, number, source)
      if (node === undefined) break
      if (parent !== undefined) parent.latestChild = node
      path.push(node)
    }
    this.#use(path)
    return path
  }

  #lookUp(
    scope: number,
    parent: Node<Piece, Payload> | undefined,
    number: number,
    source: WindowSource<Piece>,
  ): Node<Piece, Payload> | undefined {
    return this.#nodes
      .get(keyOf(source.hash(number), parent, scope))
      ?.find(
        candidate =>
          candidate.parent === parent && candidate.scope === scope && source.equals(number, candidate.piece),
      )
  }

  /**
   * Adds the windows after `path`, which `find` has just returned for `source`, each with its value from
   * `carried`, up to a quarter of the bytes; then forgets the nodes unused for longest.
   */
  grow(
    scope: number,
    path: readonly PrefixNode<Payload>[],
    source: WindowSource<Piece>,
    carried: (number: number) => Carried<Payload>,
  ): void {
    const whole = path.slice() as Node<Piece, Payload>[]
    let addedBytes = 0
    for (let number = whole.length; number < source.windows; number++) {
      const parent = whole.at(-1)
      const key = keyOf(source.hash(number), parent, scope)
      if (!this.#hasRoom(key, parent)) break
      const piece = source.copy(number)
      const what = carried(number)
      const bytes = what.bytes + source.sizeOf(piece) + NODE_BYTES
      addedBytes += bytes
      // One sequence must not push out all others.
      if (addedBytes > this.#bytesMax * ADDED_SHARE_MAX) break
      const node = new Node(number, key, parent, piece, { payload: what.payload, bytes }, ++this.#salt, scope)
      const equals = this.#nodes.get(key)
      if (equals === undefined) this.#nodes.set(key, [node])
      else equals.push(node)
      if (parent !== undefined) {
        parent.childCount++
        parent.latestChild = node
      }
      this.#changes++
      this.#bytes += bytes
      whole.push(node)
    }
    this.#use(whole)
    while (this.#bytes > this.#bytesMax) this.#forget(this.#oldest!)
  }

  /** Of nodes with equal hashes there are few: one on which no other stands makes room. */
  #hasRoom(key: number, parent: Node<Piece, Payload> | undefined): boolean {
    const equals = this.#nodes.get(key)
    if (equals === undefined || equals.length < PREFIX_CANDIDATES_MAX) return true
    const last = equals.find(node => node.childCount === 0 && node !== parent)
    if (last !== undefined) this.#forget(last)
    return last !== undefined
  }

  clear(): void {
    this.#nodes.clear()
    this.#changes++
    this.#newest = undefined
    this.#oldest = undefined
    this.#bytes = 0
  }

  /** Puts the nodes in front of the list, the first of them foremost. */
  #use(path: readonly Node<Piece, Payload>[]): void {
    for (let i = path.length - 1; i >= 0; i--) {
      const node = path[i]!
      this.#unlink(node)
      node.older = this.#newest
      if (this.#newest === undefined) this.#oldest = node
      else this.#newest.newer = node
      this.#newest = node
    }
  }

  #unlink(node: Node<Piece, Payload>): void {
    if (node.newer !== undefined) node.newer.older = node.older
    else if (this.#newest === node) this.#newest = node.older
    if (node.older !== undefined) node.older.newer = node.newer
    else if (this.#oldest === node) this.#oldest = node.newer
    node.newer = undefined
    node.older = undefined
  }

  #forget(node: Node<Piece, Payload>): void {
    this.#unlink(node)
    const equals = this.#nodes.get(node.key)!
    if (equals.length === 1) this.#nodes.delete(node.key)
    else equals.splice(equals.indexOf(node), 1)
    if (node.parent !== undefined) {
      node.parent.childCount--
      if (node.parent.latestChild === node) node.parent.latestChild = undefined
    }
    this.#changes++
    this.#bytes -= node.bytes
  }
}

function keyOf(hash: number, parent: { readonly salt: number } | undefined, scope: number): number {
  const above = parent === undefined ? ~scope : parent.salt
  return Math.imul(hash ^ Math.imul(above, 0x9e3779b1), 0x85ebca6b) | 0
}

/** Bytes in windows. */
export class ByteWindows implements WindowSource<Uint8Array> {
  readonly windows: number
  readonly #bytes: Buffer
  readonly #length: number

  constructor(bytes: Uint8Array, length: number) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    this.#length = length
    this.windows = Math.floor(bytes.length / length)
  }

  hash(number: number): number {
    const bytes = this.#bytes
    const end = (number + 1) * this.#length
    let hash = 0
    for (let at = number * this.#length; at < end; at += SAMPLE_STRIDE)
      hash = Math.imul(hash ^ bytes[at]!, 0x01000193)
    return hash
  }

  equals(number: number, piece: Uint8Array): boolean {
    const start = number * this.#length
    return this.#bytes.compare(piece, 0, piece.length, start, start + this.#length) === 0
  }

  copy(number: number): Uint8Array {
    return new Uint8Array(this.#bytes.subarray(number * this.#length, (number + 1) * this.#length))
  }

  sizeOf(): number {
    return this.#length + 100
  }
}

/** UTF-16 code units in windows. */
export class TextWindows implements WindowSource<string> {
  readonly windows: number
  readonly #text: ReadableText
  readonly #length: number

  constructor(text: ReadableText, length: number) {
    this.#text = text
    this.#length = length
    this.windows = Math.floor(text.length / length)
  }

  hash(number: number): number {
    const text = this.#window(number)
    let hash = 0
    for (let at = 0; at < text.length; at += SAMPLE_STRIDE) {
      hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193)
    }
    return hash
  }

  equals(number: number, piece: string): boolean {
    // A comparison of memory; `startsWith` compares unit by unit, which takes 20 times as long.
    return this.#window(number) === piece
  }

  /** A slice would keep the whole text. */
  copy(number: number): string {
    const slice = this.#window(number)
    const encoding = isLatin1(slice) ? 'latin1' : 'utf16le'
    return Buffer.from(slice, encoding).toString(encoding)
  }

  sizeOf(piece: string): number {
    return (isLatin1(piece) ? 1 : 2) * piece.length + 24
  }

  #window(number: number): string {
    return this.#text.slice(number * this.#length, (number + 1) * this.#length)
  }
}

function isLatin1(text: string): boolean {
  return !/[^\0-\xff]/.test(text)
}
