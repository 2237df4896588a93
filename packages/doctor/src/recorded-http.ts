/**
 * Recorded HTTP: passes small questions on and records each with its answer and its duration, so that the
 * steps of a probe can be shown. A probe asks about a dozen questions, which bounds the record.
 */

import { type Clock, parseJson } from '@homing/base'
import { HttpCallError, type HttpReply, type HttpTransport } from '@homing/transport'

/** One question and its answer. */
export interface AskedHttp {
  readonly method: string
  readonly path: string
  /** Undefined: there was no whole answer. */
  readonly reply: HttpReply | undefined
  /** Undefined: there was an answer. */
  readonly error: HttpCallError | undefined
  readonly durationMs: number
  /** Unix milliseconds in the middle of the call. */
  readonly middleWallMs: number
}

export class RecordedHttp implements HttpTransport {
  /** By the order of the questions. */
  readonly #asked: (AskedHttp | undefined)[] = []
  readonly #http: HttpTransport
  readonly #clock: Clock

  constructor(http: HttpTransport, clock: Clock) {
    this.#http = http
    this.#clock = clock
  }

  listen: HttpTransport['listen'] = (options, onExchange) => this.#http.listen(options, onExchange)

  setAccess: HttpTransport['setAccess'] = (origin, access) => this.#http.setAccess(origin, access)
  setPeer: HttpTransport['setPeer'] = (origin, tls) => this.#http.setPeer(origin, tls)

  setRoute: HttpTransport['setRoute'] = (origin, route) => this.#http.setRoute(origin, route)

  serve: HttpTransport['serve'] = (options, onExchange) => this.#http.serve(options, onExchange)

  trust: HttpTransport['trust'] = certificates => this.#http.trust(certificates)

  call: HttpTransport['call'] = (request, handler) => this.#http.call(request, handler)

  fetch: HttpTransport['fetch'] = async (request, options) => {
    const startMs = this.#clock.nowMs()
    const startWallMs = this.#clock.wallMs()
    const position = this.#asked.push(undefined) - 1
    const keep = (reply: HttpReply | undefined, error: HttpCallError | undefined): void => {
      const { method, path } = request
      const durationMs = this.#clock.nowMs() - startMs
      const middleWallMs = startWallMs + durationMs / 2
      this.#asked[position] = { method, path, reply, error, durationMs, middleWallMs }
    }
    try {
      const reply = await this.#http.fetch(request, options)
      keep(reply, undefined)
      return reply
    } catch (thrown) {
      const error = thrown instanceof HttpCallError ? thrown : new HttpCallError(request, 'request', thrown)
      keep(undefined, error)
      throw thrown
    }
  }

  /** Settled questions, in the order in which they were asked. */
  get asked(): readonly AskedHttp[] {
    return this.#asked.filter(asked => asked !== undefined)
  }

  /** The last answer to a path; undefined: there is none. */
  of(path: string): AskedHttp | undefined {
    return this.asked.findLast(asked => asked.path === path)
  }
}

/** The answer as JSON; undefined: there is none, or it is none. */
export function jsonOf(asked: AskedHttp | undefined): unknown {
  if (asked?.reply?.status !== 200) return undefined
  try {
    return parseJson(new TextDecoder().decode(asked.reply.body)) as unknown
  } catch {
    return undefined
  }
}
