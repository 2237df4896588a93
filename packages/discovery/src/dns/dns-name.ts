/**
 * DNS name: where workers are found behind a name, as the operator writes it.
 *
 *   http://engines.example.com:8000?events=5557    a worker at each address of the name (A; AAAA if it has no
 *                                                  A), at this port
 *   srv://_http._tcp.engines.example.com?ranks=2   a worker at each address of each target (SRV)
 *
 * Path and query are those of a worker URL, and the same for all of them.
 */

import { NOT_SHOWN, openUrl } from '@homing/base'

export interface DnsName {
  readonly kind: 'addresses' | 'service'
  readonly name: string
  /** Of addresses; 0 for a service, whose records have it. */
  readonly port: number
  /** Behind the port: path and query. */
  readonly rest: string
}

/** The name, or why it is none; the rest of a sentence. */
export function readDnsName(text: string): DnsName | string {
  const url = URL.parse(text)
  const example = 'http://engines.example.com:8000 or srv://_http._tcp.engines.example.com'
  if (url === null || url.hostname === '') return `is not a URL such as ${example}`
  if (url.protocol === 'https:')
    return 'is https: workers are called by the addresses of the name, which certificates do not name; use http, or --worker'
  if (url.protocol !== 'http:' && url.protocol !== 'srv:') return `is not a URL such as ${example}`
  if (url.username !== '' || url.password !== '') return 'must not have a user name or password'
  const query = url.search
  if (url.searchParams.has('id')) return 'must not have id=, which is of one worker'
  if (url.searchParams.has('key_file') || url.searchParams.has('key_env'))
    return 'must not name a key: who answers for the name would get it; use --engine-api-key-file'
  if (url.protocol === 'srv:') {
    if (url.port !== '') return 'must not have a port: SRV records have them'
    return { kind: 'service', name: nameOf(text), port: 0, rest: restOf(url.pathname, query) }
  }
  if (/^(?:[\d.]+|\[.*\])$/.test(url.hostname)) return 'names an address: give it with --worker'
  return {
    kind: 'addresses',
    name: url.hostname,
    port: url.port === '' ? 80 : Number(url.port),
    rest: restOf(url.pathname, query),
  }
}

/** For errors: what is not secret of it. */
export function openDnsName(text: string): string {
  return openUrl(text) ?? NOT_SHOWN
}

/** Of a scheme that URL does not know, the host as it is written. */
function nameOf(text: string): string {
  return /^srv:\/\/([^/?#]+)/i.exec(text.trim())![1]!.toLowerCase()
}

function restOf(pathname: string, query: string): string {
  return `${pathname.replace(/\/$/, '')}${query}`
}
