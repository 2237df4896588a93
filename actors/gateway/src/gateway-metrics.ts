/**
 * The gateway's own metrics. The gateway renders them; the console shows them with those of other actors.
 */

import type { Clock } from '@homing/base'
import { type AccessLog, type Bodies, type FollowedFiles, tlsExpirySeconds } from '@homing/http'
import {
  type Counter,
  type FilesFigures,
  fileMetrics,
  type Gauge,
  Metrics,
  type ModelLabels,
  type ViewFigures,
  viewMetrics,
} from '@homing/metrics'
import type { Decision, RoutingRequest } from '@homing/placement'
import type { ConnectionRefusal, ExtProcCounts, TcpCounts, TlsIdentity } from '@homing/transport'
import type { KeyRefusal } from './client-door.ts'
import type { ContinuationMemory, ContinuationOutcome } from './continuation-memory.ts'
import type { HedgeOutcome } from './hedge-limits.ts'
import type { GuardedHint } from './hint-trust.ts'
import type { NextTurnCounts } from './next-turn.ts'
import type { AloneReason, LegOutcome } from './prefill-pools.ts'
import { RequestMetrics } from './request-metrics.ts'
import type { GivenUp } from './sliced-prompt.ts'
import { tcpMetrics } from './tcp-metrics.ts'
import type { TokenEnding } from './tokens/token-state.ts'
import type { TraceFigures } from './tracing.ts'

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300]

const NO_SPANS: TraceFigures = { exported: 0, failed: 0, dropped: 0, waiting: 0 }
const NO_STREAMS: ExtProcCounts = {
  streams: 0,
  ended: 0,
  left: 0,
  refused: 0,
  moved: 0,
  malformed: 0,
  full: 0,
}

/** Undefined: no certificate, or no keys. */
export interface AccessFigures {
  readonly tls: FollowedFiles<TlsIdentity> | undefined
  readonly clients: { readonly open: number; readonly file: FilesFigures } | undefined
}

export class GatewayMetrics {
  readonly #metrics = new Metrics()
  /** Metrics of placed requests, by model and stage. */
  readonly requests: RequestMetrics
  readonly #readTcp: () => void
  readonly #requests: Counter<'route' | 'status'>
  readonly #failures: Counter<'route' | 'phase'>
  readonly #clientsGone: Counter<'route'>
  readonly #clientsStalled: Counter<'route'>
  readonly #madeRoom: Counter<'setting'>
  readonly #hintsIgnored: Counter<'hint'>
  readonly #keptAlive: Counter<'route'>
  readonly #firstByte
  readonly #duration
  readonly #decisions: Counter<'worker' | 'trust'>
  readonly #promptTokens: Counter
  readonly #overlapTokens: Counter
  readonly #unknownPrompts: Counter
  readonly #textPrompts: Counter
  readonly #open: Gauge
  readonly #connections: Gauge
  readonly #connectionsRefused: Counter<'reason'>
  readonly #keysRefused: Counter<'reason'>
  readonly #bodyBytes: Gauge
  readonly #sharedBodyBytes: Gauge
  readonly #sharedKeptBytes: Gauge
  readonly #responses: Gauge
  readonly #responsesLost: Counter
  readonly #nextTurns: Counter<'outcome'>
  readonly #reservations: Gauge
  readonly #reservationsExpired: Counter
  readonly #pickerStreams: Gauge
  readonly #pickerEnds: Counter<'outcome'>
  readonly #slices: Counter
  readonly #slicedPrompts: Counter<'outcome'>
  readonly #legs: Counter<'outcome'>
  readonly #alone: Counter<'reason'>
  readonly #continuations: Counter<'outcome'>
  readonly #continuationBytes: Gauge
  readonly #tokenAnswers: Counter<'end'>
  readonly #unknownTokens: Counter
  readonly #hedges: Counter<'outcome'>
  readonly #hedgeTokens: Counter
  readonly #prefillActive: Gauge<'model'>
  readonly #accessLines: Counter<'outcome'>
  readonly #accessLogBroken: Gauge
  readonly #traceSpans: Counter<'outcome'>
  readonly #traceWaiting: Gauge
  #readViews: () => void = () => {}
  /** Figures of files that are followed. */
  readonly #readFiles: (() => void)[] = []

