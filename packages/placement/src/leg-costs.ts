/**
 * Leg costs: whether a prompt is better computed apart, by a prefill worker that hands it over, or at the
 * worker that answers (docs/decisions/0047-when-legs-pay.md).
 */

/** What the best placement costs in each way, in ms as `endToEndMs` has them. */
export interface LegCosts {
  readonly wholeMs: number
  readonly prefillMs: number
  readonly decodeMs: number
  /** Until the blocks of the prompt are at the decode worker, as learned. */
  readonly transferMs: number
}

export function goesApart({ wholeMs, prefillMs, decodeMs, transferMs }: LegCosts): boolean {
  return prefillMs + transferMs + decodeMs < wholeMs
}
