/**
 * The tokens that an engine computed in its steps so far, from the histogram `vllm:iteration_tokens_total` of its metrics.
 *
 * A full step of a long prompt has as many tokens as its budget allows, so the largest bucket in use is the budget, if the
 * engine has seen a long prompt; before that it is less. Buckets are coarse: 1, 8, 16, 32 … 16384.
 */

export interface StepTokens {
  /** Upper bound of the largest bucket with a step in it. */
  readonly tokensMax: number
  readonly steps: number
}

/** Fewer steps show nothing. */
const STEPS_MIN = 100

/** Undefined: the metrics do not say, or too few steps are over. */
export function stepTokensSeen(metrics: string): StepTokens | undefined {
  const counts = new Map<number, number>()
  for (const line of metrics.split('\n')) {
    const match = /^vllm:iteration_tokens_total_bucket\{[^}]*\ble="([^"]+)"[^}]*\} (\S+)/.exec(line)
    if (match === null) continue
    const upTo = match[1] === '+Inf' ? Number.POSITIVE_INFINITY : Number(match[1])
    // Ranks add up.
    counts.set(upTo, (counts.get(upTo) ?? 0) + Number(match[2]))
  }
  const steps = counts.get(Number.POSITIVE_INFINITY) ?? 0
  if (!(steps >= STEPS_MIN)) return undefined
  const tokensMax = Math.min(...[...counts].filter(([, count]) => count === steps).map(([upTo]) => upTo))
  return Number.isFinite(tokensMax) ? { tokensMax, steps } : undefined
}
