/**
 * Engine costs: how long prefill and decode steps of a worker take, learned from what its requests took.
 *
 *   prefill   p0 · steps + p1 · m + p2 · n·(prompt − n/2)   for n tokens that are not cached; m is n or a little more (prefill-costs.ts)
 *   decode    q0 + q1 · d + q2 · C                          a step with d requests that hold C tokens together
 *
 * Each is a least-squares fit with coefficients ≥ 0. A fit keeps its normal equations, in which old observations fade, so
 * it is as large after a million of them as after one. A worker with few observations leans on the fit of the fleet times one factor, its
 * slowness, which a few observations are enough to learn. The fleet leans on the priors, which stand for a mid-sized model on a fast GPU and are
 * wrong by a factor of 2 to 10 elsewhere.
 *
 * An observation that is OUTLIER times what was expected moves the fit as far as one of OUTLIER times: a stalled proxy is no
 * slow engine, and an answer at once from a proxy's cache no fast one. What the first of them are held against is the median of their own ratios to
 * what was expected before there were any, so that most of them decide. Observations that are not finite or not positive are left out.
 */

const FEATURES = 3
const OUTLIER = 8
/**
 * Errors are relative to what was seen, but at least to this part of what was expected: else one row that is eight times too fast
 * would weigh as much as 64 others.
 */
const SCALE_MIN = 1 / 2
/** Shorter than what a clock tells apart; keeps what is divided by it finite. */
const OBSERVED_MS_MIN = 1e-3
/** Observations that are kept until so many came, and fitted again with each of them. */
const FIRST_ROWS = 16
/** Kept of the weight of all earlier observations when one comes. */
const FADE = 0.985
/** The fit of the fleet, times the worker's slowness, weighs as much as this many observations of the worker. */
const FLEET_WEIGHT = 8
/** Weight of the assumption that a worker is as fast as the fleet, counted in observations of that worker. */
const SPEED_WEIGHT = 3
/**
 * A worker that was not seen while the fleet was seen so many times for each of its workers is a stranger again. Who is thought to be slow gets nothing
 * to show otherwise: an engine that has just started is slow for its first answers only.
 */
const STRANGER_ROWS = 30
/** The priors weigh as much as this many observations of the fleet. */
const PRIOR_WEIGHT = 0.3
/** A prior is off by so much at least: p0 is a small part of a step, or all of it. */
const PRIOR_SCALE_MIN: Coefficients = [10, 0, 0]
const SWEEPS = 12
/**
 * A worker counts as another kind than the fleet when its logarithm of predicted ÷ seen is beyond the first figure, and the second ÷ √(its observations)
 * for chance: with 4 observations 1.9 times as fast or slow, with 16 of them 1.5 times, with very many 1.3 times. Below that the fleet knows better.
 */
const APART = 0.15
const APART_OF_CHANCE = 1
/** Rows between two solutions, once there are as many. */
const SOLVE_EVERY = 16

/** p0 and q0 in ms a step, p1 in ms a token, p2 in ms a token and token of context, q1 in ms a request, q2 in ms a token. */
export type Coefficients = readonly [number, number, number]

/** For the knee that counts at first. */
export const PREFILL_PRIOR: Coefficients = [1, 0.035, 1e-6]
export const DECODE_PRIOR: Coefficients = [10, 0.1, 4e-5]

/** What is known of a worker's steps, and where it is from. */
export interface CostKnowledge {
  readonly coefficients: Coefficients
  /** 'prior': nothing was seen yet. 'fleet': too little of this worker to tell it from the others, or it is like them. */
  readonly source: 'prior' | 'fleet' | 'worker'
  /** Those of this worker. */
  readonly observations: number
}

/** What a step consisted of, x0 … x2, and how long it took, in ms. */
interface Row {
  readonly x: Coefficients
  readonly y: number
  readonly weight: number
}

