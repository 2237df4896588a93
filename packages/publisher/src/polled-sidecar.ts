/**
 * Polled sidecar: asks a TensorRT-LLM server for its KV events over HTTP and publishes them as other engines
 * do, with a replay and snapshots. A server returns each event once, so only one client may ask: this one,
 * for all routers.
 *
 *   POST /kv_cache_events  ->  TensorRtEvents  ->  one republisher per rank
 *        └ fails  ->  withdrawn, once  ->  pause, doubling up to POLL_PAUSE_MS_MAX  ->  asked again
 *
 *   the answer                                          what is published
 *   has events                                          the same events, as vLLM writes them
 *   begins after a hole: the server's queue overflowed  a withdrawal, then the events
 *   has an event that cannot be read                    the events, then a withdrawal
 *   has an event of an unknown type                     the events, then one of an unknown kind, which says
 *                                                       that the cache is not fully known
 *   does not come                                       a withdrawal, at once
 */

import type { Clock, Log, Timer } from '@homing/base'
import {
  encodeKvBatch,
  type KvEvent,
  MalformedKvBatchError,
  type TensorRtAnswer,
  TensorRtEvents,
} from '@homing/protocol'
import { HttpCallError, type HttpTransport } from '@homing/transport'
import type { Republisher } from './republisher.ts'

/** An empty queue is answered after some 2 s. */
const TIMEOUT_MS = 10_000
const POLL_ANSWER_BYTES_MAX = 256 * 2 ** 20
const BATCH_EVENTS_MAX = 128
const POLL_PAUSE_MS_MIN = 100
const POLL_PAUSE_MS_MAX = 5000
const NO_BODY = new Uint8Array(0)

export interface PolledSidecarOptions {
  readonly clock: Clock
  readonly http: HttpTransport
  readonly log: Pick<Log, 'info' | 'warn'>
  /** 'http://127.0.0.1:8000'. */
  readonly engineOrigin: string
  /** The server's `tokens_per_block`. */
  readonly blockSizeTokens: number
  /** Pause between an answer and the next question. */
  readonly pollIntervalMs: number
  /** By rank. Closed by their owner, after this. */
  readonly ranks: readonly Republisher[]
}

export interface PolledSidecarStatus {
  /** The last question was answered with events that could be read, or with none. */
  readonly isAnswered: boolean
  /** Counters. */
  readonly answers: number
  readonly failures: number
  readonly gaps: number
  readonly unreadable: number
  /** Events of types that are not known. */
  readonly unknownTypes: number
  /** Events of ranks that there is no republisher for. */
  readonly foreignRanks: number
}

export class PolledSidecar {
  readonly #options: PolledSidecarOptions
  readonly #events: TensorRtEvents
  readonly #abort = new AbortController()
  #pause: { readonly timer: Timer; readonly end: () => void } | undefined
  #ended: Promise<void> | undefined
  /** Undefined: not asked yet. */
  #isAnswered: boolean | undefined
  #answers = 0
  #failures = 0
  #gaps = 0
  #unreadable = 0
  #unknownTypes = 0
  #foreignRanks = 0

  constructor(options: PolledSidecarOptions) {
    this.#options = options
    this.#events = new TensorRtEvents(options)
  }

  status(): PolledSidecarStatus {
    return {
      isAnswered: this.#isAnswered === true,
      answers: this.#answers,
      failures: this.#failures,
      gaps: this.#gaps,
      unreadable: this.#unreadable,
      unknownTypes: this.#unknownTypes,
      foreignRanks: this.#foreignRanks,
    }
  }

  /** Asks from now on until `close`. */
  start(): void {
    this.#ended ??= this.#run()
  }

  /** Asks no more; resolves when nothing is published any more. Idempotent. */
  async close(): Promise<void> {
    this.#abort.abort()
    this.#pause?.timer.cancel()
    this.#pause?.end()
    await this.#ended
  }

