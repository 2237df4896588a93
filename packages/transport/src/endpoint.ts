/**
 * Endpoints of messages: 'tcp://host:port', 'tcp://[v6]:port' and 'ipc://path' of ZeroMQ sockets;
 * 'nats://host:port/subject' of a publisher at a NATS broker, with the broker's other addresses behind
 * commas: 'nats://a:4222,b:4222/subject'; 'etcd://host:port/subject' of a presence at etcd.
 *
 * Endpoints come from engines, brokers and clients of the API, and libzmq throws at those that it cannot use.
 * So what is read here is less than what libzmq takes: no interfaces, no source addresses, no wildcards to
 * connect to.
 */

import { isIPv6 } from 'node:net'
import { shownText } from '@homing/base'

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
const ETCD_PORT = 2379
const SUBJECT = /^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$/
const SUBJECT_CHARACTERS_MAX = 200
const SERVERS_MAX = 16

export function isBrokerEndpoint(text: string): boolean {
  return text.startsWith('nats://')
}

const HOST_CHARACTERS_MAX = 253
/** Labels of letters, digits, '-' and '_'; a name begins with a letter or digit. */
const HOST_NAME = /^[A-Za-z0-9][A-Za-z0-9_-]{0,62}(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*\.?$/
const IPV6_ZONE = /^%[A-Za-z0-9_.-]{1,32}$/
/** What fits into the address of a socket file on Linux, with its end. */
const IPC_PATH_BYTES_MAX = 107

/** Whether a host can stand in an endpoint: a name, an IPv4 address, or an IPv6 address in brackets. */
export function isEndpointHost(host: string): boolean {
  if (!host.startsWith('[')) return host.length <= HOST_CHARACTERS_MAX && HOST_NAME.test(host)
  const [, address, zone = ''] = /^\[([^%\]]*)(%[^\]]*)?\]$/.exec(host) ?? []
  return address !== undefined && isIPv6(address) && (zone === '' || IPV6_ZONE.test(zone))
}

/** Why an endpoint cannot be connected to; undefined: it can be tried. */
export function faultOfEndpoint(text: string): string | undefined {
  try {
    parseEndpoint(text, 'connect')
    return undefined
  } catch (error) {
    if (error instanceof EndpointError) return error.reason
    throw error
  }
}

export function isEtcdEndpoint(text: string): boolean {
  return /^etcds?:\/\//.test(text)
}

/**
 * Of a presence: at a broker, whose `servers` are 'host:port' each, or at etcd: 'http://host:port' or
 * 'https://host:port' each, all of one kind.
 */
export function presenceEndpoint(servers: readonly string[], subject: string): string {
  const hosts = servers.map(server => server.replace(/^https?:\/\//, '')).join(',')
  const [first = ''] = servers
  const scheme = first.startsWith('https:') ? 'etcds' : first.startsWith('http:') ? 'etcd' : 'nats'
  return `${scheme}://${hosts}/${subject}`
}

/**
 * Of a presence at etcd: 'etcd://host:port/subject', with other servers behind commas; 'etcds' for TLS.
 * `servers` are 'http://host:port' or 'https://host:port' each. Throws EndpointError.
 */
export function parseEtcdEndpoint(text: string): {
  readonly servers: readonly string[]
  readonly subject: string
} {
  // A broker has another default port.
  const withPorts = text.replace(/^etcds?:\/\/([^/]*)/, (_, servers: string) => {
    const named = servers.split(',').map(one => (/:\d+$/.test(one) ? one : `${one}:${ETCD_PORT}`))
    return `nats://${named.join(',')}`
  })
  const { servers, subject } = parseBrokerEndpoint(withPorts)
  const scheme = text.startsWith('etcds:') ? 'https' : 'http'
  return { servers: servers.map(server => `${scheme}://${server}`), subject }
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
  if (match === null || !isEndpointHost(match[1]!))
    throw new EndpointError(whole, `${JSON.stringify(shownText(text))} is not 'host:port'`)
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
    const fault = faultOfPath(path)
    if (fault !== undefined) throw new EndpointError(text, fault)
    return { scheme: 'ipc', path }
  }
  const match = /^tcp:\/\/(\[[^\]]+\]|[^[\]:/]+):(\d{1,5})$/.exec(text)
  if (match === null) throw new EndpointError(text, "'tcp://host:port' or 'ipc://path' is expected")
  const bracketed = match[1]!
  if (bracketed !== '*' && !isEndpointHost(bracketed))
    throw new EndpointError(text, "its host is no name, no IPv4 address and no IPv6 address in '[' and ']'")
  const host = bracketed.startsWith('[') ? bracketed.slice(1, -1) : bracketed
  const port = Number(match[2])
  if (port > 65_535) throw new EndpointError(text, 'ports end at 65535')
  if (purpose === 'connect' && (host === '*' || port === 0)) {
    throw new EndpointError(text, 'it does not name a single address to connect to')
  }
  return { scheme: 'tcp', host: host === '*' ? '0.0.0.0' : host, port }
}

function faultOfPath(path: string): string | undefined {
  if (path === '') return 'the path is missing'
  if (path === '*' || path === '@') return 'its path does not name a single socket'
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
  if (/[\u0000-\u001f\u007f]/.test(path)) return 'its path has a character that cannot be printed'
  return Buffer.byteLength(path) > IPC_PATH_BYTES_MAX
    ? `its path has more than ${IPC_PATH_BYTES_MAX} bytes`
    : undefined
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
