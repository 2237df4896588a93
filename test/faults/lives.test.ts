/**
 * Random histories of the lives of an engine: whatever the engine does, `exact` does not lie, and sources
 * heal.
 *
 * HOMING_LIVES_COUNT sets how many (100; `.ci/run` takes 1,000), HOMING_LIVES_FROM the first seed. With
 * HOMING_LIVES_REAL=1 some run over real sockets. `pnpm exec node test/faults/lives.ts --seed N --shrink`
 * shows one.
 */

import process from 'node:process'
import t from 'tap'
import { type LivesSum, runLives, runRealLives } from './life-fleet.ts'
import { NOT_YET } from './life-script.ts'

const COUNT = Number(process.env['HOMING_LIVES_COUNT'] ?? 100)
/** They are in real time: only where no other work delays them. */
const REAL_COUNT = process.env['HOMING_LIVES_REAL'] === '1' ? Math.ceil(COUNT / 20) : 0
const FROM = Number(process.env['HOMING_LIVES_FROM'] ?? 1)
/** Two cores that do nothing else take a third of that. Where others do something, fewer are run. */
const BUDGET_MS = 90_000
const LEAST_PART = 0.05
/** They mostly wait. */
const REAL_WIDTH = 20

function check(t: Tap.Test, sum: LivesSum, count: number): void {
  const { violations, histories, exactLooks, unobservable } = sum
  t.comment(`${histories} of ${count} histories, ${exactLooks} looks at what was exact`)
  for (const [why, of] of Object.entries(unobservable)) t.comment(`unobservable: ${of} (${why})`)
  t.ok(histories >= count * LEAST_PART, `at least ${count * LEAST_PART} were run`)
  for (const { seed, violation } of violations) t.fail(`seed ${seed}: ${violation.rule}: ${violation.text}`)
}

t.test(
  'in no life of an engine is anything credited as exact that could be known to be gone',
  {
    timeout: 600_000,
  },
  async t => {
    const options = { from: FROM, left: NOT_YET, budgetMs: BUDGET_MS }
    const simulated = runLives({ ...options, count: COUNT - REAL_COUNT })
    const real =
      REAL_COUNT === 0
        ? undefined
        : runRealLives({ ...options, from: FROM + COUNT, count: REAL_COUNT, width: REAL_WIDTH })
    const sum = await simulated
    check(t, sum, COUNT - REAL_COUNT)
    t.ok(sum.exactLooks > 50 * sum.histories, `${sum.exactLooks} looks at what was exact`)
    t.ok(sum.exactRests > 0.3 * sum.rests, `${sum.exactRests} of ${sum.rests} claims are exact at rest`)
    if (real !== undefined) check(t, await real, REAL_COUNT)
  },
)

declare namespace Tap {
  interface Test {
    comment(text: string): void
    ok(value: boolean, title: string): void
    fail(title: string): void
  }
}
