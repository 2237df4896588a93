/**
 * JSON service: what `homing indexer`, `homing slots` and `homing select` share of HTTP: a listener, routes,
 * the bounds on requests and bodies, the access log, and errors as JSON.
 *
 *   exchange ─▶ route ─▶ pages of other sites are refused ─▶ bounds ─▶ handler ─▶ status ─▶ metrics, log
 *
 * Owns   the listener, counts of open requests, the access log.
 * Fails  an error inside one request becomes its answer. `listen` rejects with what the settings do not
 *        allow.
 */

import { type Clock, type ErrorRecord, type Log, toErrorRecord } from '@homing/base'
import type { HttpExchange, HttpListener, HttpTransport } from '@homing/transport'
import { AccessLog, prepareAccessLog } from './access-log.ts'
import { assertNoStrangePage, HostNames } from './callers.ts'
import { sendError } from './json-answers.ts'
import { OpenRequests, type OpenRequestsOptions, type Refusal, type RouteKind } from './open-requests.ts'
import { type Route, RouteTable } from './route-table.ts'
import type { ViewPlace } from './view-room.ts'

/** What the access log says of a request besides. */
export interface RequestNote {
  model: string | undefined
}

export interface JsonRoute extends Route {
  /** It tells nothing, so pages of other sites may call it. */
  readonly isForPages: boolean
  /** By which bound it is admitted. */
  readonly kind: RouteKind
  /** Answers the status. */
  readonly handle: JsonHandler
}

export type JsonHandler = (
  exchange: HttpExchange,
  body: () => Promise<Uint8Array>,
  note: RequestNote,
  place: ViewPlace | undefined,
  /** What the '*' of its path stands for. */
  parameter: string,
) => Promise<number> | number

/** A route as the list of a service has it. */
export interface NamedRoute extends Route {
  /** Behind the path, where the route takes one: '?model_name='. */
  readonly query?: string
  /** In a few words. */
  readonly summary: string
}

/** `METHOD path` of each route of a list. */
export type RouteNameOf<R> = R extends {
  readonly method: infer M extends string
  readonly path: infer P extends string
}
  ? `${M} ${P}`
  : never

/** Every route needs a handler, by `METHOD path`. `kinds`, by path: of those that are no operator's. */
export function jsonRouteTable<const R extends { readonly method: string; readonly path: string }>(
  routes: readonly R[],
  kinds: Readonly<Record<string, RouteKind>>,
  handlers: Readonly<Record<RouteNameOf<R>, JsonHandler>>,
): RouteTable<JsonRoute> {
  return new RouteTable(
    routes.map(({ method, path }) => ({
      method,
      path,
      kind: kinds[path] ?? 'operator',
      isForPages: path === '/health',
      handle: handlers[`${method} ${path}` as RouteNameOf<R>],
    })),
  )
}

/** In the units of the names; see packages/config. */
export interface JsonServiceArgs extends OpenRequestsOptions {
  readonly host: string
  /** Names under which browsers may call it, beside those of this machine. */
  readonly hostNames?: readonly string[]
  /** 0 picks a free port; `listen` tells which. */
  readonly port: number
  /** Longest wait for the next bytes of a request body. */
  readonly bodyTimeoutMs: number
  /** Longest time that an answer may wait for a client that takes none of it. */
  readonly clientStallTimeoutMs: number
  /** Longest time that a connection without a request is kept. */
  readonly keepAliveTimeoutMs?: number
  /** A file; undefined: none. */
  readonly accessLog: string | undefined
  /** In lower case. */
  readonly traceIdHeader: string
}

export interface JsonServiceParts {
  readonly clock: Clock
  readonly log: Log
  /** What is thrown for a request that finds no room, and while it drains. */
  readonly busy: Refusal
  /**
   * What is thrown for a body whose content-type is this, and not JSON; undefined: bodies of any type are
   * read.
   */
  readonly notJson?: (contentType: string | undefined) => Error
  readonly stopping: () => Error
  readonly statusOf: (record: ErrorRecord) => number
  readonly answered: (route: string, status: number, durationMs: number) => void
}

export class JsonService {
  readonly open: OpenRequests
  readonly #args: JsonServiceArgs
  readonly #parts: JsonServiceParts
  readonly #names: HostNames
  #routes: RouteTable<JsonRoute> | undefined
  #accessLog: AccessLog | undefined
  #http: HttpListener | undefined
  #isDraining = false
  #isClosed = false

