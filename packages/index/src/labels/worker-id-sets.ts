/**
 * Worker id sets: lists of workers that reach a block, each list once, in the nodes of the label memory.
 *
 * A list is named by its first node; 0 is the empty list. It is freed with its last reference. Only the
 * writer of the labels uses this, inside its writes. An array of ids is sorted once, however often it is
 * taken.
 */

import { N_COUNT, N_IDS, N_LIFE, N_NEXT, N_REFERENCES, NODE_IDS, NODE_WORDS } from './label-words.ts'

const NO_IDS = new Int32Array(0)

export class WorkerIdSets {
  readonly #words: Int32Array
  readonly #base: number
  readonly #nodesMax: number
  readonly #byContent = new Map<string, number>()
  /** Of the arrays that were taken. */
  readonly #sorted = new WeakMap<Int32Array, { readonly ids: Int32Array; readonly content: string }>()
  #free = 0
  #touched = 0
  #used = 0

  constructor(words: Int32Array, base: number, nodesMax: number) {
    this.#words = words
    this.#base = base
    this.#nodesMax = nodesMax
  }

  /** Takes room for nodes that are never written; false: there is none. */
  spare(nodes: number): boolean {
    if (this.#used + nodes > this.#nodesMax) return false
    this.#used += nodes
    return true
  }

  giveBack(nodes: number): void {
    this.#used -= nodes
  }

  /** Those that stay unwritten for others included. */
  get nodesUsed(): number {
    return this.#used
  }

  /**
   * A reference to the list of these ids, pairs [lo, hi], in any order; undefined: there is no room. The
   * array must not change afterwards.
   */
  take(ids: Int32Array): number | undefined {
    if (ids.length === 0) return 0
    const { ids: sorted, content } = this.#sortedOnce(ids)
    const known = this.#byContent.get(content)
    if (known !== undefined) {
      this.#set(known, N_REFERENCES, this.#get(known, N_REFERENCES) + 1)
      return known
    }
    const count = sorted.length / 2
    if (this.#used + Math.ceil(count / NODE_IDS) > this.#nodesMax) return undefined
    let next = 0
    for (let from = Math.floor((count - 1) / NODE_IDS) * NODE_IDS; from >= 0; from -= NODE_IDS) {
      const node = this.#newNode()
      const inNode = Math.min(NODE_IDS, count - from)
      this.#set(node, N_NEXT, next)
      this.#set(node, N_COUNT, inNode)
      for (let i = 0; i < 2 * inNode; i++) this.#set(node, N_IDS + i, sorted[2 * from + i]!)
      next = node
    }
    this.#set(next, N_REFERENCES, 1)
    this.#byContent.set(content, next)
    return next
  }

  give(set: number): void {
    if (set === 0) return
    const references = this.#get(set, N_REFERENCES) - 1
    this.#set(set, N_REFERENCES, references)
    if (references > 0) return
    this.#byContent.delete(this.idsOf(set).join())
    this.#set(set, N_LIFE, this.#get(set, N_LIFE) + 1)
    for (let node = set; node !== 0; ) {
      const next = this.#get(node, N_NEXT)
      this.#set(node, N_NEXT, this.#free)
      this.#free = node
      this.#used--
      node = next
    }
  }

  /** Pairs [lo, hi], ascending. */
  idsOf(set: number): Int32Array {
    return this.someIdsOf(set, Number.POSITIVE_INFINITY)!
  }

  /** As `idsOf`; undefined: there are more than `idsMax`, of which no more are read. */
  someIdsOf(set: number, idsMax: number): Int32Array | undefined {
    if (set === 0) return NO_IDS
    const ids: number[] = []
    for (let node = set; node !== 0; node = this.#get(node, N_NEXT)) {
      const count = this.#get(node, N_COUNT)
      if (ids.length / 2 + count > idsMax) return undefined
      for (let i = 0; i < 2 * count; i++) ids.push(this.#get(node, N_IDS + i))
    }
    return Int32Array.from(ids)
  }

  #sortedOnce(ids: Int32Array): { readonly ids: Int32Array; readonly content: string } {
    const known = this.#sorted.get(ids)
    if (known !== undefined) return known
    const sorted = sortedIds(ids)
    const entry = { ids: sorted, content: sorted.join() }
    this.#sorted.set(ids, entry)
    return entry
  }

  #newNode(): number {
    this.#used++
    const node = this.#free
    if (node === 0) return ++this.#touched
    this.#free = this.#get(node, N_NEXT)
    return node
  }

  #get(node: number, word: number): number {
    return this.#words[this.#base + (node - 1) * NODE_WORDS + word]!
  }

  #set(node: number, word: number, value: number): void {
    Atomics.store(this.#words, this.#base + (node - 1) * NODE_WORDS + word, value)
  }
}

/** Ascending by their bits, each once. */
function sortedIds(ids: Int32Array): Int32Array {
  const keys: bigint[] = []
  for (let i = 0; i < ids.length; i += 2) {
    keys.push((BigInt(ids[i + 1]! >>> 0) << 32n) | BigInt(ids[i]! >>> 0))
  }
  const distinct = [...new Set(keys)].sort((a, b) => (a < b ? -1 : 1))
  return Int32Array.from(distinct.flatMap(key => [Number(key & 0xffff_ffffn), Number(key >> 32n)]))
}
