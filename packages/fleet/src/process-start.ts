/** Whether two process start times that an engine reports, in Unix seconds, belong to two processes. */

/** One process reports the same time each time, but some compute it from a clock that may be adjusted. */
const TOLERANCE_SECONDS = 1

/** Undefined is not known: it differs from nothing. */
export function isOtherProcessStart(one: number | undefined, other: number | undefined): boolean {
  return one !== undefined && other !== undefined && Math.abs(one - other) > TOLERANCE_SECONDS
}
