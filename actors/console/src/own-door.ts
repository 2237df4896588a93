/**
 * Own door: the port of `--admin-port`, which the console listens on itself. What a client left before it
 * had, and what it was refused, is told.
 */

import {
  Bodies,
  type EventStreams,
  errorAnswer,
  FrontDoor,
  fetchPieces,
  sendAnswer,
  sendBooked,
  sendView,
  type ViewRoom,
} from '@homing/http'
import type { HttpExchange, HttpTransport, TlsIdentity } from '@homing/transport'
import type { ConsoleArgs } from './console-args.ts'
import { ConsoleBusyError } from './errors.ts'
import type { FromConsole, OperatorAnswer, OperatorRequest } from './messages.ts'
import type { OpenDump } from './open-dump.ts'

/** Bodies of `POST /route`, all together. */
const BODIES_COUNT_MAX = 4

export type CountedMessage = Exclude<FromConsole, { readonly reply: unknown }>

export interface DoorParts {
  /** Never rejects. */
  readonly answer: (request: OperatorRequest) => Promise<OperatorAnswer>
  /** The client of an answer left before it had it. */
  readonly undelivered: (booked: string) => void
  readonly count: (message: CountedMessage) => void
  /** Its label in metrics. */
  readonly routeName: (path: string) => string
  readonly streams: EventStreams
  readonly openDump: OpenDump
  readonly room: ViewRoom
}

/** What cannot be listened on is in the `address` of the door. */
export function openDoor(
  http: HttpTransport,
  {
    host,
    port,
    identity: tls,
    bodyBytesMax,
    bodySilenceMsMax,
    clientStallMsMax: readerStallMsMax,
    keepAliveMsMax,
  }: ConsoleArgs & { readonly port: number; readonly identity: TlsIdentity | undefined },
  { answer, undelivered, count, routeName, streams, openDump, room }: DoorParts,
): Promise<FrontDoor> {
  const bodies = new Bodies(
    BODIES_COUNT_MAX * bodyBytesMax,
    (bytes, bytesMax) => new ConsoleBusyError(`bytes of bodies are held, of ${bytesMax}`, bytes),
  )
  const serve = async (exchange: HttpExchange): Promise<void> => {
    const { method, path, query, headers, peerAddress } = exchange
    const hold = bodies.hold()
    exchange.onClientGone(reason => {
      if (reason === 'stalled') count({ type: 'clientStalled', route: routeName(path) })
    })
    const serveView = async (): Promise<number> => {
      const place = room.enter(exchange, routeName(path) === 'metrics')
      const body = method === 'POST' ? await hold.readDecoded(exchange, bodyBytesMax) : undefined
      const answered = await answer({ method, path, query, headers, peerAddress, body })
      const { dump, booked } = answered
      if (dump === undefined)
        return sendBooked(exchange, booked === undefined ? undefined : () => undelivered(booked), () =>
          sendView(exchange, place, answered, { streams, pieces: undefined }),
        )
      const pieces = fetchPieces(
        () => openDump.next(dump),
        () => openDump.end(dump),
      )
      return sendView(exchange, place, answered, { streams, pieces })
    }
    const status = await serveView()
      .catch((thrown: unknown) => (exchange.isClosed ? 0 : sendAnswer(exchange, errorAnswer(thrown))))
      .finally(() => hold.release())
    if (status >= 400) count({ type: 'refused', route: routeName(path), status })
  }
  const options = { host, port, bodySilenceMsMax, readerStallMsMax, keepAliveMsMax, tls }
  const malformed = (status: number): void => count({ type: 'refused', route: 'none', status })
  return FrontDoor.open(http, options, malformed, exchange => void serve(exchange))
}
