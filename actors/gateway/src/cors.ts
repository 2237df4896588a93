/**
 * CORS (the Fetch standard): which pages of other sites may use the API from a browser.
 *
 *   preflight    OPTIONS with `origin` and `access-control-request-method`: 204 with the methods of the
 *                route, or 403 if the origin is not allowed
 *   any answer   of an allowed origin, errors too: `access-control-allow-origin`, and the headers that
 *                scripts may read. Such headers of engines are left out: one list counts
 *
 * Credentials of the browser (cookies) are never allowed: clients send a key of their own in a header. A
 * request without a preflight is served whatever its origin, as for any client; but its page cannot read the
 * answer.
 */

import type { HttpExchange, HttpHeaders } from '@homing/transport'
import { OriginNotAllowedError } from './errors.ts'
import { WrappedExchange } from './wrapped-exchange.ts'

/** Every origin. */
const ANY = '*'
/** Headers that the clients of OpenAI's and Anthropic's APIs send, beside those with the prefixes below. */
const REQUEST_HEADERS: readonly string[] = [
  'authorization',
  'content-type',
  'content-encoding',
  'x-api-key',
  'api-key',
  'x-request-id',
  'x-tenant-id',
  'idempotency-key',
  'openai-organization',
  'openai-project',
  'openai-beta',
  'anthropic-version',
  'anthropic-beta',
  'anthropic-dangerous-direct-browser-access',
]
/** x-stainless: the official clients tell about themselves. */
const REQUEST_PREFIXED = /^x-(?:stainless|homing|dynamo)-[a-z0-9-]+$/
const PREFIXED_MAX = 64
/** Headers that scripts may read, beside those that every script may. */
const EXPOSED = [
  'retry-after',
  'x-should-retry',
  'x-request-id',
  'x-homing-decision',
  'x-homing-worker',
  'x-homing-overlap-blocks',
  'x-homing-trust',
  'x-homing-prefill-worker',
].join(', ')
/** How long a browser may remember the answer to a preflight. */
const PREFLIGHT_SECONDS = 600
/** Methods of a relayed route that is open to any. */
const ANY_METHODS: readonly string[] = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE']

export class Cors {
  readonly #isForAll: boolean
  readonly #origins: ReadonlySet<string>
  readonly #headers: ReadonlySet<string>

  /**
   * `origins`: 'https://app.example.org' each, or '*' for all. `headers`: further ones that pages may send,
   * in lower case.
   */
  constructor(origins: readonly string[], headers: readonly string[] = []) {
    this.#headers = new Set([...REQUEST_HEADERS, ...headers])
    this.#isForAll = origins.includes(ANY)
    this.#origins = new Set(origins.map(origin => origin.toLowerCase()))
  }

  /** The exchange of a request that is no preflight; its answer has the headers that the client may have. */
  over(http: HttpExchange): HttpExchange {
    return new CorsExchange(http, this.#allowed(http.headers))
  }

  /** Answers a preflight; `methods`: those of its route, or `true` for any. Throws OriginNotAllowedError. */
  answerPreflight(http: HttpExchange, methods: true | readonly string[]): void {
    const allowed = this.#allowed(http.headers)
    if (allowed === undefined) throw new OriginNotAllowedError(String(http.headers['origin']))
    const asked = String(http.headers['access-control-request-headers'] ?? '')
      .toLowerCase()
      .split(/[\s,]+/)
    const prefixed = [...new Set(asked.filter(name => REQUEST_PREFIXED.test(name)))].slice(0, PREFIXED_MAX)
    http.writeHead(204, {
      'access-control-allow-origin': allowed,
      ...(this.#isForAll ? {} : { vary: 'origin' }),
      'access-control-allow-methods': (methods === true ? ANY_METHODS : methods).join(', '),
      'access-control-allow-headers': [...this.#headers, ...prefixed].join(', '),
      'access-control-max-age': String(PREFLIGHT_SECONDS),
    })
    http.end()
  }

  /** The value of `access-control-allow-origin`; undefined: none, or another site's page asks. */
  #allowed({ origin }: HttpHeaders): string | undefined {
    if (typeof origin !== 'string') return undefined
    if (this.#isForAll) return ANY
    return this.#origins.has(origin.toLowerCase()) ? origin : undefined
  }
}

/** A browser asks whether it may send a request. */
export function isPreflight({ method, headers }: HttpExchange): boolean {
  return (
    method === 'OPTIONS' &&
    headers['origin'] !== undefined &&
    headers['access-control-request-method'] !== undefined
  )
}

class CorsExchange extends WrappedExchange {
  readonly #allowed: string | undefined

  constructor(http: HttpExchange, allowed: string | undefined) {
    super(http)
    this.#allowed = allowed
  }

  override writeHead(status: number, given: HttpHeaders): void {
    const headers: Record<string, string | readonly string[] | undefined> = {}
    for (const [name, value] of Object.entries(given))
      if (!name.startsWith('access-control-')) headers[name] = value
    // Caches must not give the answer for one origin to another.
    if (this.#allowed !== ANY) headers['vary'] = [headers['vary'] ?? [], 'origin'].flat().join(', ')
    if (this.#allowed !== undefined) {
      headers['access-control-allow-origin'] = this.#allowed
      headers['access-control-expose-headers'] = EXPOSED
    }
    super.writeHead(status, headers)
  }
}
