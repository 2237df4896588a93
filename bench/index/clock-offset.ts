/** One clock for all threads: `performance.now()` of each begins when the thread does. */

const TRIES = 32

/** What to add to `performance.now()` of this thread to have milliseconds of the machine's steady clock. */
export function clockOffsetMs(): number {
  let best = Number.POSITIVE_INFINITY
  let offset = 0
  for (let i = 0; i < TRIES; i++) {
    const before = performance.now()
    const steady = Number(process.hrtime.bigint()) / 1e6
    const after = performance.now()
    if (after - before >= best) continue
    best = after - before
    offset = steady - (before + after) / 2
  }
  return offset
}
