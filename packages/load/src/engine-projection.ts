/**
 * Engine projection: what a request would find on each worker slot, as an engine book estimates it.
 *
 *   figures   slot 0: backlogMs … decodeTokenMs │ slot 1: backlogMs … decodeTokenMs │ …
 *
 * All figures are in one array. A policy reads all figures of a worker for each decision, and its loop takes
 * 1.5 times as long with one array per figure. There is also only one array to send.
 */

/** Figures of one worker slot. */
export interface EngineFigures {
  /**
   * Prefill that is queued there, in ms, plus overdue time that the bookings here do not explain: see
   * unseen-load.ts.
   */
  readonly backlogMs: number
  /** New tokens queued there. */
  readonly queuedTokens: number
  readonly requests: number
  readonly decoding: number
  /** Tokens that decoding requests hold, output included. */
  readonly contextTokens: number
  /** New tokens that were lately sent there, divided by the mean of the slots that were asked about. */
  readonly churn: number
  /**
   * New tokens that were sent there since the slot is known. Nothing is evicted there before they fill its
   * cache.
   */
  readonly receivedTokens: number
  /** Time of a prefill step, whatever is in it, in ms: see prefill-costs.ts. */
  readonly prefillStepMs: number
  /** Time that each charged token adds to prefill, in ms. */
  readonly prefillTokenMs: number
  /** Time that each pair of a new token and a token before it adds to prefill, in ms. */
  readonly prefillPairMs: number
  /** Time of a decode step, whatever is in it, in ms: see engine-costs.ts. */
  readonly decodeStepMs: number
  /** Time that each request adds to a decode step, in ms. */
  readonly decodeRequestMs: number
  /** Time that each token of context adds to a decode step, in ms. */
  readonly decodeTokenMs: number
}

/**
 * Offset of each figure in the part of its slot. The six learned times come last: all figures before them are
 * 0 for a slot to which nothing was sent.
 */
export const FIGURE_OFFSET: Readonly<Record<keyof EngineFigures, number>> = {
  backlogMs: 0,
  queuedTokens: 1,
  requests: 2,
  decoding: 3,
  contextTokens: 4,
  churn: 5,
  receivedTokens: 6,
  prefillStepMs: 7,
  prefillTokenMs: 8,
  prefillPairMs: 9,
  decodeStepMs: 10,
  decodeRequestMs: 11,
  decodeTokenMs: 12,
}

/** Number of figures per slot. */
export const FIGURES_PER_SLOT = Object.keys(FIGURE_OFFSET).length

/** What `EngineBook.project` returns. Its next call overwrites the figures. */
export interface EngineProjection {
  count: number
  /** Element i · FIGURES_PER_SLOT + FIGURE_OFFSET[name]: figure `name` of the i-th requested slot. */
  figures: Float64Array
  /** A prefill step with fewer tokens takes no less time than one with so many: see prefill-costs.ts. */
  kneeTokens: number
  /** Share of the asked slots that had a prompt in their queue: a mean over the last decisions. */
  busyShare: number
  /** Standard deviation ÷ mean of decodeStepMs of the slots, ≥ 0; 0: all are equal. */
  speedSpread: number
  outputTokensExpected: number
  /**
   * Mean wait for the first token beyond prefill ÷ mean time of decoding, as observed; 0 … 1. Policy auto
   * prices decoding by it.
   */
  waitingShare: number
  /** Mean prefill time of requests, estimated when they were sent. */
  prefillMeanMs: number
  /** Requests that come to one of the slots in a ms: a mean over the slots and the last minute or so. */
  sentPerMs: number
  /** Time of a hand-over between two workers, in ms, and what each token that moves adds to it. */
  transferMs: number
  transferTokenMs: number
}

/** One figure of the i-th slot. */
export function figureOf({ figures }: EngineProjection, i: number, name: keyof EngineFigures): number {
  return figures[i * FIGURES_PER_SLOT + FIGURE_OFFSET[name]]!
}

/** All figures of the i-th slot by name. */
export function figuresOf({ figures }: EngineProjection, i: number): EngineFigures {
  const of = Object.entries(FIGURE_OFFSET).map(([name, at]) => [name, figures[i * FIGURES_PER_SLOT + at]])
  return Object.fromEntries(of) as EngineFigures
}

/** A copy with an array of its own, as long as its count needs. */
export function copyProjection(projection: EngineProjection): EngineProjection {
  return { ...projection, figures: projection.figures.slice(0, projection.count * FIGURES_PER_SLOT) }
}

/** A copy with an array of its own, which has only the slots that are kept. */
export function filterProjection(projection: EngineProjection, isKept: readonly boolean[]): EngineProjection {
  const slots = Array.from({ length: projection.count }, (_, i) => i).filter(i => isKept[i] !== false)
  const figures = new Float64Array(slots.length * FIGURES_PER_SLOT)
  for (const [to, from] of slots.entries()) {
    const ofSlot = projection.figures.subarray(from * FIGURES_PER_SLOT, (from + 1) * FIGURES_PER_SLOT)
    figures.set(ofSlot, to * FIGURES_PER_SLOT)
  }
  return { ...projection, count: slots.length, figures, speedSpread: speedSpreadOf(figures, slots.length) }
}

/** Standard deviation ÷ mean of decodeStepMs of the first `count` slots; 0 if all are 0. */
export function speedSpreadOf(figures: Float64Array, count: number): number {
  let mean = 0
  let squares = 0
  for (let i = 0; i < count; i++) {
    const stepMs = figures[i * FIGURES_PER_SLOT + FIGURE_OFFSET.decodeStepMs]!
    const delta = stepMs - mean
    mean += delta / (i + 1)
    squares += delta * (stepMs - mean)
  }
  return mean > 0 ? Math.sqrt(squares / count) / mean : 0
}

/** An empty projection with room for `slots` slots. */
export function newProjection(slots: number): EngineProjection {
  return {
    count: 0,
    figures: new Float64Array(slots * FIGURES_PER_SLOT),
    busyShare: 0,
    speedSpread: 0,
    outputTokensExpected: 0,
    waitingShare: 0,
    prefillMeanMs: 0,
    sentPerMs: 0,
    transferMs: 0,
    transferTokenMs: 0,
    kneeTokens: 0,
  }
}
