/**
 * The naive model of held blocks: plain objects, every block with all its facts. The meaning of events is
 * that of CacheReading.
 */

import { addsCopies, CacheReading, type HeldTier, type KvEvent } from '@homing/protocol'
import { keyAt } from '../src/engine-hash.ts'

export interface NaiveBlock {
  readonly parent: bigint | undefined
  readonly tokens: readonly number[]
  readonly loraName: string | undefined
  copies: number
}

export class NaiveCache {
  /** `tier/hash` to block. */
  readonly blocks = new Map<string, NaiveBlock>()
  readonly #reading = new CacheReading()
  /** Blocks that came before a parent that is held now; parents-first dumps have none. */
  orphans = 0

  apply(event: KvEvent): void {
    if (event.kind === 'cleared') {
      this.blocks.clear()
      this.#reading.cleared(event)
      return
    }
    const name = (tier: string, key: bigint): string => `${tier}/${key}`
    if (event.kind === 'removed') {
      this.#reading.remove(event, {
        remove: (tier: HeldTier, hashes, manner, left) => {
          const found = Array.from({ length: hashes.length / 2 }, (_, i) => i).filter(i => {
            const block = this.blocks.get(name(tier, keyAt(hashes, i)))
            if (block === undefined) return false
            block.copies--
            if (manner === 'set' && block.copies > 0) left(hashes[2 * i]!, hashes[2 * i + 1]!, block.copies)
            if (manner === 'set' || block.copies === 0) this.blocks.delete(name(tier, keyAt(hashes, i)))
            return true
          })
          return found.length
        },
      })
      return
    }
    if (event.kind === 'transition' || this.#reading.faultOf(event) !== undefined) return
    for (let i = 0; i < event.hashes.length / 2; i++) {
      const key = keyAt(event.hashes, i)
      const held = this.blocks.get(name(event.tier, key))
      const size = event.blockSizeTokens
      const tokens = [...event.tokens.subarray(i * size, (i + 1) * size)]
      const parent =
        i > 0 ? keyAt(event.hashes, i - 1) : event.parent === undefined ? undefined : keyAt(event.parent, 0)
      if (parent !== undefined && !this.blocks.has(name(event.tier, parent))) this.orphans++
      const isSame = held !== undefined && held.parent === parent && String(held.tokens) === String(tokens)
      if (!isSame)
        this.blocks.set(name(event.tier, key), { parent, tokens, loraName: event.loraName, copies: 1 })
      else if (addsCopies(event)) held.copies++
    }
  }

  applyAll(events: Iterable<KvEvent>): this {
    for (const event of events) this.apply(event)
    return this
  }

  /** Sorted, to be compared. */
  state(): readonly unknown[] {
    return [...this.blocks].sort(([a], [b]) => (a < b ? -1 : 1))
  }
}
