/** What a placement costs, where a prompt may be computed apart (leg-costs.ts). */

import { endToEndMs } from '@homing/selection'
import { selectionRequestOf } from './known-candidates.ts'
import type { Placed } from './place.ts'

/** The cost of a placement; undefined: nothing is known of the engines' times. */
export function placedMs({ request, input, choice }: Placed): number | undefined {
  return endToEndMs(input, selectionRequestOf(request), choice, request.leg?.kind !== 'prefill')
}

/** Until `tokens` are handed over to the worker of a placement; undefined: as for `placedMs`. */
export function transferMs({ input: { engines } }: Placed, tokens: number): number | undefined {
  return engines && engines.transferMs + engines.transferTokenMs * tokens
}

/** Prompt tokens that its worker does not hold. */
export function tokensToHandOver({ request, overlapBlocks }: Placed): number {
  return Math.max(0, request.promptTokens - overlapBlocks * request.blockSizeTokens)
}
