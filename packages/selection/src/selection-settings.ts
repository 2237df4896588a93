import type { SelectionSettings } from './types.ts'

/**
 * Default settings.
 *
 * Source of the two times: an H100 with Llama-3.1-8B in BF16; 13.96 GFLOP per token at 62 % of 989 TFLOP/s, and 4 · layers · width FLOP
 * per pair of tokens at 55 %.
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

/** The defaults with what is given in their place. */
export function selectionSettings(given: Partial<SelectionSettings> = {}): SelectionSettings {
  return Object.freeze({ ...SELECTION_DEFAULTS, ...given })
}
