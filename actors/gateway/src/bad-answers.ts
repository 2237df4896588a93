/**
 * Bad answers: since when each worker answers 500, 502 or 504. An engine whose core dies answers so to all
 * requests that it has: they are lost, as if its connections broke. Requests that it gets after its first bad
 * answer are not lost with them: the retry budget bounds how many of them go to another worker.
 *
 *   call ──────────▶ 500   under way at the first bad answer: lost
 *     call ────────▶ 500   likewise
 *                  first ──── call ─▶ 500   answered badly
 *
 * A bad answer is a first one if there was none in the QUIET_MS_MIN before it. Good answers do not count: a
 * worker that fails half of its requests would begin anew with each of them.
 *
 * Bounds   BAD_WORKERS_MAX workers; the one whose last bad answer is the oldest is forgotten.
 */

const BAD_WORKERS_MAX = 4096
/** Silence after which a bad answer is a first one. */
const QUIET_MS_MIN = 60_000

export class BadAnswers {
  /** By worker: times of its first and its last bad answer; the worker with the newest one last. */
  readonly #spans = new Map<string, { readonly firstMs: number; readonly lastMs: number }>()

  /**
   * Notes that a worker answers a call badly now. Returns whether that call, begun at `calledMs`, was under
   * way at the first bad answer. Once for each call.
   */
  note(workerId: string, calledMs: number, nowMs: number): boolean {
    const span = this.#spans.get(workerId)
    const isFirst = span === undefined || nowMs - span.lastMs >= QUIET_MS_MIN
    const firstMs = isFirst ? nowMs : span.firstMs
    this.#spans.delete(workerId)
    this.#spans.set(workerId, { firstMs, lastMs: nowMs })
    if (this.#spans.size > BAD_WORKERS_MAX) this.#spans.delete(this.#spans.keys().next().value!)
    return calledMs <= firstMs
  }
}
