/**
 * Own address: the address of this machine from which it reaches another one, for programs that tell others
 * where they are. Nothing is sent: a connected UDP socket knows the route.
 */

import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { networkInterfaces } from 'node:os'

/** A name that is not known by then has no route. */
const ROUTE_MS_MAX = 2000

/** The kinds of addresses that a socket is bound to. */
export type AddressFamily = 'IPv4' | 'IPv6'

/**
 * As it stands in an endpoint: IPv6 in brackets. Where there is no route, or it does not leave this machine:
 * the first address of the machine that others may reach, or else that of this machine for itself.
 */
export async function ownAddressTowards(host: string, port: number, family: AddressFamily): Promise<string> {
  const route = await routeTo(host, port, family)
  const all = Object.values(networkInterfaces()).flatMap(one => one ?? [])
  const isReached = ({ internal, family: kind, address }: (typeof all)[number]): boolean =>
    !internal && kind === family && !address.startsWith('fe80:')
  const found = all.some(one => isReached(one) && one.address === route)
    ? route
    : all.find(isReached)?.address
  return family === 'IPv4' ? (found ?? '127.0.0.1') : `[${found ?? '::1'}]`
}

async function routeTo(host: string, port: number, family: AddressFamily): Promise<string | undefined> {
  const socket = createSocket(family === 'IPv4' ? 'udp4' : 'udp6')
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
