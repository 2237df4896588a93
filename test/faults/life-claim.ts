/**
 * Claim: what an observer of a history of lives believes of an engine: it holds these blocks, and this is how
 * far that can be believed. Besides: the times that all observers are started with.
 *
 * The observers are the router's own path and a router behind a sidecar (life-router.ts), the sidecar
 * (life-sidecar.ts), `homing indexer`, and a peer of it that inherits (life-service.ts). All are the real
 * actors and the real sidecar, on a simulated clock and a network in memory.
 */

import type { Trust } from '@homing/index'
import type { LifeEngine } from './life-engine.ts'
import type { Unobservable } from './life-signs.ts'

export interface Claim {
  /** For people: `router`, `router behind the sidecar`, … */
  readonly who: string
  readonly engine: LifeEngine
  readonly trust: Trust
  readonly reason: string
  /** Numbers of `BLOCKS`. */
  readonly credited: readonly number[]
  /** Undefined: it could not be known that it is gone, or it is held. */
  readonly knownForMs: (block: number) => number | undefined
  /** For how long the observer could know that another engine is mistaken for this one. */
  readonly mistakenForMs: () => number | undefined
  /** A life of the engine has passed for the one after it. */
  readonly hasPassed: boolean
  /** No recovery is under way. */
  readonly isLive: () => Promise<boolean>
  /** Why no observer could know that a block is gone; undefined: an observer could. */
  readonly unobservable: (block: number) => Unobservable | undefined
  /**
   * A life in doubt held the block: a sign shows its end, but its blocks cannot be told from those of the
   * next life.
   */
  readonly isDoubted: (block: number) => boolean
}

export const CHECKPOINT_INTERVAL_MS = 4000
export const REPLAY_TIMEOUT_MS = 300
