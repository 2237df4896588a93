/**
 * Deadly prompts: bodies that were under way when the connection to a worker broke, so that the same body
 * does not take one worker after the other.
 *
 * A body with which two workers have broken is refused for KEPT_MS. One break is no proof: whatever else was
 * under way on that worker has broken as well. A body that is served is forgotten.
 *
 * Bounds   PROMPTS_MAX digests of bodies; the oldest are dropped. While there are none, nothing is hashed.
 */

import { createHash } from 'node:crypto'

const PROMPTS_MAX = 1024
const KEPT_MS = 120_000
const WORKERS_MIN = 2

interface Broken {
  readonly workers: Set<string>
  lastMs: number
}

export class DeadlyPrompts {
  /** By digest of the body, the one that broke longest ago first. */
  readonly #broken = new Map<string, Broken>()

  /** The connection to this worker broke while it worked on the body. */
  broke(body: Uint8Array, workerId: string, nowMs: number): void {
    const key = digest(body)
    const workers = this.#found(key, nowMs)?.workers ?? new Set<string>()
    workers.add(workerId)
    this.#broken.delete(key)
    this.#broken.set(key, { workers, lastMs: nowMs })
    if (this.#broken.size > PROMPTS_MAX) this.#broken.delete(this.#broken.keys().next().value!)
  }

  served(body: Uint8Array): void {
    if (this.#broken.size > 0) this.#broken.delete(digest(body))
  }

  /** The workers that this body has broken; undefined: fewer than two. */
  brokenBy(body: Uint8Array, nowMs: number): readonly string[] | undefined {
    if (this.#broken.size === 0) return undefined
    const workers = this.#found(digest(body), nowMs)?.workers
    return workers === undefined || workers.size < WORKERS_MIN ? undefined : [...workers]
  }

  #found(key: string, nowMs: number): Broken | undefined {
    const broken = this.#broken.get(key)
    if (broken === undefined || nowMs - broken.lastMs < KEPT_MS) return broken
    this.#broken.delete(key)
    return undefined
  }
}

function digest(body: Uint8Array): string {
  return createHash('sha256').update(body).digest('base64')
}
