/**
 * Response holders: remembers which worker has which response, so that a request that refers to a response by
 * its id goes to that worker.
 *
 *   answer names its response ──note──▶ id -> worker, rank ──find──▶ a request with that id is pinned there
 *
 * Engines keep responses in their own memory. A worker that has left the fleet, is down or drains cannot be
 * asked for them; a worker that left and came back counts as another one. A gateway knows the responses that
 * passed through it in this life, and those that other gateways have told it (gateway-peers.ts).
 *
 * Bounds   `countMax` responses; beyond it the oldest are forgotten.
 */

import type { Fleet } from '@homing/fleet'
import type { Decision } from '@homing/placement'

export interface ResponseHolder {
  readonly instanceId: number
  /** Undefined: the worker has one rank, or chooses the rank itself. */
  readonly dpRank: number | undefined
}

/** A response, and the life of the worker that has it. */
export interface Held {
  readonly workerId: string
  readonly joinedMs: number
  readonly dpRank: number | undefined
  /** Name of the client that made it; undefined: the router asks for no keys. */
  readonly client?: string | undefined
}

export class ResponseHolders {
  readonly #countMax: number
  readonly #held = new Map<string, Held>()

  readonly #tell: (id: string, held: Held) => void

  /** `tell`: told of every response that passed through here; default: there are no other gateways. */
  constructor(countMax: number, tell: (id: string, held: Held) => void = () => {}) {
    this.#countMax = countMax
    this.#tell = tell
  }

  get size(): number {
    return this.#held.size
  }

  /** `client`: the name of the one that made it. */
  note(id: string, decision: Decision, client: string | undefined): void {
    if (this.#countMax === 0) return
    const { workerId, workerJoinedMs: joinedMs, dpRank, pinRank } = decision
    const held = { workerId, joinedMs, dpRank: pinRank ? dpRank : undefined, client }
    this.heard(id, held)
    this.#tell(id, held)
  }

  /** What is known of a response; undefined: nothing. */
  heldOf(id: string): Held | undefined {
    return this.#held.get(id)
  }

  /** It passed through another gateway. */
  heard(id: string, held: Held): void {
    const before = this.#held.get(id)
    // Engines let clients name their responses: the name of another client's takes nothing away from it.
    if (before !== undefined && before.client !== held.client) return
    this.#held.delete(id)
    if (this.#countMax === 0) return
    this.#held.set(id, held)
    if (this.#held.size <= this.#countMax) return
    for (const oldest of this.#held.keys()) {
      this.#held.delete(oldest)
      return
    }
  }

  /** Undefined: not known, or its worker is gone. `model`: the worker must serve it; empty: any model. */
  find(id: string, fleet: Fleet, model: string): ResponseHolder | undefined {
    const held = this.#held.get(id)
    const worker =
      held && fleet.workers.find(({ id, joinedMs }) => id === held.workerId && joinedMs === held.joinedMs)
    if (held === undefined || worker === undefined || worker.state !== 'up') return undefined
    if (model !== '' && !worker.models.some(({ name }) => name === model)) return undefined
    return { instanceId: worker.instanceId, dpRank: held.dpRank }
  }
}
