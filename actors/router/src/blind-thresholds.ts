/**
 * Blind thresholds: warns of busy thresholds that have no effect on a worker, or that rest on an assumption.
 */

import type { ActorContext } from '@homing/actor'
import type { Fleet } from '@homing/fleet'
import type { TrackingSettings } from '@homing/placement'

type Log = Pick<ActorContext<never>['log'], 'warn'>
type Counted = Pick<TrackingSettings, 'activeBlocks' | 'prefillTokens'>

const NO_BLOCKS =
  'a busy threshold has no effect on this worker: its engine does not report how many KV blocks it has; give kv_blocks= with --worker'
const NO_STEP =
  'a busy threshold goes by an assumed token budget: the engine does not report max_num_batched_tokens; give max_batched_tokens= with --worker'
const NOT_COUNTED =
  'a busy threshold has no effect: its load is not counted, by --no-router-track-active-blocks or --no-router-track-prefill-tokens'

/** Warns once per worker that a threshold cannot be applied to it, or rests on an assumption. */
export class BlindThresholds {
  readonly #log: Log
  readonly #tracking: Counted
  #warned = new Set<string>()

  constructor(log: Log, tracking: Counted = { activeBlocks: true, prefillTokens: true }) {
    this.#log = log
    this.#tracking = tracking
  }

  look({ busyThresholds, workers }: Fleet): void {
    const blind = new Set<string>()
    if (busyThresholds === undefined) return
    const { others, byModel } = busyThresholds
    const warn = (key: string, fields: Readonly<Record<string, unknown>>, text: string): void => {
      blind.add(key)
      if (!this.#warned.has(key)) this.#log.warn(fields, text)
    }
    for (const { id, models, kvBlocks, maxBatchedTokens } of workers) {
      const all = models.map(({ name }) => byModel.get(name) ?? others)
      const needsBlocks = all.some(({ decodeBlocksFraction }) => decodeBlocksFraction !== undefined)
      const needsStep = all.some(({ prefillFraction }) => prefillFraction !== undefined)
      const needsPrefill = needsStep || all.some(({ prefillTokens }) => prefillTokens !== undefined)
      if ((needsBlocks && !this.#tracking.activeBlocks) || (needsPrefill && !this.#tracking.prefillTokens))
        warn(`${id} tracking`, { worker: id }, NOT_COUNTED)
      if (needsBlocks && kvBlocks === undefined) warn(`${id} blocks`, { worker: id }, NO_BLOCKS)
      if (needsStep && maxBatchedTokens.source === 'default')
        warn(`${id} step`, { worker: id, tokens: maxBatchedTokens.value }, NO_STEP)
    }
    this.#warned = blind
  }
}
