/** Whole answers: made from a value or an exception, and sent with their length. */

import { Buffer } from 'node:buffer'
import { shownJson, toErrorRecord } from '@homing/base'
import { type ErrorForm, errorBody } from '@homing/openai'
import type { HttpErrorAnswer as HttpAnswer, HttpExchange } from '@homing/transport'
import type { Slices } from './costly-views.ts'
import { apiErrorOf } from './error-kinds.ts'
import { MethodNotAllowedError, UnsupportedEncodingError } from './errors.ts'

export type { HttpAnswer }

type Headers = Readonly<Record<string, string>>

/** After the last row. */
const ROWS_END = ']\n}'
const PIECE_CHARACTERS = 65_536
/** Members of a list that are written without a turn of others. */
const LIST_AT_ONCE = 16

const utf8 = new TextEncoder()

export function textAnswer(status: number, text: string, headers: Headers): HttpAnswer {
  return { status, headers, body: utf8.encode(text) }
}

/** JSON, readable: two spaces, a newline at the end. */
export function jsonAnswer(status: number, value: unknown): HttpAnswer {
  return textAnswer(status, `${shownJson(JSON.stringify(value, null, 2))}\n`, {
    'content-type': 'application/json',
  })
}

/**
 * The same of `head` with a last field `name` of many rows, made in slices: each row is written before the
 * next one is asked for.
 */
export async function rowsAnswer(
  head: Readonly<Record<string, unknown>>,
  name: string,
  rows: Iterable<unknown>,
  slices: Slices,
): Promise<HttpAnswer> {
  const pieces: Uint8Array[] = []
  let text = JSON.stringify({ ...head, [name]: [] }, null, 2).slice(0, -ROWS_END.length)
  let isFirst = true
  for (const row of rows) {
    await slices.next()
    text += isFirst ? '\n    ' : ',\n    '
    isFirst = false
    for (const piece of jsonPieces(row, '\n    ')) {
      text += shownJson(piece)
      if (text.length >= PIECE_CHARACTERS) {
        pieces.push(utf8.encode(text))
        text = ''
      }
      await slices.next()
    }
  }
  pieces.push(utf8.encode(`${text}${isFirst ? '' : '\n  '}${ROWS_END}\n`))
  return { status: 200, headers: { 'content-type': 'application/json' }, body: Buffer.concat(pieces) }
}

/** What JSON.stringify makes of plain data, in pieces where it is long. `line`: begins a line of `value`. */
function* jsonPieces(value: unknown, line: string): Generator<string> {
  if (!isLong(value)) {
    yield JSON.stringify(value, null, 2).replaceAll('\n', line)
    return
  }
  const isList = Array.isArray(value)
  let separator = isList ? '[' : '{'
  for (const [name, member] of Object.entries(value)) {
    if (member === undefined) continue
    yield `${separator}${line}  ${isList ? '' : `${JSON.stringify(name)}: `}`
    yield* jsonPieces(member, `${line}  `)
    separator = ','
  }
  yield `${line}${isList ? ']' : '}'}`
}

/** A long list, or an object that has one. */
function isLong(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false
  if (Array.isArray(value)) return value.length > LIST_AT_ONCE
  return Object.values(value).some(member => Array.isArray(member) && member.length > LIST_AT_ONCE)
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
