/**
 * Request metrics: the outcomes of placed requests, by model, and how long each stage took.
 *
 * The labels are bounded. A model gets a label only once the router has placed a request for it, so clients
 * cannot make up names; models beyond `modelsMax` share one label, and one that no client asked for in
 * `modelIdleMs` loses its own.
 *
 *   stage       from                                   to
 *   read        the request's head                     the last byte of its body
 *   tokenize    end of read                            model, tokens and block hashes are known
 *   place       end of tokenize                        the decision; waiting in the queue included
 *   lookup      (a part of place)                      the router's look into the index, for all candidates
 *   decide      (a part of place)                      the whole decision, lookup and load included
 *   call        the call to the worker                 the first byte that passes to the client
 *   connect     (a part of call)                       a connection, new or reused, and the request written
 */

import type { Clock } from '@homing/base'
import {
  BoundedNames,
  type Counter,
  type Histogram,
  type MetricColumn,
  type Metrics,
  type MetricTable,
  type ModelLabels,
} from '@homing/metrics'
import type { Decision, RoutingRequest } from '@homing/placement'

export type Stage = 'read' | 'tokenize' | 'place' | 'lookup' | 'decide' | 'connect' | 'call'

/** What an answer says about itself. */
export interface AnswerFigures {
  readonly promptTokens: number | undefined
  readonly completionTokens: number | undefined
  readonly cachedTokens: number | undefined
  /** Of a stream: from its first token to its end, in milliseconds; undefined: no stream. */
  readonly tokensMs: number | undefined
}

/** Of the last answer of a worker that has them. */
interface LastFigures {
  firstTokenMs?: number
  tokenGapMs?: number
  promptTokens?: number
}

const LAST_COLUMNS: readonly MetricColumn<LastFigures>[] = [
  [
    'homing_worker_last_first_token_seconds',
    'Time to the first token of the last stream of the worker.',
    ({ firstTokenMs }) => (firstTokenMs === undefined ? undefined : firstTokenMs / 1000),
  ],
  [
    'homing_worker_last_token_gap_seconds',
    'Mean time between the tokens of the last stream of the worker.',
    ({ tokenGapMs }) => (tokenGapMs === undefined ? undefined : tokenGapMs / 1000),
  ],
  [
    'homing_worker_last_prompt_tokens',
    'Prompt tokens of the last answer of the worker, as the engine counts them.',
    ({ promptTokens }) => promptTokens,
  ],
]

const PLACED_AGAIN = ['refused', 'broke', 'drained'] as const
/** Label of a relayed request that names no model. */
const NO_MODEL = 'none'
const STAGE_SECONDS = [
  0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
  30,
]
const FIRST_TOKEN_SECONDS = [
  0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 20, 40, 80, 160,
]
const TOKEN_GAP_SECONDS = [
  0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5,
]
const PROMPT_TOKENS = [
  32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144,
]
const OUTPUT_TOKENS = [1, 4, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768]
const SHARES = [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1]
const LOST_BLOCKS = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]

export class RequestMetrics {
  readonly #models: BoundedNames
  readonly #clock: Pick<Clock, 'nowMs'>
  readonly #started: Counter<'model'>
  readonly #placedAgain: Counter<'model' | 'reason'>
  readonly #promptTokens: Histogram<'model'>
  readonly #outputTokens: Histogram<'model'>
  readonly #cachedTokens: Counter<'model'>
  readonly #firstToken: Histogram<'model'>
  readonly #tokenGap: Histogram<'model'>
  readonly #overlap: Histogram<'model'>
  readonly #lostBlocks: Histogram<'model'>
  readonly #passedBest: Counter<'model'>
  readonly #stages: Histogram<'stage'>
  readonly #last: MetricTable<LastFigures, 'worker'>
  /** By worker key. */
  readonly #lastByWorker = new Map<string, LastFigures>()

