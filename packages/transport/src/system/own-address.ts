/**
 * Own address: the address of this machine from which it reaches another one, for programs that tell others
 * where they are. Nothing is sent: a connected UDP socket knows the route.
 */

import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { networkInterfaces } from 'node:os'

/** A name that is not known by then has no route. */
const ROUTE_MS_MAX = 2000

/**
 * As it stands in an endpoint: IPv6 in brackets. Where there is no route, or it does not leave this machine:
 * the first address of the machine that others may reach, or else '127.0.0.1'.
 */
export async function ownAddressTowards(host: string, port: number): Promise<string> {
  const address = (await routeTo(host, port, 'udp4')) ?? (await routeTo(host, port, 'udp6'))
  if (address !== undefined && !/^(127\.|::1$|0\.|::$)/.test(address))
    return address.includes(':') ? `[${address}]` : address
  const all = Object.values(networkInterfaces()).flatMap(one => one ?? [])
  return all.find(({ internal, family }) => !internal && family === 'IPv4')?.address ?? '127.0.0.1'
}

async function routeTo(host: string, port: number, type: 'udp4' | 'udp6'): Promise<string | undefined> {
  const socket = createSocket({ type, signal: AbortSignal.timeout(ROUTE_MS_MAX) })
  try {
    const connected = once(socket, 'connect', { signal: AbortSignal.timeout(ROUTE_MS_MAX) })
    socket.connect(port, host.replace(/^\[|\]$/g, ''))
    await connected
    return socket.address().address
  } catch {
    return undefined
  } finally {
    socket.close()
  }
}
