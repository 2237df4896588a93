/**
 * Event manners: the ways in which an engine reports its cache changes. The cache is the same in all of them;
 * a listener learns more or less of it.
 *
 *   repeatsStores  a further copy of a cached block is a store again (vLLM); false: it is not reported
 *                  (SGLang, which also reports only the last removal: `removals` of the engine)
 *   group          form          as the engine of this form: vLLM names group 0, SGLang none
 *                  none, number  this one
 *   slidingGroup   a second group that reports the same hashes, with a sliding window: only the last block of
 *                  each store
 *   removalGroup   same          the group of the store
 *                  none, number  removals name this one
 *   namesKinds     stores say which attention their group has
 *   namesSalts     stores say with which cache salt their blocks were made
 */

import { KV_CLEARED, type KvEvent, kvRemoved, kvStored } from '@homing/protocol'
import type { BlocksStored, CacheEvent } from './block-manager.ts'
import type { BlocksMoved } from './pooled-tier.ts'

export interface EventManners {
  readonly repeatsStores: boolean
  readonly group: 'form' | 'none' | number
  /** −1: none. */
  readonly slidingGroup: number
  readonly removalGroup: 'same' | 'none' | number
  readonly namesKinds: boolean
  readonly namesSalts: boolean
}

export const PLAIN_MANNERS: EventManners = {
  repeatsStores: true,
  group: 'form',
  slidingGroup: -1,
  removalGroup: 'same',
  namesKinds: true,
  namesSalts: true,
}

export interface EventWriterOptions {
  readonly isVllm: boolean
  readonly blockSizeTokens: number
}

export class EventWriter {
  manners: EventManners = PLAIN_MANNERS
  readonly #options: EventWriterOptions
  /** Hashes whose store was reported, and no removal since. */
  readonly #told = new Set<string>()

  constructor(options: EventWriterOptions) {
    this.#options = options
  }

  /** What one event of the cache is on the wire; nothing where this manner has no word for it. */
  write(event: CacheEvent | BlocksMoved): readonly KvEvent[] {
    if (event.type === 'moved') {
      const { hashes, state, poolId, workers } = event
      // Who reaches it is told on the way there.
      const accessibleWorkers = state === 'in_transit' ? workers : new Int32Array(0)
      return [{ kind: 'transition', hashes, state, poolId, accessibleWorkers }]
    }
    if (event.type === 'cleared') {
      this.#told.clear()
      return [KV_CLEARED]
    }
    return event.type === 'removed' ? this.#removed(event.hash) : this.#stored(event)
  }

  #stored(event: BlocksStored): readonly KvEvent[] {
    const count = event.hashes.length / 2
    const isNew: boolean[] = []
    for (let i = 0; i < count; i++) {
      const key = keyOf(event.hashes[2 * i]!, event.hashes[2 * i + 1]!)
      isNew.push(this.manners.repeatsStores || !this.#told.has(key))
      this.#told.add(key)
    }
    const events: KvEvent[] = []
    for (let from = 0; from < count; ) {
      let to = from
      while (to < count && isNew[to]) to++
      if (to > from) events.push(...this.#stores(event, from, to))
      from = to + 1
    }
    return events
  }

  /** The blocks `from` to `to` − 1 of a store, once for each group. */
  #stores(event: BlocksStored, from: number, to: number): readonly KvEvent[] {
    const { isVllm, blockSizeTokens } = this.#options
    const { slidingGroup, namesKinds, namesSalts } = this.manners
    const { hashes, tokenIds, namespace, parentHash } = event
    // vLLM names the salt on the first block of a sequence only; SGLang on every store.
    const saysSalt = namesSalts && !(isVllm && event.firstBlockIndex + from > 0)
    const parent = from === 0 ? parentHash : [hashes[2 * from - 2]!, hashes[2 * from - 1]!]
    const store = kvStored({
      hashes: hashes.slice(2 * from, 2 * to),
      parent: parent === undefined ? undefined : Int32Array.from(parent),
      tokens: tokenIds.slice(from * blockSizeTokens, to * blockSizeTokens),
      blockSizeTokens,
      loraName: namespace.loraName,
      cacheSalt: saysSalt ? namespace.cacheSalt : undefined,
      group: this.#group,
      attention: this.#group !== undefined && namesKinds ? 'full_attention' : undefined,
      sessionId: event.sessionId,
    })
    if (slidingGroup < 0) return [store]
    const sliding = {
      ...store,
      hashes: store.hashes.slice(-2),
      group: slidingGroup,
      attention: namesKinds ? 'sliding_window' : undefined,
    }
    return [sliding, store]
  }

  #removed([low, high]: readonly [number, number]): readonly KvEvent[] {
    const { removalGroup, slidingGroup } = this.manners
    this.#told.delete(keyOf(low, high))
    const group = removalGroup === 'same' ? this.#group : removalGroup === 'none' ? undefined : removalGroup
    const removal = kvRemoved({ hashes: Int32Array.of(low, high), group })
    return slidingGroup < 0 ? [removal] : [{ ...removal, group: slidingGroup }, removal]
  }

  get #group(): number | undefined {
    const { group } = this.manners
    if (group === 'form') return this.#options.isVllm ? 0 : undefined
    return group === 'none' ? undefined : group
  }
}

function keyOf(low: number, high: number): string {
  return `${low} ${high}`
}
