/** The real clock and real randomness: the one place in the project that touches either. */

import { randomBytes } from 'node:crypto'
import { performance } from 'node:perf_hooks'
import type { Clock, Random, Timer } from './clock.ts'
import { seededRandom } from './seeded-random.ts'

/** The global of that name is a getter, at every look. */
const clock = performance

/** setTimeout takes at most 2^31 − 1 ms; a longer wait fires early there, so it is cut here. */
const DELAY_MS_MAX = 2_147_483_647

export const systemClock: Clock = {
  nowMs: () => clock.now(),
  afterBurst: callback => queueMicrotask(callback),
  wallMs: () => Date.now(),
  after(delayMs, callback, options): Timer {
    const handle = setTimeout(callback, Math.min(delayMs, DELAY_MS_MAX))
    if (options?.unref === true) handle.unref()
    return { cancel: () => clearTimeout(handle) }
  },
}

/** Bytes are drawn from the system this many at a time: a call costs as much as a kilobyte of them. */
const POOL_BYTES = 4096

let pool = new Uint8Array(0)

export const systemRandom: Random = {
  next: () => Math.random(),
  below: bound => Math.floor(Math.random() * bound),
  bytes(count) {
    if (count > POOL_BYTES) return new Uint8Array(randomBytes(count))
    if (count > pool.length) pool = new Uint8Array(randomBytes(POOL_BYTES))
    const bytes = pool.slice(0, count)
    pool = pool.subarray(count)
    return bytes
  },
}

/**
 * For a process whose choices are to repeat: numbers follow `seed`, an integer, taken modulo 2^32. Names and
 * ids are drawn from the system all the same, or two processes with one seed, or two lives of one, would
 * take each other's requests for their own.
 */
export function choicesOf(seed: number): Random {
  return { ...seededRandom(seed), bytes: systemRandom.bytes }
}
