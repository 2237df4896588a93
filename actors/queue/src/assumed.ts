/** Assumed: the figures that the rules of each model assume because engines do not report them. */

import type { Fleet } from '@homing/fleet'
import type { Assumed, AssumedRows } from './messages.ts'

export const NOTHING_ASSUMED: AssumedRows = { rows: [], leftOut: 0 }

/** Most rows shown for a model: a fleet of 10,000 workers would make the list too long. */
const ASSUMED_MAX = 100

/**
 * For `GET /queue`, by model: shows each queue rule and threshold that lacks a figure, so none is silently
 * off. A model that lacks nothing has no entry. `mayWait`: the queue is on for the model. One pass over the
 * workers and their models.
 */
export function assumedByModel(
  { workers, busyThresholds }: Fleet,
  mayWait: (model: string) => boolean,
): Map<string, AssumedRows> {
  const byModel = new Map<string, { rows: Assumed[]; leftOut: number }>()
  const note = (model: string, assumed: Assumed): void => {
    const noted = byModel.get(model) ?? { rows: [], leftOut: 0 }
    byModel.set(model, noted)
    if (noted.rows.length < ASSUMED_MAX) noted.rows.push(assumed)
    else noted.leftOut++
  }
  for (const { id, models, maxBatchedTokens, kvBlocks } of workers) {
    const step: Assumed | undefined =
      maxBatchedTokens.source === 'default'
        ? { worker: id, what: 'max_batched_tokens', value: maxBatchedTokens.value }
        : undefined
    const blocks: Assumed | undefined =
      kvBlocks === undefined ? { worker: id, what: 'kv_blocks', value: undefined } : undefined
    if (step === undefined && blocks === undefined) continue
    for (const { name } of models) {
      const thresholds = busyThresholds?.byModel.get(name) ?? busyThresholds?.others
      if (step !== undefined && (mayWait(name) || thresholds?.prefillFraction !== undefined)) note(name, step)
      if (blocks !== undefined && thresholds?.decodeBlocksFraction !== undefined) note(name, blocks)
    }
  }
  return byModel
}
