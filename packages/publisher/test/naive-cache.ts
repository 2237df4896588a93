/** The naive model of held blocks: plain objects, every block with all that it says. */

import type { KvEvent } from '@homing/protocol'
import { keyAt } from '../src/engine-hash.ts'

export interface NaiveBlock {
  readonly parent: bigint | undefined
  readonly tokens: readonly number[]
  readonly loraName: string | undefined
  copies: number
}

export class NaiveCache {
  /** `tier/group/hash` to block. */
  readonly blocks = new Map<string, NaiveBlock>()
  /** Blocks that came before a parent that is held now; parents-first dumps have none. */
  orphans = 0

  apply(event: KvEvent): void {
    if (event.kind === 'cleared') {
      this.blocks.clear()
      return
    }
    const name = (key: bigint): string => `${event.tier}/${event.group ?? ''}/${key}`
    for (let i = 0; i < event.hashes.length / 2; i++) {
      const key = keyAt(event.hashes, i)
      const held = this.blocks.get(name(key))
      if (event.kind === 'removed') {
        if (held !== undefined && --held.copies === 0) this.blocks.delete(name(key))
        continue
      }
      const size = event.blockSizeTokens
      const tokens = [...event.tokens.subarray(i * size, (i + 1) * size)]
      const parent =
        i > 0 ? keyAt(event.hashes, i - 1) : event.parent === undefined ? undefined : keyAt(event.parent, 0)
      if (parent !== undefined && !this.blocks.has(name(parent))) this.orphans++
      const isSame = held !== undefined && held.parent === parent && String(held.tokens) === String(tokens)
      if (isSame) held.copies++
      else this.blocks.set(name(key), { parent, tokens, loraName: event.loraName, copies: 1 })
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
