/**
 * Conversation affinity: where the requests of a conversation went before, so that the next ones go there,
 * too.
 *
 *   key      the model and the client's x-dynamo-session-id; else, if so set, the first blocks of the prompt
 *   soft     the worker key costs half; only mode kv weighs costs
 *   hard     the only candidate, if it is one
 *
 * A session is bound by the first decision for it, and again by the next one if its worker key is no
 * candidate any more. A worker that has left the fleet and came back is another one. A binding is forgotten
 * when a request there fails, `ttlMs` after its last request ended, or when it is the one that was used
 * longest ago of more than `sessionsMax`. Bindings live as long as the router.
 *
 * Other routers of the same workers tell of theirs. Where two have bound one session to two worker keys, each
 * takes the one with the larger rendezvous score, so that they agree without asking.
 *
 * Source: Dynamo's `--router-session-affinity-ttl-secs`.
 */

import { createHash } from 'node:crypto'
import type { Eligible } from './eligible.ts'
import type { RoutingRequest } from './routing-request.ts'

/** Where a session was bound by another router. */
export interface AffinityBinding {
  readonly session: string
  /** Worker key. */
  readonly worker: string
}

export interface AffinitySettings {
  readonly ttlMs: number
  readonly isHard: boolean
  /** A request without a session id belongs to that of its first so many blocks; 0: to none. */
  readonly prefixBlocks: number
  readonly sessionsMax: number
}

interface Binding {
  readonly worker: string
  /** Of that worker's record; undefined: another router bound it to one that was not known here. */
  readonly joinedMs: number | undefined
  /** Requests under way. */
  open: number
  idleSinceMs: number
}

const SESSION_CHARACTERS_MAX = 256
const SOFT_FACTOR = 0.5

export class ConversationAffinity {
  readonly #settings: AffinitySettings
  /** The longest unused first. */
  readonly #bindings = new Map<string, Binding>()

  constructor(settings: AffinitySettings) {
    this.#settings = settings
  }

  /** Sessions that are bound. */
  get size(): number {
    return this.#bindings.size
  }

  /**
   * The session of a request, as 16 hexadecimal digits that say nothing of it; undefined: it has none, or
   * names its worker itself.
   */
  keyOf(request: RoutingRequest): string | undefined {
    const { model, sessionId, sequenceHashes, pinnedInstanceId, pinnedRank } = request
    if (pinnedInstanceId !== undefined || pinnedRank !== undefined) return undefined
    if (sessionId !== undefined) return digest(`${model}\n${sessionId.slice(0, SESSION_CHARACTERS_MAX)}`)
    const words = 2 * this.#settings.prefixBlocks
    if (words === 0 || sequenceHashes.length < words) return undefined
    return digest(`${model}\n\n${sequenceHashes[words - 2]} ${sequenceHashes[words - 1]}`)
  }

  /** The candidates of a request as its session leaves them. */
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

  /** A request of the session goes to a worker key. */
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
   * Another router has sent a request of the session to a worker key. `joinedMs`: of its record; undefined:
   * it is not known here.
   */
  placedElsewhere(key: string, worker: string, joinedMs: number | undefined, nowMs: number): void {
    const own = this.#bindings.get(key)
    const isHere = own !== undefined && !this.#isOver(own, nowMs)
    if (isHere && own.worker !== worker && score(key, own.worker) > score(key, worker)) return
    const open = own?.worker === worker && own.joinedMs === joinedMs ? own.open : 0
    this.#bindings.delete(key)
    this.#bindings.set(key, { worker, joinedMs, open, idleSinceMs: nowMs })
    this.#prune(nowMs)
  }

  /** One of its requests is over. `hasFailed`: its worker did not do it. */
  ended(key: string, worker: string, joinedMs: number, hasFailed: boolean, nowMs: number): void {
    const binding = this.#bindings.get(key)
    if (binding === undefined || binding.worker !== worker) return
    // It went to that worker before it left and came back.
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

/** Of a session at a worker key: the same on every machine. */
function score(key: string, worker: string): string {
  return digest(`${key} ${worker}`)
}
