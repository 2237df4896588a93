/** The JSON of `/queue`: wire names. */

import type { ModelQueueStatus, QueueStatus } from '@homing/actors/queue'
import type { ServedTotals, WaitingTotals } from '@homing/queue'

/** The fullest first. */
const TENANTS_SHOWN = 100

const waitingView = ({ requests, promptTokens, uncachedTokens, oldestMs, why }: WaitingTotals) => ({
  requests,
  prompt_tokens: promptTokens,
  uncached_tokens: uncachedTokens,
  oldest_ms: rounded(oldestMs),
  why,
})

const servedView = ({ requests, uncachedTokens, share }: ServedTotals) => ({
  requests,
  uncached_tokens: uncachedTokens,
  share: rounded(share),
})

const rounded = (value: number | undefined): number | null =>
  value === undefined ? null : Math.round(value * 1000) / 1000

/** The answer of `/queue`. */
export type QueueView = ReturnType<typeof queueView>

export function queueView(status: QueueStatus) {
  return {
    is_on: status.isOn,
    requests: status.requests,
    requests_max: status.requestsMax,
    prompt_tokens: status.tokens,
    prompt_tokens_max: status.tokensMax,
    bytes: status.bytes,
    bytes_max: status.bytesMax,
    models: status.models.map(modelView),
  }
}

function modelView({ model, isOn, workers, assumed, snapshot }: ModelQueueStatus) {
  const tenants = snapshot.tenants.toSorted((a, b) => b.waiting.requests - a.waiting.requests)
  return {
    model,
    is_on: isOn,
    worker_keys: workers,
    assumed: assumed.rows.map(({ worker, what, value }) => ({ worker, what, value: value ?? null })),
    assumed_left_out: assumed.leftOut,
    waiting: waitingView(snapshot.waiting),
    asked: snapshot.asked,
    drain_tokens_per_second: rounded(snapshot.drainTokensPerSecond),
    expected_wait_ms: rounded(snapshot.expectedWaitMs),
    classes: snapshot.classes.map(row => ({
      policy_class: row.policyClass,
      waiting: waitingView(row.waiting),
      elsewhere: {
        requests: row.elsewhere.requests,
        prompt_tokens: row.elsewhere.promptTokens,
        uncached_tokens: row.elsewhere.uncachedTokens,
      },
      served: servedView(row.served),
      refused: row.refused,
      expected_wait_ms: rounded(row.expectedWaitMs),
    })),
    tenants: tenants.slice(0, TENANTS_SHOWN).map(row => ({
      tenant: row.tenant,
      weight: row.weight,
      waiting: waitingView(row.waiting),
      served: servedView(row.served),
      refused: row.refused,
      long_prompt_workers: row.longPromptWorkers,
      is_held: row.isHeld,
      expected_wait_ms: rounded(row.expectedWaitMs),
    })),
    tenants_left_out: Math.max(0, tenants.length - TENANTS_SHOWN),
    strict_priorities: snapshot.strictPriorities.map(row => ({
      strict_priority: row.strictPriority,
      waiting: waitingView(row.waiting),
      passed_over: row.passedOver,
      is_starving: row.isStarving,
    })),
  }
}
