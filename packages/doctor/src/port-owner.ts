/**
 * Port owner: what is at a TCP port where an event or a replay socket should be.
 *
 *   closed    no program listens
 *   silent    no connection, or no bytes: a firewall, or a wrong host
 *   http      an HTTP server
 *   events    a ZeroMQ socket that publishes
 *   replay    a ZeroMQ socket that answers replays
 *   other     something else that talks
 *
 * An HTTP request to a ZeroMQ socket does no harm: its greeting is missing, and the connection is closed.
 */

import type { Clock } from '@homing/base'
import { HttpCallError, type Transport } from '@homing/transport'
import { EventWatch } from './event-watch.ts'
import { askReplay } from './replay-question.ts'

export type PortOwner = 'closed' | 'silent' | 'http' | 'events' | 'replay' | 'other'

/** Takes two timeouts at most. An endpoint that is no TCP port is `silent`. */
export async function ownerOf(
  { http, messages }: Pick<Transport, 'http' | 'messages'>,
  clock: Clock,
  endpoint: string,
  expected: 'events' | 'replay',
  timeoutMs: number,
): Promise<PortOwner> {
  if (!endpoint.startsWith('tcp://')) return 'silent'
  const origin = endpoint.replace('tcp:', 'http:')
  const seen = await http.fetch({ origin, method: 'GET', path: '/' }, { timeoutMs }).then(
    () => 'http' as const,
    error => (error instanceof HttpCallError ? ownerByFailure(error) : 'other'),
  )
  if (seen !== 'other') return seen
  if (expected === 'events') {
    const { answeredMs } = await askReplay(messages, clock, endpoint, 'end', timeoutMs)
    return answeredMs === undefined ? 'other' : 'replay'
  }
  const watch = new EventWatch(messages, clock, endpoint)
  const connectedMs = await watch.connected(timeoutMs)
  watch.close()
  return connectedMs === undefined ? 'other' : 'events'
}

/** In words: 'nothing listens there'. */
export const OWNER_TEXTS: Readonly<Record<PortOwner, string>> = {
  closed: 'nothing listens there',
  silent: 'nothing answers there: a firewall, or another host',
  http: 'an HTTP server is there',
  events: 'a socket that publishes events is there',
  replay: 'a replay socket is there',
  other: 'something else is there',
}

function ownerByFailure(error: HttpCallError): PortOwner {
  if (error.failure === 'connect') return isRefused(error) ? 'closed' : 'silent'
  // It accepted the connection. A socket that waits for our greeting is silent until it gets one.
  return 'other'
}

/** The machine is there, but no program listens at that port. */
export function isRefused({ message }: HttpCallError): boolean {
  return message.includes('ECONNREFUSED')
}
