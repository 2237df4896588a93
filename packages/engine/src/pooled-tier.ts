/**
 * Pooled tier of one rank: copies of its blocks in memory that other workers reach. What is computed goes
 * there at once, and is there after the time of a transfer.
 *
 *   stored ──▶ in transit (with the batch of the store) ──transferMs──▶ pooled ──▶ evicted, the oldest first
 *
 * A block that the cache drops stays in the pool; a clear of the cache empties the rank's part of the pool.
 * The tier holds hashes alone: a simulated engine does not read blocks out of it.
 */

import type { Clock, Timer } from '@homing/base'
import type { PoolState } from '@homing/protocol'
import type { CacheEvent } from './block-manager.ts'
import { hexOfHash } from './engine-hash.ts'
import type { PoolSettings } from './pool-settings.ts'

/** Blocks are in another state now. */
export interface BlocksMoved {
  readonly type: 'moved'
  /** Pairs of words [lo, hi]. */
  readonly hashes: Int32Array
  readonly state: PoolState
  readonly poolId: number
  /** Ids, pairs of words. */
  readonly workers: Int32Array
}

export interface PooledTierOptions extends Pick<PoolSettings, 'poolId' | 'poolWorkers' | 'poolBlocks'> {
  /** Real milliseconds. */
  readonly transferMs: number
  readonly clock: Clock
  readonly publish: (events: readonly BlocksMoved[]) => void
}

export class PooledTier {
  readonly #options: PooledTierOptions
  readonly #workers: Int32Array
  /** By hash: its words. Those on their way, and those that are there, the oldest first. */
  readonly #moving = new Map<string, readonly [number, number]>()
  readonly #pooled = new Map<string, readonly [number, number]>()
  readonly #timers = new Set<Timer>()

  constructor(options: PooledTierOptions) {
    this.#options = options
    this.#workers = new Int32Array(BigUint64Array.from(options.poolWorkers.map(BigInt)).buffer)
  }

  /** The events of a step, with what they bring to the pool behind them. */
  follow(events: readonly CacheEvent[]): readonly (CacheEvent | BlocksMoved)[] {
    const fresh = new Map<string, readonly [number, number]>()
    for (const event of events) {
      if (event.type === 'cleared') {
        this.close()
        fresh.clear()
      } else if (event.type === 'stored') {
        for (let i = 0; i < event.hashes.length; i += 2) {
          const hash = [event.hashes[i]!, event.hashes[i + 1]!] as const
          const key = hexOfHash(...hash)
          if (!this.#moving.has(key) && !this.#pooled.has(key)) fresh.set(key, hash)
        }
      }
    }
    if (fresh.size === 0) return events
    for (const [key, hash] of fresh) this.#moving.set(key, hash)
    const timer = this.#options.clock.after(this.#options.transferMs, () => {
      this.#timers.delete(timer)
      this.#arrived(fresh)
    })
    this.#timers.add(timer)
    return [...events, this.#moved(fresh.values(), 'in_transit')]
  }

  /** Forgets everything: the rank's part of the pool is empty. */
  close(): void {
    for (const timer of this.#timers) timer.cancel()
    this.#timers.clear()
    this.#moving.clear()
    this.#pooled.clear()
  }

  #arrived(blocks: ReadonlyMap<string, readonly [number, number]>): void {
    for (const [key, hash] of blocks) {
      this.#moving.delete(key)
      this.#pooled.set(key, hash)
    }
    const evicted: (readonly [number, number])[] = []
    for (const [key, hash] of this.#pooled) {
      if (this.#pooled.size <= this.#options.poolBlocks) break
      this.#pooled.delete(key)
      evicted.push(hash)
    }
    const events = [this.#moved(blocks.values(), 'cxl_pooled')]
    if (evicted.length > 0) events.push(this.#moved(evicted, 'evicted'))
    this.#options.publish(events)
  }

  #moved(hashes: Iterable<readonly [number, number]>, state: PoolState): BlocksMoved {
    const { poolId } = this.#options
    return {
      type: 'moved',
      hashes: Int32Array.from([...hashes].flat()),
      state,
      poolId,
      workers: this.#workers,
    }
  }
}
