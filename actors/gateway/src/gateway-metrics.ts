/**
 * What `/metrics` says: counted here as requests pass, or fetched from the owner at scrape time.
 *
 * A figure whose owner does not answer in time keeps its last value; the scrape never fails for it.
 */

import type { SystemView } from '@homing/actor'
import type { FleetReport, SourceStatus, Trust } from '@homing/directory'
import type { ShardStatus } from '@homing/indexer'
import { type Counter, type Gauge, Metrics } from '@homing/metrics'
import type { Decision, RoutingRequest } from '@homing/router'
import { ERROR_BOUNDS_BLOCKS, type KeyAudit } from '@homing/selection'
import type { LoadReport } from '@homing/tracker'
import { collectActors } from './actor-metrics.ts'
import type { GatewayArgs } from './gateway-args.ts'

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300]
const TRUSTS: readonly Trust[] = ['exact', 'partial', 'approximate', 'none']

/** Counters of a listener, by the name of the metric. */
const SOURCE_COUNTERS = {
  batches: 'Batches of KV events received.',
  events: 'KV events received.',
  gaps: 'Holes in the sequence of a worker key.',
  replays: 'Replays asked for.',
  restarts: 'Engine restarts and resets of the sequence.',
  duplicates: 'Batches that had been applied already.',
  lostFrames:
    'Messages on the event socket that came faster than they could be read; each run of them is a gap.',
  malformedFrames: 'Messages on the event socket that cannot be read.',
  skippedEvents: 'KV events of an unknown or malformed kind.',
} as const satisfies Partial<Record<keyof SourceStatus, string>>

/** Counters of the audit, by the name of the metric. */
const AUDIT_COUNTERS = {
  requests: 'Answers whose cached tokens were compared with what was predicted.',
  predictedTokens: 'Prompt tokens that were predicted to be cached, of the answers compared.',
  deliveredTokens: 'Prompt tokens that engines reported as cached, of the answers compared.',
  overPredictions: 'Answers with more than a block less cached than predicted.',
  underPredictions: 'Answers with more than a block more cached than predicted.',
  unreported: 'Answers that could not be compared: the engine reports no cached tokens.',
} as const satisfies Partial<Record<keyof KeyAudit, string>>

export class GatewayMetrics {
  readonly #metrics = new Metrics()
  readonly #requests: Counter<'route' | 'status'>
  readonly #failures: Counter<'route' | 'phase'>
  readonly #clientsGone: Counter<'route'>
  readonly #clientsStalled: Counter<'route'>
  readonly #firstByte
  readonly #duration
  readonly #decisions: Counter<'worker' | 'trust'>
  readonly #promptTokens: Counter
  readonly #overlapTokens: Counter
  readonly #unknownPrompts: Counter
  readonly #textPrompts: Counter
  readonly #open: Gauge