/** A fit y ≈ Σ c·x with three features and c ≥ 0; relative errors count. */
class Fit {
  readonly coefficients: [number, number, number]
  rows = 0
  /** Number of the solution of the fleet that it leans on. */
  base = 0
  /** Rows of the fleet when its last one came. */
  seenAt = 0
  /** It is faster or slower than the fleet by more than chance. */
  isApart = false
  /** What was expected before the first observation. */
  readonly #prior: Coefficients
  /** The first rows; undefined once there are FIRST_ROWS. */
  #first: Row[] | undefined = []
  /** Of all rows, faded, and the same with the square of each target. */
  #weight = 0
  #targets = 0
  /** Upper triangle of Σ x·xᵀ/d², and Σ x·y/d², for what each error is relative to, d. */
  readonly #products = new Float64Array(6)
  readonly #sums = new Float64Array(FEATURES)

  constructor(prior: Coefficients) {
    this.#prior = [...prior]
    this.coefficients = [...prior]
  }

  add(row: Row): void {
    this.rows++
    if (this.#first === undefined) {
      this.#take(row, dot(this.coefficients, row.x))
      return
    }
    this.#first.push(row)
    this.#takeFirst(this.#first)
    if (this.#first.length === FIRST_ROWS) this.#first = undefined
  }

  /** All of the first rows anew. The prior is one more witness. */
  #takeFirst(first: readonly Row[]): void {
    this.#weight = 0
    this.#targets = 0
    this.#products.fill(0)
    this.#sums.fill(0)
    const ratio = median([1, ...first.map(({ x, y }) => y / dot(this.#prior, x)).filter(Number.isFinite)])
    for (const row of first) this.#take(row, ratio * dot(this.#prior, row.x))
  }

  /** `expected` in ms; where it is no time, the row is taken as it is. */
  #take({ x, y: seen, weight }: Row, expected: number): void {
    const isExpected = expected > 0 && expected < Infinity
    const y = isExpected ? Math.min(OUTLIER * expected, Math.max(expected / OUTLIER, seen)) : seen
    const scale = isExpected ? Math.max(y, SCALE_MIN * expected) : y
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

  /** How far what `coefficients` predict is from what was seen, as a multiple of what chance explains; ≤ 1: not for certain. */
  distance(coefficients: Coefficients): number {
    const predicted = this.#predicted(coefficients)
    const allowed = APART + APART_OF_CHANCE / Math.sqrt(this.#weight)
    return predicted > 0 && this.#targets > 0 ? Math.abs(Math.log(predicted / this.#targets)) / allowed : 0
  }

  /** How many times as long as `coefficients` predict its steps take, by what was seen; nearer to 1 where that is little. */
  slowness(coefficients: Coefficients): number {
    const predicted = this.#predicted(coefficients)
    if (!(predicted > 0 && this.#targets > 0)) return 1
    const squared = this.#weight ** 2
    return (this.#targets / predicted) ** (squared / (squared + SPEED_WEIGHT ** 2))
  }

  #predicted(c: Coefficients): number {
    return c[0] * this.#sums[0]! + c[1] * this.#sums[1]! + c[2] * this.#sums[2]!
  }

  /** Coordinate descent towards the data and, with `weight` in observations, `base`. */
  solve(base: Coefficients, weight: number): void {
    const p = this.#products
    const c = this.coefficients
    for (let sweep = 0; sweep < SWEEPS; sweep++) {
      for (let i = 0; i < FEATURES; i++) {
        const own = p[i === 0 ? 0 : i === 1 ? 3 : 5]!
        let residual = this.#sums[i]!
        for (let j = 0; j < FEATURES; j++) if (j !== i) residual -= p[PAIR[i * FEATURES + j]!]! * c[j]!
        // One pseudo-row for each coefficient says that it is that of the base, give or take as much as the larger of the two, and PRIOR_SCALE_MIN.
        const scale = Math.max(c[i]!, base[i]!, PRIOR_SCALE_MIN[i]!, Number.MIN_VALUE)
        const pull = weight / scale / scale
        c[i] = Math.max(0, (residual + pull * base[i]!) / (own + pull))
      }
    }
  }
}

/** Where the product of features i and j lies. */
const PAIR = Uint8Array.of(0, 1, 2, 1, 3, 4, 2, 4, 5)

/** The fits of one kind of step: the fleet's, and each worker's. */
export class LearnedCosts {
  readonly #fleet: Fit
  readonly #prior: Coefficients
  readonly #workers = new Map<number, Fit>()
  #fleetSolutions = 0

  constructor(prior: Coefficients) {
    this.#prior = prior
    this.#fleet = new Fit(prior)
  }

  /** Those of the worker, or of the fleet where too little of it is known to tell it from the others. */
  of(workerSlot: number): Coefficients {
    const worker = this.#worker(workerSlot)
    if (worker === undefined) return this.#fleet.coefficients
    // What it leans on has moved; else who was asked first would stay as slow as the priors.
    if (worker.rows <= 2 * SOLVE_EVERY && worker.base !== this.#fleetSolutions) this.#solve(worker)
    return worker.isApart ? worker.coefficients : this.#fleet.coefficients
  }

  #worker(workerSlot: number): Fit | undefined {
    const worker = this.#workers.get(workerSlot)
    if (worker === undefined || this.#fleet.rows - worker.seenAt <= STRANGER_ROWS * this.#workers.size)
      return worker
    this.#workers.delete(workerSlot)
    return undefined
  }

  /** A copy. */
  knowledge(workerSlot: number): CostKnowledge {
    const [a, b, c] = this.of(workerSlot)
    const worker = this.#workers.get(workerSlot)
    return {
      coefficients: [a, b, c],
      source: worker?.isApart === true ? 'worker' : this.#fleet.rows > 0 ? 'fleet' : 'prior',
      observations: worker?.rows ?? 0,
    }
  }

  /** Observations of the worker. */
  rows(workerSlot: number): number {
    return this.#worker(workerSlot)?.rows ?? 0
  }

  /** `weight`: 1 for an observation that is certain, less for one that is not. */
  observe(workerSlot: number, x0: number, x1: number, x2: number, observedMs: number, weight = 1): void {
    if (!(observedMs > 0 && observedMs < Infinity)) return
    if (!(x0 >= 0 && x1 >= 0 && x2 >= 0 && x0 + x1 + x2 > 0 && x0 + x1 + x2 < Infinity)) return
    const fleet = this.#fleet
    let worker = this.#worker(workerSlot)
    if (worker === undefined) {
      worker = new Fit(fleet.coefficients)
      this.#workers.set(workerSlot, worker)
    }
    const row: Row = { x: [x0, x1, x2], y: Math.max(OBSERVED_MS_MIN, observedMs), weight }
    fleet.add(row)
    worker.add(row)
    worker.seenAt = fleet.rows
    if (fleet.rows <= 2 * SOLVE_EVERY || fleet.rows % SOLVE_EVERY === 0) {
      fleet.solve(this.#prior, PRIOR_WEIGHT)
      this.#fleetSolutions++
    }
    if (worker.rows <= 2 * SOLVE_EVERY || worker.rows % SOLVE_EVERY === 0) this.#solve(worker)
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
  }
}

/** A coefficient of 0 has no scale: then the prior's hundredth. */
function positive(coefficients: Coefficients, prior: Coefficients): Coefficients {
  return coefficients.map((c, i) => Math.max(c, prior[i]! / 100)) as unknown as Coefficients
}

/** In ms: what a step with these features takes. */
function dot(coefficients: Coefficients, x: Coefficients): number {
  return coefficients[0] * x[0] + coefficients[1] * x[1] + coefficients[2] * x[2]
}

/** In logarithms, so that twice and half as much cancel out. */
function median(ratios: readonly number[]): number {
  const sorted = ratios.toSorted((a, b) => a - b)
  const half = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[half]! : Math.sqrt(sorted[half - 1]! * sorted[half]!)
}
