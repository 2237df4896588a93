/** Leaks that stop at any level, and those that fill the heap: the short form of bench/actors/leaks.ts. */

import t from 'tap'
import { leaks, type Outcome } from './leaks.ts'

/**
 * Levels that a thread survives and levels that it does not, with any amount of garbage; other levels are
 * random.
 */
const LEVELS: readonly (readonly [number, Outcome])[] = [
  [0.52, 'served'],
  [0.98, 'replaced'],
  [0.52, 'served'],
  [0.98, 'replaced'],
]
const CYCLES = 10
const BURSTS = 3
const seed = Number(process.env['HOMING_SEED'] ?? 1)

t.test(
  `a thread serves again after every leak, or is replaced, and everybody is told why (seed ${seed})`,
  async t => {
    // No time is judged here: the machine may be busy.
    const cycles: [number, Outcome][] = []
    const result = await leaks({
      seed,
      cycles: CYCLES,
      levels: LEVELS.map(([level]) => level),
      bursts: BURSTS,
      shedForMs: 100,
      replaceMsMax: 30_000,
      onCycle: (level, became) => void cycles.push([level, became]),
    })
    t.strictSame(result.violations, [])
    t.strictSame(cycles.slice(0, LEVELS.length), LEVELS)
    t.equal(cycles.length, CYCLES)
    t.strictSame(result.burstReasons, { 'watcher threadOom, asker threadOom': BURSTS })
  },
)