  constructor(
    args: GatewayArgs,
    system: SystemView,
    figures: { readonly openRequests: () => number; readonly bodyBytes: () => number },
  ) {
    const metrics = this.#metrics
    this.#requests = metrics.counter({
      name: 'homing_gateway_requests_total',
      help: 'Completions and relayed requests answered, and errors of every route, by HTTP status.',
      labels: ['route', 'status'],
    })
    this.#failures = metrics.counter({
      name: 'homing_gateway_failures_total',
      help: 'Requests that the fleet failed, before or after the first byte of the answer.',
      labels: ['route', 'phase'],
    })
    this.#clientsGone = metrics.counter({
      name: 'homing_gateway_clients_gone_total',
      help: 'Clients that left before their answer was complete.',
      labels: ['route'],
    })
    this.#clientsStalled = metrics.counter({
      name: 'homing_gateway_clients_stalled_total',
      help: 'Clients cut because they took no byte of their answer (--client-stall-timeout).',
      labels: ['route'],
    })
    this.#firstByte = metrics.histogram({
      name: 'homing_gateway_first_byte_seconds',
      help: 'Time from the arrival of a request to the first byte of its answer.',
      labels: ['route'],
      buckets: SECONDS,
    })
    this.#duration = metrics.histogram({
      name: 'homing_gateway_duration_seconds',
      help: 'Time from the arrival of a request to the end of its answer.',
      labels: ['route'],
      buckets: SECONDS,
    })
    this.#decisions = metrics.counter({
      name: 'homing_router_decisions_total',
      help: 'Decisions, by the worker key chosen and the trust in what is known of it.',
      labels: ['worker', 'trust'],
    })
    this.#promptTokens = metrics.counter({
      name: 'homing_router_prompt_tokens_total',
      help: 'Prompt tokens of placed requests.',
    })
    this.#overlapTokens = metrics.counter({
      name: 'homing_router_overlap_tokens_total',
      help: 'Prompt tokens that the chosen worker holds already, as predicted.',
    })
    this.#unknownPrompts = metrics.counter({
      name: 'homing_router_unknown_prompts_total',
      help: 'Requests placed by load because the tokens of their prompt are not known.',
    })
    this.#textPrompts = metrics.counter({
      name: 'homing_router_text_prompts_total',
      help: 'Requests placed by the text of their prompt because its tokens are not known.',
    })
    this.#open = metrics.gauge({ name: 'homing_gateway_open_requests', help: 'Requests being answered.' })
    const bodyBytes = metrics.gauge({
      name: 'homing_gateway_body_bytes',
      help: 'Request bodies in memory (--max-bodies-bytes).',
    })
    metrics.collect(() => {
      this.#open.set(figures.openRequests())
      bodyBytes.set(figures.bodyBytes())
    })
    metrics.observeProcess()
    collectFleet(metrics, args)
    collectLoads(metrics, args)
    collectAudits(metrics, args)
    collectShards(metrics, args)
    collectActors(metrics, system)
  }

  head(route: string, status: number): void {
    this.#requests.add(1, { route, status })
  }

  firstByte(route: string, elapsedMs: number): void {
    this.#firstByte.observe(elapsedMs / 1000, { route })
  }

  ended(route: string, elapsedMs: number): void {
    this.#duration.observe(elapsedMs / 1000, { route })
  }

  failed(route: string, phase: 'before_first_byte' | 'after_first_byte', status: number): void {
    this.#failures.add(1, { route, phase })
    if (phase === 'before_first_byte') this.#requests.add(1, { route, status })
  }

  /** An error that the router answered itself. */
  refused(route: string, status: number): void {
    this.#requests.add(1, { route, status })
  }

  clientGone(route: string): void {
    this.#clientsGone.add(1, { route })
  }

  clientStalled(route: string): void {
    this.#clientsStalled.add(1, { route })
  }

  decided(routing: RoutingRequest, decision: Decision): void {
    this.#decisions.add(1, { worker: decision.worker, trust: decision.trust })
    this.#promptTokens.add(routing.promptTokens)
    this.#overlapTokens.add(decision.overlapBlocks * routing.blockSizeTokens)
    if (routing.unknownPrompt !== undefined) this.#unknownPrompts.add(1)
    if (routing.textBlocks !== undefined) this.#textPrompts.add(1)
  }

  async render(): Promise<string> {
    return this.#metrics.render()
  }
}

