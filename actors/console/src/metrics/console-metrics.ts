/**
 * Metrics of the router: the gateway's own text, and figures that are fetched from their owners at scrape
 * time.
 *
 * A figure whose owner does not answer in time keeps its last value, and the scrape still succeeds.
 */

import type { ActorRef, SystemView } from '@homing/actor'
import type { DecisionLogMessage } from '@homing/actors/decision-log'
import type { ShardStatus } from '@homing/actors/indexer'
import type { SourceStatus } from '@homing/actors/listener'
import type { LoadReport } from '@homing/actors/tracker'
import type { WhatIfMessage } from '@homing/actors/what-if'
import type { Clock } from '@homing/base'
import type { WorkerRecord, WorkerState } from '@homing/fleet'
import { SHARD_COLUMNS, TRUSTS } from '@homing/index'
import { type MetricColumn, Metrics, OTHER_NAMES } from '@homing/metrics'
import type { HealthStatus } from '@homing/placement'
import { ERROR_BOUNDS_BLOCKS, type KeyAudit } from '@homing/selection'
import type { ConsoleArgs } from '../console-args.ts'
import { collectActors } from './actor-metrics.ts'
import { collectBusy } from './busy-metrics.ts'
import { collectGuard } from './guard-metrics.ts'
import { collectQueue } from './queue-metrics.ts'
import { collectReplicas } from './replica-metrics.ts'
import { streamMetrics } from './stream-metrics.ts'

const STATES: readonly WorkerState[] = ['probing', 'up', 'down', 'draining', 'paused']

/** Counters of a listener, by the name of the metric. */
const SOURCE_COUNTERS = {
  batches: 'Batches of KV events received.',
  events: 'KV events received.',
  gaps: 'Holes in the sequence of a worker key.',
  replays: 'Replays requested.',
  restarts: 'Engine restarts and resets of the sequence.',
  contradictions:
    'How often KV events contradicted each other or their replay; a single time is a restart, repeated times are a wrong port.',
  duplicates: 'Batches that had been applied already.',
  lostFrames:
    'Messages on the event socket that came faster than they could be read; each run of them is a gap.',
  malformedFrames: 'Messages on the event socket that cannot be read.',
  skippedEvents: 'KV events of an unknown or malformed kind.',
} as const satisfies Partial<Record<keyof SourceStatus, string>>

/** Counters of the audit, by the name of the metric. */
const AUDIT_COUNTERS = {
  requests: 'Answers whose cached tokens were compared with what was predicted.',
  predictedTokens: 'Prompt tokens that were predicted to be cached, in the compared answers.',
  deliveredTokens: 'Prompt tokens that engines reported as cached, in the compared answers.',
  overPredictions: 'Answers with fewer cached tokens than predicted, by more than a block.',
  underPredictions: 'Answers with more cached tokens than predicted, by more than a block.',
  unreported: 'Answers that could not be compared: the engine reports no cached tokens.',
  promptDifferences: 'Answers that counted other tokens of their prompt than the router.',
} as const satisfies Partial<Record<keyof KeyAudit, string>>

const AUDIT_COLUMNS: readonly MetricColumn<KeyAudit>[] = [
  ...counterColumns('audit', AUDIT_COUNTERS),
  [
    'homing_audit_precision_ratio',
    'Delivered tokens divided by predicted tokens, over the last requests with a prediction.',
    audit => (audit.sampleRequests > 0 ? audit.precision : undefined),
  ],
]

const HEALTH_COLUMNS: readonly MetricColumn<HealthStatus>[] = [
  [
    'homing_health_ejected_state',
    '1 while the worker gets no requests but trials, because it fails those that it gets; otherwise 0.',
    row => (row.state === 'up' ? 0 : 1),
  ],
  ...counterColumns('health', { ejections: 'Times that the worker was ejected because it failed requests.' }),
]

