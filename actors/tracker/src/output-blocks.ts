/**
 * Output blocks: what running requests have generated, as blocks in use.
 *
 * A request has one output block for each block that its answer has begun after its prompt. If the expected
 * length of the answer is known, the blocks fade: each counts 1 − generated ÷ expected, because a request
 * near its end soon frees them. The blocks of its prompt do not: they are in use until it has ended.
 *
 * Source: Dynamo's `--router-track-output-blocks`, as its guide says; its code fades prompts, too.
 */

import type { ActiveLoad } from '@homing/load'
import type { Booking } from './messages.ts'

interface Output {
  readonly promptTokens: number
  readonly blockSizeTokens: number
  readonly expectedTokens: number | undefined
  /** Blocks of the output that count. */
  weight: number
}

export class OutputBlocks {
  readonly #load: ActiveLoad
  /** By decision id; at most as many as the load has bookings. */
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
      weight: 0,
    })
  }

  /** The request has generated `tokens` so far. 'less': its blocks count less than before. */
  grew(decisionId: string, tokens: number): 'less' | undefined {
    const output = this.#byId.get(decisionId)
    if (output === undefined) return undefined
    const { promptTokens, blockSizeTokens, expectedTokens } = output
    const promptBlocks = Math.ceil(promptTokens / blockSizeTokens)
    const blocks = Math.ceil((promptTokens + tokens) / blockSizeTokens) - promptBlocks
    const fraction = expectedTokens === undefined ? 1 : Math.max(0, 1 - tokens / Math.max(1, expectedTokens))
    this.#load.setOutputBlocks(decisionId, blocks, fraction)
    const before = output.weight
    output.weight = blocks * fraction
    return output.weight < before ? 'less' : undefined
  }

  ended(decisionId: string): void {
    this.#byId.delete(decisionId)
  }
}
