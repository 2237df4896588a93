/**
 * Bad answers: since when each worker answers 500, 502 or 504. An engine whose core dies answers so to all
 * requests that it has: they are lost, as if its connections broke. Requests that it gets after its first bad
 * answer are not lost with them: the retry budget bounds how many of them go to another worker.
 *
 *   call ──────────▶ 500   under way at the first bad answer: lost
 *     call ────────▶ 500   likewise
 *                  first ──── call ─▶ 500   answered badly
 *
 * A bad answer is a first one if there was none in the QUIET_MS_MIN before it. After a calm of CALM_MS_MIN it
 * may be the first one of a burst: itself it is none that is lost, since most such answers stay alone
 * (malformed requests), but those are lost that were under way then and come in the BURST_MS_MAX after it.
 * Of an engine that is overloaded bad answers come all the time. Good answers do not count: a worker that
 * fails half of its requests would begin anew with each of them.
 *
 * Bounds   BAD_WORKERS_MAX workers; the one whose last bad answer is the oldest is forgotten. BURSTS_MAX
 *          bursts after a calm for each worker in BURSTS_MS; with further ones nothing begins anew.
 */

const BAD_WORKERS_MAX = 4096
/** Silence after which a bad answer is a first one. */
const QUIET_MS_MIN = 60_000
/** Silence after which a bad answer may be the first one of a burst. */
const CALM_MS_MIN = 2000
const BURST_MS_MAX = 2000
const BURSTS_MAX = 4
const BURSTS_MS = 60_000

interface Span {
  /** Of the first one after a quiet: what was called until then is lost. */
  readonly firstMs: number
  lastMs: number
  burst: Burst | undefined
  /** Bursts since `burstsMs`. */
  burstsCount: number
  burstsMs: number
}

/** Since a calm; `isAlone`: none was lost in it. */
interface Burst {
  readonly firstMs: number
  isAlone: boolean
}

export class BadAnswers {
  /** By worker; the one with the newest bad answer last. */
  readonly #spans = new Map<string, Span>()

  /**
   * Notes that a worker answers a call badly now. Returns whether that call, begun at `calledMs`, was under
   * way at the first bad answer. Once for each call.
   */
  note(workerId: string, calledMs: number, nowMs: number): boolean {
    const known = this.#spans.get(workerId)
    const isFirst = known === undefined || nowMs - known.lastMs >= QUIET_MS_MIN
    const span = isFirst ? newSpan(nowMs) : known
    this.#spans.delete(workerId)
    this.#spans.set(workerId, span)
    if (this.#spans.size > BAD_WORKERS_MAX) this.#spans.delete(this.#spans.keys().next().value!)
    if (nowMs - span.lastMs >= CALM_MS_MIN) span.burst = nextBurst(span, nowMs)
    else if (isOfBurst(span.burst, calledMs, nowMs)) {
      if (span.burst.isAlone) span.burstsCount++
      span.burst.isAlone = false
      span.lastMs = nowMs
      return true
    }
    span.lastMs = nowMs
    return calledMs <= span.firstMs
  }
}

function isOfBurst(burst: Burst | undefined, calledMs: number, nowMs: number): burst is Burst {
  return burst !== undefined && calledMs <= burst.firstMs && nowMs - burst.firstMs < BURST_MS_MAX
}

function newSpan(nowMs: number): Span {
  return { firstMs: nowMs, lastMs: nowMs, burst: undefined, burstsCount: 0, burstsMs: nowMs }
}

/** With the answer that comes now after a calm; undefined: there were too many. */
function nextBurst(span: Span, nowMs: number): Burst | undefined {
  if (nowMs - span.burstsMs >= BURSTS_MS) {
    span.burstsCount = 0
    span.burstsMs = nowMs
  }
  return span.burstsCount < BURSTS_MAX ? { firstMs: nowMs, isAlone: true } : undefined
}
