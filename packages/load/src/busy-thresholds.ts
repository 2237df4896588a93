/**
 * Busy thresholds: the load past which a worker takes no more requests, whatever it holds of their prompts.
 *
 *   decodeBlocksFraction    active blocks      > this part of the blocks of its cache
 *   prefillTokens           prefill tokens     > this
 *   prefillFraction         prefill tokens     > this part of its token budget for a step
 *
 * A rank is busy if it is past any threshold that is set; a worker is busy if all its ranks are. A threshold
 * that cannot be computed, because the engine does not report its size, has no effect.
 *
 * Source: Dynamo's busy thresholds (`/busy_threshold`). There, the block threshold latches, because the
 * counts of router and engine differ: either count sets it, and both must clear it. To check the latest value
 * of both counts, as here, has the same effect.
 */

export interface BusyThresholds {
  /** 0 … 1. */
  readonly decodeBlocksFraction: number | undefined
  readonly prefillTokens: number | undefined
  readonly prefillFraction: number | undefined
}

/** What is known of a rank. */
export interface RankLoad {
  /** As the router counts. */
  readonly activeBlocks: number
  /** As the engine says; undefined: it does not. */
  readonly reportedBlocks?: number | undefined
  /** Undefined: not known. */
  readonly blocksMax: number | undefined
  readonly activePrefillTokens: number
  readonly stepTokens: number | undefined
}

export const NO_BUSY_THRESHOLDS: BusyThresholds = Object.freeze({
  decodeBlocksFraction: undefined,
  prefillTokens: undefined,
  prefillFraction: undefined,
})

/** Whether a threshold is set. */
export function hasThreshold({
  decodeBlocksFraction,
  prefillTokens,
  prefillFraction,
}: BusyThresholds): boolean {
  return decodeBlocksFraction !== undefined || prefillTokens !== undefined || prefillFraction !== undefined
}

/** The thresholds with those of `change` that are given. */
export function mergedThresholds(
  current: BusyThresholds,
  { decodeBlocksFraction, prefillTokens, prefillFraction }: Partial<BusyThresholds>,
): BusyThresholds {
  return {
    decodeBlocksFraction: decodeBlocksFraction ?? current.decodeBlocksFraction,
    prefillTokens: prefillTokens ?? current.prefillTokens,
    prefillFraction: prefillFraction ?? current.prefillFraction,
  }
}

/** Why a worker takes no more, by its ranks; undefined: it does. Without ranks it is not busy. */
export function whyBusy(thresholds: BusyThresholds, ranks: Iterable<RankLoad>): string | undefined {
  let why: string | undefined
  for (const rank of ranks) {
    const ofRank = whyRankBusy(thresholds, rank)
    if (ofRank === undefined) return undefined
    why ??= ofRank
  }
  return why
}

function whyRankBusy(
  { decodeBlocksFraction, prefillTokens, prefillFraction }: BusyThresholds,
  { activeBlocks, reportedBlocks, blocksMax, activePrefillTokens, stepTokens }: RankLoad,
): string | undefined {
  if (decodeBlocksFraction !== undefined && blocksMax !== undefined && blocksMax > 0) {
    const blocks = Math.max(activeBlocks, reportedBlocks ?? 0)
    if (blocks > decodeBlocksFraction * blocksMax) {
      const source = blocks > activeBlocks ? ', as its engine says' : ''
      return `${blocks} of ${blocksMax} blocks are in use${source}, of which ${decodeBlocksFraction} may be`
    }
  }
  if (prefillTokens !== undefined && activePrefillTokens > prefillTokens)
    return `${activePrefillTokens} prefill tokens are under way, of ${prefillTokens} that may be`
  if (prefillFraction === undefined || stepTokens === undefined) return undefined
  return activePrefillTokens > prefillFraction * stepTokens
    ? `${activePrefillTokens} prefill tokens are under way, of ${prefillFraction} · ${stepTokens} that may be`
    : undefined
}