  constructor(labels: ModelLabels, clock: Pick<Clock, 'nowMs'>, tcp: Readonly<TcpCounts>) {
    const metrics = this.#metrics
    this.#readTcp = tcpMetrics(metrics, tcp)
    this.requests = new RequestMetrics(metrics, labels, clock)
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
      help: 'Clients cut off because they took no byte of their answer (--client-stall-timeout).',
      labels: ['route'],
    })
    this.#madeRoom = metrics.counter({
      name: 'homing_gateway_made_room_requests_total',
      help: 'Waiting requests refused to make room for another tenant, by the setting whose bound was reached.',
      labels: ['setting'],
    })
    this.#hintsIgnored = metrics.counter({
      name: 'homing_gateway_ignored_hints_total',
      help: 'Hints of requests that did not count (--router-trusted-hints), by hint.',
      labels: ['hint'],
    })
    this.#keptAlive = metrics.counter({
      name: 'homing_gateway_keep_alive_comments_total',
      help: 'Comments sent to clients whose streams had not begun yet (--stream-keep-alive).',
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
      help: 'Decisions, by chosen worker key and the trust in it.',
      labels: ['worker', 'trust'],
    })
    this.#promptTokens = metrics.counter({
      name: 'homing_router_prompt_tokens_total',
      help: 'Prompt tokens of placed requests whose prompt is known.',
    })
    this.#overlapTokens = metrics.counter({
      name: 'homing_router_overlap_tokens_total',
      help: 'Prompt tokens that the chosen worker was predicted to hold.',
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
    this.#connections = metrics.gauge({
      name: 'homing_gateway_open_connections',
      help: 'Connections of clients, with and without a request (--max-connections).',
    })
    this.#connectionsRefused = metrics.counter({
      name: 'homing_gateway_refused_connections_total',
      help: 'Connections of clients that were not taken: bound, --max-connections were there; system, the process had no open file left.',
      labels: ['reason'],
    })
    this.#keysRefused = metrics.counter({
      name: 'homing_gateway_client_keys_refused_total',
      help: 'Requests that --client-keys-file does not allow: missing or unknown key; concurrency, rate or tokens, a limit of the key; model, one that the key may not use or that is not there.',
      labels: ['reason'],
    })
    this.#bodyBytes = metrics.gauge({
      name: 'homing_gateway_body_bytes',
      help: 'Request bodies in memory (--max-bodies-bytes).',
    })
    this.#sharedBodyBytes = metrics.gauge({
      name: 'homing_gateway_shared_body_bytes',
      help: 'Request bodies in memory that threads share, at most 32 MiB; others have memory of their own.',
    })
    this.#sharedKeptBytes = metrics.gauge({
      name: 'homing_gateway_shared_body_kept_bytes',
      help: 'Memory for bodies that threads share, used and kept; left after 30 s without such a body.',
    })
    this.#responses = metrics.gauge({
      name: 'homing_gateway_remembered_responses',
      help: 'Responses whose worker is remembered (--max-remembered-responses).',
    })
    this.#responsesLost = metrics.counter({
      name: 'homing_gateway_lost_responses_total',
      help: 'Requests that refer to a response whose worker is gone or not remembered; they were placed by load.',
    })
    this.#nextTurns = metrics.counter({
      name: 'homing_gateway_next_turns_total',
      help: 'Next turns of chats that clients asked to compute (agent_hints.speculative_prefill), by whether they were sent.',
      labels: ['outcome'],
    })
    this.#reservations = metrics.gauge({
      name: 'homing_gateway_reserved_requests',
      help: 'Requests that programs have booked by an id of their own and not freed yet.',
    })
    this.#reservationsExpired = metrics.counter({
      name: 'homing_gateway_expired_requests_total',
      help: 'Requests that programs booked and did not free (--active-request-expiry-secs).',
    })
    this.#pickerStreams = metrics.gauge({
      name: 'homing_picker_open_requests',
      help: 'Requests about which an Envoy asks, or whose answers it shows (--picker-port).',
    })
    this.#pickerEnds = metrics.counter({
      name: 'homing_picker_requests_total',
      help: 'What became of the streams of Envoys: ended, with the answer of a worker; left, before its end, by the client or an Envoy that shows no answers; refused, answered by the router; malformed; full, there were too many streams or connections. moved counts, besides, those that another worker of the list has answered.',
      labels: ['outcome'],
    })
    this.#slices = metrics.counter({
      name: 'homing_gateway_prefill_slices_total',
      help: 'Slices of long prompts that engines have computed (--router-prefill-slices).',
    })
    this.#slicedPrompts = metrics.counter({
      name: 'homing_gateway_sliced_prompts_total',
      help: 'Long prompts sent in slices: computed, or why the rest was sent whole (refused, failed, silent, evicted, not_placed), or deadline: it was refused.',
      labels: ['outcome'],
    })
    this.#legs = metrics.counter({
      name: 'homing_gateway_prefill_legs_total',
      help: 'Prompts that prefill workers were to compute: handed_over; answered: the first token ended the answer; not_handed_over, refused, failed, silent, not_placed; or deadline: the request was refused.',
      labels: ['outcome'],
    })
    this.#alone = metrics.counter({
      name: 'homing_gateway_decode_alone_total',
      help: 'Requests of models with prefill workers that went to one worker as a whole: inactive, no hand-over was possible; unfit, the request needs one worker; no_room, for the bodies of two legs; cached, too little was left to compute; cheaper, that was expected to cost less; failed, the prefill leg; lost, the hand-over.',
      labels: ['reason'],
    })
    this.#continuations = metrics.counter({
      name: 'homing_gateway_continuations_total',
      help: 'Streams whose worker failed in the middle: place, another one went on; end, only the end was missing; else why none could go on (docs/reliability.md).',
      labels: ['outcome'],
    })
    this.#tokenAnswers = metrics.counter({
      name: 'homing_gateway_token_answers_total',
      help: 'Answers of workers that give token ids, by what ended them.',
      labels: ['end'],
    })
    this.#unknownTokens = metrics.counter({
      name: 'homing_gateway_unknown_tokens_total',
      help: 'Token ids in such answers that the tokenizer of the model does not have: they give no text.',
    })
    this.#hedges = metrics.counter({
      name: 'homing_gateway_hedges_total',
      help: 'Streams whose first token was late (--hedge-after): won or lost, what the second worker did; failed, it did; not_placed, none was free for it; budget, --retry-budget was used up.',
      labels: ['outcome'],
    })
    this.#hedgeTokens = metrics.counter({
      name: 'homing_gateway_hedge_tokens_total',
      help: 'Prompt tokens that a worker was to compute for a stream that another one served (--hedge-after).',
    })
    this.#continuationBytes = metrics.gauge({
      name: 'homing_gateway_continuation_bytes',
      help: 'What open streams keep of their text, or of their token ids, to be continued elsewhere (--migration-memory).',
    })
    this.#prefillActive = metrics.gauge({
      name: 'homing_gateway_prefill_active_state',
      help: 'Of models with prefill or decode workers: 1 while prompts are computed by prefill workers, else 0 (prefill_state in GET /workers).',
      labels: ['model'],
    })
    this.#accessLines = metrics.counter({
      name: 'homing_access_log_lines_total',
      help: 'Lines of the access log that were written, or dropped because there was no room (--access-log).',
      labels: ['outcome'],
    })
    this.#traceSpans = metrics.counter({
      name: 'homing_gateway_trace_spans_total',
      help: 'Spans for the collector of --otlp-endpoint: exported, failed where it did not take them, or dropped because as many waited as may (--otlp-queue-spans).',
      labels: ['outcome'],
    })
    this.#traceWaiting = metrics.gauge({
      name: 'homing_gateway_trace_waiting_spans',
      help: 'Spans that wait for the collector, or are on their way to it (--otlp-queue-spans).',
    })
    this.#accessLogBroken = metrics.gauge({
      name: 'homing_access_log_broken_state',
      help: '1 while the access log cannot be written.',
    })
  }

  /** Of the operator routes, if they are on the port of the gateway. */
  addViews(figures: ViewFigures): void {
    this.#readViews = viewMetrics(this.#metrics, 'homing_operator', figures)
  }

  /** Of certificate and keys, where there are any. `tells`: of several gateways it is the first. */
  addAccess({ tls, clients }: AccessFigures, tells: boolean): void {
    const expiry = this.#metrics.gauge({
      name: 'homing_gateway_tls_expiry_timestamp_seconds',
      help: 'Unix time at which the certificate of --tls-cert ends; absent without one.',
    })
    const open = this.#metrics.gauge({
      name: 'homing_gateway_client_key_open_requests',
      help: 'Requests being answered whose client has shown a key (--client-keys-file).',
    })
    const readTls = fileMetrics(this.#metrics, 'homing_gateway_tls', '--tls-cert and --tls-key')
    const readKeys = fileMetrics(this.#metrics, 'homing_gateway_client_keys', '--client-keys-file')
    this.#readFiles.push(() => {
      readTls(tls, tells)
      readKeys(clients?.file, tells)
      expiry.replace(tls === undefined ? [] : [{ value: tlsExpirySeconds(tls), labels: {} }])
      open.set(clients?.open ?? 0)
    })
  }

  /** Undefined: requests are not traced. */
  traced({ exported, failed, dropped, waiting }: TraceFigures = NO_SPANS): void {
    for (const [outcome, spans] of Object.entries({ exported, failed, dropped }))
      this.#traceSpans.setTotal(spans, { outcome })
    this.#traceWaiting.set(waiting)
  }

  /** Counts a request that --client-keys-file does not allow. */
  keyRefused(reason: KeyRefusal): void {
    this.#keysRefused.add(1, { reason })
  }

  head(route: string, status: number): void {
    this.#requests.add(1, { route, status })
  }

  keptAlive(route: string): void {
    this.#keptAlive.add(1, { route })
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

  /** Counts an error that the router answered itself. */
  refused(route: string, status: number): void {
    this.#requests.add(1, { route, status })
  }

  connectionRefused(reason: ConnectionRefusal): void {
    this.#connectionsRefused.add(1, { reason })
  }

  clientGone(route: string): void {
    this.#clientsGone.add(1, { route })
  }

  clientStalled(route: string): void {
    this.#clientsStalled.add(1, { route })
  }

  /** Counts a waiting request that was refused to make room. */
  madeRoom(setting: string): void {
    this.#madeRoom.add(1, { setting })
  }

  /** Counts a hint of a tenant that is not trusted. */
  hintIgnored(hint: GuardedHint): void {
    this.#hintsIgnored.add(1, { hint })
  }

  /** Counts a request that refers to a response whose worker is not known. */
  responseLost(): void {
    this.#responsesLost.add(1)
  }

  decided(routing: RoutingRequest, decision: Decision): void {
    this.#decisions.add(1, { worker: decision.worker, trust: decision.trust })
    const isUnknown = routing.unknownPromptReason !== undefined
    // Of an estimate no part could be found in a cache.
    if (!isUnknown) this.#promptTokens.add(routing.promptTokens)
    this.#overlapTokens.add(decision.overlapBlocks * routing.blockSizeTokens)
    if (isUnknown) this.#unknownPrompts.add(1)
    if (routing.textBlocksReason !== undefined) this.#textPrompts.add(1)
  }

  nextTurns({ sent, skipped }: NextTurnCounts): void {
    this.#nextTurns.setTotal(sent, { outcome: 'sent' })
    this.#nextTurns.setTotal(skipped, { outcome: 'skipped' })
  }

  reservations({ open, expired }: { readonly open: number; readonly expired: number }): void {
    this.#reservations.set(open)
    this.#reservationsExpired.setTotal(expired)
  }

  /** Undefined: no Envoy asks. */
  picked(counts: Readonly<ExtProcCounts> = NO_STREAMS): void {
    const { streams, ...ends } = counts
    this.#pickerStreams.set(streams)
    for (const [outcome, count] of Object.entries(ends)) this.#pickerEnds.setTotal(count, { outcome })
  }

  sliceSent(): void {
    this.#slices.add(1)
  }

  slicesEnded(outcome: GivenUp | 'computed' | 'deadline'): void {
    this.#slicedPrompts.add(1, { outcome })
  }

  /** Whether prefill is active, of each model with prefill or decode workers. */
  prefillStates(isActive: ReadonlyMap<string, boolean>): void {
    this.#prefillActive.replace(
      Array.from(isActive, ([model, active]) => ({ value: active ? 1 : 0, labels: { model } })),
    )
  }

  legEnded(outcome: LegOutcome): void {
    this.#legs.add(1, { outcome })
  }

  decodedAlone(reason: AloneReason): void {
    this.#alone.add(1, { reason })
  }

  /** An answer of token ids is over. */
  tokenAnswer(end: TokenEnding | 'failed', unknownIds: number): void {
    this.#tokenAnswers.add(1, { end })
    if (unknownIds > 0) this.#unknownTokens.add(unknownIds)
  }

  continuation(outcome: ContinuationOutcome): void {
    this.#continuations.add(1, { outcome })
  }

  /** `twiceTokens`: that were paid for in vain. */
  hedged(outcome: HedgeOutcome, twiceTokens: number): void {
    this.#hedges.add(1, { outcome })
    if (twiceTokens > 0) this.#hedgeTokens.add(twiceTokens)
  }

  continuationMemory({ bytes }: ContinuationMemory): void {
    this.#continuationBytes.set(bytes)
  }

  /** Drops the figures of worker keys that have left the fleet. */
  async workersLeft(isHere: (worker: string) => boolean): Promise<void> {
    await this.#decisions.keepOnly(({ worker }) => isHere(String(worker)))
    this.requests.workersLeft(isHere)
  }

  async render(
    openRequests: number,
    connections: number,
    bodies: Pick<Bodies, 'bytes' | 'sharedBytes' | 'sharedKeptBytes'>,
    responses: number,
    accessLog: Pick<AccessLog, 'written' | 'dropped' | 'fault'> | undefined,
  ): Promise<string> {
    this.requests.sweep()
    this.#readViews()
    this.#readTcp()
    for (const readFiles of this.#readFiles) readFiles()
    this.#open.set(openRequests)
    this.#connections.set(connections)
    this.#bodyBytes.set(bodies.bytes)
    this.#sharedBodyBytes.set(bodies.sharedBytes)
    this.#sharedKeptBytes.set(bodies.sharedKeptBytes)
    this.#responses.set(responses)
    this.#accessLines.setTotal(accessLog?.written ?? 0, { outcome: 'written' })
    this.#accessLines.setTotal(accessLog?.dropped ?? 0, { outcome: 'dropped' })
    this.#accessLogBroken.set(accessLog?.fault === undefined ? 0 : 1)
    return this.#metrics.render()
  }
}
