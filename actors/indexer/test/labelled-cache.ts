/** Labels of blocks in tests: events of a worker that labels its blocks, and what is true of them. */

import assert from 'node:assert/strict'
import { hashBlocks, namespaceSeed } from '@homing/blocks'
import {
  decodeKvBatch,
  encodeKvBatch,
  isLegalTransition,
  KV_CLEARED,
  type KvEvent,
  type KvExpert,
  type KvPoolPlace,
  kvRemoved,
  kvStored,
  POOL_STATES,
} from '@homing/protocol'
import fc from 'fast-check'

export const BLOCK_TOKENS = 4

/** A chain is a list of letters; its tokens are those of its letters. */
export type Chain = readonly number[]

export function tokensOf(chain: Chain): Int32Array {
  return Int32Array.from(chain.flatMap(letter => [letter, letter + 10, letter + 20, letter + 30]))
}

/** Opaque to the router: not the hash that it makes itself. */
export function engineHash(chain: Chain): readonly [number, number] {
  let low = 17
  for (const letter of chain) low = (Math.imul(low, 31) + letter + 1) | 0
  return [low, chain.length]
}

const sequenceHashes = new Map<string, readonly [number, number]>()

/** The hash that the router makes of the last block of a chain. */
export function sequenceHash(chain: Chain, cacheSalt?: string): readonly [number, number] {
  const name = `${nameOf(chain)}/${cacheSalt}`
  let hash = sequenceHashes.get(name)
  if (hash === undefined) {
    const { sequence } = hashBlocks(tokensOf(chain), BLOCK_TOKENS, namespaceSeed({ cacheSalt }))
    hash = [sequence.at(-2)!, sequence.at(-1)!]
    sequenceHashes.set(name, hash)
  }
  return hash
}

interface Labels {
  readonly expert?: KvExpert | undefined
  readonly place?: KvPoolPlace | undefined
}

/** The blocks of a chain from `from` on; default: the last one. */
export function stored(
  chain: Chain,
  from = chain.length - 1,
  labels?: Labels,
  isLocal = true,
  cacheSalt?: string,
): KvEvent {
  const count = chain.length - from
  return kvStored({
    hashes: Int32Array.from(
      Array.from({ length: count }, (_, i) => engineHash(chain.slice(0, from + i + 1))).flat(),
    ),
    parent: from === 0 ? undefined : Int32Array.from(engineHash(chain.slice(0, from))),
    tokens: tokensOf(chain.slice(from)),
    blockSizeTokens: BLOCK_TOKENS,
    isLocal,
    cacheSalt,
    labels: labels && {
      experts: new Array(count).fill(labels.expert),
      places: new Array(count).fill(labels.place),
    },
  })
}

export const removed = (chain: Chain): KvEvent => kvRemoved({ hashes: Int32Array.from(engineHash(chain)) })

export const moved = (chain: Chain, place: KvPoolPlace): KvEvent => ({
  kind: 'transition',
  hashes: Int32Array.from(engineHash(chain)),
  ...place,
})

export const place = (
  state: KvPoolPlace['state'],
  poolId?: number,
  ...ids: readonly number[]
): KvPoolPlace => ({
  state,
  poolId,
  accessibleWorkers: Int32Array.from(ids.flatMap(id => [id, 0])),
})

/** The low words of the ids that a place names, ascending. */
export function idsOf({ accessibleWorkers }: KvPoolPlace): number[] {
  return [...accessibleWorkers].filter((_, i) => i % 2 === 0).sort((a, b) => a - b)
}

export const throughTheWire = (events: readonly KvEvent[]): readonly KvEvent[] => {
  const batch = decodeKvBatch(encodeKvBatch({ timestampSeconds: 1, rank: undefined, events }, 'vllm-map'))
  assert.deepEqual(batch.skipped, { unknownTag: 0, malformed: 0 })
  return batch.events
}

/** A cache that stores below what it holds, removes leaves first, and moves blocks between pools. */
export type CacheStep =
  | ({ readonly kind: 'store' | 'pool'; readonly chain: Chain } & Labels)
  | { readonly kind: 'remove' | 'again'; readonly chain: Chain }
  | { readonly kind: 'move'; readonly chain: Chain; readonly place: KvPoolPlace }
  | { readonly kind: 'clear' }

const members = fc.constantFrom({}, {}, { members: '{"a":[1,2]}' }, { members: '{"a":1,"b":"ä"}' })
const experts = fc.option(
  fc
    .tuple(fc.nat(3), fc.constantFrom(0, 2 ** 32 - 1), fc.option(fc.nat(2), { nil: undefined }), members)
    .map(([layerId, expertId, expertGroup, more]) => ({ layerId, expertId, expertGroup, ...more })),
  { nil: undefined },
)
const places = fc.record({
  state: fc.constantFrom(...POOL_STATES),
  poolId: fc.option(fc.nat(2), { nil: undefined }),
  accessibleWorkers: fc
    .uniqueArray(fc.nat(9), { maxLength: 8 })
    .map(ids => Int32Array.from(ids.flatMap(id => [id, 0]))),
})
const somePlace = fc.option(
  fc.tuple(places, members).map(([place, more]): KvPoolPlace => ({ ...place, ...more })),
  { nil: undefined },
)

