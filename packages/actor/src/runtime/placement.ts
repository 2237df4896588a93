/** Placement: which thread an actor goes to. */

import { checkedFields, checkedHeapMb, shown, type ThreadBounds } from '../contract/settings.ts'
import type { DedicatedThread, ThreadPlacement } from '../contract/types.ts'
import { toMs } from '../values/durations.ts'
import { UnknownThreadError } from '../values/errors.ts'

/** The pools of a system and their threads, in order. */
export type PoolMap = readonly {
  readonly name: string
  readonly threads: readonly string[]
  /** See ThreadPoolOptions. */
  readonly preload?: readonly string[]
}[]

const PLACEMENT_FIELDS = ['pool', 'key'] as const
const DEDICATED_FIELDS = ['dedicated'] as const
const BOUND_FIELDS = ['heapMb', 'hungAfter'] as const
const NO_BOUNDS: ThreadBounds = {}

/** Throws RangeError for what is no placement, whatever threads there are. */
export function checkedPlacement(placement: ThreadPlacement): void {
  if (typeof placement === 'string' && placement !== '') return
  if (boundsOf(placement) !== undefined) return
  checkedFields('thread', placement as object, PLACEMENT_FIELDS)
  const { key } = placement as { readonly key?: unknown }
  if (typeof key === 'string' || typeof key === 'number') return
  throw new RangeError(`cannot place an actor in a pool by the key ${shown(key)}: use a string or a number`)
}

/**
 * The bounds of a thread of its own; undefined: the placement means another one. Throws RangeError for what
 * is no bound.
 */
export function boundsOf(placement: ThreadPlacement): ThreadBounds | undefined {
  if (placement === 'dedicated') return NO_BOUNDS
  if (typeof placement !== 'object' || placement === null || !('dedicated' in placement)) return undefined
  checkedFields('thread', placement, DEDICATED_FIELDS)
  checkedFields('dedicated', placement.dedicated, BOUND_FIELDS)
  const { heapMb, hungAfter }: DedicatedThread = placement.dedicated
  return {
    ...(heapMb === undefined ? {} : { heapMb: checkedHeapMb(heapMb) }),
    ...(hungAfter === undefined ? {} : { hungAfterMs: toMs(hungAfter) }),
  }
}

/**
 * The thread that a placement names. A key sticks to one thread of its pool by rendezvous hashing: when
 * a thread is gone for good, only its keys move. Throws UnknownThreadError.
 */
export function resolvePlacement(
  placement: string | { readonly pool: string; readonly key: string | number },
  pools: PoolMap,
  isUsable: (thread: string) => boolean,
): string {
  if (typeof placement === 'string') return placement
  const pool = pools.find(candidate => candidate.name === placement.pool)
  if (pool === undefined) throw new UnknownThreadError(placement.pool, 'the system has no such pool')
  let best: string | undefined
  let bestWeight = -1
  for (const thread of pool.threads) {
    if (!isUsable(thread)) continue
    const weight = hash(`${thread}\u0000${placement.key}`)
    if (weight > bestWeight) {
      best = thread
      bestWeight = weight
    }
  }
  if (best === undefined) throw new UnknownThreadError(placement.pool, 'no thread of the pool is left')
  return best
}

/** FNV-1a with the finalizer of MurmurHash3, which spreads keys that differ in their last letter. */
function hash(text: string): number {
  let h = 0x811c9dc5
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193)
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return (h ^ (h >>> 16)) >>> 0
}
