/** Serving requests that come over HTTP, with the bounds that requests over a broker have. */

import { errorAnswer, sendAnswer } from '@homing/http'
import type {
  HttpListener,
  HttpTransport,
  ServedExchange,
  ServeOptions,
  ServingListener,
} from '@homing/transport'
import { CallsFullError } from './errors.ts'

const ENDPOINT = /^http:\/\/(\[[0-9a-f:.]+\]|[^/:\s]+):(\d{1,5})\/?$/i
/** A client that takes no byte of its answer for this time is cut. */
const READER_STALL_MS_MAX = 300_000
const CALLS_MAX_DEFAULT = 4096

/** Whether this names a place to listen at for HTTP. */
export function isHttpEndpoint(endpoint: string): boolean {
  return endpoint.startsWith('http://')
}

/** Rejects in `listening` with ListenError. `endpoint`: 'http://host:port', port 0 for any. */
export function serveHttp(
  http: Pick<HttpTransport, 'listen'>,
  { endpoint, callsMax = CALLS_MAX_DEFAULT, bodySilenceMsMax }: ServeOptions,
  onExchange: (exchange: ServedExchange) => void,
): ServingListener {
  const [, host = '', port = ''] = ENDPOINT.exec(endpoint) ?? []
  let openCount = 0
  let isClosing = false
  const opened = http.listen(
    {
      host: host.replace(/^\[|\]$/g, ''),
      port: Number(port),
      readerStallMsMax: READER_STALL_MS_MAX,
      ...(bodySilenceMsMax === undefined ? {} : { bodySilenceMsMax }),
      connectionsMax: 2 * callsMax,
    },
    exchange => {
      if (isClosing || openCount >= callsMax) {
        sendAnswer(exchange, errorAnswer(new CallsFullError(openCount, callsMax, isClosing)))
        return
      }
      openCount++
      exchange.onOver(() => {
        openCount--
      })
      onExchange(exchange)
    },
  )
  const listening = opened.then(listener => `http://${shownHost(listener)}:${listener.port}`)
  // One that is closed before it listens rejects for its owner only.
  listening.catch(() => {})
  return {
    listening,
    get openCount() {
      return openCount
    },
    async close(graceMs) {
      isClosing = true
      const listener = await opened.catch(() => undefined)
      await listener?.close(graceMs)
    },
  }
}

function shownHost({ host }: HttpListener): string {
  return host.includes(':') && !host.startsWith('[') ? `[${host}]` : host
}
