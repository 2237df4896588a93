/**
 * Access notes: opens a note for each request that gets a line in the access log, and hands the line to the
 * log when the request is over. `sample` is the share of requests that get a line; it is drawn per request,
 * whatever its outcome. Lines wait until the router has printed that it is ready: on standard output that
 * line comes first. Requests that are traced get a note as well, whose spans are in the trace (tracing.ts).
 */

import type { ActorContext, Capability } from '@homing/actor'
import { AccessLog, type AccessLogOptions } from '@homing/http'
import type { HttpExchange } from '@homing/transport'
import { AccessNote } from './access-note.ts'
import type { GatewayArgs } from './gateway-args.ts'
import { NotedExchange } from './noted-exchange.ts'
import type { Tracing } from './tracing.ts'

/** What the gateway needs of an access log. */
export type AccessLogDoor = Pick<AccessLog, 'write' | 'written' | 'dropped' | 'fault' | 'release' | 'close'>

/** Opens the access log; tests keep it in memory. */
export const accessLogs: Capability<(options: AccessLogOptions) => AccessLogDoor> = {
  name: 'access log',
  create: () => options => new AccessLog(options),
}

/** Undefined: there is no access log, and no request is traced. */
export function openAccessNotes(
  context: ActorContext<never>,
  given: GatewayArgs['accessLog'],
  tracing: Tracing | undefined,
): AccessNotes | undefined {
  if (given === undefined && tracing === undefined) return undefined
  const { clock, log } = context
  const opened = given && context.use(accessLogs)({ path: given.path, clock, log, isHeld: true })
  return new AccessNotes(context, opened, given?.sample ?? 0, tracing)
}

export class AccessNotes {
  /** Undefined: requests are only traced. */
  readonly log: AccessLogDoor | undefined
  readonly tracing: Tracing | undefined
  readonly #context: Pick<ActorContext<never>, 'clock' | 'random'>
  readonly #sample: number

  constructor(
    context: Pick<ActorContext<never>, 'clock' | 'random'>,
    log: AccessLogDoor | undefined,
    sample: number,
    tracing: Tracing | undefined,
  ) {
    this.log = log
    this.tracing = tracing
    this.#context = context
    this.#sample = sample
  }

  /**
   * Undefined: the request gets no line and no spans. Otherwise serve it through `exchange`. `mayTrace`: a
   * client sent it.
   */
  begin(
    http: HttpExchange,
    routeName: (exchange: HttpExchange) => string,
    mayTrace: boolean,
  ): { readonly exchange: HttpExchange; readonly note: AccessNote } | undefined {
    const log = this.#isDrawn() ? this.log : undefined
    const spans = mayTrace ? this.tracing?.begin(http, routeName(http)) : undefined
    if (log === undefined && spans === undefined) return undefined
    const { clock } = this.#context
    const arrivedMs = clock.nowMs()
    const { method, path } = http
    const given = http.headers['x-request-id']
    const requestId = typeof given === 'string' && given !== '' ? given : undefined
    const note = new AccessNote({ time: this.#time, method, path, requestId }, spans)
    const exchange = new NotedExchange(http, end => {
      log?.write(note.line({ ...end, route: routeName(http), durationMs: clock.nowMs() - arrivedMs }))
      spans?.end(end)
    })
    return { exchange, note }
  }

  /** What is noted goes out; the rest is given up after a while. */
  async close(): Promise<void> {
    await Promise.all([this.log?.close(), this.tracing?.close()])
  }

  /**
   * The same for a gateway that begins anew: it waits for no collector. Spans go on their way beside the next
   * life of it; a drain has sent those of a router that ends.
   */
  async closeSoon(): Promise<void> {
    void this.tracing?.close()
    await this.log?.close()
  }

  /** Notes input that was not an HTTP request, and the status of its answer. */
  noRequest(status: number): void {
    if (!this.#isDrawn()) return
    const end = { route: 'none', status, durationMs: 0 }
    this.log?.write(new AccessNote({ time: this.#time }).line(end))
  }

  #isDrawn(): boolean {
    return this.#sample >= 1 || this.#context.random.next() < this.#sample
  }

  get #time(): string {
    return new Date(this.#context.clock.wallMs()).toISOString()
  }
}
