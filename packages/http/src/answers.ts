/** Whole answers: made from a value or an exception, and sent with their length. */

import { toErrorRecord } from '@homing/base'
import { type ErrorForm, errorBody } from '@homing/openai'
import type { HttpErrorAnswer as HttpAnswer, HttpExchange } from '@homing/transport'
import { apiErrorOf } from './error-kinds.ts'
import { MethodNotAllowedError, UnsupportedEncodingError } from './errors.ts'

export type { HttpAnswer }

type Headers = Readonly<Record<string, string>>

const utf8 = new TextEncoder()

export function textAnswer(status: number, text: string, headers: Headers): HttpAnswer {
  return { status, headers, body: utf8.encode(text) }
}

/** JSON, readable: two spaces, a newline at the end. */
export function jsonAnswer(status: number, value: unknown): HttpAnswer {
  return textAnswer(status, `${JSON.stringify(value, null, 2)}\n`, { 'content-type': 'application/json' })
}

/** What was thrown, in OpenAI's form or that of the route. */
export function errorAnswer(thrown: unknown, form: ErrorForm = 'completions'): HttpAnswer {
  const param = (thrown as { readonly param?: unknown } | undefined)?.param
  const error = apiErrorOf(toErrorRecord(thrown), typeof param === 'string' ? param : undefined)
  return {
    status: error.status,
    headers: { ...error.headers, ...errorHeaders(thrown) },
    body: errorBody(error, form),
  }
}

/** RFC 9110 §15.5.6 and §15.5.16: clients are told which methods and which encodings there are. */
export function errorHeaders(thrown: unknown): Headers {
  if (thrown instanceof UnsupportedEncodingError) return { 'accept-encoding': thrown.known.join(', ') }
  return thrown instanceof MethodNotAllowedError ? { allow: thrown.allowed.join(', ') } : {}
}

/** Returns the status. */
export function sendAnswer(http: HttpExchange, { status, headers, body }: HttpAnswer): number {
  http.writeHead(status, { ...headers, 'content-length': String(body.length) })
  http.end(body)
  return status
}