function collectFleet(metrics: Metrics, args: GatewayArgs): void {
  const state = metrics.gauge({
    name: 'homing_directory_worker_state',
    help: '1 for the state each worker is in: probing, up, down.',
    labels: ['worker', 'state'],
  })
  const trust = metrics.gauge({
    name: 'homing_directory_trust_state',
    help: '1 for the trust in each worker key: exact, partial, approximate, none.',
    labels: ['worker', 'trust'],
  })
  const age = metrics.gauge({
    name: 'homing_listener_last_event_seconds',
    help: 'Time since the last batch of KV events; silence is normal while an engine is idle.',
    labels: ['worker'],
  })
  const counters = Object.entries(SOURCE_COUNTERS).map(([field, help]) => ({
    field: field as keyof typeof SOURCE_COUNTERS,
    counter: metrics.counter({
      name: `homing_listener_${snakeCase(field)}_total`,
      help,
      labels: ['worker'],
    }),
  }))
  const checkpoints = metrics.counter({
    name: 'homing_listener_checkpoints_total',
    help: 'Checkpoints written, or that could not be.',
    labels: ['worker', 'outcome'],
  })
  metrics.collect(async () => {
    const { fleet, sources }: FleetReport = await args.directory.ask(
      { type: 'describe' },
      { timeout: args.askMsMax },
    )
    state.replace(
      fleet.workers.map(worker => ({ value: 1, labels: { worker: worker.id, state: worker.state } })),
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
    for (const { field, counter } of counters) {
      for (const { worker, source } of known) counter.setTotal(source[field], { worker })
    }
    for (const { worker, source } of known) {
      const { saves, failedSaves } = source.checkpoint
      if (saves > 0) checkpoints.setTotal(saves, { worker, outcome: 'saved' })
      if (failedSaves > 0) checkpoints.setTotal(failedSaves, { worker, outcome: 'failed' })
    }
  })
}

function collectAudits(metrics: Metrics, args: GatewayArgs): void {
  const counters = Object.entries(AUDIT_COUNTERS).map(([field, help]) => ({
    field: field as keyof typeof AUDIT_COUNTERS,
    counter: metrics.counter({ name: `homing_audit_${snakeCase(field)}_total`, help, labels: ['worker'] }),
  }))
  const errors = metrics.histogramTotals({
    name: 'homing_audit_error_blocks',
    help: 'Blocks predicted to be cached less blocks delivered; below 0 more was there than predicted.',
    labels: ['worker'],
    buckets: ERROR_BOUNDS_BLOCKS,
  })
  const precision = metrics.gauge({
    name: 'homing_audit_precision_ratio',
    help: 'Tokens delivered of tokens predicted, over the last requests that something was predicted for.',
    labels: ['worker'],
  })
  metrics.collect(async () => {
    const audits = await args.router.ask({ type: 'audits' }, { timeout: args.askMsMax })
    for (const { field, counter } of counters) {
      counter.replaceTotals(audits.map(audit => ({ total: audit[field], labels: { worker: audit.worker } })))
    }
    errors.replace(
      audits.map(({ worker, errorCounts, errorBlocksSum }) => ({
        counts: errorCounts,
        sum: errorBlocksSum,
        labels: { worker },
      })),
    )
    const measured = audits.filter(({ sampleRequests }) => sampleRequests > 0)
    precision.replace(measured.map(({ worker, precision: value }) => ({ value, labels: { worker } })))
  })
}

/** `predictedTokens` to `predicted_tokens`. */
function snakeCase(field: string): string {
  return field.replace(/[A-Z]/g, letter => `_${letter.toLowerCase()}`)
}

function collectLoads(metrics: Metrics, args: GatewayArgs): void {
  const gauge = (what: string, help: string) =>
    metrics.gauge({ name: `homing_tracker_active_${what}`, help, labels: ['worker'] })
  const blocks = gauge('blocks', 'Blocks in use by running requests.')
  const tokens = gauge('prefill_tokens', 'Prompt tokens booked and not yet computed.')
  const requests = gauge('requests', 'Requests booked.')
  const expired = metrics.counter({
    name: 'homing_tracker_expired_requests_total',
    help: 'Bookings freed because nobody touched them (--active-request-expiry-secs).',
  })
  metrics.collect(async () => {
    const { rows, stats }: LoadReport = await args.tracker.ask({ type: 'loads' }, { timeout: args.askMsMax })
    const by = (value: (row: (typeof rows)[number]) => number) =>
      rows.map(row => ({ value: value(row), labels: { worker: row.worker } }))
    blocks.replace(by(row => row.activeBlocks))
    tokens.replace(by(row => row.activePrefillTokens))
    requests.replace(by(row => row.activeRequests))
    expired.setTotal(stats.expiredTotal)
  })
}

function collectShards(metrics: Metrics, args: GatewayArgs): void {
  const shardGauge = (name: string, help: string) => metrics.gauge({ name, help, labels: ['shard'] })
  const used = shardGauge('homing_index_used_bytes', 'Memory of the prefix index in use.')
  const limit = shardGauge(
    'homing_index_limit_bytes',
    'Most memory that the prefix index may use (--index-bytes).',
  )
  const distinct = shardGauge('homing_index_distinct_blocks', 'Blocks that at least one worker key holds.')
  const orphans = shardGauge('homing_index_orphan_blocks', 'Parked blocks whose parent is not known yet.')
  const evicted = metrics.counter({
    name: 'homing_index_evicted_blocks_total',
    help: 'Blocks forgotten to make space: above 0 the index under-reports.',
    labels: ['shard'],
  })
  const predicted = shardGauge(
    'homing_index_predicted_blocks',
    'Blocks taken to be cached at worker keys because they were sent there, each key by itself.',
  )
  const predictedBytes = shardGauge(
    'homing_index_predicted_bytes',
    'Memory of what was sent where, besides what its blocks take in the index.',
  )
  const expired = metrics.counter({
    name: 'homing_index_predicted_expired_blocks_total',
    help: 'Predicted blocks whose time was over (--router-ttl-secs, --router-predicted-ttl-secs).',
    labels: ['shard'],
  })
  const pruned = metrics.counter({
    name: 'homing_index_predicted_pruned_blocks_total',
    help: 'Predicted blocks forgotten because there were too many (--router-max-tree-size, or what the engine holds).',
    labels: ['shard'],
  })
  const shardStates = async (): Promise<ShardStatus[]> =>
    Promise.all(args.indexers.map(indexer => indexer.ask({ type: 'status' }, { timeout: args.askMsMax })))
  metrics.collect(async () => {
    const shards = await shardStates()
    const by = (value: (shard: ShardStatus) => number) =>
      shards.map((shard, number) => ({ value: value(shard), labels: { shard: number } }))
    used.replace(by(shard => shard.bytesUsed))
    limit.replace(by(shard => shard.bytesLimit))
    distinct.replace(by(shard => shard.blocksDistinct))
    orphans.replace(by(shard => shard.orphanBlocks))
    predicted.replace(by(shard => shard.predictions.blocks))
    predictedBytes.replace(by(shard => shard.predictions.bytes))
    for (const [number, shard] of shards.entries()) {
      evicted.setTotal(shard.blocksEvicted, { shard: number })
      expired.setTotal(shard.predictions.expired, { shard: number })
      pruned.setTotal(shard.predictions.pruned, { shard: number })
    }
  })
}
