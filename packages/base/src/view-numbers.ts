/** Times and estimates as the JSON for operators has them. */

export const iso = (unixMs: number): string => new Date(unixMs).toISOString()

/** Rounded to microseconds: smaller parts are noise of the clock. */
export const milliseconds = (ms: number | undefined): number | null =>
  ms === undefined ? null : Math.round(ms * 1000) / 1000

/** Rounded to six digits, more than the precision of an estimate. */
export const significant = (value: number): number => Number(value.toPrecision(6))
