/**
 * The section `decisions` of the page: a line for each receipt.
 *
 * A receipt never changes, it is replaced: so the text of its line is made once and kept as long as the
 * receipt.
 */

import { CANDIDATES_SHOWN, type DecisionRow } from '@homing/page'
import type { CandidateTerms, Receipt } from '@homing/placement'

export class DecisionLines {
  readonly #texts = new WeakMap<Receipt, string>()

  /** JSON of a DecisionsSection. */
  section(receipts: readonly Receipt[]): string {
    return `{"decisions":[${receipts.map(receipt => this.#textOf(receipt)).join(',')}]}`
  }

  #textOf(receipt: Receipt): string {
    const known = this.#texts.get(receipt)
    if (known !== undefined) return known
    const text = JSON.stringify(rowOf(receipt))
    this.#texts.set(receipt, text)
    return text
  }
}

function rowOf(receipt: Receipt): DecisionRow {
  const { candidates, delivery, guard, queue, worker, runnerUp } = receipt
  const winner = candidates.find(one => one.worker === worker)
  const second = candidates.find(one => one.worker === runnerUp)
  return {
    id: receipt.id,
    at: new Date(receipt.atMs).toISOString(),
    model: receipt.model,
    prompt_tokens: receipt.promptTokens,
    block_size: receipt.blockSizeTokens,
    prompt_blocks: receipt.promptBlocks,
    worker,
    runner_up: runnerUp ?? null,
    margin: winner === undefined || second === undefined ? null : second.cost - winner.cost,
    cost_unit: receipt.cost.unit,
    rule: receipt.cost.rule,
    trust: receipt.trust,
    overlap_blocks: receipt.overlapBlocks,
    bars: barsOf(candidates, worker, runnerUp),
    candidates: candidates.length + receipt.candidatesLeftOut,
    predicted_ms: guard?.predictedFirstTokenMs ?? null,
    first_byte_ms: delivery?.timeToFirstByteMs ?? null,
    cached_tokens: delivery?.cachedTokens ?? null,
    outcome: delivery?.outcome ?? 'open',
    arm: guard?.arm ?? null,
    waited_ms: queue?.waitedMs ?? null,
  }
}

/** All of a small fleet, in its order; of a large one the winner, the runner-up and those that hold most. */
function barsOf(
  candidates: readonly CandidateTerms[],
  worker: string,
  runnerUp: string | undefined,
): DecisionRow['bars'] {
  const bar = ({ worker, overlapBlocks }: CandidateTerms) => ({ worker, overlap_blocks: overlapBlocks })
  if (candidates.length <= CANDIDATES_SHOWN) return candidates.map(bar)
  const place = (one: CandidateTerms): number => (one.worker === worker ? 0 : one.worker === runnerUp ? 1 : 2)
  return candidates
    .toSorted((one, other) => place(one) - place(other) || other.overlapBlocks - one.overlapBlocks)
    .slice(0, CANDIDATES_SHOWN)
    .map(bar)
}
