/**
 * Engine costs: how long prefill and decode steps of a worker take, learned from the times of its requests.
 *
 *   prefill   step ms · steps + token ms · charged tokens + pair ms · new tokens · (prompt − new tokens / 2)
 *   decode    step ms + request ms · requests + token ms · tokens of context of all requests
 *
 * Each is a least-squares fit with coefficients ≥ 0. A fit keeps only its normal equations, in which old
 * observations fade, so its size does not grow. The fit of a worker with few observations is pulled towards
 * the fit of the fleet times one factor, the slowness of the worker: a few observations are enough to learn
 * this factor. The fit of the fleet is pulled towards the priors. They stand for a mid-sized model on a fast
 * GPU, and are wrong by a factor of 2 to 10 elsewhere.
 *
 * An observation that differs from the expectation by more than a factor of OUTLIER_TIMES is clamped to that
 * factor: a stalled proxy is not a slow engine, and an answer from a proxy's cache is not a fast engine. The
 * first observations have no good expectation: it is scaled by the median of their own ratios to it, so the
 * majority decides. Observations that are not finite or not positive are ignored.
 *
 * Of three workers or more, one that is ODD_TIMES as slow or as fast as the fleet does not teach the fleet
 * while most of the others are like it: a liar, or an engine of another kind, may answer most of the
 * requests. If the median worker is that far from the fleet's fit, the fit was taught by an odd one: it
 * becomes that of the median worker. Nor has one worker more than FLEET_SHARE_MAX of the fleet's fit then,
 * and its observations are clamped to ODD_TIMES of what the median worker takes: the fleet's own prediction
 * is no measure of who has moved it. So a single liar moves the fleet by about ODD_TIMES at most, whatever
 * it says.
 *
 * What was not confirmed for AGE_FREE_MS ages: half of what the figures of a worker differ from those of the
 * fleet goes in each AGE_WORKER_HALF_MS, and half of what those of the fleet differ from the priors in each
 * AGE_FLEET_HALF_MS. With the next observation, the earlier ones weigh as much less.
 *
 * Source   docs/decisions/0037-what-auto-weighs.md, section Step times.
 */

import { shareAfter } from './age.ts'
import { AUTO_CONSTANTS } from './auto-constants.ts'

const {
  OUTLIER_TIMES,
  ERROR_SCALE_MIN,
  OBSERVED_MS_MIN,
  FIRST_ROWS,
  FADE,
  FLEET_WEIGHT,
  SPEED_WEIGHT,
  STRANGER_ROWS,
  PRIOR_WEIGHT,
  SWEEPS,
  APART,
  APART_OF_CHANCE,
  SOLVE_EVERY,
  ODD_TIMES,
  COMPARED_MIN,
  COMPARED_ROWS,
  FLEET_SHARE_MAX,
  AGE_WORKER_HALF_MS,
  AGE_FLEET_HALF_MS,
} = AUTO_CONSTANTS.steps
const { PRIOR_STEP_MS_SCALE_MIN, ZERO_PRIOR_DIVISOR } = AUTO_CONSTANTS.steps
const { PRIOR_PREFILL_STEP_MS, PRIOR_PREFILL_TOKEN_MS, PRIOR_PREFILL_PAIR_MS } = AUTO_CONSTANTS.steps
const { PRIOR_DECODE_STEP_MS, PRIOR_DECODE_REQUEST_MS, PRIOR_DECODE_TOKEN_MS } = AUTO_CONSTANTS.steps
const { PRIOR_TRANSFER_MS, PRIOR_TRANSFER_TOKEN_MS } = AUTO_CONSTANTS.steps

const FEATURES = 3
/** Numbers of an image before those of its first rows, and of each of these. */
const IMAGE_NUMBERS = 22
const ROW_NUMBERS = 5
const IMAGE_FIGURE_MAX = 1e60
/**
 * Prefill: ms per step, per charged token, per pair of a new token and a token before it. Decode: ms per
 * step, per request in it, per token of context.
 */
export type Coefficients = readonly [number, number, number]

/** The prior for the initial knee. */
export const PREFILL_PRIOR: Coefficients = [
  PRIOR_PREFILL_STEP_MS,
  PRIOR_PREFILL_TOKEN_MS,
  PRIOR_PREFILL_PAIR_MS,
]
export const DECODE_PRIOR: Coefficients = [
  PRIOR_DECODE_STEP_MS,
  PRIOR_DECODE_REQUEST_MS,
  PRIOR_DECODE_TOKEN_MS,
]

