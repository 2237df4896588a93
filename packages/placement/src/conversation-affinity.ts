/**
 * Conversation affinity: sends the requests of a conversation to the worker key that served it before.
 *
 *   session  the model and the client's name of it; else, if set so, the prompt's first blocks
 *   soft     the cost of the bound worker key is halved, and its load where that is compared: of a prompt
 *            that is not known, and in mode least-loaded; the other modes compare neither
 *   hard     the bound worker key is the only candidate, if it is a candidate
 *
 * The first decision for a session binds it to a worker key. If that key is no longer a candidate, the next
 * decision binds it anew. A worker that has left the fleet and came back counts as another worker. A binding
 * is forgotten when a request there fails, `ttlMs` after its last request ended, or as the least recently
 * used one when there are more than `sessionsMax`. Bindings are lost when the router restarts.
 *
 * Routers of the same workers exchange their bindings. If two have bound a session to different worker keys,
 * both take the key with the larger rendezvous score, so they agree without asking each other.
 *
 * Source: Dynamo's `--router-session-affinity-ttl-secs`.
 */

import { createHash } from 'node:crypto'
import type { Eligible } from './eligible.ts'
import type { RoutingRequest } from './routing-request.ts'

/** A binding that another router made. */
export interface AffinityBinding {
  readonly session: string
  /** Worker key. */
  readonly worker: string
  /** It was bound to another one there, which was too slow. */
  readonly isMoved?: boolean
}

export interface AffinitySettings {
  readonly ttlMs: number
  readonly isHard: boolean
  /** Without a session id, the first `prefixBlocks` blocks of the prompt name the session; 0: no session. */
  readonly prefixBlocks: number
  readonly sessionsMax: number
}

interface Binding {
  readonly worker: string
  /** From that worker's record; undefined: another router bound it to a worker that was unknown here. */
  readonly joinedMs: number | undefined
  /** Requests in progress. */
  open: number
  idleSinceMs: number
}

const SESSION_CHARACTERS_MAX = 256
const SOFT_FACTOR = 0.5

export class ConversationAffinity {
  readonly #settings: AffinitySettings
  /** The least recently used first. */
  readonly #bindings = new Map<string, Binding>()

  constructor(settings: AffinitySettings) {
    this.#settings = settings
  }

  /** Sessions that are bound. */
  get size(): number {
    return this.#bindings.size
  }

  /**
   * The session of a request, as 16 hexadecimal digits that reveal nothing; undefined: the request has no
   * session, or pins its worker or rank.
   */
  keyOf(request: RoutingRequest): string | undefined {
    const { model, sessionId, sequenceHashes, pinnedInstanceId, pinnedRank } = request
    if (pinnedInstanceId !== undefined || pinnedRank !== undefined) return undefined
    if (sessionId !== undefined) return digest(`${model}\n${sessionId.slice(0, SESSION_CHARACTERS_MAX)}`)
    const words = 2 * this.#settings.prefixBlocks
    if (words === 0 || sequenceHashes.length < words) return undefined
    return digest(`${model}\n\n${sequenceHashes[words - 2]} ${sequenceHashes[words - 1]}`)
  }

  /** The candidates of a request, after its session's binding is applied. */
  applied(found: Eligible, key: string, nowMs: number): Eligible {
    const bound = this.#bindings.get(key)
    if (bound === undefined || this.#isOver(bound, nowMs)) return found
    const at = found.candidates.findIndex(
      ({ worker, key: { key } }) =>
        key === bound.worker && (bound.joinedMs === undefined || worker.joinedMs === bound.joinedMs),
    )
    if (at < 0) return found
    const { candidates, excluded, preferences } = found
    if (!this.#settings.isHard) {
      const factors = preferences?.slice() ?? new Float64Array(candidates.length).fill(1)
      factors[at]! *= SOFT_FACTOR
      return { candidates, excluded, preferences: factors }
    }
    const reason = `its session is bound to ${bound.worker}`
    const others = candidates
      .filter((_, i) => i !== at)
      .map(({ key: other }) => ({ worker: other.key, reason }))
    return {
      candidates: [candidates[at]!],
      excluded: [...excluded, ...others],
      preferences: undefined,
      boundWorker: bound.worker,
    }
  }

  /** A request of the session was placed on a worker key. */
  placed(key: string, worker: string, joinedMs: number, nowMs: number): void {
    const before = this.#bindings.get(key)
    const keeps = before !== undefined && before.worker === worker && before.joinedMs === joinedMs
    const binding = keeps ? before : { worker, joinedMs, open: 0, idleSinceMs: nowMs }
    binding.open++
    this.#bindings.delete(key)
    this.#bindings.set(key, binding)
    this.#prune(nowMs)
  }

  #prune(nowMs: number): void {
    for (const [oldest, binding] of this.#bindings) {
      if (!this.#isOver(binding, nowMs) && this.#bindings.size <= this.#settings.sessionsMax) break
      this.#bindings.delete(oldest)
    }
  }

  /**
   * Another router has placed a request of the session on a worker key. `joinedMs`: from the worker's record;
   * undefined: the worker is not known here.
   */
  placedElsewhere(
    { session: key, worker, isMoved = false }: AffinityBinding,
    joinedMs: number | undefined,
    nowMs: number,
  ): void {
    const own = this.#bindings.get(key)
    const isHere = own !== undefined && !this.#isOver(own, nowMs) && !isMoved
    if (isHere && own.worker !== worker && score(key, own.worker) > score(key, worker)) return
    const open = own?.worker === worker && own.joinedMs === joinedMs ? own.open : 0
    this.#bindings.delete(key)
    this.#bindings.set(key, { worker, joinedMs, open, idleSinceMs: nowMs })
    this.#prune(nowMs)
  }

  /** A request of the session has ended. `hasFailed`: the worker failed to answer it. */
  ended(key: string, worker: string, joinedMs: number, hasFailed: boolean, nowMs: number): void {
    const binding = this.#bindings.get(key)
    if (binding === undefined || binding.worker !== worker) return
    // The worker has left the fleet and come back since the request was placed, so the binding is another
    // one.
    if (binding.joinedMs !== undefined && binding.joinedMs !== joinedMs) return
    if (hasFailed) {
      this.#bindings.delete(key)
      return
    }
    binding.open = Math.max(0, binding.open - 1)
    binding.idleSinceMs = nowMs
    this.#bindings.delete(key)
    this.#bindings.set(key, binding)
  }

  #isOver({ open, idleSinceMs }: Binding, nowMs: number): boolean {
    return open === 0 && nowMs - idleSinceMs >= this.#settings.ttlMs
  }
}

const DIGEST_CHARACTERS = 16

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, DIGEST_CHARACTERS)
}

/** The rendezvous score of a session at a worker key: the same on every machine. */
function score(key: string, worker: string): string {
  return digest(`${key} ${worker}`)
}
