/**
 * Worker routes: what a router asks a worker of token ids.
 *
 *   GET  /v1/models    the model, which says that it takes token ids
 *   GET  /health       200 while requests are taken
 *   GET  /metrics      counts, in Prometheus' text form
 *   POST /v1/tokens    generates (packages/protocol/src/token-requests.ts)
 */

import type { Log } from '@homing/base'
import { errorAnswer } from '@homing/http'
import { readTokenRequest, TOKENS_PATH, TOKENS_TYPE } from '@homing/protocol'
import type { RequestHandler, WorkerAnswer, WorkerRequest } from '@homing/publisher'
import { RefuseRequestError } from './errors.ts'
import { type TokenCounts, tokenLines } from './token-lines.ts'
import type { WorkerOptions } from './worker-options.ts'

export interface WorkerRoutes {
  readonly handler: RequestHandler
  readonly counts: TokenCounts
}

export interface WorkerRoutesParts {
  readonly options: WorkerOptions
  readonly log: Pick<Log, 'warn'>
  /** When it began, in Unix seconds. */
  readonly startedSeconds: number
  readonly metrics: () => string
}

const JSON_TYPE = { 'content-type': 'application/json' }

export function workerRoutes({ options, log, startedSeconds, metrics }: WorkerRoutesParts): WorkerRoutes {
  const counts: TokenCounts = { tokens: 0, finished: 0, failed: 0, cancelled: 0 }
  const { model, modelPath, contextLength } = options
  const card = {
    ...{ id: model, object: 'model', created: startedSeconds, owned_by: 'custom', model_input: 'Tokens' },
    ...(modelPath === undefined ? {} : { root: modelPath }),
    ...(contextLength === undefined ? {} : { max_model_len: contextLength }),
  }
  const models = JSON.stringify({ object: 'list', data: [card] })

  async function generate({ body, signal }: WorkerRequest): Promise<WorkerAnswer> {
    const request = readTokenRequest(body)
    const outputs = options.generate(request, { signal })[Symbol.asyncIterator]()
    const warn = (error: unknown): void => {
      const reason = error instanceof Error ? error.message : String(error)
      log.warn({ requestId: request.requestId, reason }, 'generating tokens failed')
    }
    try {
      const first = await outputs.next()
      if (signal.aborted) {
        counts.cancelled++
        outputs.return?.()?.then(undefined, warn)
        return { status: 499 }
      }
      const lines = tokenLines(request, outputs, first, counts, warn)
      return { status: 200, headers: { 'content-type': TOKENS_TYPE }, body: lines }
    } catch (error) {
      counts.failed++
      if (!(error instanceof RefuseRequestError)) warn(error)
      return refusal(error)
    }
  }

  async function handler(request: WorkerRequest): Promise<WorkerAnswer> {
    const path = request.path.split('?', 1)[0]
    if (request.method === 'POST' && path === TOKENS_PATH) return await answerOf(() => generate(request))
    if (request.method !== 'GET') return notHere(request)
    if (path === '/v1/models') return { status: 200, headers: JSON_TYPE, body: models }
    if (path === '/health') return { status: 200, headers: JSON_TYPE, body: '{"status":"ok"}' }
    if (path === '/metrics')
      return { status: 200, headers: { 'content-type': 'text/plain; version=0.0.4' }, body: metrics() }
    return notHere(request)
  }
  return { handler, counts }
}

/** A request that cannot be read is answered with what is wrong. */
async function answerOf(run: () => Promise<WorkerAnswer>): Promise<WorkerAnswer> {
  try {
    return await run()
  } catch (error) {
    const { status, headers, body } = errorAnswer(error)
    return { status, headers, body }
  }
}

function refusal(error: unknown): WorkerAnswer {
  const status = error instanceof RefuseRequestError ? error.status : 500
  const message = error instanceof Error ? error.message : String(error)
  return { status, headers: JSON_TYPE, body: errorText(message, status) }
}

function notHere({ method, path }: WorkerRequest): WorkerAnswer {
  const message = `cannot answer ${method} ${path}: this worker takes token ids, at POST ${TOKENS_PATH}`
  return { status: 404, headers: JSON_TYPE, body: errorText(message, 404) }
}

function errorText(message: string, status: number): string {
  const type = status < 500 ? 'invalid_request_error' : 'server_error'
  return JSON.stringify({ error: { message, type, param: null, code: null } })
}
