/**
 * The reference values on conversation and toolagent_like at speeds 2 and 3: means within 10 %, hit rate
 * within 2 points.
 *
 * Routers read their own books, as the product does. The policies of the reference read what the engines have
 * still to compute: with the same knowledge, the cells of synthetic are inside, too. `pnpm exec node
 * packages/simulate/scripts/reference-table.ts` prints all cells.
 */

import t, { type Test } from 'tap'
import {
  deviation,
  figuresOf,
  REFERENCE_CELLS,
  type ReferenceCell,
  simulateReference,
  WITHOUT_TRACES,
} from './reference-values.ts'

const MEAN_PERCENT = 10
const HIT_POINTS = 2

async function check(t: Test, cell: ReferenceCell, isOracle: boolean): Promise<void> {
  const figures = figuresOf(await simulateReference(cell, isOracle))
  const { ttft, itl, hit } = deviation(figures, cell.figures)
  const said = `${cell.label} ${cell.trace} × ${cell.speed}: ${figures.map(figure => figure.toFixed(2)).join(' / ')}`
  t.ok(Math.abs(ttft) <= MEAN_PERCENT, `${said}: mean TTFT off by ${ttft.toFixed(1)} %`)
  t.ok(Math.abs(itl) <= MEAN_PERCENT, `${said}: mean ITL off by ${itl.toFixed(1)} %`)
  t.ok(Math.abs(hit) <= HIT_POINTS, `${said}: hit rate off by ${hit.toFixed(1)} points`)
}

const heavy = REFERENCE_CELLS.filter(({ speed }) => speed === 2 || speed === 3)

for (const trace of ['conversation', 'toolagent_like'] as const) {
  for (const speed of [2, 3]) {
    t.test(`${trace} × ${speed} is within tolerance`, { skip: WITHOUT_TRACES }, async t => {
      const cells = heavy.filter(
        cell => cell.trace === trace && cell.speed === speed && cell.label !== 'threshold',
      )
      t.equal(cells.length, trace === 'conversation' ? 7 : 5)
      for (const cell of cells) await check(t, cell, false)
    })
  }
}

t.test('synthetic is, with the true queues of the engines', { skip: WITHOUT_TRACES }, async t => {
  const cells = heavy.filter(
    ({ trace, speed, label }) => trace === 'synthetic' && (speed === 2 || label === 'kv-cost'),
  )
  t.equal(cells.length, 6)
  for (const cell of cells) await check(t, cell, true)
})

t.test(
  'threshold that falls back on the fewest requests reuses as much as the reference, which does not, and queues more',
  { skip: WITHOUT_TRACES },
  async t => {
    for (const cell of heavy.filter(({ label }) => label === 'threshold')) {
      const { ttft, itl, hit } = deviation(figuresOf(await simulateReference(cell, false)), cell.figures)
      t.ok(Math.abs(hit) <= HIT_POINTS, `hit rate off by ${hit.toFixed(1)} points`)
      t.ok(Math.abs(itl) <= MEAN_PERCENT, `mean ITL off by ${itl.toFixed(1)} %`)
      t.ok(ttft > MEAN_PERCENT, `mean TTFT off by ${ttft.toFixed(1)} %`)
    }
  },
)
