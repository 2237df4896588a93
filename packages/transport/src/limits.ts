/** Limits that hold for every client and server. */

/** Of the part of a request before its body, and of the head of an answer. */
export const HEADER_BYTES_MAX = 64 * 1024
export const HEADERS_MS_MAX = 60_000
/**
 * A body that comes in small pieces, each of them just in time, may take so many of the longest pauses in
 * all, and a second for each BODY_BYTES_PER_SECOND of it: with the default pause of a minute, ten minutes
 * and what a line of 32 kbit/s needs.
 */
export const BODY_PAUSES_MAX = 10
export const BODY_BYTES_PER_SECOND = 4096
/**
 * Requests of one connection that are not answered, the one that is being answered among them. Browsers send
 * none ahead, and tools that do send ten or some dozens.
 */
export const PIPELINED_REQUESTS_MAX = 64
/**
 * What may be on the way of a body over a broker: enough for a piece and what counts for it, and no more than
 * memory has.
 */
export const REQUEST_WINDOW_BYTES = { min: 4096, max: 2 ** 30 } as const
