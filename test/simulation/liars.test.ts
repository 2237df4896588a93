/**
 * Liars: engines and clients that lie in every number that a router reads of them. Honest requests take
 * hardly longer than without liars (P99_RATIO_MAX, over the seeds), none is lost, and no engine loses its
 * trust by a client's word.
 *
 * A lie is a false number or a failure of an engine that serves as fast as the others (lies.ts). "Without" is
 * the same seed where all tell the truth; for liars that take themselves out of the fleet (by failing, or by
 * saying that they hold or take nothing) it is the same seed without their engines, if that takes longer.
 *
 * HOMING_SEED sets the first seed, HOMING_LIARS_SEEDS how many follow it, HOMING_LIARS_ONLY the lies that
 * count (names of lies.ts, with commas): 2,000 seeds take some six minutes. A seed that is worse is played
 * again with each of its lies alone, which tells the one that does it.
 */

import process from 'node:process'
import t from 'tap'
import { type LiarsResult, RATIO_MAX, runLiars } from './liars-world.ts'
import { LIE_NAMES } from './lies.ts'

const FIRST = Number(process.env['HOMING_SEED'] ?? 1)
const SEEDS = Number(process.env['HOMING_LIARS_SEEDS'] ?? 40)
const ONLY = process.env['HOMING_LIARS_ONLY']?.split(',')
/** Of the worst seed of all: in one of some hundreds two lies of one engine add up. */
const WORST_RATIO_MAX = 1.5
/** Seeds beyond RATIO_MAX are told; nearly all have an engine whose first tokens come at once. */
const P99_RATIO_MAX = 1.15
const SECONDS_MAX = 3600

t.setTimeout(SECONDS_MAX * 1000)

t.test('whatever liars say, honest requests are served about as soon', async t => {
  t.setTimeout(SECONDS_MAX * 1000)
  t.comment(`HOMING_SEED=${FIRST} HOMING_LIARS_SEEDS=${SEEDS}`)
  const results = Array.from({ length: SEEDS }, (_, i) => ({
    seed: FIRST + i,
    result: runLiars(FIRST + i, ONLY),
  }))
  for (const { seed, result } of results) {
    const { text, lies, ratio, withLies } = result
    if (ratio > RATIO_MAX) t.comment(`seed ${seed}: ${ratio.toFixed(3)}, ${text}: ${blame(seed, result)}`)
    if (withLies.unserved > 0) t.fail(`seed ${seed}: ${withLies.unserved} are not served: ${lies.join('; ')}`)
    for (const reason of withLies.contradicted)
      t.fail(`seed ${seed}: honest engine ${reason} (${lies.join('; ')})`)
  }
  const ratios = results.map(({ result }) => result.ratio).toSorted((a, b) => a - b)
  const mean = ratios.reduce((sum, ratio) => sum + ratio, 0) / SEEDS
  const p99 = ratios[Math.ceil(0.99 * SEEDS) - 1]!
  const worst = ratios.at(-1)!
  t.comment(`mean ${mean.toFixed(4)}, p99 ${p99.toFixed(3)}, max ${worst.toFixed(3)} of ${SEEDS} seeds`)
  const told = results.filter(({ result }) => result.truthRatio > RATIO_MAX).length
  t.comment(`${told} seeds are slower than with the truth, by more than ${RATIO_MAX}`)
  t.ok(p99 <= P99_RATIO_MAX, `p99 ${p99}`)
  t.ok(worst <= WORST_RATIO_MAX, `worst ${worst}`)
  const drawn = new Set(results.flatMap(({ result }) => result.lies.map(nameOf)))
  if (SEEDS >= 40 && ONLY === undefined)
    t.strictSame(
      LIE_NAMES.filter(name => !drawn.has(name)),
      [],
      'every lie is told in some seed',
    )
})

/** The ratios with each lie of the seed alone. */
function blame(seed: number, { lies }: LiarsResult): string {
  return [...new Set(lies.map(nameOf))]
    .map(name => `${name} ${runLiars(seed, [name]).ratio.toFixed(2)}`)
    .join(', ')
}

/** 'worker 0: KV blocks [512]' is 'KV blocks'. */
function nameOf(lie: string): string {
  return lie.replace(/^[^:]*: /, '').replace(/ [[].*/, '')
}
