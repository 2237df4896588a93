/**
 * Common counts: how much of a bound each of several threads has taken, so that a bound holds for all of them
 * together.
 *
 *   one row a thread   | open | bodies (KiB) | views | tabs |   Int32 words in shared memory
 *
 * Protocol
 *   Each thread writes its own row only, and begins it with zeros: what an earlier life of the thread held is
 *   gone with it. A reader adds up the rows of the others. Two threads may take the last place at the same
 *   time, so the sum may pass a bound by what one request takes on each thread.
 */

export const COMMON_COUNTS = ['open', 'bodies', 'views', 'tabs'] as const
export type CommonCountName = (typeof COMMON_COUNTS)[number]

/** Of one bound: what the others have taken, and what this thread has. */
export interface CommonCount {
  readonly others: number
  set(own: number): void
}

/** For a thread that is alone. */
export const ALONE: CommonCount = { others: 0, set: () => {} }

/** The share of one thread. */
export interface CommonRow {
  /** Of `commonMemory`. */
  readonly memory: SharedArrayBuffer
  readonly index: number
}

export function commonMemory(rows: number): SharedArrayBuffer {
  return new SharedArrayBuffer(rows * COMMON_COUNTS.length * Int32Array.BYTES_PER_ELEMENT)
}

/** Begins the row with zeros; undefined: the thread is alone. `unit`: what a word counts, default 1. */
export function commonCount(row: CommonRow | undefined, name: CommonCountName, unit = 1): CommonCount {
  if (row === undefined) return ALONE
  const words = new Int32Array(row.memory)
  const width = COMMON_COUNTS.length
  const column = COMMON_COUNTS.indexOf(name)
  const own = row.index * width + column
  Atomics.store(words, own, 0)
  return {
    get others() {
      let sum = 0
      for (let at = column; at < words.length; at += width) if (at !== own) sum += Atomics.load(words, at)
      return sum * unit
    },
    set: count => void Atomics.store(words, own, Math.ceil(count / unit)),
  }
}
