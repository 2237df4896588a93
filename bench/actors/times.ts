/**
 * Times of a death: a thread that ends and its heir write them to shared memory, which outlives both.
 * BigInt64, nanoseconds of `process.hrtime`.
 */

/** When the thread was ended. */
export const EXIT_AT = 0
/** When the next life handled its first message. */
export const HANDLED_AT = 1

export function newTimes(): BigInt64Array {
  return new BigInt64Array(new SharedArrayBuffer(2 * BigInt64Array.BYTES_PER_ELEMENT))
}