/** Of a hand-over: ms for each, and for each token whose blocks move. Nothing has the third feature. */
export const TRANSFER_PRIOR: Coefficients = [PRIOR_TRANSFER_MS, PRIOR_TRANSFER_TOKEN_MS, 1]

/** Least assumed error of each prior. */
const PRIOR_SCALE_MIN: Coefficients = [PRIOR_STEP_MS_SCALE_MIN, 0, 0]

/** Step times of a worker, and their source. */
export interface CostKnowledge {
  readonly coefficients: Coefficients
  /** 'prior': no observations yet. 'fleet': the worker does not, or not yet, differ from the fleet. */
  readonly source: 'prior' | 'fleet' | 'worker'
  /** Number of observations of this worker. */
  readonly observations: number
}

/** One observation: the features of a step, x0 … x2, and its duration y, in ms. */
interface Row {
  readonly x: Coefficients
  readonly y: number
  readonly weight: number
}

/** A fit y ≈ Σ c·x with three features and c ≥ 0, of least relative errors. */
class Fit {
  readonly coefficients: [number, number, number]
  rows = 0
  /** Number of the fleet's solution that was used last. */
  base = 0
  /** Number of observations of all workers when the last one of this worker came. */
  seenAt = 0
  /** Time of the last observation. */
  #seenMs = 0
  readonly #halfMs: number
  /** Coefficients after `aged`. */
  readonly #aged: [number, number, number] = [0, 0, 0]
  /** The worker is faster or slower than the fleet by more than chance. */
  isApart = false
  /** Its part of the weight of the fleet's observations, when the fleet had `taughtAt` of them. */
  taught = 0
  taughtAt = 0
  /** It is so much faster or slower that it may not teach the fleet. */
  isOdd = false
  /** Coefficients before the first observation. */
  readonly #prior: [number, number, number]
  /** The first rows; undefined once there are FIRST_ROWS. */
  #first: Row[] | undefined = []
  /** Faded sum of the weights of all rows; below it, of weight · target². */
  #weight = 0
  #targets = 0
  /** Upper triangle of Σ x·xᵀ/d², and Σ x·y/d²; errors are relative to d. */
  readonly #products = new Float64Array(6)
  readonly #sums = new Float64Array(FEATURES)

  constructor(prior: Coefficients, halfMs: number) {
    this.#prior = [...prior]
    this.coefficients = [...prior]
    this.#halfMs = halfMs
  }

  /** Takes what an image has, of a fit that was taken `agoMs` before `nowMs`. */
  restore(image: Float64Array, nowMs: number, agoMs: number): void {
    const at = (index: number): number => image[index]!
    for (let i = 0; i < FEATURES; i++) {
      this.coefficients[i] = at(i)
      this.#prior[i] = at(FEATURES + i)
      this.#sums[i] = at(16 + i)
    }
    this.isApart = at(19) === 1
    this.isOdd = at(20) === 1
    this.#seenMs = nowMs - agoMs - at(6)
    this.rows = at(7)
    this.#weight = at(8)
    this.#targets = at(9)
    this.#products.set(image.subarray(10, 16))
    const count = at(IMAGE_NUMBERS - 1)
    this.#first = this.rows < FIRST_ROWS ? [] : undefined
    for (let row = 0; row < count; row++) {
      const [x0, x1, x2, y, weight] = image.subarray(IMAGE_NUMBERS + row * ROW_NUMBERS) as unknown as number[]
      this.#first?.push({ x: [x0!, x1!, x2!], y: y!, weight: weight! })
    }
  }

