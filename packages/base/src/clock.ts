/**
 * Clock and Random: the only doors to time and randomness. Everything that waits or rolls dice takes
 * one of these as an argument, so that a simulation can own both.
 */

/** Milliseconds, or text such as '50ms', '2s', '5m'. */
export type Duration = number | `${number}ms` | `${number}s` | `${number}m`

/** A pending timer; `cancel` is idempotent and safe after the timer fired. */
export interface Timer {
  cancel(): void
}

export interface Clock {
  /** Milliseconds since an arbitrary origin, never going back; fractions allowed. */
  nowMs(): number
  /**
   * Calls `callback` when the microtasks that are planned now have run. Absent where no time passes
   * meanwhile: there a look at the clock costs nothing, and need not be put off.
   */
  afterBurst?(callback: () => void): void
  /** Milliseconds since 1970-01-01T00:00Z. May jump; only for people and for wire formats. */
  wallMs(): number
  /**
   * Calls `callback` once after `delayMs` (≥ 0). A pending timer keeps the process alive unless `unref` is
   * set.
   */
  after(delayMs: number, callback: () => void, options?: { readonly unref?: boolean }): Timer
}

export interface Random {
  /** Uniform in [0, 1). */
  next(): number
  /** Uniform integer in [0, bound); `bound` ≥ 1. */
  below(bound: number): number
  /** `count` uniform bytes, for names and ids: in a process they never repeat, whatever seed it was given. */
  bytes(count: number): Uint8Array
}

/** Duration in milliseconds. Throws RangeError for anything that is not a finite duration ≥ 0. */
export function durationMs(duration: Duration): number {
  const ms =
    typeof duration === 'number' ? duration : typeof duration === 'string' ? parseText(duration) : Number.NaN
  if (!Number.isFinite(ms) || ms < 0) {
    // JSON has no word for numbers that are none.
    const given = typeof duration === 'number' ? String(duration) : JSON.stringify(duration)
    throw new RangeError(`cannot use ${given} as a duration: use milliseconds or '50ms', '2s', '5m'`)
  }
  return ms
}

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000 }

function parseText(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m)$/.exec(text)
  return match === null ? Number.NaN : Number(match[1]) * UNIT_MS[match[2]!]!
}
