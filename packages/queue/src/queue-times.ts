/** Queue times: how long what waits may wait, and how often it is looked at. */

/**
 * How often a queue looks again while requests wait: estimates of load also fall with time, without a
 * message.
 */
export const QUEUE_LOOK_MS = 100
/** Default time after which a waiting request goes first. */
export const AGING_MS_DEFAULT = 60_000
/** Default for the longest wait. */
export const WAIT_MS_MAX_DEFAULT = 300_000
