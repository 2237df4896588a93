/** A call as the worker sees it, and what the worker can do with it. */

import type { RoutingRequest } from '@homing/placement'
import type { HttpExchange, HttpHeaders } from '@homing/transport'
import { textOf, utf8 } from './utf8.ts'

/** A call that the worker got. */
export class WorkerExchange {
  readonly http: HttpExchange
  readonly routing: RoutingRequest
  body = ''
  /** The gateway has cut it. */
  isGone = false

  constructor(http: HttpExchange, routing: RoutingRequest) {
    this.http = http
    this.routing = routing
  }

  took(body: Uint8Array): void {
    this.body = textOf(body)
  }

  get request() {
    const { method, path, query, headers } = this.http
    return { method, path: query === '' ? path : `${path}?${query}`, headers }
  }
}

export const head =
  (status = 200, headers: HttpHeaders = {}) =>
  (http: HttpExchange): void =>
    http.writeHead(status, headers)
export const data =
  (text: string) =>
  (http: HttpExchange): void =>
    void http.write(utf8(text))
/** The last bytes. */
export const finish =
  (text: string) =>
  (http: HttpExchange): void =>
    http.end(utf8(text))
export const end = (http: HttpExchange): void => http.end()
/** It breaks off. */
export const die = (http: HttpExchange): void => http.destroy()
