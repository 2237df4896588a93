/**
 * Pooled tier of one rank: copies of its blocks in memory that other workers reach. What is computed goes
 * there at once, and is there after the time of a transfer.
 *
 *   stored ──▶ in transit (with the batch of the store) ──transferMs──▶ pooled ──▶ evicted, the oldest first
 *
 * A block that the cache drops stays in the pool; a clear of the cache empties the rank's part of the pool.
 * The tier holds hashes alone. With a directory (pool-directory.ts) other engines can read them, and this
 * rank reads theirs. Without one it only tells. A block that the directory does not take is local again.
 */

import type { Clock, Timer } from '@homing/base'
import type { PoolState } from '@homing/protocol'
import type { CacheEvent } from './block-manager.ts'
import { hexOfHash } from './engine-hash.ts'
import type { PoolDirectory } from './pool-directory.ts'
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
  /** Undefined: no engine can read its blocks, nor it those of others. */
  readonly directory?: PoolDirectory | undefined
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
        this.#options.directory?.clear()
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

  /** Hashes of the blocks that are there, the oldest first. */
  get pooledBlocks(): readonly string[] {
    return [...this.#pooled.keys()]
  }

  /** Whether it can read blocks of other engines at all. */
  get isReadable(): boolean {
    return this.#options.directory !== undefined
  }

  /** How many of these leading blocks can be read out of the pool. `hashes`: pairs of words. */
  readable(hashes: Int32Array): number {
    return this.#options.directory?.leading(hashes) ?? 0
  }

  /** Forgets everything, and ends transfers. What is in the directory stays there. */
  close(): void {
    for (const timer of this.#timers) timer.cancel()
    this.#timers.clear()
    this.#moving.clear()
    this.#pooled.clear()
  }

  #arrived(blocks: ReadonlyMap<string, readonly [number, number]>): void {
    const { directory } = this.#options
    const there: (readonly [number, number])[] = []
    const refused: (readonly [number, number])[] = []
    for (const [key, hash] of blocks) {
      this.#moving.delete(key)
      if (directory?.put(hash) === false) refused.push(hash)
      else {
        there.push(hash)
        this.#pooled.set(key, hash)
      }
    }
    const evicted: (readonly [number, number])[] = []
    for (const [key, hash] of this.#pooled) {
      if (this.#pooled.size <= this.#options.poolBlocks) break
      this.#pooled.delete(key)
      evicted.push(hash)
    }
    const events: BlocksMoved[] = []
    if (there.length > 0) events.push(this.#moved(there, 'cxl_pooled'))
    if (refused.length > 0) events.push(this.#moved(refused, 'local_gpu'))
    if (evicted.length > 0) events.push(this.#moved(evicted, 'evicted'))
    this.#options.publish(events)
    for (const hash of evicted) directory?.remove(hash)
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
