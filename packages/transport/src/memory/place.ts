/** A place where something is bound on a network in memory, and how it is found there. */

import { formatEndpoint, parseSocketEndpoint } from '../endpoint.ts'

/** The text under which a place is known: 'host:port' or a path. */
export function placeOf(endpoint: string): string {
  const text = endpoint.startsWith('http://') ? endpoint.slice('http://'.length) : schemeless(endpoint)
  return text.replace(/^localhost:/, '127.0.0.1:').replace(/\/$/, '')
}

/** What is bound at `place`, or at its port on every address. */
export function findBound<T>(bound: ReadonlyMap<string, T>, place: string): T | undefined {
  return bound.get(place) ?? bound.get(place.replace(/^.*:/, '0.0.0.0:'))
}

function schemeless(endpoint: string): string {
  return formatEndpoint(parseSocketEndpoint(endpoint, 'bind')).replace(/^(tcp|ipc):\/\//, '')
}