const LOAD_COLUMNS: readonly MetricColumn<LoadReport['rows'][number]>[] = [
  [
    'homing_tracker_disbelieved_total',
    'Figures in answers of the worker that cannot be true, such as more tokens than the request allowed.',
    row => row.disbelieved ?? 0,
  ],
  ['homing_tracker_active_blocks', 'Blocks in use by running requests.', row => row.activeBlocks],
  [
    'homing_tracker_active_prefill_tokens',
    'Prompt tokens booked and not yet computed.',
    row => row.activePrefillTokens,
  ],
  ['homing_tracker_active_requests', 'Requests booked.', row => row.activeRequests],
  [
    'homing_tracker_engine_kv_usage_ratio',
    'Share of the KV blocks that requests use, as the engine itself says.',
    row => row.reported?.share,
  ],
]

/** Those that a shard of the index service has not. */
const GUESS_COLUMNS: readonly MetricColumn<ShardStatus>[] = [
  [
    'homing_index_unclear_stores_total',
    'Stores of blocks that are credited to nobody: they may belong to prompts with a cache salt, an adapter or an extra key that the events do not name.',
    shard => shard.unclearStores,
  ],
  [
    'homing_index_unknown_removed_blocks_total',
    'Blocks that engines removed and that were not held here.',
    shard => shard.unknownRemoves,
  ],
  [
    'homing_index_guessed_blocks',
    'Blocks that count as cached at worker keys because they were sent there, counted for each key.',
    shard => shard.guesses.blocks,
  ],
  [
    'homing_index_guessed_bytes',
    'Memory of the tables of guessed blocks, without that of their blocks in the index.',
    shard => shard.guesses.bytes,
  ],
  [
    'homing_index_guessed_expired_blocks_total',
    'Guessed blocks that expired (--router-ttl-secs, --router-predicted-ttl-secs).',
    shard => shard.guesses.expired,
  ],
  [
    'homing_index_guessed_pruned_blocks_total',
    'Guessed blocks forgotten because there were too many (--router-max-tree-size, or the size of its cache).',
    shard => shard.guesses.pruned,
  ],
]

/** `texts`: metrics that other actors keep and render themselves. */
export function consoleMetrics(
  args: ConsoleArgs,
  system: SystemView,
  clock: Pick<Clock, 'nowMs'>,
  texts: readonly (() => Promise<string>)[],
): Metrics {
  const nowMs = (): number => clock.nowMs()
  const metrics = new Metrics()
  for (const text of texts) metrics.include(text)
  collectFleet(metrics, args)
  collectLoads(metrics, args)
  collectAudits(metrics, args)
  collectHealth(metrics, args)
  collectGuard(metrics, args)
  collectQueue(metrics, args, nowMs)
  collectReplicas(metrics, args)
  collectBusy(metrics, args, nowMs)
  collectShards(metrics, args)
  collectTokenizer(metrics, args)
  if (args.whatIf !== undefined) collectWhatIf(metrics, args.whatIf, args.askMsMax)
  if (args.decisionLog !== undefined) collectDecisionLog(metrics, args.decisionLog, args.askMsMax)
  collectActors(metrics, system)
  return metrics
}

const FACT_COLUMNS: readonly MetricColumn<WorkerRecord>[] = [
  ['homing_worker_kv_blocks', 'KV blocks of each rank of the worker.', ({ kvBlocks }) => kvBlocks?.value],
  [
    'homing_worker_block_tokens',
    'Tokens of a KV block of the worker.',
    ({ blockSizeTokens }) => blockSizeTokens?.value,
  ],
  [
    'homing_worker_step_tokens',
    'Most tokens that the worker computes in one step (max_num_batched_tokens).',
    ({ maxBatchedTokens }) => maxBatchedTokens.value,
  ],
  [
    'homing_worker_context_tokens',
    'Longest prompt with its output that the models of the worker take.',
    ({ models }) => largestContext(models),
  ],
]

function largestContext(models: WorkerRecord['models']): number | undefined {
  const known = models.flatMap(({ maxModelTokens }) => maxModelTokens ?? [])
  return known.length === 0 ? undefined : Math.max(...known)
}

