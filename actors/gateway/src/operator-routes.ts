/** Operator routes: what the console answers, on the port of the gateway, while it has none of its own. */

import { fromErrorRecord } from '@homing/base'
import { Bodies, type EventStreams, fetchPieces, sendBooked, sendView, type ViewRoom } from '@homing/http'
import type { HttpExchange } from '@homing/transport'
import { NoBodyRoomError } from './errors.ts'
import type { GatewayArgs } from './gateway-args.ts'
import type { GatewayMetrics } from './gateway-metrics.ts'
import type { OwnRoute } from './own-routes.ts'

export type OperatorRoute = OwnRoute & { readonly view: (exchange: HttpExchange) => Promise<void> }

/** Bodies of operator requests, all together. */
const OPERATOR_BODIES_COUNT_MAX = 4

/** Routes that the console answers, within bounds of their own: they take nothing of the open requests. */
export function operatorRoutes(
  { operators, bodyBytesMax, readMsMax, askMsMax }: GatewayArgs,
  metrics: GatewayMetrics,
  tabs: EventStreams | undefined,
  room: ViewRoom,
): readonly OperatorRoute[] {
  if (operators === undefined || tabs === undefined) return []
  const { console } = operators
  const bodies = new Bodies(
    OPERATOR_BODIES_COUNT_MAX * bodyBytesMax,
    (bytes, bytesMax) => new NoBodyRoomError(bytes, bytesMax),
  )
  // Longer than the console's own deadlines.
  const options = { timeout: readMsMax + askMsMax }
  const piecesOf = (dump: number): AsyncGenerator<Uint8Array, void, undefined> =>
    fetchPieces(
      async () => {
        const piece = await console.ask({ type: 'dumpPiece', dump }, options)
        if ('code' in piece) throw fromErrorRecord(piece)
        return piece
      },
      () => void console.tell({ type: 'endDump', dump }),
    )
  const pass = async (exchange: HttpExchange, name: string, isRead: boolean): Promise<void> => {
    const place = room.enter(exchange, name === 'metrics')
    const { method, path, query, headers, peerAddress } = exchange
    const hold = bodies.hold()
    try {
      const body = isRead ? await hold.readDecoded(exchange, bodyBytesMax) : undefined
      const request = { method, path, query, headers, peerAddress, body }
      const answer = await console.ask({ type: 'serve', request }, options)
      const { dump, booked } = answer
      const undelivered =
        booked === undefined ? undefined : () => void console.tell({ type: 'undelivered', booked })
      if (exchange.isClosed) {
        if (dump !== undefined) console.tell({ type: 'endDump', dump })
        undelivered?.()
        return
      }
      const pieces = dump === undefined ? undefined : piecesOf(dump)
      const status = await sendBooked(exchange, undelivered, () =>
        sendView(exchange, place, answer, { streams: tabs, pieces }),
      )
      if (status >= 400) metrics.refused(name, status)
    } finally {
      hold.release()
    }
  }
  return operators.routes.map(route => {
    return { ...route, view: exchange => pass(exchange, route.name, route.method === 'POST') }
  })
}
