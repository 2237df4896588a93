/**
 * Odd workers: whose learned speed, or length of answers, is far from that of their twins, or from what any
 * engine has. It says so once that has lasted, and once it is over.
 *
 *   figure   prefill   ms of a prompt of SAMPLE_PROMPT_TOKENS tokens, alone
 *            decode    ms of a step with SAMPLE_REQUESTS requests of that length
 *            output    tokens of an answer
 *   far      from twins: ODD_TIMES more or less than their median; for output OUTPUT_APART_TIMES
 *            from the prior: PRIOR_FAR_TIMES more or less; for output more, as clients may ask for one token
 *   odd      far for ALARM_MS without a break; no longer odd when it was not far for as long
 *
 * Twins are workers of the same kind, which the caller names; of fewer than COMPARED_MIN that are known, no
 * one can say which is the odd one. What was seen too seldom is not compared: COMPARED_ROWS observations, or
 * MEAN_FIRST_FIGURES answers.
 *
 * Owns     a state for each worker and figure that is far or odd; workers that are gone leave none.
 * Bounds   three states for each worker that is looked at.
 */

import { AUTO_CONSTANTS } from './auto-constants.ts'
import { type Coefficients, DECODE_PRIOR, PREFILL_PRIOR } from './engine-costs.ts'
import type { LearnedValues } from './learned-values.ts'
import { prefillCost } from './prefill-costs.ts'

const { ODD_TIMES, COMPARED_MIN, COMPARED_ROWS } = AUTO_CONSTANTS.steps
const { OUTPUT_APART_TIMES, OUTPUT_TOKENS_PRIOR, MEAN_FIRST_FIGURES, STEP_TOKENS_DEFAULT } =
  AUTO_CONSTANTS.book
const { SAMPLE_PROMPT_TOKENS, SAMPLE_REQUESTS, PRIOR_FAR_TIMES, ALARM_MS } = AUTO_CONSTANTS.odd
const { KNEE_PRIOR } = AUTO_CONSTANTS.knee

export type OddFigure = 'prefill' | 'decode' | 'output'

export interface ComparedWorker {
  /** Worker key. */
  readonly worker: string
  readonly workerSlot: number
  /** Workers of one kind are twins. */
  readonly kind: string
}

/** Why a worker is odd. */
export interface OddMark {
  readonly figure: OddFigure
  /** Its figure ÷ that of its twins, or the prior. */
  readonly times: number
  readonly against: 'twins' | 'prior'
  /** When it was found to be far first; as `nowMs`. */
  readonly sinceMs: number
}

/** A worker became odd, or is no longer. */
export interface OddChange extends OddMark {
  readonly worker: string
  readonly isOdd: boolean
}

interface State {
  mark: OddMark
  isOdd: boolean
  /** Since when it is otherwise than `isOdd` says; undefined: it is not. */
  otherwiseMs: number | undefined
}

interface FigureKind {
  readonly name: OddFigure
  readonly prior: number
  readonly apartTimes: number
  /** Least share of the prior that an engine may have. */
  readonly priorShareMin: number
  /** Undefined: too little was seen. */
  readonly of: (learned: LearnedValues, workerSlot: number) => number | undefined
}

const FIGURES: readonly FigureKind[] = [
  {
    name: 'prefill',
    prior: prefillMs(PREFILL_PRIOR, KNEE_PRIOR),
    apartTimes: ODD_TIMES,
    priorShareMin: 1 / PRIOR_FAR_TIMES,
    of: ({ prefill }, slot) =>
      prefill.rows(slot) < COMPARED_ROWS ? undefined : prefillMs(prefill.of(slot), prefill.kneeTokens),
  },
  {
    name: 'decode',
    prior: decodeMs(DECODE_PRIOR),
    apartTimes: ODD_TIMES,
    priorShareMin: 1 / PRIOR_FAR_TIMES,
    of: ({ decode }, slot) => (decode.rows(slot) < COMPARED_ROWS ? undefined : decodeMs(decode.of(slot))),
  },
  {
    name: 'output',
    prior: OUTPUT_TOKENS_PRIOR,
    apartTimes: OUTPUT_APART_TIMES,
    priorShareMin: 0,
    of({ outputs }, slot) {
      const known = outputs.of(slot)
      return known === undefined || known.answers < MEAN_FIRST_FIGURES ? undefined : known.tokens
    },
  },
]