function collectFleet(metrics: Metrics, args: ConsoleArgs): void {
  const state = metrics.gauge({
    name: 'homing_directory_worker_state',
    help: '1 for the current state of each worker: probing, up, down, draining.',
    labels: ['worker', 'state'],
  })
  const trust = metrics.gauge({
    name: 'homing_directory_trust_state',
    help: '1 for the current trust in each worker key: exact, partial, approximate, none.',
    labels: ['worker', 'trust'],
  })
  const age = metrics.gauge({
    name: 'homing_listener_last_event_seconds',
    help: 'Time since the last batch of KV events; silence is normal while an engine is idle.',
    labels: ['worker'],
  })
  const facts = metrics.table(['worker'], FACT_COLUMNS)
  const counters = metrics.table(['worker'], counterColumns('listener', SOURCE_COUNTERS))
  const checkpoints = metrics.counter({
    name: 'homing_listener_checkpoints_total',
    help: 'Checkpoints that were written, or could not be written.',
    labels: ['worker', 'outcome'],
  })
  const setSnapshots = streamMetrics(metrics)
  metrics.collect(async () => {
    const { fleet, sources, snapshots } = await args.directory.ask(
      { type: 'describe' },
      { timeout: args.askMsMax },
    )
    setSnapshots(snapshots)
    state.replace(
      fleet.workers.flatMap(({ id, state: current }) =>
        STATES.map(name => ({ value: name === current ? 1 : 0, labels: { worker: id, state: name } })),
      ),
    )
    const keys = fleet.workers.flatMap(worker => worker.keys)
    trust.replace(
      keys.flatMap(key =>
        TRUSTS.map(name => ({ value: name === key.trust ? 1 : 0, labels: { worker: key.key, trust: name } })),
      ),
    )
    const known = keys.flatMap(key => {
      const source = sources[key.workerSlot]
      return source === undefined ? [] : [{ worker: key.key, source }]
    })
    age.replace(
      known.flatMap(({ worker, source: { lastEventAgeMs } }) =>
        lastEventAgeMs === undefined ? [] : [{ value: lastEventAgeMs / 1000, labels: { worker } }],
      ),
    )
    counters.update(known.map(({ worker, source }) => ({ row: source, labels: { worker } })))
    facts.replace(fleet.workers.map(worker => ({ row: worker, labels: { worker: worker.id } })))
    // A slow listener keeps its last figures; a key that has left does not.
    const names = new Set(keys.map(({ key }) => key))
    const isHere = ({ worker }: { readonly worker: string | number }) => names.has(String(worker))
    await Promise.all([counters.keepOnly(isHere), checkpoints.keepOnly(isHere)])
    for (const { worker, source } of known) {
      const { saves, failedSaves } = source.checkpoint
      if (saves > 0) checkpoints.setTotal(saves, { worker, outcome: 'saved' })
      if (failedSaves > 0) checkpoints.setTotal(failedSaves, { worker, outcome: 'failed' })
    }
  })
}

function collectAudits(metrics: Metrics, args: ConsoleArgs): void {
  const table = metrics.table(['worker'], AUDIT_COLUMNS)
  const errors = metrics.histogramTotals({
    name: 'homing_audit_error_blocks',
    help: 'Blocks predicted to be cached minus blocks delivered; below 0, more was cached than predicted.',
    labels: ['worker'],
    buckets: ERROR_BOUNDS_BLOCKS,
  })
  metrics.collect(async () => {
    const audits = await args.router.ask({ type: 'audits' }, { timeout: args.askMsMax })
    table.replace(audits.map(row => ({ row, labels: { worker: row.worker } })))
    errors.replace(
      audits.map(({ worker, errorCounts, errorBlocksSum }) => ({
        counts: errorCounts,
        sum: errorBlocksSum,
        labels: { worker },
      })),
    )
  })
}

function collectHealth(metrics: Metrics, args: ConsoleArgs): void {
  const table = metrics.table(['worker'], HEALTH_COLUMNS)
  metrics.collect(async () => {
    const rows = await args.router.ask({ type: 'health' }, { timeout: args.askMsMax })
    table.replace(rows.map(row => ({ row, labels: { worker: row.worker } })))
  })
}

