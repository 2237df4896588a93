/**
 * Endpoints of messages: 'tcp://host:port', 'tcp://[v6]:port' and 'ipc://path' of ZeroMQ sockets;
 * 'nats://host:port/subject' of a publisher at a NATS broker, with the broker's other addresses behind
 * commas: 'nats://a:4222,b:4222/subject'.
 */

import { EndpointError } from './errors.ts'

/** Of a ZeroMQ socket. */
export type SocketEndpoint =
  | { readonly scheme: 'tcp'; readonly host: string; readonly port: number }
  | { readonly scheme: 'ipc'; readonly path: string }

/** Of a publisher behind a broker. */
export interface BrokerEndpoint {
  readonly scheme: 'nats'
  /** 'host:port' each; at least one. */
  readonly servers: readonly string[]
  /** Words of letters, digits, '-' and '_', with dots between them. */
  readonly subject: string
}

export type Endpoint = SocketEndpoint | BrokerEndpoint

export const NATS_PORT = 4222
const SUBJECT = /^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$/
const SUBJECT_CHARACTERS_MAX = 200
const SERVERS_MAX = 16

export function isBrokerEndpoint(text: string): boolean {
  return text.startsWith('nats://')
}

/** Throws EndpointError. */
export function parseBrokerEndpoint(text: string): BrokerEndpoint {
  const [, hosts, subject] = /^nats:\/\/([^/]*)\/(.*)$/.exec(text) ?? []
  if (hosts === undefined || subject === undefined)
    throw new EndpointError(withoutSecret(text), "'nats://host:port/subject' is expected")
  const servers = hosts.split(',').map(server => brokerServer(server, text))
  if (servers.length > SERVERS_MAX)
    throw new EndpointError(text, `a broker has at most ${SERVERS_MAX} addresses`)
  if (!SUBJECT.test(subject) || subject.length > SUBJECT_CHARACTERS_MAX)
    throw new EndpointError(
      text,
      `the subject ${JSON.stringify(subject)} is not words of letters, digits, '-' and '_' with dots between them, at most ${SUBJECT_CHARACTERS_MAX} characters`,
    )
  return { scheme: 'nats', servers, subject }
}

/**
 * 'host:port' of a server of a broker, as 'host', 'host:port' or 'nats://host:port'. Throws EndpointError.
 */
export function brokerServer(text: string, whole = text): string {
  const bare = text.startsWith('nats://') ? text.slice('nats://'.length).replace(/\/$/, '') : text
  if (bare.includes('@'))
    throw new EndpointError(
      withoutSecret(whole),
      'leave user and password out of it: give --nats-credentials-file',
    )
  const match = /^(\[[^\]]+\]|[^[\]:/\s,]+)(?::(\d{1,5}))?$/.exec(bare)
  if (match === null) throw new EndpointError(whole, `${JSON.stringify(text)} is not 'host:port'`)
  const port = Number(match[2] ?? NATS_PORT)
  if (port === 0 || port > 65_535) throw new EndpointError(whole, 'ports are 1 to 65535')
  return `${match[1]}:${port}`
}

/**
 * Throws EndpointError. The host '*' and the port 0 are for binding only: '*' is every IPv4 address,
 * which is read as 0.0.0.0, and port 0 any free port.
 */
export function parseSocketEndpoint(text: string, purpose: 'bind' | 'connect'): SocketEndpoint {
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

/** Any endpoint. Throws EndpointError. */
export function parseEndpoint(text: string, purpose: 'bind' | 'connect'): Endpoint {
  return isBrokerEndpoint(text) ? parseBrokerEndpoint(text) : parseSocketEndpoint(text, purpose)
}

export function formatEndpoint(endpoint: Endpoint): string {
  if (endpoint.scheme === 'ipc') return `ipc://${endpoint.path}`
  if (endpoint.scheme === 'nats') return `nats://${endpoint.servers.join(',')}/${endpoint.subject}`
  return `tcp://${endpoint.host.includes(':') ? `[${endpoint.host}]` : endpoint.host}:${endpoint.port}`
}

function withoutSecret(text: string): string {
  return text.replace(/\/\/[^/]*@/, '//***@')
}
