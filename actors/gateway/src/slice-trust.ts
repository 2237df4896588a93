/**
 * Slice trust: which requests may be sent in slices, by what is known of the engines of their model.
 *
 * An engine must cache prefixes, or each slice would be computed again with the next: its KV events say so
 * (trust exact or partial). An engine that refused a slice, or did not use what slices had computed, gets
 * none for DISTRUST_MS; meanwhile the prompts of its models are sent whole.
 */

import type { Fleet, WorkerRecord } from '@homing/fleet'

const DISTRUST_MS = 600_000
/** Workers that are distrusted at one time; of more, the first are forgotten. */
const DISTRUSTED_MAX = 4096

export class SliceTrust {
  readonly #contentionMs: number
  #workers: readonly WorkerRecord[] = []
  #stepTokens = Number.POSITIVE_INFINITY
  /** By worker id: until when. */
  readonly #distrusted = new Map<string, number>()

  /** Of the last request. */
  #tenant: string | undefined
  #cameMs = Number.NEGATIVE_INFINITY
  /** When the last request of any other tenant came. */
  #othersMs = Number.NEGATIVE_INFINITY

  /** `contentionMs`: prompts go in slices while another tenant came within this time; 0: never. */
  constructor(contentionMs: number) {
    this.#contentionMs = contentionMs
  }

  /** A request of a tenant came. */
  came(tenant: string, nowMs: number): void {
    if (this.#tenant !== tenant) this.#othersMs = this.#cameMs
    this.#tenant = tenant
    this.#cameMs = nowMs
  }

  takeFleet({ workers }: Fleet): void {
    this.#workers = workers
    this.#stepTokens = Math.min(...workers.map(({ maxBatchedTokens }) => maxBatchedTokens.value))
  }

  /**
   * Whether a prompt in a body of this length may go in slices: another tenant is there, and it can be long;
   * a token has one byte at least. Its ids are needed then, which costs every long prompt.
   */
  mayBeLong(bodyBytes: number, nowMs: number): boolean {
    return nowMs - this.#othersMs < this.#contentionMs && bodyBytes > this.#stepTokens
  }

  /** Whether a prompt of this length is more than the smallest step. */
  isLong(promptTokens: number): boolean {
    return promptTokens > this.#stepTokens
  }

  /**
   * Whether each engine that may get a prompt of this model takes slices. All must have steps of one length:
   * the queue charges the first slice before its worker is known.
   */
  mayUse(model: string, nowMs: number): boolean {
    let stepTokens: number | undefined
    return this.#workers.every(({ id, state, models, keys, maxBatchedTokens }) => {
      if (state !== 'up' || (model !== '' && !models.some(({ name }) => name === model))) return true
      stepTokens ??= maxBatchedTokens.value
      if (maxBatchedTokens.value !== stepTokens) return false
      const untilMs = this.#distrusted.get(id)
      if (untilMs !== undefined && nowMs < untilMs) return false
      return keys.every(({ trust }) => trust === 'exact' || trust === 'partial')
    })
  }

  distrust(workerId: string, nowMs: number): void {
    this.#distrusted.delete(workerId)
    this.#distrusted.set(workerId, nowMs + DISTRUST_MS)
    for (const [id, untilMs] of this.#distrusted) {
      if (untilMs > nowMs && this.#distrusted.size <= DISTRUSTED_MAX) break
      this.#distrusted.delete(id)
    }
  }
}
