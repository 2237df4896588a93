/**
 * Orders: which of the waiting requests of one tenant goes next. Smaller keys go first; equal keys go by
 * arrival.
 *
 *   fcfs             arrival − priority jump
 *   lcfs             −(arrival + priority jump): newest first; under overload it starves the oldest
 *   wspt             −(1 + priority jump) / uncached tokens: Smith's rule
 *   wspt-total       the same, by all tokens of the prompt
 *   response-ratio   (wait + priority jump) / uncached tokens, the largest first
 *
 * Aging. A request that has waited `agingMs` goes before all that have not, in order of arrival. So under
 * every order but lcfs, once it is that old, only requests that came before it go first: it waits at most
 * `agingMs` and the time for those.
 *
 * Response ratio without re-sorting: the ratio changes with time, the order of two requests of equal work
 * does not. So requests lie in bands of work, two for each doubling, oldest first, and a release compares the
 * heads of the bands only. The head that wins has waited at least as long as any other of its band, and has
 * at most √2 times its work: its ratio is at least 1/√2 of the largest.
 *
 * Source: priority jump as in Dynamo's queue (seconds of head start); highest response ratio next (Hansen
 * 1971).
 */

export const QUEUE_ORDERS = ['fcfs', 'lcfs', 'wspt', 'wspt-total', 'response-ratio'] as const
export type QueueOrder = (typeof QUEUE_ORDERS)[number]

/** What an order looks at. */
export interface Ordered {
  readonly arrivedMs: number
  readonly jumpMs: number
  readonly promptTokens: number
  /** Uncached tokens, at least 1. */
  readonly costTokens: number
  /** 0 once it has aged, else 1. */
  rank: number
  key: number
  /** In order of `admit`; different for every request. */
  readonly sequence: number
}

/** Its key while it has not aged. */
export function orderKey(order: QueueOrder, request: Ordered): number {
  const { arrivedMs, jumpMs } = request
  switch (order) {
    case 'lcfs':
      return -(arrivedMs + jumpMs)
    case 'wspt':
      return -(1 + jumpMs / 1000) / request.costTokens
    case 'wspt-total':
      return -(1 + jumpMs / 1000) / Math.max(1, request.promptTokens)
    default:
      return arrivedMs - jumpMs
  }
}

/** Which band of work it belongs to; all in one for orders whose keys do not change with time. */
export function workBand(order: QueueOrder, costTokens: number): number {
  return order === 'response-ratio' ? Math.floor(2 * Math.log2(costTokens)) : 0
}

/** Order within a band; it does not change with time. */
export function isBefore(a: Ordered, b: Ordered): boolean {
  if (a.rank !== b.rank) return a.rank < b.rank
  if (a.key !== b.key) return a.key < b.key
  return a.sequence < b.sequence
}

/** Order between the heads of bands, now. */
export function goesFirst(order: QueueOrder, a: Ordered, b: Ordered, nowMs: number): boolean {
  if (order !== 'response-ratio' || a.rank === 0 || b.rank === 0) return isBefore(a, b)
  const ofA = (nowMs - a.key) * b.costTokens
  const ofB = (nowMs - b.key) * a.costTokens
  return ofA === ofB ? a.sequence < b.sequence : ofA > ofB
}
