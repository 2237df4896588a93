/**
 * Engine projection: what a request would find on each worker slot, as an engine book tells it.
 *
 *   figures   slot 0: backlogMs queuedTokens … q2 │ slot 1: backlogMs queuedTokens … q2 │ …
 *
 * One array, because a policy reads all figures of a worker for each decision: with an array for each of them it takes half as long again. It is
 * also one array to send.
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
  /** New tokens that it was sent since it is known. Until they are as many as its cache holds, nothing is pushed out there. */
  readonly receivedTokens: number
  /** Prefill: see prefill-costs.ts. */
  readonly p0: number
  readonly p1: number
  readonly p2: number
  /** Decoding: see engine-costs.ts. */
  readonly q0: number
  readonly q1: number
  readonly q2: number
}

/** Where each figure is in the part of a slot. */
export const ENGINE_FIGURE: Readonly<Record<keyof EngineFigures, number>> = {
  backlogMs: 0,
  queuedTokens: 1,
  requests: 2,
  decoding: 3,
  contextTokens: 4,
  churn: 5,
  receivedTokens: 6,
  p0: 7,
  p1: 8,
  p2: 9,
  q0: 10,
  q1: 11,
  q2: 12,
}

/** Figures of one slot. */
export const ENGINE_FIGURES = Object.keys(ENGINE_FIGURE).length

/** Overwritten by the next call. */
export interface EngineProjection {
  count: number
  /** Element i · ENGINE_FIGURES + ENGINE_FIGURE[name]: that figure of the i-th slot that was asked for. */
  figures: Float64Array
  /** Tokens below which a step of prefill takes no less: see prefill-costs.ts. */
  kneeTokens: number
  /** Share of the workers that were asked about with a prompt in their queue, over the last decisions. */
  busyShare: number
  /** How much shorter a decode step of the fastest of the slots is than one of the slowest, as a share of that: 0, all are alike, … 1. */
  speedSpread: number
  outputTokensExpected: number
  /** What a millisecond of decoding counts for against one of waiting for the first token, from what was seen. */
  waitingShare: number
  /** Mean of the prefill of requests, as estimated when they were sent. */
  prefillMeanMs: number
}

/** One figure of the i-th slot. */
export function figureOf({ figures }: EngineProjection, i: number, name: keyof EngineFigures): number {
  return figures[i * ENGINE_FIGURES + ENGINE_FIGURE[name]]!
}

/** All figures of the i-th slot by name. */
export function figuresOf({ figures }: EngineProjection, i: number): EngineFigures {
  const of = Object.entries(ENGINE_FIGURE).map(([name, at]) => [name, figures[i * ENGINE_FIGURES + at]])
  return Object.fromEntries(of) as EngineFigures
}

/** One of its own, as long as its count. */
export function copyProjection(projection: EngineProjection): EngineProjection {
  return { ...projection, figures: projection.figures.slice(0, projection.count * ENGINE_FIGURES) }
}

/** One of its own, with the slots that are kept. */
export function filterProjection(projection: EngineProjection, isKept: readonly boolean[]): EngineProjection {
  const slots = Array.from({ length: projection.count }, (_, i) => i).filter(i => isKept[i] !== false)
  const figures = new Float64Array(slots.length * ENGINE_FIGURES)
  for (const [to, from] of slots.entries()) {
    const ofSlot = projection.figures.subarray(from * ENGINE_FIGURES, (from + 1) * ENGINE_FIGURES)
    figures.set(ofSlot, to * ENGINE_FIGURES)
  }
  return { ...projection, count: slots.length, figures }
}

/** With room for so many slots; what it says is to be filled in. */
export function newProjection(slots: number): EngineProjection {
  return {
    count: 0,
    figures: new Float64Array(slots * ENGINE_FIGURES),
    busyShare: 0,
    speedSpread: 0,
    outputTokensExpected: 0,
    waitingShare: 0,
    prefillMeanMs: 0,
    kneeTokens: 0,
  }
}
