import type { CustomPolicy } from './custom-selection.ts'
import type { PolicyName } from './policy.ts'
import type { RouterMode } from './types.ts'

/** Settings of selection. `selectionSettings` fills in the defaults. */
export interface SelectionSettings {
  readonly mode: RouterMode
  /** The policy whose costs mode kv compares; other modes only show them. */
  readonly policy: PolicyName
  /** Replaces `policy`. */
  readonly custom?: CustomPolicy | undefined
  /** linear: weight of prefill blocks against decode blocks, ≥ 0. 0: no policy credits what is cached. */
  readonly overlapWeight: number
  /** Weight of a cached block on the device, ≥ 0. Above 1 it also reduces queued prefill. */
  readonly overlapCredit: number
  /**
   * How fast that credit falls with prefill queued beyond the least of all candidates, ≥ 0. 0: not at all.
   */
  readonly creditDecay: number
  /** linear: blocks that each active request of a worker costs, ≥ 0. */
  readonly activeRequestWeight: number
  /** est-ttft: milliseconds that an engine computes for each token of a prompt, ≥ 0. */
  readonly prefillMsPerToken: number
  /** est-ttft: further milliseconds for a million pairs of a new token and a token before it, ≥ 0. */
  readonly attentionMsPerMillionPairs: number
  /** 0: the cheapest wins. Above: softmax over costs normalised by their range. */
  readonly temperature: number
}

/**
 * Default settings.
 *
 * Source of the two times: an H100 with Llama-3.1-8B in BF16; 13.96 GFLOP per token at 62 % of 989 TFLOP/s,
 * and 4 · layers · width FLOP per pair of tokens at 55 %.
 */
export const SELECTION_DEFAULTS: SelectionSettings = Object.freeze({
  mode: 'kv',
  policy: 'linear',
  overlapWeight: 1,
  overlapCredit: 1,
  creditDecay: 0,
  activeRequestWeight: 0,
  prefillMsPerToken: 0.023,
  attentionMsPerMillionPairs: 0.96,
  temperature: 0,
})

/** The defaults, overridden by `given`. */
export function selectionSettings(given: Partial<SelectionSettings> = {}): SelectionSettings {
  return Object.freeze({ ...SELECTION_DEFAULTS, ...given })
}
