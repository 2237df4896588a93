/**
 * Policy classes: kinds of requests that wait separately. Each class has its own order, share, limits and
 * thresholds.
 *
 * The class of a request follows from the family that the client names and from its uncached tokens: each
 * family has one class per bucket. A class without family and bucket is explicit: the client chooses it by
 * its name, for any prompt.
 */

import type { QueueOrder } from './orders.ts'

export interface PolicyClass {
  readonly name: string
  /** Either both `family` and `cacheBucket` are set, or neither. */
  readonly family?: string | undefined
  readonly cacheBucket?: string | undefined
  readonly order: QueueOrder
  /** Uncached tokens that the class may send per round; a whole number ≥ 1. */
  readonly quantum: number
  /** A worker is over the threshold if it has more active prefill tokens than this … */
  readonly busyTokens?: number | undefined
  /** … or than this fraction of its token budget. With neither, no request waits for a threshold. */
  readonly busyFraction?: number | undefined
  /** Limits of waiting requests, per worker. */
  readonly requestsPerWorker?: number | undefined
  readonly promptTokensPerWorker?: number | undefined
  readonly cachedTokensPerWorker?: number | undefined
}

export interface UncachedBucket {
  readonly tokensMin: number
  readonly name: string
}

/** The classes of a model. */
export interface PolicyProfile {
  /** Family of requests that name none, or an unknown one. */
  readonly defaultFamily: string
  /** Sorted by `tokensMin`; the first starts at 0. */
  readonly buckets: readonly UncachedBucket[]
  readonly classes: readonly PolicyClass[]
}

/** The profile without a class file: all requests are in one class, `default`. */
export function singleClassProfile(order: QueueOrder, busyFraction?: number): PolicyProfile {
  const name = 'default'
  return {
    defaultFamily: name,
    buckets: [{ tokensMin: 0, name: 'all' }],
    classes: [{ name, family: name, cacheBucket: 'all', order, quantum: 1, busyFraction }],
  }
}

/** Name of the class of a request; `family` is the name that the client gave, if any. */
export function policyClassOf(
  profile: PolicyProfile,
  family: string | undefined,
  uncachedTokens: number,
): string {
  const { classes, buckets, defaultFamily } = profile
  // Only explicit classes may be chosen by name: a class with a family is chosen by its bucket.
  const explicit = classes.find(({ name, family: own }) => own === undefined && name === family)
  if (explicit !== undefined) return explicit.name
  const isFamily = family !== undefined && classes.some(({ family: own }) => own === family)
  const known = isFamily ? family : defaultFamily
  const bucket = buckets.findLast(({ tokensMin }, i) => i === 0 || uncachedTokens >= tokensMin)!.name
  return classes.find(({ family: own, cacheBucket }) => own === known && cacheBucket === bucket)!.name
}
