/**
 * Request frames: what the two sides of a call say to each other, whatever carries it.
 *
 *   client, to the server
 *     open      {method, path, headers, bodyBytes, windowBytes}
 *     body      a piece of the body, within the server's credit
 *     credit    number of bytes more of the answer may come
 *     cancel    the client no longer wants the answer
 *     alive     the client is there, although it has nothing to say
 *   server, to the client
 *     accept    {windowBytes}: so much of the body may come
 *     credit    number of bytes more of the body may come
 *     head      {status, headers}
 *     data      a piece of the answer, within the client's credit
 *     end       0, the answer is whole; 1, its source was closed in good order, and its content tells
 *               whether it is whole
 *     failed    {reason, wasSeen}: there will be no whole answer, and why
 *     alive     the server is there, although it has nothing to say
 *
 * A piece of n bytes takes n + PIECE_BYTES of credit, which is what holding it may cost. How frames become
 * bytes is a matter of what carries them: payloads at a broker (nats/request-wire.ts), or a connection of
 * many calls (tcp/tcp-wire.ts).
 */

import type { HttpHeaders } from '../http-types.ts'
import { REQUEST_WINDOW_BYTES } from '../limits.ts'

/** What a piece takes of the credit beside its bytes. */
export const PIECE_BYTES = 64
/** ': ' and the end of the line. */
const HEADER_LINE_BYTES = 4
/** After more looks than this in silence, the other side counts as gone. */
export const SILENCE_LOOKS = 5

export const FRAME = {
  open: 0,
  body: 1,
  credit: 2,
  cancel: 3,
  alive: 4,
  accept: 5,
  head: 6,
  data: 7,
  end: 8,
  failed: 9,
} as const
export type FrameKind = (typeof FRAME)[keyof typeof FRAME]

/** Where one side of a call says its frames. */
export interface FrameSink {
  /** Largest piece that fits into a frame. */
  readonly pieceBytesMax: number
  /** Too much waits in this process for the network: pieces wait for `PieceSender.goOn`. */
  readonly isBlocked: boolean
  /** A body of at most this number of bytes may go along with `open`, without credit; asked behind it. */
  readonly alongBytesMax: number
  /** Why the last frame that `put` did not take was too large. */
  readonly refusal: string
  /** False: it is larger than a frame may be. Bytes are copied before the turn ends. */
  put(kind: FrameKind, content?: unknown): boolean
  /** What was put goes out now, not at the end of the turn. */
  flush(): void
}

/** What a client says of its request. */
export interface OpenWord {
  readonly method: string
  readonly path: string
  readonly headers: HttpHeaders
  readonly bodyBytes: number
  readonly windowBytes: number
}

/** Undefined: it is no request. */
export function openOf(content: unknown): OpenWord | undefined {
  if (typeof content !== 'object' || content === null) return undefined
  const { method, path, headers, bodyBytes, windowBytes } = content as Readonly<Record<string, unknown>>
  if (typeof method !== 'string' || typeof path !== 'string' || !path.startsWith('/')) return undefined
  const read = headersOf(headers)
  if (read === undefined) return undefined
  if (!isCount(bodyBytes) || !isWindow(windowBytes)) return undefined
  return { method, path, headers: read, bodyBytes, windowBytes }
}

/** Bytes that it would have as the head of a request over HTTP, about. */
export function headBytesOf({ method, path, headers }: OpenWord): number {
  let bytes = method.length + path.length
  for (const [name, value = ''] of Object.entries(headers)) {
    const values = typeof value === 'string' ? [value] : value
    for (const one of values) bytes += name.length + one.length + HEADER_LINE_BYTES
    // A name without values is kept, too.
    if (values.length === 0) bytes += name.length + HEADER_LINE_BYTES
  }
  return bytes
}

/** Names in lower case, with all values of each. Undefined: it holds something that is no header. */
export function headersOf(word: unknown): HttpHeaders | undefined {
  if (typeof word !== 'object' || word === null) return undefined
  const headers: Record<string, string | string[]> = Object.create(null)
  for (const [given, value] of Object.entries(word)) {
    const values: readonly unknown[] = Array.isArray(value) ? value : [value]
    if (!values.every(one => typeof one === 'string')) return undefined
    const name = given.toLowerCase()
    const known = headers[name]
    if (known === undefined) headers[name] = Array.isArray(value) ? [...value] : value
    // Names may differ in case alone, and be many: what is known is not copied for each.
    else if (Array.isArray(known)) for (const one of values) known.push(one)
    else headers[name] = [known, ...values]
  }
  return headers
}

/** Whether a window may have this size. In a window below the minimum not even one piece would fit. */
export function isWindow(bytes: unknown): bytes is number {
  const { min, max } = REQUEST_WINDOW_BYTES
  return Number.isSafeInteger(bytes) && (bytes as number) >= min && (bytes as number) <= max
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}
