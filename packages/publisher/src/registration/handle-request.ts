/** A request that a program answers by itself, with a function. */

import type { Log } from '@homing/base'
import { announcedBytes, faultOfAnswerHead, type HttpHeaders, type ServedExchange } from '@homing/transport'

export interface WorkerRequest {
  readonly method: string
  /** With its query: '/v1/chat/completions'. */
  readonly path: string
  /** Names in lower case. */
  readonly headers: HttpHeaders
  readonly body: Uint8Array
  /** Aborts when no client waits for the answer any more. */
  readonly signal: AbortSignal
}

export interface WorkerAnswer {
  /** 200 … 599. */
  readonly status: number
  readonly headers?: HttpHeaders
  /** Pieces are asked for one by one, and only when the router takes more. Default: an empty body. */
  readonly body?: string | Uint8Array | AsyncIterable<string | Uint8Array>
}

export type RequestHandler = (request: WorkerRequest) => WorkerAnswer | Promise<WorkerAnswer>

/** Resolves when the handler has sent everything or the client is gone; never rejects. */
export async function handleRequest(
  handler: RequestHandler,
  exchange: ServedExchange,
  body: Uint8Array,
  log: Pick<Log, 'warn'>,
): Promise<void> {
  const { method, path, query, headers } = exchange
  const abort = new AbortController()
  const gone = new Promise<typeof GONE>(resolve => {
    exchange.onClientGone(() => {
      abort.abort()
      resolve(GONE)
    })
  })
  const target = query === '' ? path : `${path}?${query}`
  let hasHead = false
  try {
    const answering = Promise.resolve(handler({ method, path: target, headers, body, signal: abort.signal }))
    const answer = await Promise.race([answering, gone])
    if (answer === GONE) {
      // Nothing of an answer that still comes is asked for; what it may hold open is closed.
      answering.then(dropBody, () => {})
      return
    }
    const { status, headers: given = {}, body: pieces = '' } = answer
    const whole = typeof pieces === 'string' || pieces instanceof Uint8Array ? bytesOf(pieces) : undefined
    const fault = faultOfAnswerHead(status, given) ?? faultOfLength(method, answer, whole)
    if (fault !== undefined) throw new TypeError(fault)
    exchange.writeHead(status, given)
    hasHead = true
    if (whole !== undefined) exchange.end(whole)
    else if (await write(pieces as AsyncIterable<string | Uint8Array>, exchange, gone)) exchange.end()
  } catch (thrown) {
    if (exchange.isClosed) return
    const reason = thrown instanceof Error ? thrown.message : String(thrown)
    log.warn({ method, path, reason }, 'request handler failed')
    if (hasHead) exchange.destroy()
    else sayFailed(exchange, reason)
  }
}

/**
 * What is wrong with the announced length of the body; undefined: nothing, or the body comes in pieces, whose
 * length is not known beforehand.
 */
function faultOfLength(
  method: string,
  { status, headers = {} }: WorkerAnswer,
  whole: Uint8Array | undefined,
): string | undefined {
  const said = announcedBytes(method, status, headers)
  return said === undefined || whole === undefined || said === whole.length
    ? undefined
    : `its body has ${whole.length} bytes, and its content-length says ${said}`
}

/** False: the client is gone. Rejects with the errors of the pieces. */
async function write(
  pieces: AsyncIterable<string | Uint8Array>,
  exchange: ServedExchange,
  gone: Promise<typeof GONE>,
): Promise<boolean> {
  const iterator = pieces[Symbol.asyncIterator]()
  for (;;) {
    const next = await Promise.race([iterator.next(), gone])
    if (next === GONE) {
      // It may be waiting for something that never comes, and is not waited for.
      iterator.return?.().catch(() => {})
      return false
    }
    if (next.done === true) return true
    if (exchange.write(bytesOf(next.value))) continue
    await Promise.race([new Promise<void>(resolve => exchange.onDrain(resolve)), gone])
  }
}

function dropBody({ body }: WorkerAnswer): void {
  if (typeof body !== 'object' || body instanceof Uint8Array) return
  body[Symbol.asyncIterator]()
    .return?.()
    .catch(() => {})
}

function sayFailed(exchange: ServedExchange, reason: string): void {
  const message = `the handler of the worker failed: ${reason}`
  const body = Buffer.from(JSON.stringify({ error: { message, type: 'server_error', code: null } }))
  exchange.writeHead(500, { 'content-type': 'application/json', 'content-length': String(body.length) })
  exchange.end(body)
}

function bytesOf(piece: string | Uint8Array): Uint8Array {
  return typeof piece === 'string' ? Buffer.from(piece) : piece
}

const GONE = Symbol('gone')
