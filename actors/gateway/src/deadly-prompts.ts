/**
 * Deadly prompts: bodies that were under way when the connection to a worker broke, so that the same body
 * does not take one worker after the other.
 *
 * A body with which two workers have broken, one after the other, is refused for KEPT_MS. One break is no
 * proof: whatever else was under way on that worker has broken as well. Neither is a break of a worker that
 * had the body before the first one broke: a fleet that is restarted breaks all copies of a body at once. A
 * body that is served is forgotten.
 *
 * Bounds   PROMPTS_MAX digests of bodies; the oldest are dropped. While there are none, nothing is hashed.
 */

import { createHash } from 'node:crypto'

const PROMPTS_MAX = 1024
const KEPT_MS = 120_000
const WORKERS_MIN = 2

interface Broken {
  readonly workers: Set<string>
  /** Of the first break. */
  readonly firstMs: number
  lastMs: number
}

/** What the other gateways are told. */
export type PromptWord =
  | {
      readonly type: 'promptBroke'
      readonly digest: string
      readonly workerId: string
      /** As in `broke`. */
      readonly ageMs: number
    }
  | { readonly type: 'promptServed'; readonly digest: string }

export class DeadlyPrompts {
  readonly #tell: (word: PromptWord) => void
  /** By digest of the body, the one that broke longest ago first. */
  readonly #broken = new Map<string, Broken>()

  /** `tell`: told of what others are to know; default: there are no others. */
  constructor(tell: (word: PromptWord) => void = () => {}) {
    this.#tell = tell
  }

  /** The connection to this worker broke while it worked on the body, `ageMs` after it was called. */
  broke(body: Uint8Array, workerId: string, nowMs: number, ageMs = 0): void {
    const key = digestOf(body)
    this.#broke(key, workerId, nowMs, ageMs)
    this.#tell({ type: 'promptBroke', digest: key, workerId, ageMs })
  }

  /** Another gateway has seen this. */
  heard(word: PromptWord, nowMs: number): void {
    if (word.type === 'promptServed') this.#broken.delete(word.digest)
    else this.#broke(word.digest, word.workerId, nowMs, word.ageMs)
  }

  served(body: Uint8Array): void {
    if (this.#broken.size === 0) return
    const key = digestOf(body)
    if (this.#broken.delete(key)) this.#tell({ type: 'promptServed', digest: key })
  }

  /** The workers that this body has broken; undefined: fewer than two. */
  brokenBy(body: Uint8Array, nowMs: number): readonly string[] | undefined {
    if (this.#broken.size === 0) return undefined
    const workers = this.#found(digestOf(body), nowMs)?.workers
    return workers === undefined || workers.size < WORKERS_MIN ? undefined : [...workers]
  }

  #broke(key: string, workerId: string, nowMs: number, ageMs: number): void {
    const broken = this.#found(key, nowMs) ?? { workers: new Set<string>(), firstMs: nowMs }
    const { workers, firstMs } = broken
    if (nowMs - ageMs >= firstMs || workers.size === 0) workers.add(workerId)
    this.#broken.delete(key)
    this.#broken.set(key, { workers, firstMs, lastMs: nowMs })
    if (this.#broken.size > PROMPTS_MAX) this.#broken.delete(this.#broken.keys().next().value!)
  }

  #found(key: string, nowMs: number): Broken | undefined {
    const broken = this.#broken.get(key)
    if (broken === undefined || nowMs - broken.lastMs < KEPT_MS) return broken
    this.#broken.delete(key)
    return undefined
  }
}

function digestOf(body: Uint8Array): string {
  return createHash('sha256').update(body).digest('base64')
}
