/** Assumed: what the rules of a model go by, where engines do not say it. */

import type { Fleet } from '@homing/directory'
import type { Assumed } from './messages.ts'

/** For `GET /queue`: no queue and no threshold that lacks a figure is silently off. `mayWait`: the queue is on for the model. */
export function assumedOf(fleet: Fleet | undefined, model: string, mayWait: boolean): Assumed[] {
  if (fleet === undefined) return []
  const { workers, busyThresholds } = fleet
  const thresholds = busyThresholds?.byModel.get(model) ?? busyThresholds?.others
  const needsStep = mayWait || thresholds?.prefillFraction !== undefined
  const needsBlocks = thresholds?.decodeBlocksFraction !== undefined
  const assumed: Assumed[] = []
  for (const { id, models, maxBatchedTokens, kvBlocks } of workers) {
    if (!models.some(({ name }) => name === model)) continue
    if (needsStep && maxBatchedTokens.source === 'default')
      assumed.push({ worker: id, what: 'max_batched_tokens', value: maxBatchedTokens.value })
    if (needsBlocks && kvBlocks === undefined)
      assumed.push({ worker: id, what: 'kv_blocks', value: undefined })
  }
  return assumed
}
