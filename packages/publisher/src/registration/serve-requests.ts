/**
 * Serving requests at a broker: each goes to a handler, or to an engine that speaks HTTP on this machine.
 *
 *   handler   gets the whole request; its answer is sent piece by piece, as fast as the router takes the
 *             pieces. When the router leaves, `signal` aborts, and the pieces are asked to end. An error that
 *             it throws is a 500 before its first piece, and afterwards cuts the answer.
 *   engine    gets the request unchanged, and its answer is relayed unchanged: status, headers, bytes
 *
 * Bounds   a body by `bodyBytesMax`, all bodies in use together by `bodiesBytesMax`, and a body that stalls
 *          by `bodySilenceMsMax`; requests, and the part of each body that is on the way, by the transport;
 *          of an answer one piece, or of an engine's answer what its socket had read already.
 */

import type { Log } from '@homing/base'
import { Bodies, errorAnswer, LentBodies, sendAnswer } from '@homing/http'
import {
  ClientGoneError,
  type HttpCall,
  type HttpTransport,
  type ServedExchange,
  type ServeOptions,
  type ServingListener,
  type TcpLimits,
} from '@homing/transport'
import { NoBodyRoomError } from './errors.ts'
import { handleRequest } from './handle-request.ts'
import { requestSettingsOf, type ServeRequests } from './request-settings.ts'
import { isHttpEndpoint, serveHttp } from './serve-http.ts'

export interface ServedRequests extends ServingListener {
  /**
   * Bytes of bodies held now: bodies of open requests, arriving bodies, and bodies that the connection to an
   * engine still has.
   */
  readonly bodiesBytes: number
  /** Requests that were refused, since the beginning, because there was no room for their bodies. */
  readonly refusedBodies: number
}

/**
 * Throws EndpointError and BadRegistrationError. `endpoint`: 'nats://host:port/subject'; or 'tcp://host:port'
 * or 'http://host:port' to listen there.
 */
export function serveRequests(
  http: Pick<HttpTransport, 'serve' | 'call' | 'listen'>,
  endpoint: string,
  served: ServeRequests,
  log: Pick<Log, 'warn'>,
  tcp?: Partial<TcpLimits>,
): ServedRequests {
  const { answerer, bodyBytesMax, bodiesBytesMax, ...options } = requestSettingsOf(served)
  const bodies = new Bodies(bodiesBytesMax, (bytes, bytesMax) => new NoBodyRoomError(bytes, bytesMax))
  const lent = new LentBodies()
  let refusedBodies = 0
  const refuse = (exchange: ServedExchange, error: unknown): void => {
    if (error instanceof ClientGoneError) return
    const { code } = error as { readonly code?: unknown }
    // One for all of them: there may be thousands.
    if (code === 'HOMING_WORKER_NO_BODY_ROOM' && refusedBodies++ === 0)
      log.warn({ bodiesBytesMax }, 'requests are refused: there is no room for their bodies')
    sendAnswer(exchange, errorAnswer(error))
  }
  const answer = async (exchange: ServedExchange): Promise<void> => {
    lent.look()
    const hold = bodies.hold()
    let call: HttpCall | undefined
    try {
      const body = await exchange.readBody(bodyBytesMax, hold)
      if (typeof answerer === 'string') call = await relay(http, answerer, exchange, body)
      else await handleRequest(answerer, exchange, body, log)
    } catch (thrown) {
      refuse(exchange, thrown)
    } finally {
      if (call === undefined) hold.release()
      else lent.settle(call, () => hold.release())
    }
  }
  const serve = isHttpEndpoint(endpoint) ? serveHttp : serveByPlane
  const listener = serve(http, { endpoint, tcp, ...options }, exchange => void answer(exchange))
  return {
    listening: listener.listening,
    get openCount() {
      return listener.openCount
    },
    get bodiesBytes() {
      lent.look()
      return bodies.bytes
    },
    get refusedBodies() {
      return refusedBodies
    },
    close: graceMs => listener.close(graceMs),
  }
}

function serveByPlane(
  http: Pick<HttpTransport, 'serve'>,
  options: ServeOptions,
  onExchange: (exchange: ServedExchange) => void,
): ServingListener {
  return http.serve(options, onExchange)
}

/**
 * Resolves when the engine has no part in it any more, with its call, which may still have the body. What
 * breaks there cuts the answer: the router may try another worker.
 */
function relay(
  http: Pick<HttpTransport, 'call'>,
  origin: string,
  exchange: ServedExchange,
  body: Uint8Array,
): Promise<HttpCall> {
  const { method, path, query, headers } = exchange
  const target = query === '' ? path : `${path}?${query}`
  const request = { origin, method, path: target, headers, ...(body.length === 0 ? {} : { body }) }
  const over = Promise.withResolvers<void>()
  const call = http.call(request, {
    head: (status, given) => exchange.writeHead(status, given),
    data(bytes) {
      if (exchange.write(bytes)) return
      call.pause()
      exchange.onDrain(() => call.resume())
    },
    end(how) {
      exchange.end(undefined, how)
      over.resolve()
    },
    failed(error) {
      exchange.destroy(`the engine failed: ${error.message}`)
      over.resolve()
    },
  })
  exchange.onClientGone(() => call.abort())
  return over.promise.then(() => call)
}
