/**
 * Engine projection: what a request would find on each worker slot, as an engine book tells it.
 *
 *   figures   slot 0: backlogMs … decodeTokenMs │ slot 1: backlogMs … decodeTokenMs │ …
 *
 * One array, because a policy reads all figures of a worker for each decision: with an array for each of them
 * its loop takes half as long again. It is also one array to send.
 */

/** What is known of one worker slot. */
export interface EngineFigures {
  /** Prefill before it, in ms, and what is overdue there because of requests that are not booked here. */
  readonly backlogMs: number
  /** New tokens that are queued there. */
  readonly queuedTokens: number
  readonly requests: number
  readonly decoding: number
  /** Tokens that decoding requests hold, output included. */
  readonly contextTokens: number
  /** Tokens that lately were new there, as a share of the mean of all slots. */
  readonly churn: number
  /**
   * New tokens that it was sent since it is known. Until they are as many as its cache holds, nothing is
   * pushed out there.
   */
  readonly receivedTokens: number
  /** A step of prefill, whatever is in it, in ms: see prefill-costs.ts. */
  readonly prefillStepMs: number
  /** A charged token of prefill, in ms. */
  readonly prefillTokenMs: number
  /** A pair of a new token and a token before it, in ms. */
  readonly prefillPairMs: number
  /** A decode step, whatever is in it, in ms: see engine-costs.ts. */
  readonly decodeStepMs: number
  /** A request in a decode step, in ms. */
  readonly decodeRequestMs: number
  /** A token of context in a decode step, in ms. */
  readonly decodeTokenMs: number
}

/**
 * Where each figure is in the part of a slot. The six times come last: all before them is 0 for a slot
 * without requests.
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

/** Figures of one slot. */
export const FIGURES_PER_SLOT = Object.keys(FIGURE_OFFSET).length

/** Overwritten by the next call. */
export interface EngineProjection {
  count: number
  /** Element i · FIGURES_PER_SLOT + FIGURE_OFFSET[name]: that figure of the i-th slot that was asked for. */
  figures: Float64Array
  /** Tokens below which a step of prefill takes no less: see prefill-costs.ts. */
  kneeTokens: number
  /** Share of the workers that were asked about with a prompt in their queue, over the last decisions. */
  busyShare: number
  /** Standard deviation ÷ mean of decodeStepMs of the slots, ≥ 0; 0: all are alike. */
  speedSpread: number
  outputTokensExpected: number
  /**
   * What a millisecond of decoding counts for against one of waiting for the first token, from what was seen.
   */
  waitingShare: number
  /** Mean of the prefill of requests, as estimated when they were sent. */
  prefillMeanMs: number
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

/** One of its own, as long as its count. */
export function copyProjection(projection: EngineProjection): EngineProjection {
  return { ...projection, figures: projection.figures.slice(0, projection.count * FIGURES_PER_SLOT) }
}

/** One of its own, with the slots that are kept. */
export function filterProjection(projection: EngineProjection, isKept: readonly boolean[]): EngineProjection {
  const slots = Array.from({ length: projection.count }, (_, i) => i).filter(i => isKept[i] !== false)
  const figures = new Float64Array(slots.length * FIGURES_PER_SLOT)
  for (const [to, from] of slots.entries()) {
    const ofSlot = projection.figures.subarray(from * FIGURES_PER_SLOT, (from + 1) * FIGURES_PER_SLOT)
    figures.set(ofSlot, to * FIGURES_PER_SLOT)
  }
  return { ...projection, count: slots.length, figures, speedSpread: speedSpreadOf(figures, slots.length) }
}

/** Standard deviation ÷ mean of decodeStepMs of the first `count` slots; 0 where all are 0. */
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

/** With room for so many slots; what it says is to be filled in. */
export function newProjection(slots: number): EngineProjection {
  return {
    count: 0,
    figures: new Float64Array(slots * FIGURES_PER_SLOT),
    busyShare: 0,
    speedSpread: 0,
    outputTokensExpected: 0,
    waitingShare: 0,
    prefillMeanMs: 0,
    kneeTokens: 0,
  }
}