  /** All that it knows: see isFitImage. */
  image(nowMs: number): Float64Array {
    const first = this.#first ?? []
    return Float64Array.of(
      ...this.coefficients,
      ...this.#prior,
      Math.max(0, nowMs - this.#seenMs),
      this.rows,
      this.#weight,
      this.#targets,
      ...this.#products,
      ...this.#sums,
      Number(this.isApart),
      Number(this.isOdd),
      first.length,
      ...first.flatMap(({ x, y, weight }) => [...x, y, weight]),
    )
  }

  /** The share of what it has learned that counts at `nowMs`: halves each `halfMs` without confirmation. */
  #share(nowMs: number): number {
    return shareAfter(nowMs - this.#seenMs, this.#halfMs)
  }

  /** The coefficients at `nowMs`, if those of `base` count for what was not confirmed for long. */
  aged(base: Coefficients, nowMs: number): Coefficients {
    const share = this.#share(nowMs)
    if (share === 1 || this.rows === 0) return this.coefficients
    for (let i = 0; i < FEATURES; i++) this.#aged[i] = base[i]! + share * (this.coefficients[i]! - base[i]!)
    return this.#aged
  }

  /** An observation comes at `nowMs`. The share of their weight that earlier ones keep. */
  seen(nowMs: number): number {
    const share = this.rows === 0 ? 1 : this.#share(nowMs)
    this.#seenMs = nowMs
    if (share === 1) return share
    this.#weight *= share
    this.#targets *= share
    for (let i = 0; i < this.#products.length; i++) this.#products[i]! *= share
    for (let i = 0; i < FEATURES; i++) this.#sums[i]! *= share
    this.#first = this.#first?.map(row => ({ ...row, weight: share * row.weight }))
    return share
  }

  /**
   * `anchor`: expected time ÷ its own prediction; beyond `outlierTimes` of that the row counts as clamped.
   */
  add(row: Row, anchor = 1, outlierTimes: number = OUTLIER_TIMES): void {
    this.rows++
    if (this.#first === undefined) {
      this.#take(row, anchor * dot(this.coefficients, row.x), outlierTimes)
      return
    }
    this.#first.push(row)
    this.#takeFirst(this.#first)
    if (this.#first.length === FIRST_ROWS) this.#first = undefined
  }

  /** Fits the first rows from scratch. The prior adds a ratio of 1 to the median. */
  #takeFirst(first: readonly Row[]): void {
    this.#weight = 0
    this.#targets = 0
    this.#products.fill(0)
    this.#sums.fill(0)
    const ratio = median([1, ...first.map(({ x, y }) => y / dot(this.#prior, x)).filter(Number.isFinite)])
    for (const row of first) this.#take(row, ratio * dot(this.#prior, row.x), OUTLIER_TIMES)
  }

  /** `expected` in ms; if it is not positive and finite, the row is not clamped. */
  #take({ x, y: seen, weight }: Row, expected: number, outlierTimes: number): void {
    const isExpected = expected > 0 && expected < Infinity
    const y = isExpected ? Math.min(outlierTimes * expected, Math.max(expected / outlierTimes, seen)) : seen
    const scale = isExpected ? Math.max(y, ERROR_SCALE_MIN * expected) : y
    const target = y / scale
    const p = this.#products
    const s = this.#sums
    const u0 = x[0] / scale
    const u1 = x[1] / scale
    const u2 = x[2] / scale
    p[0] = FADE * p[0]! + weight * u0 * u0
    p[1] = FADE * p[1]! + weight * u0 * u1
    p[2] = FADE * p[2]! + weight * u0 * u2
    p[3] = FADE * p[3]! + weight * u1 * u1
    p[4] = FADE * p[4]! + weight * u1 * u2
    p[5] = FADE * p[5]! + weight * u2 * u2
    s[0] = FADE * s[0]! + weight * u0 * target
    s[1] = FADE * s[1]! + weight * u1 * target
    s[2] = FADE * s[2]! + weight * u2 * target
    this.#weight = FADE * this.#weight + weight
    this.#targets = FADE * this.#targets + weight * target * target
  }

  /** Faded sum of the weights of its observations. */
  get weight(): number {
    return this.#weight
  }

  /** Takes over what another fit has learned. */
  become(other: Fit): void {
    this.#first = other.#first === undefined ? undefined : [...other.#first]
    this.#weight = other.#weight
    this.#targets = other.#targets
    this.#seenMs = other.#seenMs
    this.#products.set(other.#products)
    this.#sums.set(other.#sums)
    for (let i = 0; i < FEATURES; i++) this.coefficients[i] = other.coefficients[i]!
  }

  /** Distance of the predictions of `coefficients` from the observations; ≤ 1: chance can explain it. */
  distance(coefficients: Coefficients): number {
    const predicted = this.#predicted(coefficients)
    const allowed = APART + APART_OF_CHANCE / Math.sqrt(this.#weight)
    return predicted > 0 && this.#targets > 0 ? Math.abs(Math.log(predicted / this.#targets)) / allowed : 0
  }

  /** Observed step time ÷ the prediction of `coefficients`; nearer to 1 with few observations. */
  slowness(coefficients: Coefficients): number {
    const predicted = this.#predicted(coefficients)
    if (!(predicted > 0 && this.#targets > 0)) return 1
    const squared = this.#weight ** 2
    return (this.#targets / predicted) ** (squared / (squared + SPEED_WEIGHT ** 2))
  }

  #predicted(c: Coefficients): number {
    return c[0] * this.#sums[0]! + c[1] * this.#sums[1]! + c[2] * this.#sums[2]!
  }

  /** Coordinate descent towards the data and towards `base`, which counts as `weight` observations. */
  solve(base: Coefficients, weight: number): void {
    const p = this.#products
    const c = this.coefficients
    for (let sweep = 0; sweep < SWEEPS; sweep++) {
      for (let i = 0; i < FEATURES; i++) {
        const own = p[i === 0 ? 0 : i === 1 ? 3 : 5]!
        let residual = this.#sums[i]!
        for (let j = 0; j < FEATURES; j++) if (j !== i) residual -= p[PAIR[i * FEATURES + j]!]! * c[j]!
        // One pseudo-row pulls each coefficient to that of the base. Its error is relative to the larger of
        // the two, and at least PRIOR_SCALE_MIN.
        const scale = Math.max(c[i]!, base[i]!, PRIOR_SCALE_MIN[i]!, Number.MIN_VALUE)
        const pull = weight / scale / scale
        c[i] = Math.max(0, (residual + pull * base[i]!) / (own + pull))
      }
    }
  }
}

/** Index in `#products` of the product of features i and j. */
const PAIR = Uint8Array.of(0, 1, 2, 1, 3, 4, 2, 4, 5)

/** The fits of one kind of step: one of the fleet, and one per worker. */
export class LearnedCosts {
  readonly #fleet: Fit
  readonly #prior: Coefficients
  readonly #workers = new Map<number, Fit>()
  /**
   * What is known of strangers, until as much is known of them again. Others are compared with it: one that
   * answers nearly all requests must not be alone.
   */
  readonly #strangers = new Map<number, Fit>()
  #fleetSolutions = 0
  /** Of all workers. */
  #observations = 0
  /** Workers with enough observations to compare them, and those of them that are unlike the fleet. */
  #compared = 0
  #odd = 0
  /** Slowness of the median worker: its observations ÷ the predictions of the fleet's fit. */
  #anchor = 1
  #nowMs = 0

  constructor(prior: Coefficients) {
    this.#prior = prior
    this.#fleet = new Fit(prior, AGE_FLEET_HALF_MS)
  }

  /** The time by which what was learned ages. An earlier one than before has no effect. */
  tick(nowMs: number): void {
    if (nowMs > this.#nowMs) this.#nowMs = nowMs
  }

  /** Coefficients of the worker, or of the fleet while chance can explain the difference. */
  of(workerSlot: number): Coefficients {
    const worker = this.#worker(workerSlot)
    if (worker === undefined) return this.#fleetNow()
    // The fleet's fit has changed. Without this, the first workers would stay as slow as the priors.
    if (worker.rows <= 2 * SOLVE_EVERY && worker.base !== this.#fleetSolutions) this.#solve(worker)
    return worker.isApart ? worker.aged(this.#fleetNow(), this.#nowMs) : this.#fleetNow()
  }

  /** The coefficients of the fleet. */
  get fleet(): Coefficients {
    return this.#fleetNow()
  }

  /** Aged. */
  #fleetNow(): Coefficients {
    return this.#fleet.aged(this.#prior, this.#nowMs)
  }

  #worker(workerSlot: number): Fit | undefined {
    const worker = this.#workers.get(workerSlot)
    if (worker === undefined || this.#observations - worker.seenAt <= STRANGER_ROWS * this.#workers.size)
      return worker
    this.#workers.delete(workerSlot)
    if (worker.rows >= COMPARED_ROWS) this.#strangers.set(workerSlot, worker)
    return undefined
  }

  /** Returns a copy. */
  knowledge(workerSlot: number): CostKnowledge {
    const [a, b, c] = this.of(workerSlot)
    const worker = this.#workers.get(workerSlot)
    return {
      coefficients: [a, b, c],
      source: worker?.isApart === true ? 'worker' : this.#fleet.rows > 0 ? 'fleet' : 'prior',
      observations: worker?.rows ?? 0,
    }
  }

  /** Number of observations of the worker. */
  rows(workerSlot: number): number {
    return this.#worker(workerSlot)?.rows ?? 0
  }

  /** `weight`: 1 for a certain observation, less for an uncertain one. */
  observe(workerSlot: number, x0: number, x1: number, x2: number, observedMs: number, weight = 1): void {
    if (!(observedMs > 0 && observedMs < Infinity)) return
    if (!(x0 >= 0 && x1 >= 0 && x2 >= 0 && x0 + x1 + x2 > 0 && x0 + x1 + x2 < Infinity)) return
    const fleet = this.#fleet
    let worker = this.#worker(workerSlot)
    if (worker === undefined) {
      worker = new Fit(this.#fleetNow(), AGE_WORKER_HALF_MS)
      this.#workers.set(workerSlot, worker)
    }
    const row: Row = { x: [x0, x1, x2], y: Math.max(OBSERVED_MS_MIN, observedMs), weight }
    const mayTeach = this.#mayTeach(worker)
    const fleetShare = mayTeach ? fleet.seen(this.#nowMs) : 1
    if (fleetShare < 1) for (const each of this.#workers.values()) each.taught *= fleetShare
    const isAged = worker.seen(this.#nowMs) < 1
    if (mayTeach) this.#teach(worker, row)
    worker.add(row)
    worker.seenAt = ++this.#observations
    if (fleetShare < 1 || fleet.rows <= 2 * SOLVE_EVERY || fleet.rows % SOLVE_EVERY === 0) {
      fleet.solve(this.#prior, PRIOR_WEIGHT)
      this.#fleetSolutions++
    }
    if (isAged || worker.rows <= 2 * SOLVE_EVERY || worker.rows % SOLVE_EVERY === 0) this.#solve(worker)
    if (this.#observations % SOLVE_EVERY === 0) this.#compare()
  }

  /** Adds an observation of a worker to those of the fleet, with as much weight as its share allows. */
  #teach(worker: Fit, row: Row): void {
    const fleet = this.#fleet
    const before = worker.taught * FADE ** (fleet.rows - worker.taughtAt)
    const isCompared = this.#compared >= COMPARED_MIN
    const room = (FLEET_SHARE_MAX * fleet.weight - before) / (1 - FLEET_SHARE_MAX)
    const weight = isCompared ? Math.min(row.weight, room) : row.weight
    // Less would fade the observations of others, and add none.
    if (weight < FLEET_SHARE_MAX * row.weight) return
    if (isCompared) fleet.add({ ...row, weight }, this.#anchor, ODD_TIMES)
    else fleet.add(row)
    worker.taught = FADE * before + weight
    worker.taughtAt = fleet.rows
  }

  #mayTeach(worker: Fit): boolean {
    return !(worker.isOdd && this.#compared >= COMPARED_MIN && 2 * this.#odd < this.#compared)
  }

  /**
   * Finds the odd workers. If the median worker is one, the fleet's fit becomes that of the median worker.
   */
  #compare(): void {
    const known = [...this.#workers.values()].filter(({ rows }) => rows >= COMPARED_ROWS)
    for (const [slot, stranger] of this.#strangers) {
      if ((this.#workers.get(slot)?.rows ?? 0) >= COMPARED_ROWS) this.#strangers.delete(slot)
      else known.push(stranger)
    }
    const fleet = this.#fleet
    const slowness = new Map(known.map(worker => [worker, worker.slowness(fleet.coefficients)]))
    if (known.length >= COMPARED_MIN) {
      const sorted = known.toSorted((a, b) => slowness.get(a)! - slowness.get(b)!)
      const middle = sorted[(sorted.length - 1) >> 1]!
      if (isOdd(slowness.get(middle)!)) {
        fleet.become(middle)
        this.#fleetSolutions++
        for (const worker of this.#workers.values()) worker.taught = 0
        middle.taught = fleet.weight
        middle.taughtAt = fleet.rows
        for (const worker of known) slowness.set(worker, worker.slowness(fleet.coefficients))
      }
    }
    for (const worker of known) worker.isOdd = isOdd(slowness.get(worker)!)
    this.#anchor = middleOf([...slowness.values()])
    this.#compared = known.length
    this.#odd = known.filter(worker => worker.isOdd).length
  }

  #solve(worker: Fit): void {
    const fleet = this.#fleet.coefficients
    const slowness = worker.slowness(fleet)
    const [c0, c1, c2] = positive(fleet, this.#prior)
    worker.solve([slowness * c0, slowness * c1, slowness * c2], FLEET_WEIGHT)
    worker.base = this.#fleetSolutions
    worker.isApart = worker.distance(this.#fleet.coefficients) > 1
  }

  forget(workerSlot: number): void {
    this.#workers.delete(workerSlot)
    this.#strangers.delete(workerSlot)
  }

  /** Of the fleet, or of the worker in a slot; undefined: nothing was seen of it. */
  image(workerSlot: number | 'fleet'): Float64Array | undefined {
    const fit = workerSlot === 'fleet' ? this.#fleet : this.#worker(workerSlot)
    return fit === undefined || fit.rows === 0 ? undefined : fit.image(this.#nowMs)
  }

  /** Takes over an image that was taken `agoMs` ago, unless it knows more already. */
  restore(workerSlot: number | 'fleet', image: Float64Array, agoMs: number): void {
    if (workerSlot === 'fleet') {
      if (this.#fleet.rows > 0) return
      this.#fleet.restore(image, this.#nowMs, agoMs)
      this.#fleetSolutions++
      return
    }
    if (this.rows(workerSlot) > 0) return
    const worker = new Fit(this.#prior, AGE_WORKER_HALF_MS)
    worker.restore(image, this.#nowMs, agoMs)
    worker.seenAt = this.#observations
    worker.base = -1
    this.#workers.set(workerSlot, worker)
    if (worker.rows < COMPARED_ROWS) return
    this.#compared++
    if (worker.isOdd) this.#odd++
  }
}

/**
 * Whether these are the numbers of a fit: coefficients, prior, ms since its last observation, observations,
 * weight, targets, products, sums, whether it is apart, whether it is odd, and its first rows with their
 * number.
 */
export function isFitImage(image: Float64Array): boolean {
  if (image.length < IMAGE_NUMBERS) return false
  for (const figure of image) if (!(figure >= 0 && figure <= IMAGE_FIGURE_MAX)) return false
  const [rows, weight, first] = [image[7]!, image[8]!, image[IMAGE_NUMBERS - 1]!]
  // At the limit of the fading weights, with room for rounding.
  const isWeight = weight <= 1.01 / (1 - FADE)
  const isFirst = first <= FIRST_ROWS && image.length === IMAGE_NUMBERS + ROW_NUMBERS * first
  return Number.isSafeInteger(rows) && rows >= 1 && isWeight && Number.isSafeInteger(first) && isFirst
}

function isOdd(slowness: number): boolean {
  return slowness > ODD_TIMES || slowness < 1 / ODD_TIMES
}

/** Raises each coefficient to at least the prior ÷ ZERO_PRIOR_DIVISOR, because 0 has no scale. */
function positive(coefficients: Coefficients, prior: Coefficients): Coefficients {
  return coefficients.map((c, i) => Math.max(c, prior[i]! / ZERO_PRIOR_DIVISOR)) as unknown as Coefficients
}

/** Time of a step with these features, in ms. */
function dot(coefficients: Coefficients, x: Coefficients): number {
  return coefficients[0] * x[0] + coefficients[1] * x[1] + coefficients[2] * x[2]
}

/** The lower one of the two in the middle of an even number; 1 of none. */
function middleOf(figures: readonly number[]): number {
  return figures.toSorted((a, b) => a - b)[(figures.length - 1) >> 1] ?? 1
}

/** The median in logarithms: a factor of 2 and a factor of ½ cancel out. */
function median(ratios: readonly number[]): number {
  const sorted = ratios.toSorted((a, b) => a - b)
  const half = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[half]! : Math.sqrt(sorted[half - 1]! * sorted[half]!)
}