  async #run(): Promise<void> {
    let pauseMs = POLL_PAUSE_MS_MIN
    while (!this.#abort.signal.aborted) {
      const failure = await this.#ask()
      if (this.#abort.signal.aborted) return
      if (failure !== undefined) this.#failed(failure)
      await this.#wait(failure === undefined ? this.#options.pollIntervalMs : pauseMs)
      pauseMs = failure === undefined ? POLL_PAUSE_MS_MIN : Math.min(POLL_PAUSE_MS_MAX, pauseMs * 2)
    }
  }

  /** Why there are no events; undefined when there are, or none were to be had. */
  async #ask(): Promise<string | undefined> {
    const { http, engineOrigin: origin, log } = this.#options
    const request = { origin, method: 'POST', path: '/kv_cache_events', body: NO_BODY }
    const options = { timeoutMs: TIMEOUT_MS, maxBytes: POLL_ANSWER_BYTES_MAX, signal: this.#abort.signal }
    try {
      const { status, body } = await http.fetch(request, options)
      if (this.#abort.signal.aborted) return undefined
      if (status !== 200) {
        return `it answers ${status}; is kv_cache_config.event_buffer_max_size above 0 and enable_block_reuse on?`
      }
      const answer = this.#events.read(body)
      this.#answers++
      if (this.#isAnswered !== true) log.info({ engine: origin }, 'the engine answers with its KV events')
      this.#isAnswered = true
      this.#publish(answer)
      return undefined
    } catch (error) {
      if (!(error instanceof HttpCallError || error instanceof MalformedKvBatchError)) throw error
      return error.message
    }
  }

  #publish({ batches, skipped }: TensorRtAnswer): void {
    const { ranks, log, engineOrigin: engine } = this.#options
    for (const { rank, missedEvents, events } of batches) {
      const out = ranks[rank ?? 0]
      if (out === undefined) {
        if (this.#foreignRanks === 0) log.warn({ engine, rank }, 'events of a rank that was not configured')
        this.#foreignRanks += events.length
        continue
      }
      if (missedEvents > 0) {
        this.#gaps++
        log.warn(
          { engine, lost: missedEvents },
          'events of the engine were lost: earlier events are withdrawn',
        )
        out.withdraw()
      }
      for (let from = 0; from < events.length; from += BATCH_EVENTS_MAX) {
        this.#send(out, rank, events.slice(from, from + BATCH_EVENTS_MAX))
      }
    }
    if (skipped.unknownTag > 0) {
      if (this.#unknownTypes === 0) log.warn({ engine }, 'events of the engine are of unknown types')
      this.#unknownTypes += skipped.unknownTag
      const timestampSeconds = this.#options.clock.wallMs() / 1000
      for (const [i, out] of ranks.entries()) {
        const rank = ranks.length === 1 ? undefined : i
        const batch = { timestampSeconds, rank, events: [], unknownEvents: skipped.unknownTag }
        out.publish(batch, encodeKvBatch(batch, 'vllm-map'), false)
      }
    }
    if (skipped.malformed === 0) return
    this.#unreadable += skipped.malformed
    log.warn({ engine, events: skipped.malformed }, 'events cannot be read: earlier events are withdrawn')
    for (const out of ranks) out.withdraw()
  }

  #send(out: Republisher, rank: number | undefined, events: readonly KvEvent[]): void {
    const timestampSeconds = this.#options.clock.wallMs() / 1000
    const batch = { timestampSeconds, rank, events }
    out.publish(batch, encodeKvBatch(batch, 'vllm-map'))
  }

  #failed(reason: string): void {
    const { log, engineOrigin: engine, ranks } = this.#options
    this.#failures++
    // Once, not with every further try.
    if (this.#isAnswered !== false) {
      log.warn({ engine, reason }, 'the engine does not return its KV events: earlier events are withdrawn')
      for (const out of ranks) out.withdraw()
    }
    this.#isAnswered = false
  }

  #wait(delayMs: number): Promise<void> {
    return new Promise(end => {
      this.#pause = { timer: this.#options.clock.after(delayMs, end), end }
    })
  }
}
