/** Class limits: what of a policy class may wait, by the number of workers, in all routers together. */

import type { ClassAccount } from './entry.ts'
import type { QueueRefusal } from './types.ts'

/** The limit that a class has reached, in all routers together: the request that crosses it was accepted. */
export function classLimit(account: ClassAccount, workers: number): QueueRefusal | undefined {
  const { policy, elsewhere, waitingRequests, waitingPromptTokens, waitingUncachedTokens } = account
  const promptTokens = waitingPromptTokens + elsewhere.promptTokens
  const cachedTokens = promptTokens - waitingUncachedTokens - elsewhere.uncachedTokens
  for (const [limitKind, current, perWorker] of [
    ['requests', waitingRequests + elsewhere.requests, policy.requestsPerWorker],
    ['raw_isl_tokens', promptTokens, policy.promptTokensPerWorker],
    ['cached_tokens', cachedTokens, policy.cachedTokensPerWorker],
  ] as const) {
    if (perWorker === undefined || current < perWorker * workers) continue
    return { reason: 'class_limit', policyClass: policy.name, limitKind, current, limit: perWorker * workers }
  }
  return undefined
}