  constructor(args: JsonServiceArgs, parts: JsonServiceParts) {
    this.#args = args
    this.#parts = parts
    this.open = new OpenRequests(args, parts.busy)
    this.#names = new HostNames(args.host, args.hostNames)
  }

  get accessLog(): AccessLog | undefined {
    return this.#accessLog
  }

  /** Opens the access log. Throws AccessLogError. */
  async prepare(): Promise<void> {
    const { accessLog } = this.#args
    if (accessLog === undefined) return
    await prepareAccessLog(accessLog)
    const { clock, log } = this.#parts
    this.#accessLog = new AccessLog({ path: accessLog, clock, log })
  }

  /**
   * Listens when it resolves. Rejects with ListenError, and with `stopping` where it was closed meanwhile.
   */
  async listen(
    http: HttpTransport,
    routes: RouteTable<JsonRoute>,
  ): Promise<{ readonly host: string; readonly port: number }> {
    this.#routes = routes
    const { host, port, bodyTimeoutMs, clientStallTimeoutMs, keepAliveTimeoutMs } = this.#args
    const listening = {
      host,
      port,
      bodySilenceMsMax: bodyTimeoutMs,
      readerStallMsMax: clientStallTimeoutMs,
      keepAliveMsMax: keepAliveTimeoutMs,
    }
    if (this.#isClosed) throw this.#parts.stopping()
    this.#http = await http.listen(listening, exchange => void this.#serve(exchange))
    if (this.#isClosed) {
      await this.#http.close(0)
      throw this.#parts.stopping()
    }
    return { host: this.#http.host, port: this.#http.port }
  }

  /** Takes no more requests, and lets open ones end for `graceMs`. Answers how many were cut. */
  async drain(graceMs: number): Promise<number> {
    this.#isDraining = true
    let cutRequests = 0
    // Set before the listener's own timer, which is due with it and cuts what is still open then.
    const timer = this.#parts.clock.after(graceMs, () => {
      cutRequests = this.open.count
    })
    await this.#http?.close(graceMs)
    timer.cancel()
    await this.#accessLog?.close()
    return cutRequests
  }

  /** Also while it starts. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#http?.close(0)
    await this.#accessLog?.close()
  }

  async #checked({ headers }: HttpExchange, body: () => Promise<Uint8Array>): Promise<Uint8Array> {
    const { notJson } = this.#parts
    const { 'content-type': given } = headers
    const contentType = typeof given === 'string' ? given : undefined
    const bytes = await body()
    if (notJson !== undefined && bytes.length > 0 && !isJson(contentType)) throw notJson(contentType)
    return bytes
  }

  async #serve(exchange: HttpExchange): Promise<void> {
    const { clock, log, stopping, statusOf, answered } = this.#parts
    const startedMs = clock.nowMs()
    const note: RequestNote = { model: undefined }
    // It listens, so it has routes.
    const routes = this.#routes!
    let status: number
    const name = routes.at(exchange.path)?.path ?? 'none'
    try {
      if (this.#isDraining) throw stopping()
      const { route, parameter } = routes.find(exchange, 'GET / lists them')
      if (!route.isForPages) assertNoStrangePage(exchange, this.#names)
      status = await this.open.during(exchange, route.kind, (body, place) =>
        route.handle(exchange, () => this.#checked(exchange, body), note, place, parameter),
      )
    } catch (thrown) {
      const record = toErrorRecord(thrown)
      if (record.code === 'HOMING_TRANSPORT_CLIENT_GONE' || exchange.isClosed) return
      status = sendError(exchange, thrown, record, statusOf(record))
      if (status >= 500) log.warn({ path: exchange.path, error: record }, 'request failed')
    }
    const durationMs = clock.nowMs() - startedMs
    answered(name, status, durationMs)
    const traceId = exchange.headers[this.#args.traceIdHeader]
    this.#accessLog?.write({
      ts: new Date(clock.wallMs()).toISOString(),
      trace_id: typeof traceId === 'string' ? traceId : '-',
      method: exchange.method,
      path: name,
      model: note.model ?? '-',
      status,
      duration_ms: Math.round(durationMs * 1000) / 1000,
    })
  }
}

/** 'application/json; charset=utf-8' and 'application/vnd.x+json' are, too. */
function isJson(contentType = ''): boolean {
  return /^\s*application\/(?:[^\s;,/]+\+)?json\s*(?:;|$)/i.test(contentType)
}
