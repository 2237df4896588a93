/**
 * SharedBlocks: which active blocks of a worker slot the requests of this router and those of others have in
 * common, found by digests of their prompts.
 *
 *   nodes   (slot, sequence hash at a depth of the digest) -> own requests, requests of others, blocks since
 *           the depth before
 *
 * Invariants
 *   I1  A node is there while a request has it; own + others > 0.
 *   I2  `ownBlocks` of a slot = blocks of the nodes with own requests; `otherBlocks` = of those with none.
 *   I3  With no request added, the table is empty and every figure is 0.
 *
 * Bound   `nodesMax`; a request beyond it is not added.
 * Cost    one lookup for each hash of the digest; `heldBlocks` a binary search.
 */

import { type ChainDigest, depthAt, digestLength } from './chain-digest.ts'
import { KeyTable } from './key-table.ts'

const NODES_MAX_DEFAULT = 4_194_304

const OWN = 0
const OTHERS = 1
const BLOCKS = 2
const VALUES = 3

export class SharedBlocks {
  readonly #nodes = new KeyTable(VALUES)
  readonly #nodesMax: number
  readonly #ownBlocks: Int32Array
  readonly #otherBlocks: Int32Array

  constructor(workerSlotsMax: number, nodesMax = NODES_MAX_DEFAULT) {
    this.#nodesMax = nodesMax
    this.#ownBlocks = new Int32Array(workerSlotsMax)
    this.#otherBlocks = new Int32Array(workerSlotsMax)
  }

  get nodes(): number {
    return this.#nodes.count
  }

  /** Blocks that requests of this router have, each once. */
  ownBlocks(workerSlot: number): number {
    return this.#ownBlocks[workerSlot]!
  }

  /** Blocks that only requests of others have, each once. */
  otherBlocks(workerSlot: number): number {
    return this.#otherBlocks[workerSlot]!
  }

  /** False: there is no room, or the digest is none; nothing has changed. */
  add(workerSlot: number, { count, hashes }: ChainDigest, isOwn: boolean): boolean {
    const nodes = this.#nodes
    const length = hashes.length / 2
    if (length !== digestLength(count) || nodes.count + length > this.#nodesMax) return false
    let depth = 0
    for (let i = 0; i < length; i++) {
      const [low, high] = [hashes[2 * i]!, hashes[2 * i + 1]!]
      const blocks = depthAt(i, count) - depth
      depth += blocks
      let node = nodes.find(workerSlot, low, high)
      if (node < 0) {
        node = nodes.insert(workerSlot, low, high)
        nodes.words[nodes.valueAt(node, BLOCKS)] = blocks
      }
      this.#count(workerSlot, node, isOwn, 1)
    }
    return true
  }

  /** What was added before. */
  remove(workerSlot: number, { hashes }: ChainDigest, isOwn: boolean): void {
    const nodes = this.#nodes
    for (let at = 0; at < hashes.length; at += 2) {
      const node = nodes.find(workerSlot, hashes[at]!, hashes[at + 1]!)
      this.#count(workerSlot, node, isOwn, -1)
      const values = nodes.valueAt(node, 0)
      if (nodes.words[values + OWN] === 0 && nodes.words[values + OTHERS] === 0) nodes.remove(node)
    }
  }

  /** Leading blocks of a prompt that are active on the slot, through any router. */
  heldBlocks(workerSlot: number, { count, hashes }: ChainDigest): number {
    let held = 0
    let notHeld = hashes.length / 2 + 1
    while (notHeld - held > 1) {
      const middle = (held + notHeld) >> 1
      const at = 2 * (middle - 1)
      if (this.#nodes.find(workerSlot, hashes[at]!, hashes[at + 1]!) >= 0) held = middle
      else notHeld = middle
    }
    return held === 0 ? 0 : depthAt(held - 1, count)
  }

  #count(workerSlot: number, node: number, isOwn: boolean, change: 1 | -1): void {
    const { words } = this.#nodes
    const values = this.#nodes.valueAt(node, 0)
    const hadOwn = words[values + OWN]! > 0
    const hadOthers = words[values + OTHERS]! > 0
    words[values + (isOwn ? OWN : OTHERS)]! += change
    const hasOwn = words[values + OWN]! > 0
    const hasOthers = words[values + OTHERS]! > 0
    const blocks = words[values + BLOCKS]!
    this.#ownBlocks[workerSlot]! += blocks * (Number(hasOwn) - Number(hadOwn))
    this.#otherBlocks[workerSlot]! += blocks * (Number(!hasOwn && hasOthers) - Number(!hadOwn && hadOthers))
  }
}
