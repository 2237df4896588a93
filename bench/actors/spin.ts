/** Spin: a thread is busy with arithmetic, in pieces that can be counted. Nothing is allocated, nothing shared. */

import process from 'node:process'

/** Steps of a piece: some 20 µs. */
const PIECE_STEPS = 20_000
// A linear congruential generator modulo 2^32 (Numerical Recipes): no step can be left out.
const FACTOR = 1_664_525
const SUMMAND = 1_013_904_223

export interface Spun {
  readonly pieces: number
  /** Where the arithmetic got to: it is looked at, so it has to be done. */
  readonly state: number
  readonly ms: number
  /** CPU time that the thread had meanwhile. */
  readonly cpuMs: number
}

/** Is busy until `isOver`, looked at after each piece. */
export function spin(isOver: () => boolean): Spun {
  const before = process.threadCpuUsage()
  const fromMs = performance.now()
  let state = 1
  let pieces = 0
  do {
    for (let i = 0; i < PIECE_STEPS; i++) state = (Math.imul(state, FACTOR) + SUMMAND) | 0
    pieces++
  } while (!isOver())
  const ms = performance.now() - fromMs
  const { user, system } = process.threadCpuUsage(before)
  return { pieces, state, ms, cpuMs: (user + system) / 1000 }
}

/** Is busy for so long. */
export function spinFor(ms: number): Spun {
  const fromMs = performance.now()
  return spin(() => performance.now() - fromMs >= ms)
}
