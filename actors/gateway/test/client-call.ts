/** A client of the gateway: its requests, and what has come of their answers. */

import type { HttpCall, HttpHeaders, HttpTransport } from '@homing/transport'
import { textOf, utf8 } from './utf8.ts'

/** One request of a client, as far as its answer has come. */
export class ClientCall {
  status: number | undefined
  headers: HttpHeaders = {}
  body = ''
  end: 'open' | 'complete' | 'broken' = 'open'
  call!: HttpCall

  /** The answer as OpenAI's clients read an error: status, type, code, param. */
  get error(): unknown {
    const { error } = JSON.parse(this.body) as { error: { type: string; code: string; param: string | null } }
    return [this.status, error.type, error.code, error.param]
  }
}

export interface RequestOptions {
  readonly headers?: HttpHeaders
  readonly body?: string
  /** Default: where the gateway listens. */
  readonly origin?: string
}

/** Sends a request with each call of the answer, by default to the gateway. */
export function clientOf(http: HttpTransport, gatewayOrigin: string) {
  return (
    method: string,
    path: string,
    { headers, body, origin = gatewayOrigin }: RequestOptions = {},
  ): ClientCall => {
    const answer = new ClientCall()
    answer.call = http.call(
      {
        origin,
        method,
        path,
        ...(headers === undefined ? {} : { headers }),
        ...(body === undefined ? {} : { body: utf8(body) }),
      },
      {
        head(status, given) {
          answer.status = status
          answer.headers = given
        },
        data(bytes) {
          answer.body += textOf(bytes)
        },
        end() {
          answer.end = 'complete'
        },
        failed() {
          answer.end = 'broken'
        },
      },
    )
    return answer
  }
}
