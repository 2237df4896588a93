/**
 * Prints every reference cell beside ours, as a Markdown table: `pnpm exec node
 * packages/simulate/scripts/reference-table.ts`.
 */

import process from 'node:process'
import {
  type CellFigures,
  deviation,
  figuresOf,
  REFERENCE_CELLS,
  simulateReference,
  WITHOUT_TRACES,
} from '../test/reference-values.ts'

if (WITHOUT_TRACES !== false) {
  process.stderr.write(`cannot print the table: ${WITHOUT_TRACES}\n`)
  process.exit(1)
}

const DIGITS = [2, 1, 0, 1, 0] as const

function text(figures: CellFigures): string {
  return figures.map((figure, i) => figure.toFixed(DIGITS[i])).join(' / ')
}

function signed(value: number, digits: number): string {
  return (value < 0 ? '' : '+') + value.toFixed(digits)
}

process.stdout.write(
  '| trace | policy | reference | own books | TTFT %, ITL %, hit points | true queues | TTFT %, ITL %, hit points |\n' +
    '|---|---|---|---|---|---|---|\n',
)
for (const cell of REFERENCE_CELLS) {
  const columns: string[] = []
  for (const isOracle of [false, true]) {
    const figures = figuresOf(await simulateReference(cell, isOracle))
    const { ttft, itl, hit } = deviation(figures, cell.figures)
    columns.push(text(figures), `${signed(ttft, 0)}, ${signed(itl, 0)}, ${signed(hit, 1)}`)
  }
  const row = [`${cell.trace} × ${cell.speed}`, cell.label, text(cell.figures), ...columns]
  process.stdout.write(`| ${row.join(' | ')} |\n`)
}
