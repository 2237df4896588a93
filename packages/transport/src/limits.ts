/** Limits that hold for every client and server. */

/** Of the part of a request before its body, and of the head of an answer. */
export const HEADER_BYTES_MAX = 64 * 1024
export const HEADERS_MS_MAX = 60_000
/**
 * What may be on the way of a body over a broker: enough for a piece and what counts for it, and no more than
 * memory has.
 */
export const REQUEST_WINDOW_BYTES = { min: 4096, max: 2 ** 30 } as const
