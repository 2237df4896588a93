/**
 * Bad answers: since when each worker answers 500, 502 or 504, so that what it had under way by then is told
 * from what it got later. An engine whose core dies answers so to all that it has, and that is a loss as if
 * its connections broke. For a worker that goes on answering so there is the retry budget.
 *
 *   call ──────────▶ 500   under way when the first one came: lost
 *     call ────────▶ 500   likewise
 *                  first ──── call ─▶ 500   answered badly
 *
 * Bounds   BAD_WORKERS_MAX workers; the one that began longest ago is forgotten.
 */

const BAD_WORKERS_MAX = 4096
/** So long after its first bad answer, another one is a first one. */
const ANEW_MS = 60_000

export class BadAnswers {
  /** By worker: when it began; the most recent last. */
  readonly #sinceMs = new Map<string, number>()

  /** A worker answers badly now. Whether that call, begun at `calledMs`, was under way when it began to. */
  isLoss(workerId: string, calledMs: number, nowMs: number): boolean {
    const sinceMs = this.#sinceMs.get(workerId)
    if (sinceMs !== undefined && nowMs - sinceMs < ANEW_MS) return calledMs <= sinceMs
    this.#sinceMs.delete(workerId)
    this.#sinceMs.set(workerId, nowMs)
    if (this.#sinceMs.size > BAD_WORKERS_MAX) this.#sinceMs.delete(this.#sinceMs.keys().next().value!)
    return true
  }
}
