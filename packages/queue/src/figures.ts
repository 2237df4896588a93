/** Which figures a queue takes. */

import type { QueueRequest } from './types.ts'

/** Throws RangeError for figures that no caller should have. */
export function checkFigures({ promptTokens, uncachedTokens, bytes }: QueueRequest): void {
  checkFigure('promptTokens', promptTokens)
  checkFigure('uncachedTokens', uncachedTokens)
  checkFigure('bytes', bytes)
  if (uncachedTokens > promptTokens) {
    throw new RangeError(`cannot queue a request with ${uncachedTokens} of ${promptTokens} tokens uncached`)
  }
}

function checkFigure(name: string, value: number): void {
  if (Number.isSafeInteger(value) && value >= 0) return
  throw new RangeError(`cannot queue a request with ${name} ${value}: use a whole number ≥ 0`)
}

/** Throws RangeError for what is no number above 0. */
export function positive(name: string, value: number): number {
  if (!(value > 0 && value < Number.POSITIVE_INFINITY)) {
    throw new RangeError(`cannot queue with ${name} ${value}: use a number above 0`)
  }
  return value
}
