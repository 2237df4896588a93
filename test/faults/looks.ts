/**
 * Observations of one source from a fault on, look by look: trust, and blocks that are credited although they
 * are gone.
 */

import type { Trust } from '@homing/index'

/** A block that is gone is stale so long after that could be known. */
export const IN_FLIGHT_MS = 100

/** What was observed since the fault. */
export interface Seen {
  /** From the fault until trust is as at the end and nothing is stale. */
  readonly healMs: number
  /** Blocks × seconds, under `exact` and under any trust. */
  readonly staleExact: number
  readonly stale: number
  readonly unseen: number
  /** In turn. */
  readonly trusts: readonly Trust[]
  /** At the end: blocks that the engine holds and the index lacks, and the other way round. */
  readonly missing: number
  readonly surplus: number
  /** At the end: no recovery is under way. */
  readonly isAtRest: boolean
  /** For people, at the end. */
  readonly reason: string
}

/** A source at one moment. */
export interface State {
  readonly trust: Trust
  readonly isAtRest: boolean
  readonly reason: string
  /** What is credited, and what the engine holds. */
  readonly held: ReadonlySet<string>
  readonly cached: ReadonlySet<string>
  /** Whether a block that is there may be missing all the same; default: none may. */
  readonly isDoubtful?: (hash: string) => boolean
}

/** Whether blocks of the index count: under the trust `approximate` only blocks of sent requests do. */
export function countsEvents(trust: Trust): boolean {
  return trust === 'exact' || trust === 'partial'
}

interface Look {
  readonly atMs: number
  readonly trust: Trust
  readonly isStale: boolean
}

export class Looks {
  #beginMs = 0
  #lastMs = 0
  /** The router was not there before. */
  #isNew = false
  readonly #looks: Look[] = []
  #stale = 0
  #staleExact = 0
  #unseen = 0

  /** From here everything counts. `isNew`: the router is started only now, and cannot heal before. */
  begin(nowMs: number, isNew: boolean): void {
    this.#beginMs = nowMs
    this.#lastMs = nowMs
    this.#isNew = isNew
  }

  /**
   * `goneForMs`: of each block that is credited and gone, for how long that could be known; undefined: it
   * could not.
   */
  add(nowMs: number, trust: Trust, goneForMs: readonly (number | undefined)[]): void {
    const seconds = (nowMs - this.#lastMs) / 1000
    this.#lastMs = nowMs
    // Nothing is credited without trust.
    const gone = trust === 'none' ? [] : goneForMs
    const staleBlocks = gone.filter(ms => ms !== undefined && ms > IN_FLIGHT_MS).length
    this.#unseen += gone.filter(ms => ms === undefined).length * seconds
    this.#stale += staleBlocks * seconds
    if (trust === 'exact') this.#staleExact += staleBlocks * seconds
    this.#looks.push({ atMs: nowMs, trust, isStale: staleBlocks > 0 })
  }

  seen({ trust, held, cached, isAtRest, reason, isDoubtful = () => false }: State): Seen {
    const looks = this.#looks
    let healed = looks.length
    while (healed > 0 && looks[healed - 1]!.trust === trust && !looks[healed - 1]!.isStale) healed--
    const isUntouched = healed === 0 && !this.#isNew
    return {
      healMs: isUntouched ? 0 : (looks[healed] ?? looks.at(-1)!).atMs - this.#beginMs,
      staleExact: this.#staleExact,
      stale: this.#stale,
      unseen: this.#unseen,
      trusts: looks.map(look => look.trust).filter((one, i, all) => one !== all[i - 1]),
      missing: [...cached].filter(hash => !held.has(hash) && !isDoubtful(hash)).length,
      surplus: [...held].filter(hash => !cached.has(hash)).length,
      isAtRest,
      reason,
    }
  }
}
