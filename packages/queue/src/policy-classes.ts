/**
 * Policy classes: what kinds of requests wait apart from one another, each with its order, its share, its
 * limits and its thresholds.
 *
 * The class of a request is found by a family, which the client names, and by its uncached tokens: each
 * family has one class for each bucket. A class without family and bucket is explicit: it is chosen by its
 * own name, whatever the prompt.
 */

import type { QueueOrder } from './orders.ts'

export interface PolicyClass {
  readonly name: string
  /** Both, or neither. */
  readonly family?: string | undefined
  readonly cacheBucket?: string | undefined
  readonly order: QueueOrder
  /** Uncached tokens that it may send in a round; a whole number ≥ 1. */
  readonly quantum: number
  /** A worker is past its threshold with more active prefill tokens than this … */
  readonly busyTokens?: number | undefined
  /** … or than this part of its token budget. With neither, nothing waits for a threshold. */
  readonly busyFraction?: number | undefined
  /** Limits of what waits, for each worker. */
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
  /** Of requests that name no family, or none that there is. */
  readonly defaultFamily: string
  /** By `tokensMin`, the first of which is 0. */
  readonly buckets: readonly UncachedBucket[]
  readonly classes: readonly PolicyClass[]
}

/** The profile of those who give no class file: everything is in one class, `default`. */
export function singleClassProfile(order: QueueOrder, busyFraction?: number): PolicyProfile {
  const name = 'default'
  return {
    defaultFamily: name,
    buckets: [{ tokensMin: 0, name: 'all' }],
    classes: [{ name, family: name, cacheBucket: 'all', order, quantum: 1, busyFraction }],
  }
}

/** Name of the class of a request; `family` is what the client named, if anything. */
export function policyClassOf(
  profile: PolicyProfile,
  family: string | undefined,
  uncachedTokens: number,
): string {
  const { classes, buckets, defaultFamily } = profile
  // The name of a class with a family is no way past its buckets.
  const explicit = classes.find(({ name, family: own }) => own === undefined && name === family)
  if (explicit !== undefined) return explicit.name
  const isFamily = family !== undefined && classes.some(({ family: own }) => own === family)
  const known = isFamily ? family : defaultFamily
  const bucket = buckets.findLast(({ tokensMin }, i) => i === 0 || uncachedTokens >= tokensMin)!.name
  return classes.find(({ family: own, cacheBucket }) => own === known && cacheBucket === bucket)!.name
}
