/**
 * Serving requests at a broker: each goes to a handler, or to an engine that speaks HTTP on this machine.
 *
 *   handler   gets the whole request; its answer is sent as its pieces come, as fast as the router takes them. When the router leaves, `signal`
 *             aborts, and the pieces are asked to end. What it throws is a 500 before its first piece, and afterwards cuts the answer.
 *   engine    gets the request as it came, and gives its answer as it comes: status, headers and bytes are those of the engine
 *
 * Bounds   a body by `bodyBytesMax`; requests and what is on the way of each body by the transport; of an answer one piece, or of an engine's what its
 *          socket had read already.
 */

import type { Log } from '@homing/log'
import {
  ClientGoneError,
  faultOfAnswerHead,
  type HttpHeaders,
  type HttpTransport,
  type ServedExchange,
  type ServingListener,
} from '@homing/transport'

export interface WorkerRequest {
  readonly method: string
  /** With its query: '/v1/chat/completions'. */
  readonly path: string
  /** Names in lower case. */
  readonly headers: HttpHeaders
  readonly body: Uint8Array
  /** Aborts when nobody waits for the answer any more. */
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

export interface RequestLimits {
  /** Larger bodies are answered with 413; default 64 MiB. */
  readonly bodyBytesMax?: number
  /** Requests above so many are answered with 503; default 4096. */
  readonly callsMax?: number
  /** Most bytes of a body that are on the way, or wait to be read; default 1 MiB. */
  readonly windowBytes?: number
}

/** Who answers: a program, or the engine at a base URL such as 'http://127.0.0.1:8000'. */
export type ServeRequests = RequestLimits &
  ({ readonly handler: RequestHandler } | { readonly engine: string })

const BODY_BYTES_MAX = 64 * 2 ** 20

/** Throws EndpointError. `endpoint`: 'nats://host:port/subject'. */
export function serveRequests(
  http: Pick<HttpTransport, 'serve' | 'call'>,
  endpoint: string,
  served: ServeRequests,
  log: Pick<Log, 'warn'>,
): ServingListener {
  const { bodyBytesMax = BODY_BYTES_MAX, callsMax, windowBytes } = served
  const options = {
    endpoint,
    ...(callsMax === undefined ? {} : { callsMax }),
    ...(windowBytes === undefined ? {} : { windowBytes }),
  }
  const answer = async (exchange: ServedExchange): Promise<void> => {
    const body = await readBody(exchange, bodyBytesMax)
    if (body === undefined) return
    if ('engine' in served) relay(http, new URL(served.engine).origin, exchange, body)
    else await handle(served.handler, exchange, body, log)
  }
  return http.serve(options, exchange => void answer(exchange))
}

/** Undefined: it was answered, or nobody is there. Never rejects. */
async function readBody(exchange: ServedExchange, bytesMax: number): Promise<Uint8Array | undefined> {
  try {
    return await exchange.readBody(bytesMax)
  } catch (error) {
    if (!(error instanceof ClientGoneError)) refuse(exchange, 413, (error as Error).message)
    return undefined
  }
}

async function handle(
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
    const answer = await Promise.race([
      Promise.resolve(handler({ method, path: target, headers, body, signal: abort.signal })),
      gone,
    ])
    if (answer === GONE) return
    const { status, headers: given = {}, body: pieces = '' } = answer
    const fault = faultOfAnswerHead(status, given)
    if (fault !== undefined) throw new TypeError(fault)
    exchange.writeHead(status, given)
    hasHead = true
    if (typeof pieces === 'string' || pieces instanceof Uint8Array) exchange.end(bytesOf(pieces))
    else if (await write(pieces, exchange, gone)) exchange.end()
  } catch (thrown) {
    if (exchange.isClosed) return
    const reason = thrown instanceof Error ? thrown.message : String(thrown)
    log.warn({ method, path, reason }, 'request handler failed')
    if (hasHead) exchange.destroy()
    else refuse(exchange, 500, `the handler of the worker failed: ${reason}`)
  }
}

/** False: nobody is there any more. Rejects with what the pieces throw. */
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

/** What breaks at the engine cuts the answer: the router may try another worker. */
function relay(
  http: Pick<HttpTransport, 'call'>,
  origin: string,
  exchange: ServedExchange,
  body: Uint8Array,
): void {
  const { method, path, query, headers } = exchange
  const target = query === '' ? path : `${path}?${query}`
  const request = { origin, method, path: target, headers, ...(body.length === 0 ? {} : { body }) }
  const call = http.call(request, {
    head: (status, given) => exchange.writeHead(status, given),
    data(bytes) {
      if (exchange.write(bytes)) return
      call.pause()
      exchange.onDrain(() => call.resume())
    },
    end: how => exchange.end(undefined, how),
    failed: error => exchange.destroy(`the engine failed: ${error.message}`),
  })
  exchange.onClientGone(() => call.abort())
}

function refuse(exchange: ServedExchange, status: number, message: string): void {
  const type = status < 500 ? 'invalid_request_error' : 'server_error'
  const body = Buffer.from(JSON.stringify({ error: { message, type, code: null } }))
  exchange.writeHead(status, { 'content-type': 'application/json', 'content-length': String(body.length) })
  exchange.end(body)
}

function bytesOf(piece: string | Uint8Array): Uint8Array {
  return typeof piece === 'string' ? Buffer.from(piece) : piece
}

const GONE = Symbol('gone')
