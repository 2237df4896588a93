/**
 * The routes that every JSON service has for those who run it: what it is, that it answers, its figures, its
 * log.
 */

import type { AccessLog } from './access-log.ts'
import { sendAnswer, textAnswer } from './answers.ts'
import { sendJson } from './json-answers.ts'
import type { JsonHandler, NamedRoute } from './json-service.ts'

export interface ServiceHandlersOptions {
  /** 'homing select'. */
  readonly product: string
  readonly routes: readonly NamedRoute[]
  readonly metrics: { readonly contentType: string; render(): Promise<string> }
  /** Undefined: it has none. */
  readonly accessLog: () => AccessLog | undefined
}

export function serviceHandlers({ product, routes, metrics, accessLog }: ServiceHandlersOptions) {
  return {
    'GET /health': exchange => sendJson(exchange, 200, OK),
    async 'GET /metrics'(exchange) {
      const headers = { 'content-type': metrics.contentType }
      return sendAnswer(exchange, textAnswer(200, await metrics.render(), headers))
    },
    async 'POST /reopen_logs'(exchange) {
      await accessLog()?.reopen()
      return sendJson(exchange, 200, OK)
    },
    'GET /'(exchange) {
      const summaries = routes.map(
        ({ method, path, query = '', summary }) => [`${method} ${path}${query}`, summary] as const,
      )
      return sendJson(exchange, 200, { product, routes: Object.fromEntries(summaries) })
    },
  } satisfies Readonly<Record<string, JsonHandler>>
}

const OK = { status: 'ok' }
