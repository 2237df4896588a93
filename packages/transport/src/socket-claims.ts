/**
 * Socket claims: the sockets that each worker key, or rank of an instance, names for its events and its
 * replay, and which of them a second owner names too.
 *
 * A socket belongs to one engine. If two keys name it, one of them would be credited with blocks of the
 * other: events do not say which key they belong to. So both keys are at fault, and neither may follow the
 * socket.
 *
 *   tcp://localhost:5557, tcp://127.0.0.1:5557, tcp://[::1]:5557      one socket: this machine is one host
 *
 * The same class serves workers as given (owners are their texts), as found by probes (owners are their
 * keys), and ranks as they are registered with an indexer. A claim costs one look-up per socket, whatever the
 * number of owners.
 */

import { isBrokerEndpoint } from './endpoint.ts'

/** What an owner uses a socket for. */
export type SocketUse = 'events' | 'replay'

export interface NamedSocket {
  readonly use: SocketUse
  /** 'tcp://10.0.0.1:5557', with a host that can be dialled. */
  readonly endpoint: string
}

/** A socket that two owners name. */
export interface SocketClash extends NamedSocket {
  /** The other owner that names it; the owner itself if it names one socket twice. */
  readonly rival: string
  readonly rivalUse: SocketUse
}

interface Claim {
  readonly owner: string
  readonly use: SocketUse
}

export class SocketClaims {
  /** By socket. */
  readonly #claims = new Map<string, Claim[]>()
  readonly #socketsOf = new Map<string, readonly NamedSocket[]>()

  /** Replaces what this owner names. True when that has changed. */
  claim(owner: string, sockets: readonly NamedSocket[]): boolean {
    const before = this.#socketsOf.get(owner) ?? []
    if (JSON.stringify(before) === JSON.stringify(sockets)) return false
    for (const { endpoint } of before) {
      const name = socketName(endpoint)
      const others = this.#claims.get(name)?.filter(claim => claim.owner !== owner) ?? []
      if (others.length === 0) this.#claims.delete(name)
      else this.#claims.set(name, others)
    }
    if (sockets.length === 0) this.#socketsOf.delete(owner)
    else this.#socketsOf.set(owner, sockets)
    for (const { use, endpoint } of sockets) {
      const name = socketName(endpoint)
      const claims = this.#claims.get(name)
      if (claims === undefined) this.#claims.set(name, [{ owner, use }])
      else claims.push({ owner, use })
    }
    return true
  }

  /** The first socket of this owner that somebody else names, or it itself for another use. */
  clashOf(owner: string): SocketClash | undefined {
    for (const { use, endpoint } of this.#socketsOf.get(owner) ?? []) {
      const claims = this.#claims.get(socketName(endpoint))!
      const rival =
        claims.find(claim => claim.owner !== owner) ??
        // Behind a broker one endpoint is that of a publisher, for its events and for questions.
        (isBrokerEndpoint(endpoint)
          ? undefined
          : claims.find(claim => claim.owner === owner && claim.use !== use))
      if (rival !== undefined) return { use, endpoint, rival: rival.owner, rivalUse: rival.use }
    }
    return undefined
  }
}

/** 'tcp://h:5557 for its events, which h:8002/0 names for its replay'. */
export function clashText({ use, endpoint, rival, rivalUse }: SocketClash): string {
  return `${endpoint} for its ${use}, which ${rival} names for its ${rivalUse}`
}

/** Whether an endpoint is of this machine, and so another one on another machine. */
export function isOfThisMachine(endpoint: string): boolean {
  return endpoint.startsWith('ipc://') || socketName(endpoint).startsWith('tcp://localhost:')
}

/** Whether two endpoints are one socket, for somebody on one machine. */
export function isSameSocket(endpoint: string, other: string): boolean {
  return socketName(endpoint) === socketName(other)
}

/** The same text for hosts that are the same machine. */
export function hostName(host: string): string {
  const lower = host.toLowerCase()
  return THIS_MACHINE.has(lower) ? 'localhost' : lower
}

/** A listener on every interface is dialled on this machine. */
const THIS_MACHINE = new Set(['localhost', '127.0.0.1', '::1', '[::1]', '0.0.0.0', '::', '[::]'])

function socketName(endpoint: string): string {
  const match = /^tcp:\/\/(.*):(\d+)$/.exec(endpoint)
  return match === null ? endpoint : `tcp://${hostName(match[1]!)}:${Number(match[2])}`
}
