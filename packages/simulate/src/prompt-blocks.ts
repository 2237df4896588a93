/**
 * Prompt blocks: ids of the full blocks of a prompt. Id h of the trace at block size b is blocks
 * h · (512 / b) + 0, 1, 2, …
 */

import { TRACE_BLOCK_TOKENS, type TraceRequest } from '@homing/trace'
import type { CellSpec } from './cell-types.ts'
import { SimulationError } from './simulation-error.ts'

export class PromptBlocks {
  readonly #perId: number
  /** Ids are multiplied: they must stay below 2^53. */
  readonly #isMultiplied: boolean
  readonly #hasAnswers: boolean

  constructor({ traceBlockTokens = TRACE_BLOCK_TOKENS, blockTokens, copies, stretch }: CellSpec) {
    this.#perId = traceBlockTokens / blockTokens
    this.#isMultiplied = this.#perId > 1 || copies > 1 || stretch > 1
    this.#hasAnswers = this.#perId === 1 && copies === 1 && stretch === 1
  }

  /** `blocks`: how many full blocks the prompt has. Throws SimulationError. */
  idsOf({ hashIds, inputTokens }: TraceRequest, blocks: number): ArrayLike<number> {
    const perId = this.#perId
    if (hashIds.length * perId < blocks) {
      const reason = `it has ${hashIds.length} hash ids`
      throw new SimulationError(`a prompt of ${inputTokens} tokens`, reason)
    }
    if (this.#isMultiplied) this.#checkIds(hashIds, blocks / perId)
    if (perId === 1) return hashIds
    const ids = new Float64Array(blocks)
    for (let i = 0; i < blocks; i++) ids[i] = hashIds[Math.floor(i / perId)]! * perId + (i % perId)
    return ids
  }

  /** Of the answer; undefined: not known. Multiplied ids are others. */
  answerIdsOf({ answerIds }: TraceRequest): ArrayLike<number> | undefined {
    return this.#hasAnswers ? answerIds : undefined
  }

  /** Ids beyond 2^53 are rounded, so that different blocks would get the same id. */
  #checkIds(hashIds: ArrayLike<number>, count: number): void {
    const idMax = Number.MAX_SAFE_INTEGER / this.#perId - 1
    for (let i = 0; i < count; i++) {
      if (hashIds[i]! <= idMax) continue
      const reason =
        'copies, stretch and smaller blocks multiply ids, which must stay below 2^53: number the prefixes from 0'
      throw new SimulationError(`blocks of the hash id ${hashIds[i]}`, reason)
    }
  }
}