/** Chains of at most `blocksMax` blocks. */
export function cacheSteps(blocksMax: number): fc.Arbitrary<CacheStep> {
  const chain = fc.array(fc.nat({ max: 1 }), { minLength: 1, maxLength: blocksMax })
  return fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({ kind: fc.constant('store' as const), chain, expert: experts, place: somePlace }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ kind: fc.constant('pool' as const), chain, expert: experts, place: somePlace }),
    },
    { weight: 5, arbitrary: fc.record({ kind: fc.constantFrom('remove', 'again'), chain }) },
    {
      weight: 12,
      arbitrary: fc.record({ kind: fc.constant('move' as const), chain, place: places }),
    },
    { weight: 1, arbitrary: fc.constant({ kind: 'clear' as const }) },
  )
}

/** All chains of at most `blocksMax` blocks. */
export function chainsOf(blocksMax: number): readonly Chain[] {
  return Array.from({ length: blocksMax }, (_, i) => i + 1).flatMap(length =>
    Array.from({ length: 2 ** length }, (_, bits) => Array.from({ length }, (_, i) => (bits >>> i) & 1)),
  )
}

export const nameOf = (chain: Chain): string => chain.join(' ')

/**
 * The truth of one worker, by the name of each block. Of a block that is neither held, nor in a pool, nor on
 * its way there, nothing is known.
 */
export class LabelledCache {
  readonly held = new Map<string, Chain>()
  readonly places = new Map<string, KvPoolPlace>()
  readonly experts = new Map<string, KvExpert>()

  /** The events that tell of it. */
  take(step: CacheStep): readonly KvEvent[] {
    switch (step.kind) {
      case 'store':
        return this.#store(step.chain, step)
      case 'pool':
        return this.#pool(step.chain, step)
      case 'again':
      case 'remove':
        return this.#remove(step.chain, step.kind === 'again')
      case 'move':
        this.#move(step.chain, step.place)
        return [moved(step.chain, step.place)]
      case 'clear':
        for (const map of [this.held, this.places, this.experts]) map.clear()
        return [KV_CLEARED]
    }
  }

  isInPool(chain: Chain): boolean {
    const state = this.places.get(nameOf(chain))?.state
    return state === 'in_transit' || state === 'cxl_pooled'
  }

  /** Whether it is held, in a pool, or on its way there. */
  isSomewhere(chain: Chain): boolean {
    return this.held.has(nameOf(chain)) || this.isInPool(chain)
  }

  /** Whether a snapshot can say where it is: the blocks above it are somewhere, too. */
  isPlaced(chain: Chain): boolean {
    return chain.every((_, i) => this.isSomewhere(chain.slice(0, i + 1)))
  }

  #store(chain: Chain, labels: Labels): readonly KvEvent[] {
    let from = 0
    while (from < chain.length - 1 && this.held.has(nameOf(chain.slice(0, from + 1)))) from++
    for (let length = from + 1; length <= chain.length; length++) {
      const part = chain.slice(0, length)
      this.held.set(nameOf(part), part)
      this.#label(part, labels)
    }
    return [stored(chain, from, labels)]
  }

  /** Says of the last block of a chain where else it is. */
  #pool(chain: Chain, labels: Labels): readonly KvEvent[] {
    const { expert, place } = labels
    if (expert === undefined && place === undefined) return []
    if (chain.length > 1 && !this.held.has(nameOf(chain.slice(0, -1)))) return []
    this.#label(chain, labels)
    this.#settle(chain)
    return [stored(chain, chain.length - 1, labels, false)]
  }

  #remove(chain: Chain, isBackAtOnce: boolean): readonly KvEvent[] {
    const name = nameOf(chain)
    const isLeaf = ![...this.held.keys()].some(one => one.startsWith(`${name} `))
    if (!isLeaf || !this.held.has(name)) return []
    this.held.delete(name)
    this.#settle(chain)
    if (!isBackAtOnce) return [removed(chain)]
    this.held.set(name, chain)
    return [removed(chain), stored(chain)]
  }

  #move(chain: Chain, place: KvPoolPlace): void {
    if (!this.isSomewhere(chain)) return
    const name = nameOf(chain)
    const before = this.places.get(name)
    if (!isLegalTransition(before?.state ?? 'untold', place.state, place.poolId !== undefined)) return
    const more = before?.members === undefined ? {} : { members: before.members }
    if (place.state === 'in_transit') this.places.set(name, { ...place, ...more })
    else if (place.state === 'local_gpu') {
      const local = { state: 'local_gpu', poolId: undefined, accessibleWorkers: new Int32Array(0) } as const
      this.places.set(name, { ...local, ...more })
    } else this.places.set(name, { ...before!, state: place.state })
    this.#settle(chain)
  }

  #label(chain: Chain, { expert, place }: Labels): void {
    if (expert !== undefined) this.experts.set(nameOf(chain), expert)
    if (place !== undefined) this.places.set(nameOf(chain), place)
  }

  #settle(chain: Chain): void {
    if (this.isSomewhere(chain)) return
    this.places.delete(nameOf(chain))
    this.experts.delete(nameOf(chain))
  }
}
