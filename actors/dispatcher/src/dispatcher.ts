/**
 * Dispatcher: sends a placed request to its worker and relays the answer.
 *
 * In     `dispatch` from the gateway; what the upstream call says, as messages to itself.
 * Out    AnswerMessages to the sink, in order: head, data*, then end or failed, exactly one.
 *        To tracker: first byte, end. To router: a new place after a failure, and what was delivered.
 *        To directory: workers that could not be reached.
 * Owns   the upstream calls and their attempts.
 * Order  bytes reach the sink as the worker sent them. A message of an attempt that is over is ignored.
 *        A stream is asked for usage where the client did not; the event that this adds is taken out, and
 *        all other bytes pass as they came.
 *        A head waits for the first byte behind it: vLLM sends the head of a stream before prefill, and a
 *        worker that dies in between has given nothing.
 * Fails  before the first byte of an answer: one new try on the same worker where a reused connection
 *        broke, then other workers, up to `retriesMax`. After the first byte: never again; the sink
 *        is told. A client that leaves aborts the call at once. A sink that cannot take bytes pauses
 *        the call. A dispatcher that restarts or stops fails every exchange that is open: nobody waits
 *        for an answer that cannot come.
 */

import { type ActorContext, type ActorRef, defineActor, signal } from '@homing/actor'
import type { DirectoryMessage } from '@homing/directory'
import { type ErrorRecord, type RouterError, toErrorRecord } from '@homing/errors'
import { editBody, UsageTap } from '@homing/openai'
import type { Decision, Delivery, RouterMessage, RoutingRequest } from '@homing/router'
import type { TrackerMessage } from '@homing/tracker'
import { type HttpCall, type HttpHeaders, transportCapability } from '@homing/transport'
import { DispatcherRestartedError, NoAnswerError, UpstreamFailedError } from './errors.ts'
import type { AnswerMessage, DispatcherMessage, UpstreamRequest } from './messages.ts'
import { upstreamHeaders } from './upstream-headers.ts'

export interface DispatcherArgs {
  readonly router: ActorRef<RouterMessage>
  readonly tracker: ActorRef<TrackerMessage>
  readonly directory: ActorRef<DirectoryMessage>
  /** Other workers that one request may be tried on before its first byte; ≥ 0. */
  readonly retriesMax: number
  /** Longest wait for the next byte of an answer, in milliseconds; the first included. */
  readonly silenceMsMax: number
  /** Longest time from a request to the end of its answer, in milliseconds; 0: no limit. */
  readonly requestMsMax: number
  /** Longest wait for a decision of the router, in milliseconds. */
  readonly decideMsMax: number
  /** Streams are asked for usage, for the audit of predictions. */
  readonly audit: boolean
}

/** Answers that wait in one exchange while its sink is full; the call is paused meanwhile. */
const HELD_ANSWERS_MAX = 256
const FLUSH_DELAY_MS = 2
const SWEEP_INTERVAL_MS = 1000

interface Exchange {
  readonly number: number
  readonly request: UpstreamRequest
  readonly routing: RoutingRequest
  readonly sink: ActorRef<AnswerMessage>
  readonly startedMs: number
  decision: Decision
  /** The decision is booked at the tracker, and its receipt not complete. */
  isBooked: boolean
  /** Grows by one per upstream call; messages of an older one are ignored. */
  attempt: number
  failedWorkers: string[]
  hasRetriedWorker: boolean
  call: HttpCall | undefined
  /** The call asks for usage in the client's place. */
  asksForUsage: boolean
  status: number | undefined
  /** The head of the answer, until its first byte or its end comes. */
  heldHead: HttpHeaders | undefined
  isStream: boolean
  firstByteMs: number | undefined
  lastByteMs: number
  tap: UsageTap | undefined
  held: AnswerMessage[]
  isPausedByClient: boolean
  /** The last answer was given to the sink or is held; nothing more comes from the worker. */
  hasEnded: boolean
}

