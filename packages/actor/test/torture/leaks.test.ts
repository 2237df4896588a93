/** Leaks that stop at any level, and those that fill the heap: the short form of leaks-main.ts. */

import t from 'tap'
import { leaks } from './leaks.ts'

const CYCLES = 10
const BURSTS = 3
const seed = Number(process.env['HOMING_TEST_SEED'] ?? 1 + Math.floor(Math.random() * 1e6))

t.test(
  `a thread serves again after every leak, or is replaced, and everybody is told why (seed ${seed})`,
  async t => {
    // No time is judged here: the machine may be busy.
    const result = await leaks({ seed, cycles: CYCLES, bursts: BURSTS, shedForMs: 100, replaceMsMax: 30_000 })
    t.strictSame(result.violations, [])
    t.equal(result.served + result.replaced, CYCLES)
    t.strictSame(result.burstReasons, { 'watcher threadOom, asker threadOom': BURSTS })
  },
)
