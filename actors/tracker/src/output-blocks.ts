/**
 * Output blocks: what running requests have generated, as blocks in use.
 *
 * A request has one for each block that its answer has begun beyond its prompt. Where it says how long its
 * answer will be, they fade: each counts 1 − generated ÷ expected, because a request near its end soon gives
 * all of them back. So do the blocks of its prompt that no other request on its worker has.
 *
 * Source: Dynamo's `--router-track-output-blocks`.
 */

import type { ActiveLoad } from '@homing/load'
import type { Booking } from './messages.ts'

interface Output {
  readonly promptTokens: number
  readonly blockSizeTokens: number
  readonly expectedTokens: number | undefined
  /** What of its prompt and its output counts, were its prompt its own. */
  weight: number
}

export class OutputBlocks {
  readonly #load: ActiveLoad
  /** By booking; as many as the load has. */
  readonly #byId = new Map<string, Output>()

  constructor(load: ActiveLoad) {
    this.#load = load
  }

  booked({ decisionId, promptTokens, blockSizeTokens, expectedOutputTokens, isStream }: Booking): void {
    if (!isStream || blockSizeTokens === undefined || !(blockSizeTokens > 0)) return
    this.#byId.set(decisionId, {
      promptTokens,
      blockSizeTokens,
      expectedTokens: expectedOutputTokens,
      weight: Math.ceil(promptTokens / blockSizeTokens),
    })
  }

  /** It has generated so many tokens by now. 'less': its blocks count less than before. */
  grew(decisionId: string, tokens: number): 'less' | undefined {
    const output = this.#byId.get(decisionId)
    if (output === undefined) return undefined
    const { promptTokens, blockSizeTokens, expectedTokens } = output
    const promptBlocks = Math.ceil(promptTokens / blockSizeTokens)
    const blocks = Math.ceil((promptTokens + tokens) / blockSizeTokens) - promptBlocks
    const fraction = expectedTokens === undefined ? 1 : Math.max(0, 1 - tokens / Math.max(1, expectedTokens))
    this.#load.setOutputBlocks(decisionId, blocks, fraction)
    const before = output.weight
    output.weight = (promptBlocks + blocks) * fraction
    return output.weight < before ? 'less' : undefined
  }

  ended(decisionId: string): void {
    this.#byId.delete(decisionId)
  }
}