export const dispatcher = defineActor(
  import.meta.url,
  'dispatcher',
)<DispatcherMessage, DispatcherArgs>({
  reentrant: true,
  setup(context, args) {
    const exchanges = new Map<number, Exchange>()
    const calls = new Calls(context, args, exchanges)
    context.schedule(SWEEP_INTERVAL_MS, { type: 'sweep' })

    return {
      dispatch: message => {
        const nowMs = context.clock.nowMs()
        const exchange: Exchange = {
          number: message.exchange,
          request: message.request,
          routing: message.routing,
          sink: message.sink,
          startedMs: nowMs,
          decision: message.decision,
          isBooked: true,
          attempt: 0,
          failedWorkers: [],
          hasRetriedWorker: false,
          call: undefined,
          asksForUsage: false,
          status: undefined,
          heldHead: undefined,
          isStream: false,
          firstByteMs: undefined,
          lastByteMs: nowMs,
          tap: undefined,
          held: [],
          isPausedByClient: false,
          hasEnded: false,
        }
        exchanges.set(exchange.number, exchange)
        calls.start(exchange)
      },
      abort: ({ exchange }) => calls.abort(exchange),
      pause: ({ exchange }) => calls.pause(exchange, true),
      resume: ({ exchange }) => calls.pause(exchange, false),
      upstreamHead: message => calls.head(message.exchange, message.attempt, message.status, message.headers),
      upstreamData: message => calls.data(message.exchange, message.attempt, message.bytes),
      upstreamEnd: message => calls.end(message.exchange, message.attempt),
      upstreamFailed: message => calls.failed(message),
      flush: ({ exchange }) => calls.flush(exchange),
      sweep() {
        calls.sweep()
        context.schedule(SWEEP_INTERVAL_MS, { type: 'sweep' })
      },
      [signal](event) {
        if (event.type !== 'terminated') calls.endAll(new DispatcherRestartedError())
      },
    }
  },
})

class Calls {
  readonly #context: ActorContext<DispatcherMessage>
  readonly #args: DispatcherArgs
  readonly #exchanges: Map<number, Exchange>

  constructor(
    context: ActorContext<DispatcherMessage>,
    args: DispatcherArgs,
    exchanges: Map<number, Exchange>,
  ) {
    this.#context = context
    this.#args = args
    this.#exchanges = exchanges
  }

