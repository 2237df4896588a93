/** Limits on the part of a request before its body: bytes and milliseconds. */

export const HEADER_BYTES_MAX = 64 * 1024
export const HEADERS_MS_MAX = 60_000
