/** Queue times: how long what waits may wait, and how often it is looked at. */

/**
 * How often a queue looks again while something waits: estimates of load fall with time, too, and nobody
 * tells.
 */
export const QUEUE_LOOK_MS = 100
/** Requests that have waited this long go first, where nobody says otherwise. */
export const AGING_MS_DEFAULT = 60_000
/** Longest wait, where nobody says otherwise. */
export const WAIT_MS_MAX_DEFAULT = 300_000
