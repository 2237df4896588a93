/**
 * Busy workers: the candidates that take no more requests, by the busy thresholds of the model.
 *
 * A worker is busy if all its ranks are: ranks that the request may not go to count, too, so their load is asked for as well.
 */

import type { ActorContext } from '@homing/actor'
import type { Fleet, WorkerRecord } from '@homing/fleet'
import { type BusyThresholds, hasThreshold, type RankLoad, whyBusy } from '@homing/load'
import type { CandidateLoads, RoutingRequest, TrackingSettings } from '@homing/placement'
import type { Candidate } from './overlap-lookup.ts'

type Log = Pick<ActorContext<never>['log'], 'warn'>
type Counted = Pick<TrackingSettings, 'activeBlocks' | 'prefillTokens'>
type Loads = Pick<CandidateLoads, 'activeBlocks' | 'activePrefillTokens' | 'reportedShares'>

interface SlotLoad extends Pick<RankLoad, 'activeBlocks' | 'activePrefillTokens'> {
  /** NaN: its engine does not say. */
  readonly reportedShare: number
}

/** The thresholds for a request; undefined: there are none. */
export function thresholdsFor(
  { busyThresholds }: Fleet,
  { model }: RoutingRequest,
): BusyThresholds | undefined {
  if (busyThresholds === undefined) return undefined
  const thresholds = busyThresholds.byModel.get(model) ?? busyThresholds.others
  return hasThreshold(thresholds) ? thresholds : undefined
}

/** Worker slots of ranks of the candidates' workers that are no candidates. */
export function otherRanks(candidates: readonly Candidate[]): Int32Array {
  const slots = new Set<number>()
  for (const { worker } of candidates) {
    if (worker.keys.length > 1) for (const { workerSlot } of worker.keys) slots.add(workerSlot)
  }
  for (const { key } of candidates) slots.delete(key.workerSlot)
  return Int32Array.from(slots)
}

/** Why each candidate takes no more; undefined where it does. */
export class BusyCheck {
  readonly #loads = new Map<number, SlotLoad>()
  readonly #reasons = new Map<WorkerRecord, string | undefined>()
  readonly #thresholds: BusyThresholds

  constructor(thresholds: BusyThresholds) {
    this.#thresholds = thresholds
  }

  add(workerSlots: Int32Array, { activeBlocks, activePrefillTokens, reportedShares }: Loads): void {
    for (const [i, slot] of workerSlots.entries())
      this.#loads.set(slot, {
        activeBlocks: activeBlocks[i]!,
        activePrefillTokens: activePrefillTokens[i]!,
        reportedShare: reportedShares?.[i] ?? Number.NaN,
      })
  }

  reason({ worker }: Candidate): string | undefined {
    if (!this.#reasons.has(worker)) this.#reasons.set(worker, this.#whyBusy(worker))
    return this.#reasons.get(worker)
  }

  #whyBusy({ keys, kvBlocks, maxBatchedTokens }: WorkerRecord): string | undefined {
    const ranks = keys.flatMap(({ workerSlot }) => {
      const load = this.#loads.get(workerSlot)
      if (load === undefined) return []
      const { activeBlocks, activePrefillTokens, reportedShare } = load
      const blocksMax = kvBlocks?.value
      const isReported = blocksMax !== undefined && !Number.isNaN(reportedShare)
      const reportedBlocks = isReported ? Math.round(reportedShare * blocksMax) : undefined
      const stepTokens = maxBatchedTokens.value
      return [{ activeBlocks, activePrefillTokens, reportedBlocks, blocksMax, stepTokens }]
    })
    return whyBusy(this.#thresholds, ranks)
  }
}

const NO_BLOCKS =
  'a busy threshold has no effect on this worker: its engine does not report how many KV blocks it has; give kv_blocks= with --worker'
const NO_STEP =
  'a busy threshold goes by an assumed token budget: the engine does not report max_num_batched_tokens; give max_batched_tokens= with --worker'
const NOT_COUNTED =
  'a busy threshold has no effect: its load is not counted, by --no-router-track-active-blocks or --no-router-track-prefill-tokens'

/** Says once of each worker that a threshold cannot be held against it, or goes by an assumption. */
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