  constructor(metrics: Metrics, { modelsMax, modelIdleMs }: ModelLabels, clock: Pick<Clock, 'nowMs'>) {
    this.#clock = clock
    this.#models = new BoundedNames({
      namesMax: modelsMax,
      idleMs: modelIdleMs,
      forgotten: model => this.#forget(model),
    })
    const byModel = ['model'] as const
    this.#started = metrics.counter({
      name: 'homing_request_started_total',
      help: 'Requests that were placed on a worker, each once.',
      labels: byModel,
    })
    this.#placedAgain = metrics.counter({
      name: 'homing_request_retries_total',
      help: 'Times that a request was placed again before its first byte, because its worker refused it, broke or drained.',
      labels: ['model', 'reason'],
    })
    this.#promptTokens = metrics.histogram({
      name: 'homing_request_prompt_tokens',
      help: 'Prompt tokens of answered requests, as the engine counts them.',
      labels: byModel,
      buckets: PROMPT_TOKENS,
    })
    this.#outputTokens = metrics.histogram({
      name: 'homing_request_output_tokens',
      help: 'Output tokens of answered requests, as the engine counts them.',
      labels: byModel,
      buckets: OUTPUT_TOKENS,
    })
    this.#cachedTokens = metrics.counter({
      name: 'homing_request_cached_tokens_total',
      help: 'Prompt tokens of answered requests that the engine had in its cache, as it reports them.',
      labels: byModel,
    })
    this.#firstToken = metrics.histogram({
      name: 'homing_request_first_token_seconds',
      help: 'Time from the arrival of a streaming request to its first token.',
      labels: byModel,
      buckets: FIRST_TOKEN_SECONDS,
    })
    this.#tokenGap = metrics.histogram({
      name: 'homing_request_token_gap_seconds',
      help: 'Mean time between the tokens of a streaming answer, one observation for each answer.',
      labels: byModel,
      buckets: TOKEN_GAP_SECONDS,
    })
    this.#overlap = metrics.histogram({
      name: 'homing_request_overlap_ratio',
      help: 'Part of the prompt that the chosen worker was predicted to hold.',
      labels: byModel,
      buckets: SHARES,
    })
    this.#lostBlocks = metrics.histogram({
      name: 'homing_request_overlap_lost_blocks',
      help: 'Blocks that the candidate with the largest overlap was predicted to hold beyond the chosen one.',
      labels: byModel,
      buckets: LOST_BLOCKS,
    })
    this.#passedBest = metrics.counter({
      name: 'homing_request_overlap_passed_total',
      help: 'Requests that went to a worker with less overlap than another candidate.',
      labels: byModel,
    })
    this.#stages = metrics.histogram({
      name: 'homing_request_stage_seconds',
      help: 'Time that the stages of a request took in the router.',
      labels: ['stage'],
      buckets: STAGE_SECONDS,
    })
    this.#last = metrics.table(['worker'], LAST_COLUMNS)
  }

  stage(stage: Stage, elapsedMs: number): void {
    this.#stages.observe(elapsedMs / 1000, { stage })
  }

  /** `isFirst`: the first placement of the request. */
  decided(
    { model: given, promptTokens, blockSizeTokens, unknownPromptReason }: RoutingRequest,
    { overlapBlocks, bestOverlapBlocks, lookupMs, decisionMs }: Decision,
    isFirst: boolean,
  ): void {
    this.stage('lookup', lookupMs)
    this.stage('decide', decisionMs)
    if (!isFirst) return
    const model = this.#bounded(given)
    this.#started.add(1, { model })
    if (promptTokens > 0 && unknownPromptReason === undefined) {
      this.#overlap.observe(Math.min(1, (overlapBlocks * blockSizeTokens) / promptTokens), { model })
    }
    const lost = Math.max(0, bestOverlapBlocks - overlapBlocks)
    this.#lostBlocks.observe(lost, { model })
    if (lost > 0) this.#passedBest.add(1, { model })
  }

  placedAgain(model: string, reason: (typeof PLACED_AGAIN)[number]): void {
    this.#placedAgain.add(1, { model: this.#bounded(model), reason })
  }

  firstToken(model: string, elapsedMs: number, worker: string): void {
    this.#firstToken.observe(elapsedMs / 1000, { model: this.#bounded(model) })
    this.#lastOf(worker).firstTokenMs = elapsedMs
  }

  /** Counts a request that was answered successfully. */
  answered(given: string, figures: AnswerFigures, worker: string): void {
    const { promptTokens, completionTokens, cachedTokens, tokensMs } = figures
    const model = this.#bounded(given)
    if (promptTokens !== undefined) {
      this.#promptTokens.observe(promptTokens, { model })
      this.#lastOf(worker).promptTokens = promptTokens
    }
    if (cachedTokens !== undefined) this.#cachedTokens.add(cachedTokens, { model })
    if (completionTokens === undefined) return
    this.#outputTokens.observe(completionTokens, { model })
    if (tokensMs !== undefined && completionTokens > 1) {
      const gapMs = tokensMs / (completionTokens - 1)
      this.#tokenGap.observe(gapMs / 1000, { model })
      this.#lastOf(worker).tokenGapMs = gapMs
    }
  }

  /** Before a scrape. */
  sweep(): void {
    this.#models.sweep(this.#clock.nowMs())
    this.#last.replace([...this.#lastByWorker].map(([worker, row]) => ({ row, labels: { worker } })))
  }

  workersLeft(isHere: (worker: string) => boolean): void {
    for (const worker of this.#lastByWorker.keys()) if (!isHere(worker)) this.#lastByWorker.delete(worker)
  }

  #lastOf(worker: string): LastFigures {
    const known = this.#lastByWorker.get(worker)
    if (known !== undefined) return known
    const last: LastFigures = {}
    this.#lastByWorker.set(worker, last)
    return last
  }

  #bounded(model: string): string {
    return model === '' ? NO_MODEL : this.#models.of(model, this.#clock.nowMs())
  }

  #forget(model: string): void {
    for (const metric of [
      this.#started,
      this.#promptTokens,
      this.#outputTokens,
      this.#cachedTokens,
      this.#firstToken,
      this.#tokenGap,
      this.#overlap,
      this.#lostBlocks,
      this.#passedBest,
    ])
      metric.remove({ model })
    for (const reason of PLACED_AGAIN) this.#placedAgain.remove({ model, reason })
  }
}
