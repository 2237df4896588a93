/**
 * Access notes: opens a note for each request that gets a line in the access log, and hands the line to the
 * log when the request is over. `sample` is the share of requests that get a line; it is drawn per request,
 * whatever its outcome. Lines wait until the router has printed that it is ready: on standard output that
 * line comes first.
 */

import type { ActorContext, Capability } from '@homing/actor'
import { AccessLog, type AccessLogOptions } from '@homing/http'
import type { HttpExchange } from '@homing/transport'
import { AccessNote } from './access-note.ts'
import type { GatewayArgs } from './gateway-args.ts'
import { NotedExchange } from './noted-exchange.ts'

/** What the gateway needs of an access log. */
export type AccessLogDoor = Pick<AccessLog, 'write' | 'written' | 'dropped' | 'fault' | 'release' | 'close'>

/** Opens the access log; tests keep it in memory. */
export const accessLogs: Capability<(options: AccessLogOptions) => AccessLogDoor> = {
  name: 'access log',
  create: () => options => new AccessLog(options),
}

/** Undefined: there is no access log. */
export function openAccessNotes(
  context: ActorContext<never>,
  given: GatewayArgs['accessLog'],
): AccessNotes | undefined {
  if (given === undefined) return undefined
  const { clock, log } = context
  return new AccessNotes(
    context,
    context.use(accessLogs)({ path: given.path, clock, log, isHeld: true }),
    given.sample,
  )
}

export class AccessNotes {
  readonly log: AccessLogDoor
  readonly #context: Pick<ActorContext<never>, 'clock' | 'random'>
  readonly #sample: number

  constructor(context: Pick<ActorContext<never>, 'clock' | 'random'>, log: AccessLogDoor, sample: number) {
    this.log = log
    this.#context = context
    this.#sample = sample
  }

  /** Undefined: the request gets no line. Otherwise serve it through `exchange`. */
  begin(
    http: HttpExchange,
    routeName: (exchange: HttpExchange) => string,
  ): { readonly exchange: HttpExchange; readonly note: AccessNote } | undefined {
    if (!this.#isDrawn()) return undefined
    const { clock } = this.#context
    const arrivedMs = clock.nowMs()
    const { method, path } = http
    const given = http.headers['x-request-id']
    const requestId = typeof given === 'string' && given !== '' ? given : undefined
    const note = new AccessNote({ time: this.#time, method, path, requestId })
    const exchange = new NotedExchange(http, end => {
      this.log.write(note.line({ ...end, route: routeName(http), durationMs: clock.nowMs() - arrivedMs }))
    })
    return { exchange, note }
  }

  /** Notes input that was not an HTTP request, and the status of its answer. */
  noRequest(status: number): void {
    if (!this.#isDrawn()) return
    const end = { route: 'none', status, durationMs: 0 }
    this.log.write(new AccessNote({ time: this.#time }).line(end))
  }

  #isDrawn(): boolean {
    return this.#sample >= 1 || this.#context.random.next() < this.#sample
  }

  get #time(): string {
    return new Date(this.#context.clock.wallMs()).toISOString()
  }
}
