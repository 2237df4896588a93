/** One worker that lies in every time that it shows moves what is learned of the others by a bound. */

import { type Random, seededRandom } from '@homing/base'
import t from 'tap'
import { type Coefficients, DECODE_PRIOR, LearnedCosts, PREFILL_PRIOR } from '../src/engine-costs.ts'
import { AUTO_CONSTANTS } from '../src/index.ts'
import { OutputLengths } from '../src/output-lengths.ts'

const { ODD_TIMES } = AUTO_CONSTANTS.steps
const { OUTPUT_APART_TIMES } = AUTO_CONSTANTS.book
const SEED = Number(process.env['HOMING_SEED'] ?? 20_261_128)
const SEEDS = 150
const OBSERVATIONS = 1500
/**
 * The bound holds once all honest workers have these observations: before, no one can say who lies, and
 * what was learned then has to fade.
 */
const HONEST_ROWS = 40
/**
 * The share rule: the liar's rows are within ODD_TIMES of the median worker's, and two fifths of the fit. The
 * rest is the error of 10 % that the times of all others have, in three coefficients.
 */
const MOVED_TIMES = 1.5 * ODD_TIMES

/** Of prompts and batches by which it is judged, as shares of the largest ones. */
const SIZES = [0.15, 0.4, 1]

/** How many times the truth the liar says; `fleetTimes`: how many times the truth the fleet's fit is. */
type Lie = (index: number, fleetTimes: number, random: Random) => number

const LIES: readonly ((times: number) => Lie)[] = [
  times => () => times,
  () => (_, __, random) => Math.exp(16 * random.next() - 8),
  times => () => (times > 1 ? 0.95 * ODD_TIMES : 1.05 / ODD_TIMES),
  times => (_, fleetTimes) => fleetTimes * (times > 1 ? 0.95 * ODD_TIMES : 1.05 / ODD_TIMES),
  times => index => ((index >> 4) % 2 === 0 ? times : 1 / times),
  times => index => (index < 60 ? 1 : times),
]

interface Kind {
  readonly prior: Coefficients
  readonly truth: Coefficients
  readonly features: (size: number) => Coefficients
}

const KINDS: readonly Kind[] = [
  {
    prior: PREFILL_PRIOR,
    truth: [4, 0.03, 1e-6],
    features: size => [1, 8000 * size, (8000 * size) ** 2 / 2],
  },
  { prior: DECODE_PRIOR, truth: [12, 0.3, 2e-5], features: size => [1, 1 + 30 * size, 60_000 * size] },
]

const timeOf = (c: Coefficients, x: Coefficients): number => c[0] * x[0] + c[1] * x[1] + c[2] * x[2]

/** The farthest that the fleet's fit is from the truth once it can be known, as a ratio. */
function farthest(seed: number): { readonly ratio: number; readonly how: string } {
  const random = seededRandom(seed)
  const { prior, truth, features } = KINDS[random.below(KINDS.length)]!
  const workers = 4 + random.below(6)
  const share = 0.1 + 0.85 * random.next()
  const times = Math.exp((random.next() < 0.5 ? 1 : -1) * (0.2 + 6 * random.next()))
  const kind = random.below(LIES.length)
  const lie = LIES[kind]!(times)
  const costs = new LearnedCosts(prior)
  // A slot that was never seen has the figures of the fleet.
  const fleetTimes = (x: Coefficients): number => timeOf(costs.of(99), x) / timeOf(truth, x)
  const rows = new Array<number>(workers).fill(0)
  let ratio = 1
  for (let i = 0; i < OBSERVATIONS; i++) {
    const slot = random.next() < share ? 0 : 1 + random.below(workers - 1)
    const x = features(0.01 + random.next())
    const error = 0.9 + 0.2 * random.next()
    const told = slot === 0 ? lie(rows[0]!, fleetTimes(x), random) : 1
    costs.observe(slot, ...x, error * told * timeOf(truth, x))
    rows[slot]!++
    if (rows.some((count, at) => at > 0 && count < HONEST_ROWS)) continue
    for (const size of SIZES) {
      const now = fleetTimes(features(size))
      if (Math.abs(Math.log(now)) > Math.abs(Math.log(ratio))) ratio = now
    }
  }
  return { ratio, how: `lie ${kind} of ${times}, share ${share} of ${workers} workers` }
}

t.test(
  `a liar of four workers or more moves the fleet by ${MOVED_TIMES} at most, whatever it says`,
  async t => {
    for (let seed = SEED; seed < SEED + SEEDS; seed++) {
      const { ratio, how } = farthest(seed)
      if (ratio > MOVED_TIMES || ratio < 1 / MOVED_TIMES) t.fail(`HOMING_SEED=${seed}: ${ratio}; ${how}`)
    }
  },
)

t.test('a liar moves the expected length of answers by a stated factor at most', async t => {
  for (let seed = SEED; seed < SEED + SEEDS; seed++) {
    const random = seededRandom(seed)
    const workers = 4 + random.below(6)
    const share = 0.1 + 0.85 * random.next()
    const outputs = new OutputLengths()
    for (let i = 0; i < OBSERVATIONS; i++) {
      const slot = random.next() < share ? 0 : 1 + random.below(workers - 1)
      outputs.ended(slot, slot === 0 ? Math.ceil(Math.exp(14 * random.next())) : 150 + random.below(100))
      const ratio = outputs.meanTokens / 200
      // Weights are bounded too, so the liar's mean does not count whole.
      if (i >= OBSERVATIONS / 4 && (ratio > OUTPUT_APART_TIMES / 1.4 || ratio < 1.4 / OUTPUT_APART_TIMES))
        t.fail(`HOMING_SEED=${seed}: ${ratio} with ${share} of ${workers} workers`)
    }
  }
})