  start(exchange: Exchange): void {
    const { self } = this.#context
    const attempt = ++exchange.attempt
    const number = exchange.number
    const { decision, request } = exchange
    const body = this.#bodyOf(exchange)
    exchange.lastByteMs = this.#context.clock.nowMs()
    // A full mailbox loses what the call says; the call is ended, and the sweep reports the silence.
    const tellSelf = (message: DispatcherMessage): void => {
      if (self.tell(message) !== 'ok') exchange.call?.abort()
    }
    exchange.call = this.#context.use(transportCapability).http.call(
      {
        origin: decision.origin,
        method: request.method,
        path: request.path,
        headers: upstreamHeaders(request.headers, decision, exchange.routing.requestId, attempt),
        ...(body === undefined ? {} : { body }),
      },
      {
        head: (status, headers) =>
          tellSelf({ type: 'upstreamHead', exchange: number, attempt, status, headers }),
        data: bytes => tellSelf({ type: 'upstreamData', exchange: number, attempt, bytes }),
        end: () => tellSelf({ type: 'upstreamEnd', exchange: number, attempt }),
        failed: (error, { reusedConnection }) => {
          const { message: reason, failure } = error
          tellSelf({ type: 'upstreamFailed', exchange: number, attempt, reason, failure, reusedConnection })
        },
      },
    )
    if (exchange.isPausedByClient) exchange.call.pause()
  }

  async head(number: number, attempt: number, status: number, headers: HttpHeaders): Promise<void> {
    const exchange = this.#current(number, attempt)
    if (exchange === undefined) return
    this.#touch(exchange)
    if (status === 503 && exchange.failedWorkers.length < this.#args.retriesMax) {
      // The worker refuses: nothing of an answer has reached the client, so another may take it.
      this.#endCall(exchange)
      return this.#placeAgain(exchange, `worker ${exchange.decision.worker} answered 503`)
    }
    exchange.status = status
    exchange.isStream = String(headers['content-type'] ?? '').startsWith('text/event-stream')
    const cutsUsageEvent = exchange.isStream && exchange.asksForUsage
    // What is cut would be missing from the length that the engine gave.
    exchange.heldHead = cutsUsageEvent ? withoutLength(headers) : headers
    exchange.tap = new UsageTap(exchange.isStream ? 'sse' : 'json', { cutsUsageEvent })
    if (!exchange.isStream) this.#prefillComplete(exchange)
  }

  data(number: number, attempt: number, bytes: Uint8Array): void {
    const exchange = this.#current(number, attempt)
    if (exchange === undefined) return
    this.#touch(exchange)
    if (exchange.isStream && exchange.tap?.hasBytes === false) this.#prefillComplete(exchange)
    this.#releaseHead(exchange)
    this.#relay(exchange, exchange.tap?.push(bytes) ?? bytes)
  }

  end(number: number, attempt: number): void {
    const exchange = this.#current(number, attempt)
    if (exchange === undefined) return
    this.#releaseHead(exchange)
    this.#relayRest(exchange)
    const usage = exchange.tap?.finish()
    const failedInside = (exchange.status ?? 0) >= 400 || usage?.sawError === true
    this.#settle(exchange, failedInside ? 'error' : 'ok', undefined)
    this.#answer(exchange, { type: 'answerEnd', exchange: number })
  }

  async failed(message: Extract<DispatcherMessage, { type: 'upstreamFailed' }>): Promise<void> {
    const { reason, failure } = message
    const exchange = this.#current(message.exchange, message.attempt)
    if (exchange === undefined) return
    this.#dropHead(exchange)
    if (exchange.status !== undefined) {
      this.#fail(exchange, toErrorRecord(new UpstreamFailedError(exchange.decision.worker, reason)))
      return
    }
    // An idle connection that the worker had closed looks like this; a fresh one tells.
    if (message.reusedConnection && !exchange.hasRetriedWorker) {
      exchange.hasRetriedWorker = true
      this.start(exchange)
      return
    }
    const { workerId } = exchange.decision
    // What we cannot write as a request is no fault of the worker.
    if (failure !== 'request')
      this.#args.directory.tell({ type: 'suspect', workerId, reason, isUnreachable: failure === 'connect' })
    if (exchange.failedWorkers.length >= this.#args.retriesMax) {
      this.#fail(exchange, toErrorRecord(new UpstreamFailedError(exchange.decision.worker, reason)))
      return
    }
    await this.#placeAgain(exchange, reason)
  }

  abort(number: number): void {
    const exchange = this.#exchanges.get(number)
    if (exchange === undefined) return
    this.#exchanges.delete(number)
    if (exchange.hasEnded) return
    exchange.hasEnded = true
    this.#endCall(exchange)
    this.#settle(exchange, 'aborted', undefined)
  }

  /** Fails every exchange that is open. */
  endAll(error: RouterError): void {
    for (const exchange of [...this.#exchanges.values()]) {
      if (exchange.hasEnded) continue
      this.#endCall(exchange)
      this.#dropHead(exchange)
      this.#fail(exchange, toErrorRecord(error))
    }
  }

  pause(number: number, isPaused: boolean): void {
    const exchange = this.#exchanges.get(number)
    if (exchange === undefined) return
    exchange.isPausedByClient = isPaused
    if (isPaused) exchange.call?.pause()
    else if (exchange.held.length === 0) exchange.call?.resume()
    this.#touch(exchange)
  }

  flush(number: number): void {
    const exchange = this.#exchanges.get(number)
    if (exchange === undefined) return
    while (exchange.held.length > 0) {
      const status = exchange.sink.tell(exchange.held[0]!)
      if (status !== 'ok') {
        if (status === 'dead') this.abort(number)
        else this.#flushLater(number)
        return
      }
      exchange.held.shift()
    }
    if (exchange.hasEnded) this.#exchanges.delete(number)
    else if (!exchange.isPausedByClient) exchange.call?.resume()
  }

  /**
   * Ends exchanges that take too long, and tells the tracker of those that live. A client that reads
   * slowly is not silence of the worker.
   */
  sweep(): void {
    const nowMs = this.#context.clock.nowMs()
    const { silenceMsMax, requestMsMax } = this.#args
    for (const exchange of [...this.#exchanges.values()]) {
      if (exchange.hasEnded) continue
      const isWaiting = !exchange.isPausedByClient && exchange.held.length === 0
      const silentMs = nowMs - exchange.lastByteMs
      const ageMs = nowMs - exchange.startedMs
      if (isWaiting && silentMs >= silenceMsMax) this.#giveUp(exchange, `no byte for ${silenceMsMax} ms`)
      else if (requestMsMax > 0 && ageMs >= requestMsMax)
        this.#giveUp(exchange, `not done in ${requestMsMax} ms`)
      else this.#args.tracker.tell({ type: 'touch', requestId: exchange.decision.id })
    }
  }

  #giveUp(exchange: Exchange, reason: string): void {
    this.#endCall(exchange)
    this.#dropHead(exchange)
    this.#fail(exchange, toErrorRecord(new NoAnswerError(exchange.decision.worker, reason)))
  }

  async #placeAgain(exchange: Exchange, reason: string): Promise<void> {
    const { log } = this.#context
    const lost = exchange.decision
    exchange.failedWorkers.push(lost.workerId)
    exchange.hasRetriedWorker = false
    this.#settle(exchange, 'error', toErrorRecord(new UpstreamFailedError(lost.worker, reason)))
    log.warn(
      { worker: lost.worker, requestId: exchange.routing.requestId, reason },
      'request is placed again',
    )
    const attempt = exchange.attempt
    const routing = { ...exchange.routing, excludedWorkers: exchange.failedWorkers }
    const error = await this.#decideAgain(exchange, routing)
    if (exchange.attempt !== attempt || exchange.hasEnded) {
      // The client left while the router was choosing.
      this.#settle(exchange, 'aborted', undefined)
      return
    }
    if (error !== undefined) this.#fail(exchange, error)
    else this.start(exchange)
  }

  /** Puts the new decision into the exchange, or returns why there is none. */
  async #decideAgain(exchange: Exchange, request: RoutingRequest): Promise<ErrorRecord | undefined> {
    try {
      const result = await this.#args.router.ask(
        { type: 'decide', request },
        { timeout: this.#args.decideMsMax },
      )
      if (result.kind === 'refused') return result.error
      exchange.decision = result.decision
      exchange.isBooked = true
      return undefined
    } catch (thrown) {
      return toErrorRecord(thrown)
    }
  }

  #fail(exchange: Exchange, error: ErrorRecord): void {
    this.#relayRest(exchange)
    this.#settle(exchange, 'error', error)
    const { decision, number } = exchange
    this.#answer(exchange, { type: 'answerFailed', exchange: number, error, decision })
  }

  /** Messages of the call are ignored from now on. */
  #endCall(exchange: Exchange): void {
    exchange.attempt++
    exchange.call?.abort()
  }

  /** Frees the booking and completes the receipt, once per decision. */
  #settle(exchange: Exchange, outcome: Delivery['outcome'], error: ErrorRecord | undefined): void {
    if (!exchange.isBooked) return
    exchange.isBooked = false
    const { decision } = exchange
    this.#args.tracker.tell({ type: 'free', requestId: decision.id })
    const delivery = this.#delivery(exchange, outcome, error)
    this.#args.router.tell({ type: 'delivered', decision, delivery })
  }

  #delivery(exchange: Exchange, outcome: Delivery['outcome'], error: ErrorRecord | undefined): Delivery {
    const usage = exchange.tap?.finish()
    return {
      outcome,
      status: exchange.status,
      promptTokens: usage?.promptTokens,
      completionTokens: usage?.completionTokens,
      cachedTokens: usage?.cachedTokens,
      timeToFirstByteMs: exchange.firstByteMs,
      durationMs: this.#context.clock.nowMs() - exchange.startedMs,
      error,
    }
  }

  /** What goes upstream; asks for usage where that is wanted, possible and of use: where anything is known of the worker. */
  #bodyOf(exchange: Exchange): Uint8Array | undefined {
    const { decision, request } = exchange
    const { body, usageEdit } = request
    exchange.asksForUsage =
      this.#args.audit &&
      body !== undefined &&
      usageEdit !== undefined &&
      decision.takesUsageOption &&
      decision.trust !== 'none'
    return exchange.asksForUsage ? editBody(body!, usageEdit!) : body
  }

  #relay(exchange: Exchange, bytes: Uint8Array): void {
    if (bytes.length > 0) this.#answer(exchange, { type: 'answerData', exchange: exchange.number, bytes })
  }

  /** The answer ends here, perhaps inside an event of which the beginning was held back. */
  #relayRest(exchange: Exchange): void {
    if (exchange.tap !== undefined) this.#relay(exchange, exchange.tap.takeRest())
  }

  /** The first byte has come, or the end of an answer without any. */
  #releaseHead(exchange: Exchange): void {
    const { number, status, heldHead: headers, decision } = exchange
    if (headers === undefined || status === undefined) return
    exchange.heldHead = undefined
    exchange.firstByteMs = this.#context.clock.nowMs() - exchange.startedMs
    this.#answer(exchange, { type: 'answerHead', exchange: number, status, headers, decision })
  }

  /** A head that nobody has seen is as if it had never come. */
  #dropHead(exchange: Exchange): void {
    if (exchange.heldHead === undefined) return
    exchange.heldHead = undefined
    exchange.status = undefined
    exchange.isStream = false
    exchange.tap = undefined
  }

  #answer(exchange: Exchange, answer: AnswerMessage): void {
    const isLast = answer.type === 'answerEnd' || answer.type === 'answerFailed'
    if (isLast) exchange.hasEnded = true
    if (exchange.held.length === 0) {
      const status = exchange.sink.tell(answer)
      if (status === 'ok') {
        if (isLast) this.#exchanges.delete(exchange.number)
        return
      }
      if (status === 'dead') {
        this.abort(exchange.number)
        return
      }
      this.#flushLater(exchange.number)
    }
    exchange.held.push(answer)
    exchange.call?.pause()
    if (exchange.held.length > HELD_ANSWERS_MAX && !exchange.hasEnded) {
      this.#context.log.error({ exchange: exchange.number }, 'answer is given up: its reader takes nothing')
      this.#giveUp(exchange, `the gateway takes none of ${HELD_ANSWERS_MAX} answers`)
    }
  }

  #flushLater(number: number): void {
    this.#context.schedule(FLUSH_DELAY_MS, { type: 'flush', exchange: number })
  }

  #prefillComplete(exchange: Exchange): void {
    this.#args.tracker.tell({ type: 'prefillComplete', requestId: exchange.decision.id })
  }

  #touch(exchange: Exchange): void {
    exchange.lastByteMs = this.#context.clock.nowMs()
  }

  #current(number: number, attempt: number): Exchange | undefined {
    const exchange = this.#exchanges.get(number)
    return exchange === undefined || exchange.attempt !== attempt || exchange.hasEnded ? undefined : exchange
  }
}

function withoutLength(headers: HttpHeaders): HttpHeaders {
  const { 'content-length': _, ...others } = headers
  return others
}
