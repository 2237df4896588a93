/** Endpoints of ZeroMQ sockets: 'tcp://host:port', 'tcp://[v6]:port', 'ipc://path'. */

import { EndpointError } from './errors.ts'

export type Endpoint =
  | { readonly scheme: 'tcp'; readonly host: string; readonly port: number }
  | { readonly scheme: 'ipc'; readonly path: string }

/**
 * Throws EndpointError. The host '*' and the port 0 are for binding only: '*' is every IPv4 address,
 * which is read as 0.0.0.0, and port 0 any free port.
 */
export function parseEndpoint(text: string, purpose: 'bind' | 'connect'): Endpoint {
  if (text.startsWith('ipc://')) {
    const path = text.slice('ipc://'.length)
    if (path === '') throw new EndpointError(text, 'the path is missing')
    return { scheme: 'ipc', path }
  }
  const match = /^tcp:\/\/(\[[^\]]+\]|[^[\]:/]+):(\d{1,5})$/.exec(text)
  if (match === null) throw new EndpointError(text, "'tcp://host:port' or 'ipc://path' is expected")
  const bracketed = match[1]!
  const host = bracketed.startsWith('[') ? bracketed.slice(1, -1) : bracketed
  const port = Number(match[2])
  if (port > 65_535) throw new EndpointError(text, 'ports end at 65535')
  if (purpose === 'connect' && (host === '*' || port === 0)) {
    throw new EndpointError(text, 'it does not name a single address to connect to')
  }
  return { scheme: 'tcp', host: host === '*' ? '0.0.0.0' : host, port }
}

export function formatEndpoint(endpoint: Endpoint): string {
  if (endpoint.scheme === 'ipc') return `ipc://${endpoint.path}`
  return `tcp://${endpoint.host.includes(':') ? `[${endpoint.host}]` : endpoint.host}:${endpoint.port}`
}
