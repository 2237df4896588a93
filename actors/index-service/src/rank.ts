/**
 * A registered rank, as the modules of the service share it. One module writes each field, named above it.
 */

import { type Listened, unheard } from '@homing/actors/listener'
import type { Trust } from '@homing/index'
import type { RankRegistration } from './requests.ts'

export interface Rank extends RankRegistration, Listened {
  // registry.ts
  /** Unregistered: it ends when its listener has. */
  isGone: boolean

  // rank-listeners.ts
  /** Why it must not have a listener, for people; undefined: it may. */
  fault: string | undefined

  // inheritance.ts
  /** The peer whose word some of its blocks are; undefined: none. */
  inheritedFrom: string | undefined
}

export function newRank(registration: RankRegistration, workerSlot: number, shard: number): Rank {
  return {
    ...registration,
    workerSlot,
    shard,
    isGone: false,
    phase: 'idle',
    listener: undefined,
    heard: unheard('its events are not followed yet'),
    fault: undefined,
    inheritedFrom: undefined,
  }
}

/** How far the index may be believed about a rank: what a peer said is never more than `approximate`. */
export function trustOf(rank: Rank): { readonly trust: Trust; readonly reason: string } {
  const { fault, heard, inheritedFrom } = rank
  if (fault !== undefined) return { trust: 'none', reason: fault }
  if (inheritedFrom === undefined) return heard
  return {
    trust: 'approximate',
    reason: `some blocks are known only from ${inheritedFrom}, and no replay has confirmed them; ${heard.reason}`,
  }
}
