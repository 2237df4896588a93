/** The JSON of a receipt, for `/route` and `/decisions`, in wire names. */

import { iso, milliseconds } from '@homing/base'
import type { CandidateTerms, GuardReceipt, LayerTerm, Receipt } from './receipt.ts'

/** A receipt: every candidate with every term of its cost, and what was delivered. */
export function receiptView(receipt: Receipt): object {
  const { delivery } = receipt
  return {
    id: receipt.id,
    request_id: receipt.requestId,
    at: iso(receipt.atMs),
    mode: receipt.mode,
    policy: receipt.cost.policy,
    rule: receipt.cost.rule,
    cost_formula: receipt.cost.formula,
    cost_unit: receipt.cost.unit,
    model: receipt.model,
    prompt_tokens: receipt.promptTokens,
    prompt_tokens_estimated: receipt.isEstimated === true,
    block_size: receipt.blockSizeTokens,
    prompt_blocks: receipt.promptBlocks,
    unknown_prompt: receipt.unknownPromptReason ?? null,
    text_blocks: receipt.textBlocksReason ?? null,
    cache_use: receipt.cacheUse ?? null,
    ignored_hints: receipt.ignoredHints ?? null,
    overlap_score_weight: receipt.overlapWeight,
    temperature: receipt.temperature,
    worker: receipt.worker,
    runner_up: receipt.runnerUp ?? null,
    trust: receipt.trust,
    overlap_blocks: receipt.overlapBlocks,
    predicted_cached_tokens: receipt.overlapBlocks * receipt.blockSizeTokens,
    decision_ms: milliseconds(receipt.decisionMs),
    candidates: receipt.candidates.map(candidate => ({
      worker: candidate.worker,
      trust: candidate.trust,
      overlap_blocks: candidate.overlapBlocks,
      credit_factor: candidate.creditFactor,
      layers: layersView(candidate),
      queued_prefill_tokens: candidate.activePrefillTokens,
      prefill_tokens: candidate.prefillTokens,
      prefill_blocks: candidate.prefillBlocks,
      active_blocks: candidate.activeBlocks,
      new_blocks: candidate.newBlocks,
      decode_blocks: candidate.decodeBlocks,
      active_requests: candidate.activeRequests,
      preference: candidate.preference,
      terms: Object.fromEntries(receipt.cost.terms.map(({ name }, t) => [name, candidate.terms[t]])),
      cost: candidate.cost,
      probability: candidate.probability,
    })),
    scores: byWorker(receipt, ({ score }) => score),
    moe_scores: byWorker(receipt, ({ moeScore }) => moeScore),
    cxl_accessible_scores: byWorker(receipt, ({ cxlAccessibleScore }) => cxlAccessibleScore),
    candidates_left_out: receipt.candidatesLeftOut,
    excluded: receipt.excluded,
    excluded_left_out: receipt.excludedLeftOut,
    guard: guardView(receipt.guard),
    slices:
      receipt.slices === undefined
        ? null
        : { sent: receipt.slices.sent, decision: receipt.slices.decisionId },
    leg: receipt.leg?.kind ?? null,
    continues:
      receipt.continues === undefined
        ? null
        : {
            decision: receipt.continues.decisionId,
            delivered_tokens: receipt.continues.deliveredTokens,
          },
    hedges: receipt.hedges === undefined ? null : { decision: receipt.hedges },
    leg_costs:
      receipt.legCosts === undefined
        ? null
        : {
            whole_ms: milliseconds(receipt.legCosts.wholeMs),
            prefill_ms: milliseconds(receipt.legCosts.prefillMs),
            transfer_ms: milliseconds(receipt.legCosts.transferMs),
            decode_ms: milliseconds(receipt.legCosts.decodeMs),
          },
    prefill_decision: receipt.leg?.prefillId ?? null,
    prefill: receipt.prefill === undefined ? null : receiptView(receipt.prefill),
    queue:
      receipt.queue === undefined
        ? null
        : {
            waited_ms: milliseconds(receipt.queue.waitedMs),
            expected_ms:
              receipt.queue.expectedMs === undefined ? null : milliseconds(receipt.queue.expectedMs),
            why: receipt.queue.why,
          },
    delivered:
      delivery === undefined
        ? null
        : {
            outcome: delivery.outcome,
            status: delivery.status ?? null,
            prompt_tokens: delivery.promptTokens ?? null,
            completion_tokens: delivery.completionTokens ?? null,
            cached_tokens: delivery.cachedTokens ?? null,
            time_to_first_byte_ms: milliseconds(delivery.timeToFirstByteMs),
            duration_ms: milliseconds(delivery.durationMs),
            other_leg: delivery.otherLeg ?? null,
            not_continued: delivery.notContinued ?? null,
            error:
              delivery.error === undefined
                ? null
                : { code: delivery.error.code, message: delivery.error.message },
          },
    cost_terms: receipt.cost.terms.map(({ name, unit, means }) => ({ name, unit, means })),
  }
}

/** Scores above 0 by worker key. */
function byWorker({ candidates }: Receipt, scoreOf: (candidate: CandidateTerms) => number): object {
  const scored = candidates.filter(candidate => scoreOf(candidate) > 0)
  return Object.fromEntries(scored.map(candidate => [candidate.worker, scoreOf(candidate)]))
}

/** The part of each layer in the overlap. Without layers, all of it is on the device. */
function layersView({ layers, overlapBlocks, creditFactor }: CandidateTerms): readonly LayerTerm[] {
  if (layers.length > 0 || overlapBlocks === 0) return layers
  return [{ layer: 'device', blocks: overlapBlocks, factor: creditFactor }]
}

/** Undefined: the guard was not involved. */
function guardView(guard: GuardReceipt | undefined): object | null {
  if (guard === undefined) return null
  const { arm, phase, controlShare, predictedFirstTokenMs, extraTokens, regretMs } = guard
  return {
    arm: arm ?? null,
    phase,
    control_share: controlShare,
    predicted_first_token_ms: milliseconds(predictedFirstTokenMs),
    extra_tokens: extraTokens,
    regret_ms: {
      round_robin: milliseconds(regretMs['round-robin']),
      least_loaded: milliseconds(regretMs['least-loaded']),
      product: milliseconds(regretMs.product),
    },
  }
}