function collectLoads(metrics: Metrics, args: ConsoleArgs): void {
  const loads = metrics.table(['worker'], LOAD_COLUMNS)
  const expired = metrics.counter({
    name: 'homing_tracker_expired_requests_total',
    help: 'Bookings freed because nobody touched them (--active-request-expiry-secs).',
  })
  const odd = metrics.gauge({
    name: 'homing_tracker_odd_ratio',
    help: 'What was learned of a worker divided by that of its twins, or by the prior; only while that is far from 1.',
    labels: ['worker', 'figure'],
  })
  const saves = metrics.counter({
    name: 'homing_tracker_learned_saves_total',
    help: 'Times that what was learned was to be written to --router-learned-file.',
    labels: ['outcome'],
  })
  metrics.collect(async () => {
    const found = await args.tracker.ask({ type: 'loads' }, { timeout: args.askMsMax })
    const { rows, stats, learnedFile } = found
    loads.replace(rows.map(row => ({ row, labels: { worker: row.worker } })))
    expired.setTotal(stats.expiredTotal)
    odd.replace(
      rows.flatMap(({ worker, odd: marks = [] }) =>
        marks.map(({ figure, times }) => ({ value: times, labels: { worker, figure } })),
      ),
    )
    if (learnedFile === undefined) return
    saves.setTotal(learnedFile.saves, { outcome: 'saved' })
    saves.setTotal(learnedFile.failedSaves, { outcome: 'failed' })
  })
}

function collectTokenizer(metrics: Metrics, args: ConsoleArgs): void {
  const checks = metrics.counter({
    name: 'homing_tokenizer_checks_total',
    help: 'Prompts whose token ids were compared with those of an engine (--tokenize-check-every).',
    labels: ['outcome'],
  })
  const hedges = metrics.counter({
    name: 'homing_tokenizer_hedges_total',
    help: 'Questions (/tokenize) to a further engine because those asked before were silent (--tokenize-hedge).',
  })
  const setAside = metrics.gauge({
    name: 'homing_tokenizer_silent_state',
    help: '1 for each worker that is not asked to tokenize for a while, because it was silent.',
    labels: ['worker'],
  })
  const path = metrics.gauge({
    name: 'homing_tokenizer_path_state',
    help: '1 for who encodes the prompts of each model: own, library, engine.',
    labels: ['model', 'path'],
  })
  const cache = metrics.gauge({
    name: 'homing_tokenizer_cache_bytes',
    help: 'Memory for what has been read of earlier requests (--prompt-cache-bytes).',
  })
  const words = metrics.gauge({
    name: 'homing_tokenizer_word_table_bytes',
    help: 'Memory for words with their token ids, over all tokenizers and threads (--word-table-bytes for each).',
  })
  const vocabularies = metrics.gauge({
    name: 'homing_tokenizer_vocabulary_bytes',
    help: 'Memory for vocabularies and merges of the own encoder, which all threads share.',
  })
  metrics.collect(async () => {
    const status = await args.tokenizer.ask({ type: 'tokenizers' }, { timeout: args.askMsMax })
    checks.setTotal(status.checks - status.differences, { outcome: 'equal' })
    checks.setTotal(status.differences, { outcome: 'different' })
    checks.setTotal(status.checksFailed, { outcome: 'failed' })
    hedges.setTotal(status.hedges)
    setAside.replace(status.setAside.map(worker => ({ value: 1, labels: { worker } })))
    cache.set(status.promptCacheBytes)
    words.set(status.wordTableBytes)
    vocabularies.set(status.vocabularyBytes)
    const { modelsMax } = args.modelLabels
    path.replace(
      status.tokenizers.flatMap(({ models, path: name }) => [
        ...models.slice(0, modelsMax).map(model => ({ value: 1, labels: { model, path: name } })),
        ...(models.length > modelsMax
          ? [{ value: models.length - modelsMax, labels: { model: OTHER_NAMES, path: name } }]
          : []),
      ]),
    )
  })
}

