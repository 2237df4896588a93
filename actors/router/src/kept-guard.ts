/**
 * Kept guard: what the guard knows, told to the router's keeper and taken back after a restart of the router.
 *
 * Told every KEEP_INTERVAL_MS, and when the guard enters another phase. A restart loses what came later, and
 * the outcomes of the decisions that were open.
 */

import type { ActorContext } from '@homing/actor'
import { toErrorRecord } from '@homing/base'
import type { RoutingGuard, RoutingGuardState } from '@homing/placement'
import type { RouterMessage } from './messages.ts'
import type { RouterArgs } from './router-args.ts'

/** 1,000 outcomes at 200 requests a second: enough to change little. */
export const KEEP_INTERVAL_MS = 5000
const KEEPER_MS_MAX = 5000

/** What an earlier life knew; undefined: nothing, or the keeper does not answer. */
export async function keptGuard(
  { log }: ActorContext<RouterMessage>,
  { keeper }: RouterArgs,
): Promise<RoutingGuardState | undefined> {
  if (keeper === undefined) return undefined
  try {
    return await keeper.ask({ type: 'keptGuard' }, { timeout: KEEPER_MS_MAX })
  } catch (error) {
    log.error({ error: toErrorRecord(error) }, 'the guard begins anew: its keeper does not answer')
    return undefined
  }
}

export class KeptGuard {
  readonly #keeper: RouterArgs['keeper']
  readonly #guard: RoutingGuard
  #phase: string

  /** Takes over `kept`, if there is any. */
  constructor(keeper: RouterArgs['keeper'], guard: RoutingGuard, kept: RoutingGuardState | undefined) {
    if (kept !== undefined) guard.restore(kept)
    this.#keeper = keeper
    this.#guard = guard
    this.#phase = guard.phase
  }

  /** Something was seen: a new phase is told at once. */
  seen(): void {
    if (this.#guard.phase !== this.#phase) this.keep()
  }

  /** A full mailbox of the keeper loses it: the next one comes soon. */
  keep(): void {
    this.#phase = this.#guard.phase
    this.#keeper?.tell({ type: 'keepGuard', guard: this.#guard.state })
  }
}
