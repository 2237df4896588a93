/** The real clock and real randomness: the one place in the project that touches either. */

import { randomBytes } from 'node:crypto'
import { performance } from 'node:perf_hooks'
import type { Clock, Random, Timer } from './clock.ts'

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

export const systemRandom: Random = {
  next: () => Math.random(),
  below: bound => Math.floor(Math.random() * bound),
  bytes: count => new Uint8Array(randomBytes(count)),
}