/** Kinds of events that have another name in metrics. */
const EVENT_NAMES: Readonly<Record<string, string>> = { transition: 'cxl_transition' }

function collectShards(metrics: Metrics, args: ConsoleArgs): void {
  const table = metrics.table<ShardStatus, 'shard'>(['shard'], [...SHARD_COLUMNS, ...GUESS_COLUMNS])
  const events = metrics.counter({
    name: 'homing_index_events_total',
    help: 'KV events of engines: applied (ok), or skipped, by why.',
    labels: ['shard', 'event', 'status'],
  })
  metrics.collect(async () => {
    const shards = await Promise.all(
      args.indexers.map(indexer => indexer.ask({ type: 'status' }, { timeout: args.askMsMax })),
    )
    table.update(shards.map((row, shard) => ({ row, labels: { shard } })))
    for (const [shard, { eventsApplied, eventsSkipped }] of shards.entries()) {
      for (const [event, count] of Object.entries(eventsApplied))
        events.setTotal(count, { shard, event: EVENT_NAMES[event] ?? event, status: 'ok' })
      for (const [status, count] of Object.entries(eventsSkipped))
        if (count > 0) events.setTotal(count, { shard, event: 'skipped', status: snakeCase(status) })
    }
  })
}

function collectWhatIf(metrics: Metrics, whatIf: ActorRef<WhatIfMessage>, askMsMax: number): void {
  const requests = metrics.gauge({
    name: 'homing_what_if_kept_requests',
    help: 'Requests of the last minutes that are kept, to ask what if.',
  })
  const bytes = metrics.gauge({ name: 'homing_what_if_kept_bytes', help: 'Memory that they take.' })
  const dropped = metrics.counter({
    name: 'homing_what_if_dropped_requests_total',
    help: 'Requests that found no room there.',
  })
  const runs = metrics.counter({
    name: 'homing_what_if_runs_total',
    help: 'Questions that have ended, by how.',
    labels: ['outcome'],
  })
  const cpu = metrics.counter({
    name: 'homing_what_if_cpu_seconds_total',
    help: 'Processor time that answers took, on their own threads.',
  })
  metrics.collect(async () => {
    const { kept, ended, cpuMs } = await whatIf.ask({ type: 'whatIfReport' }, { timeout: askMsMax })
    requests.set(kept.requests)
    bytes.set(kept.bytes)
    dropped.setTotal(kept.dropped)
    for (const [outcome, times] of Object.entries(ended)) runs.setTotal(times, { outcome })
    cpu.setTotal(cpuMs / 1000)
  })
}

function collectDecisionLog(metrics: Metrics, log: ActorRef<DecisionLogMessage>, askMsMax: number): void {
  const requests = metrics.counter({
    name: 'homing_decision_log_requests_total',
    help: 'Settled requests that were written to the decision log, and those that were dropped.',
    labels: ['outcome'],
  })
  const bytes = metrics.counter({
    name: 'homing_decision_log_bytes_total',
    help: 'Bytes written to the decision log.',
  })
  const broken = metrics.gauge({
    name: 'homing_decision_log_broken_state',
    help: '1 while the file of the decision log cannot be written.',
  })
  metrics.collect(async () => {
    const status = await log.ask({ type: 'status' }, { timeout: askMsMax })
    requests.setTotal(status.written, { outcome: 'written' })
    requests.setTotal(status.dropped, { outcome: 'dropped' })
    bytes.setTotal(status.bytes)
    broken.set(status.fault === undefined ? 0 : 1)
  })
}

/** Counters of an area, by field: `predictedTokens` is `homing_<area>_predicted_tokens_total`. */
function counterColumns<F extends string>(
  area: string,
  helps: Readonly<Record<F, string>>,
): readonly MetricColumn<Readonly<Record<F, number>>>[] {
  return (Object.entries(helps) as [F, string][]).map(([field, help]) => {
    return [`homing_${area}_${snakeCase(field)}_total`, help, row => row[field]]
  })
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, letter => `_${letter.toLowerCase()}`)
}
