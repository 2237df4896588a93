/** Units of durations and sizes, for the bounds of settings. */

export const SECOND_MS = 1000
export const MINUTE_MS = 60_000
export const HOUR_MS = 3_600_000
export const KIB = 2 ** 10
export const MIB = 2 ** 20
export const GIB = 2 ** 30
