/**
 * Label lookup: what labels of blocks say of the candidates for a prompt.
 *
 *   moe      blocks that a candidate holds, by its events, whose expert matches the query of the request
 *   pooled   blocks in pooled memory that a candidate reaches, from the first block that it does not hold on
 *
 * A candidate reaches a pooled block that itself has pooled, if its events are heard, or whose list of
 * workers names it. A block counts once: one that the candidate holds, or is guessed to hold, is not counted
 * as pooled. Blocks behind the first one that a candidate neither holds nor reaches do not count, since an
 * engine cannot use them.
 *
 * Reads  the label tables of all shards, directly; nothing where no shard has such labels.
 * Cost   a search in each table for each block that some candidate holds or reaches; each set of workers is
 *        read once, and at most IDS_MAX ids: further sets count as empty.
 */

import type { WorkerKeyRecord, WorkerRecord } from '@homing/fleet'
import { BlockLabels, LabelReader } from '@homing/index'
import { matchesExpert } from './moe-query.ts'
import type { RoutingRequest } from './routing-request.ts'

/** What a lookup takes of a candidate, and of a request. */
export interface LabelCandidate {
  readonly worker: Pick<WorkerRecord, 'blockSizeTokens' | 'eventsId' | 'instanceId'>
  readonly key: Pick<WorkerKeyRecord, 'shard' | 'workerSlot' | 'trust'>
}
export type LabelRequest = Pick<RoutingRequest, 'sequenceHashes' | 'moeQuery' | 'blockSizeTokens'>

/** What labels count for; see the settings. */
export interface LabelWeights {
  /** Of a matching block, beside the block itself. */
  readonly moe: number
  /** Of a pooled block, when one on the device counts 1. */
  readonly pooled: number
  /** The same for a stream that goes on elsewhere. */
  readonly migration: number
}

/** Ids of workers that one lookup reads. */
const IDS_MAX = 65_536
const NO_CANDIDATES: readonly number[] = []

export const NO_LABEL_WEIGHTS: LabelWeights = { moe: 0, pooled: 0, migration: 0 }

/** Element i of each belongs to candidate i. */
export interface LabelOverlaps {
  readonly moe: Int32Array
  readonly pooled: Int32Array
}

export class LabelLookup {
  readonly reader = new LabelReader()
  readonly #labels = new BlockLabels()
  readonly #shards: number

  /** `shards`: tables of the reader from this number on are further ones of the same shards. */
  constructor(shards = Number.POSITIVE_INFINITY) {
    this.#shards = shards
  }

  /** False: no label that a shard has now is of use for this request. */
  concerns({ moeQuery }: Pick<LabelRequest, 'moeQuery'>): boolean {
    return (moeQuery !== undefined && this.reader.hasExperts) || this.reader.hasPooled
  }

  /**
   * `held`: leading blocks that each candidate holds, by its events. `credited`: these and those that it is
   * guessed to hold. `blocksMax`: of the prompt, that can be of use. Undefined: labels say nothing of this
   * prompt.
   */
  lookUp(
    request: LabelRequest,
    candidates: readonly LabelCandidate[],
    held: Int32Array,
    credited: Int32Array,
    blocksMax: number,
  ): LabelOverlaps | undefined {
    const query = this.reader.hasExperts ? request.moeQuery : undefined
    const usesPool = this.reader.hasPooled
    if (query === undefined && !usesPool) return undefined
    const { sequenceHashes } = request
    const count = Math.min(blocksMax, sequenceHashes.length / 2)
    const moe = new Int32Array(candidates.length)
    /** The first block of each that is neither held nor reached, as far as is known. */
    const reached = held.slice()
    const reach = usesPool
      ? new Reach(this.reader, this.#shards, candidates, request.blockSizeTokens)
      : undefined
    const labels = this.#labels
    let end = largest(held)
    // A query looks at what is held; a pool at what follows it.
    let block = query === undefined ? smallest(held) : 0
    for (; block < count && block <= end; block++) {
      this.reader.read(sequenceHashes[2 * block]!, sequenceHashes[2 * block + 1]!, labels)
      if (query !== undefined && labels.moe !== undefined && matchesExpert(labels.moe, query)) {
        for (let i = 0; i < held.length; i++) if (held[i]! > block) moe[i]!++
      }
      if (reach === undefined || labels.owners.length === 0) continue
      reach.each(labels, i => {
        if (reached[i] !== block) return
        reached[i] = block + 1
        if (block + 1 > end) end = block + 1
      })
    }
    return { moe, pooled: reached.map((blocks, i) => Math.max(0, blocks - credited[i]!)) }
  }
}

/** Which candidates reach a pooled block. */
class Reach {
  /** By shard and worker slot. */
  readonly #byOwner = new Map<string, number>()
  /** By id, as 16 hexadecimal digits: the candidates of that worker. */
  readonly #byId = new Map<bigint, number[]>()
  readonly #reader: LabelReader
  readonly #shards: number
  /** By shard, and by set: the candidates in it. */
  readonly #bySet: Map<number, { readonly life: number; readonly candidates: readonly number[] }>[] = []
  #idsRead = 0

  constructor(
    reader: LabelReader,
    shards: number,
    candidates: readonly LabelCandidate[],
    blockSizeTokens: number,
  ) {
    this.#reader = reader
    this.#shards = shards
    for (const [i, { worker, key }] of candidates.entries()) {
      const size = worker.blockSizeTokens?.value
      // Blocks of another size are of no use to it.
      if (size !== undefined && size !== blockSizeTokens) continue
      // One that cannot be heard may be another life, whose part of the pool is empty.
      if (key.trust !== 'none') this.#byOwner.set(`${key.shard} ${key.workerSlot}`, i)
      const id = worker.eventsId ?? BigInt(worker.instanceId)
      const ranks = this.#byId.get(id)
      if (ranks === undefined) this.#byId.set(id, [i])
      else ranks.push(i)
    }
  }

  /** Calls `then` for each of them, maybe more than once. */
  each({ owners, workerSets }: BlockLabels, then: (candidate: number) => void): void {
    for (let at = 0; at < owners.length; at += 2) {
      const i = this.#byOwner.get(`${owners[at]! % this.#shards} ${owners[at + 1]}`)
      if (i !== undefined) then(i)
    }
    for (let at = 0; at < workerSets.length; at += 3) {
      for (const i of this.#inSet(workerSets[at]!, workerSets[at + 1]!, workerSets[at + 2]!)) then(i)
    }
  }

  #inSet(shard: number, set: number, life: number): readonly number[] {
    this.#bySet[shard] ??= new Map()
    const sets = this.#bySet[shard]
    const known = sets.get(set)
    if (known?.life === life) return known.candidates
    if (this.#idsRead >= IDS_MAX) return NO_CANDIDATES
    const ids = this.#reader.workerIdsOf(shard, set, life) ?? []
    this.#idsRead += ids.length / 2
    const candidates: number[] = []
    for (let at = 0; at < ids.length; at += 2) {
      const id = (BigInt(ids[at + 1]! >>> 0) << 32n) | BigInt(ids[at]! >>> 0)
      candidates.push(...(this.#byId.get(id) ?? NO_CANDIDATES))
    }
    sets.set(set, { life, candidates })
    return candidates
  }
}

function largest(values: Int32Array): number {
  let found = 0
  for (const value of values) if (value > found) found = value
  return found
}

function smallest(values: Int32Array): number {
  let found = Number.MAX_SAFE_INTEGER
  for (const value of values) if (value < found) found = value
  return found
}
