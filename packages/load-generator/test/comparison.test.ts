/**
 * What a comparison says of fleets whose figures are drawn from known distributions: how often it finds a
 * difference where there is none, and where there is one. Seeds are fixed: chance has no part in it.
 */

import { type Random, seededRandom } from '@homing/base'
import t from 'tap'
import { type ComparedFigure, compareFigure, FIGURES } from '../src/index.ts'

const TOGETHER = 12
const BLOCKS = 10
const RUNS = 4000

type Draw = (random: Random) => number

function normal(random: Random): number {
  return Math.sqrt(-2 * Math.log(1 - random.next())) * Math.cos(2 * Math.PI * random.next())
}

const DRAWS: Readonly<Record<string, Draw>> = {
  normal: random => 100 + 10 * normal(random),
  exponential: random => -100 * Math.log(1 - random.next()),
  'long tail': random => 100 * Math.exp(normal(random)),
  'mostly equal': random => (random.next() < 0.7 ? 100 : 200),
}

/** Pairs have a part in common, as blocks of the same requests have. */
function pairsOf(random: Random, draw: Draw, shift: number): (readonly [number, number])[] {
  return Array.from({ length: BLOCKS }, () => {
    const common = 50 * normal(random)
    return [draw(random) + common + shift, draw(random) + common] as const
  })
}

function compared(random: Random, draw: Draw, shift = 0, together = TOGETHER): ComparedFigure {
  return compareFigure(FIGURES[0]!, pairsOf(random, draw, shift), together)
}

for (const [name, draw] of Object.entries(DRAWS)) {
  t.test(`equal fleets, ${name}: all figures together differ in one of twenty runs at most`, async t => {
    const random = seededRandom(11)
    let found = 0
    for (let run = 0; run < RUNS; run++) {
      // Independent figures are the worst case: related ones err together.
      const rows = Array.from({ length: TOGETHER }, () => compared(random, draw))
      if (rows.some(({ verdict }) => verdict !== 'no difference')) found++
    }
    // 0.05, and what 4,000 runs may be above it: 3 · √(0.05 · 0.95 ÷ 4000).
    t.ok(found / RUNS <= 0.06, `${found} of ${RUNS}`)
  })
}

t.test('an interval alone covers the true difference in 95 of 100 runs', async t => {
  const random = seededRandom(12)
  const SHIFT = 7
  let covered = 0
  for (let run = 0; run < RUNS; run++) {
    const { difference, halfWidth } = compared(random, DRAWS['normal']!, SHIFT, 1)
    if (Math.abs(difference - SHIFT) <= halfWidth!) covered++
  }
  t.ok(covered / RUNS >= 0.94 && covered / RUNS <= 0.96, `${covered} of ${RUNS}`)
})

t.test('a difference of three times the noise of a block is found, with its direction', async t => {
  const random = seededRandom(13)
  let better = 0
  let worse = 0
  for (let run = 0; run < 1000; run++) {
    if (compared(random, DRAWS['normal']!, -30).verdict === 'better') better++
    if (compared(random, DRAWS['normal']!, 30).verdict === 'worse') worse++
  }
  t.ok(better >= 950, `${better} of 1000`)
  t.ok(worse >= 950, `${worse} of 1000`)
})

t.test('more is better where more is better', async t => {
  const cached = FIGURES.find(({ key }) => key === 'cached_share')!
  const pairs = [
    [80, 10],
    [81, 11],
    [79, 9],
    [80, 10],
  ] as const
  t.equal(compareFigure(cached, pairs, 1).verdict, 'better')
  t.equal(compareFigure(FIGURES[0]!, pairs, 1).verdict, 'worse')
})

t.test(
  'equal values have no difference, whatever their sums round to, and two pairs say nothing',
  async t => {
    const values = [0.1, 0.2, 0.3, 0.7, 1.1]
    const equal = compareFigure(
      FIGURES[0]!,
      values.map(value => [value, value] as const),
      TOGETHER,
    )
    t.equal(equal.verdict, 'no difference')
    const rounded = compareFigure(
      FIGURES[0]!,
      values.map(v => [v + 0.1 - 0.1, v] as const),
      TOGETHER,
    )
    t.equal(rounded.verdict, 'no difference')
    const two = compareFigure(FIGURES[0]!, [[1, 5], [1, 5]], TOGETHER) // biome-ignore format: short
    t.strictSame([two.verdict, two.halfWidth], ['unknown', undefined])
  },
)
