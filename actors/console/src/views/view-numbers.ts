/** Times and estimates as the JSON for operators has them. */

export const iso = (unixMs: number): string => new Date(unixMs).toISOString()

/** To the microsecond: what is behind that is noise of the clock. */
export const milliseconds = (ms: number | undefined): number | null =>
  ms === undefined ? null : Math.round(ms * 1000) / 1000

/** To six digits, which is more than an estimate has. */
export const significant = (value: number): number => Number(value.toPrecision(6))
