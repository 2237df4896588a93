/**
 * Recovery: what becomes of a request whose worker died after its first token.
 *
 *   restart     its client asks again: the whole prompt, the whole answer
 *   migration   the rest of the answer goes on elsewhere, where the prompt and what was generated are
 *               computed
 *   pool        the same, but the full blocks of both that the dead worker had computed are read out of
 *               pooled memory, which all workers reach
 *
 * Measured from the death until there is a token that the client did not have. After a restart that token is
 * taken to lie between first and last token as its number does.
 */

import { LatencyHistogram } from './cell-metrics.ts'
import type { RecoveryFigures, RecoveryKind, RecoverySpec } from './cell-types.ts'
import { newSimRequest, type Recovers, type SimRequest } from './sim-request.ts'

/** The request that takes up `dead`, which had its first token. `generated`: tokens of its answer. */
export function successorOf(
  dead: SimRequest,
  generated: number,
  { kind }: RecoverySpec,
  blockTokens: number,
  diedMs: number,
): SimRequest {
  const original = dead.recovers?.original ?? dead
  const { trace, index, blockIds, blocks, router, answerIds } = original
  const before = dead.recovers?.delivered ?? 0
  if (kind === 'restart') {
    const recovers = { diedMs, original, delivered: Math.max(before, generated), pooledTokens: 0 }
    return { ...newSimRequest(trace, index, blockIds, blocks, router, answerIds), recovers }
  }
  const delivered = before + generated
  const inputTokens = original.inputTokens + delivered
  // What was generated last is not computed yet.
  const pooledTokens = kind === 'pool' ? Math.floor((inputTokens - 1) / blockTokens) * blockTokens : 0
  return {
    ...newSimRequest(trace, index, blockIds, blocks, router),
    inputTokens,
    outputTokens: Math.max(1, original.outputTokens - delivered),
    recovers: { diedMs, original, delivered, pooledTokens },
  }
}

/** How long it reads before it can be admitted; 0: it has nothing to read. */
export function readMsOf(
  { readMs = 0, readMsPerToken = 0 }: RecoverySpec,
  { pooledTokens }: Recovers,
  cachedTokens: number,
): number {
  const tokens = Math.max(0, pooledTokens - cachedTokens)
  return tokens === 0 ? 0 : readMs + readMsPerToken * tokens
}

export class RecoveryMetrics {
  readonly #wait = new LatencyHistogram()
  readonly #e2e = new LatencyHistogram()
  #requests = 0
  #computedTokens = 0

  completed(
    request: SimRequest,
    { diedMs, original, delivered }: Recovers,
    kind: RecoveryKind,
    nowMs: number,
  ): void {
    const { firstTokenMs, outputTokens } = request
    const isAgain = kind === 'restart' && outputTokens > 1
    const share = isAgain ? Math.min(1, delivered / (outputTokens - 1)) : 0
    this.#requests++
    this.#wait.add(firstTokenMs + share * (nowMs - firstTokenMs) - diedMs, 1)
    this.#e2e.add(nowMs - original.arrivalMs, 1)
    const again = kind === 'restart' ? delivered : 0
    this.#computedTokens += request.inputTokens - request.skippedTokens + again
  }

  figures(): RecoveryFigures {
    const requests = this.#requests
    return {
      requests,
      waitMs: this.#wait.figures(),
      e2eMs: this.#e2e.figures(),
      computedTokens: requests === 0 ? 0 : this.#computedTokens / requests,
    }
  }
}