export class OddWorkers {
  /** By worker key; each in the order of FIGURES. */
  #states = new Map<string, (State | undefined)[]>()

  /** Compares all workers now; the changes since the last look. Call it every few seconds. */
  look(learned: LearnedValues, workers: readonly ComparedWorker[], nowMs: number): readonly OddChange[] {
    const before = this.#states
    this.#states = new Map()
    const changes: OddChange[] = []
    for (const [at, figure] of FIGURES.entries()) {
      const far = farIn(figure, learned, workers, nowMs)
      for (const { worker } of workers) {
        const state = stateAfter(before.get(worker)?.[at], far.get(worker), nowMs)
        if (state === undefined) continue
        if (state.isChanged) changes.push({ ...state.next.mark, worker, isOdd: state.next.isOdd })
        if (!state.next.isOdd && state.isChanged) continue
        const states = this.#states.get(worker) ?? new Array(FIGURES.length)
        states[at] = state.next
        this.#states.set(worker, states)
      }
    }
    return changes
  }

  /** Why the worker is odd now; empty: it is not. */
  marks(worker: string): readonly OddMark[] {
    const states = this.#states.get(worker) ?? []
    return states.flatMap(state => (state?.isOdd === true ? [state.mark] : []))
  }
}

/** Undefined: it is neither odd nor far. */
function stateAfter(
  before: State | undefined,
  far: OddMark | undefined,
  nowMs: number,
): { readonly next: State; readonly isChanged: boolean } | undefined {
  if (before === undefined && far === undefined) return undefined
  const isOdd = before?.isOdd ?? false
  const sinceMs = before?.mark.sinceMs ?? nowMs
  const mark: OddMark = far === undefined ? before!.mark : { ...far, sinceMs }
  if ((far !== undefined) === isOdd)
    return { next: { mark, isOdd, otherwiseMs: undefined }, isChanged: false }
  // A worker that was far for a moment begins anew.
  if (!isOdd && far === undefined) return undefined
  const otherwiseMs = before?.otherwiseMs ?? nowMs
  const isChanged = nowMs - otherwiseMs >= ALARM_MS
  return {
    next: isChanged ? { mark, isOdd: !isOdd, otherwiseMs: undefined } : { mark, isOdd, otherwiseMs },
    isChanged,
  }
}

/** The workers whose figure is far, by worker key. */
function farIn(
  { of, prior, name, apartTimes, priorShareMin }: FigureKind,
  learned: LearnedValues,
  workers: readonly ComparedWorker[],
  nowMs: number,
): ReadonlyMap<string, OddMark> {
  const byKind = new Map<string, { readonly worker: string; readonly value: number }[]>()
  for (const { worker, workerSlot, kind } of workers) {
    const value = of(learned, workerSlot)
    if (value === undefined || !(value > 0 && value < Infinity)) continue
    const twins = byKind.get(kind)
    if (twins === undefined) byKind.set(kind, [{ worker, value }])
    else twins.push({ worker, value })
  }
  const far = new Map<string, OddMark>()
  for (const twins of byKind.values()) {
    const sorted = twins.map(({ value }) => value).sort((a, b) => a - b)
    const median = sorted[(sorted.length - 1) >> 1]!
    const isCompared = twins.length >= COMPARED_MIN
    for (const { worker, value } of twins) {
      const mark = { figure: name, sinceMs: nowMs }
      if (isCompared && isFar(value / median, 1 / apartTimes, apartTimes))
        far.set(worker, { ...mark, times: value / median, against: 'twins' })
      else if (isFar(value / prior, priorShareMin, PRIOR_FAR_TIMES))
        far.set(worker, { ...mark, times: value / prior, against: 'prior' })
    }
  }
  return far
}

function isFar(ratio: number, least: number, most: number): boolean {
  return ratio > most || ratio < least
}

function prefillMs(coefficients: Coefficients, kneeTokens: number): number {
  return prefillCost(
    coefficients,
    SAMPLE_PROMPT_TOKENS,
    SAMPLE_PROMPT_TOKENS,
    STEP_TOKENS_DEFAULT,
    kneeTokens,
  )
}

function decodeMs([stepMs, requestMs, tokenMs]: Coefficients): number {
  return stepMs + SAMPLE_REQUESTS * (requestMs + tokenMs * SAMPLE_PROMPT_TOKENS)
}
