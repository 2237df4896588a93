/**
 * Callers: which requests come from this machine's own user, and which a page of another site had a browser
 * send. One rule for every service: the router's operator routes, the page, the indexer, the simulated
 * engine.
 *
 *   from here       the peer is a loopback address, the host name is one of this machine's, and the request
 *                   speaks for itself: no proxy's header, no page of another site behind it
 *   strange page    `origin`, `referer` or `sec-fetch-site` name another site; or the host name is not known
 *                   as one of the service's, and the peer is a browser or is on this machine
 *
 * Why the host name counts: a page of evil.example may have its own name resolve to 127.0.0.1 (DNS
 * rebinding). For the browser the service is then part of evil.example: no rule about origins applies, and
 * only the `host` header tells. An IP address as a host cannot be rebound. A page can leave out every mark of
 * a browser, so on this machine an unknown name is refused whatever else is there.
 *
 * Limit  a program on another machine may use any name, because service names of clusters cannot be known
 *        here: such a machine's browser is known by its marks only.
 */

import { hostname } from 'node:os'
import type { HttpHeaders } from '@homing/transport'
import { StrangePageError } from './errors.ts'

/** Of a request, what its caller is known by. */
export interface Caller {
  readonly headers: HttpHeaders
  /** Peer address of the connection; '' if not known. */
  readonly peerAddress: string
}

/**
 * Headers with which a proxy says for whom it asks, or that it is one. No client of an operator sends them.
 */
const PROXY_HEADERS: ReadonlySet<string> = new Set([
  'forwarded',
  'via',
  'x-real-ip',
  'x-client-ip',
  'x-cluster-client-ip',
  'x-original-host',
  'x-original-forwarded-for',
  'x-originating-ip',
  'x-remote-ip',
  'x-remote-addr',
  'x-azure-clientip',
  'x-azure-socketip',
  'true-client-ip',
  'cdn-loop',
  'fastly-client-ip',
  'fly-client-ip',
  'x-amzn-trace-id',
  'x-appengine-remote-addr',
  'x-appengine-user-ip',
])
const PROXY_PREFIXES = ['x-forwarded', 'x-envoy-', 'cf-', 'x-azure-fdid', 'x-vercel-', 'x-nf-'] as const

/** What browsers tell of the site of the page that asks; the others are of no page, or of this site. */
const OWN_SITES: ReadonlySet<unknown> = new Set([undefined, 'same-origin', 'none'])
const BROWSER_AGENT = /^mozilla\//i
/** Undici, which is Node's `fetch`, sends it; browsers name languages. */
const ANY_LANGUAGE = '*'

/** `host` as a header has it: a name or an address, IPv6 in brackets, and a port. */
const HOST = /^(?:\[[0-9a-f:.]+\]|[^\s/?#@:[\]\\]+)(?::\d{1,5})?$/i

/** The names under which a service may be called. */
export class HostNames {
  readonly #own: ReadonlySet<string>
  readonly #known: ReadonlySet<string>

  /**
   * `host`: where it listens. `others`: names that the operator gave. `machine`: the name of the machine; a
   * proxy on it may serve others under that name, so it gives no right to change anything.
   */
  constructor(host: string, others: readonly string[] = [], machine = hostname()) {
    this.#own = new Set(['localhost', normalName(host)])
    this.#known = new Set([...this.#own, ...others.map(normalName), normalName(machine)])
  }

  /** One of this machine alone; without the header, as no browser asks, it is. */
  isOwn({ host }: HttpHeaders): boolean {
    if (host === undefined) return true
    const name = nameOf(host)
    return name !== undefined && (this.#own.has(name) || isLoopback(name))
  }

  /** One of this service, or an address. */
  isKnown({ host }: HttpHeaders): boolean {
    if (host === undefined) return true
    const name = nameOf(host)
    return name !== undefined && (this.#known.has(name) || isAddress(name))
  }
}

/** The request of a program or a page of this machine itself. */
export function isFromHere(caller: Caller, names: HostNames): boolean {
  const { headers, peerAddress } = caller
  return (
    isLoopback(peerAddress) &&
    names.isOwn(headers) &&
    !Object.keys(headers).some(speaksForOthers) &&
    otherSiteOf(headers) === undefined
  )
}

/** Throws StrangePageError. */
export function assertNoStrangePage(
  { headers, peerAddress, method, path }: Caller & { readonly method: string; readonly path: string },
  names: HostNames,
): void {
  const site = otherSiteOf(headers)
  if (site !== undefined) throw new StrangePageError(method, path, `a page of another site asks (${site})`)
  if (names.isKnown(headers) || !(isLoopback(peerAddress) || isBrowser(headers))) return
  const host = String(headers['host'])
  throw new StrangePageError(method, path, 'its host name is not known here', host)
}

/** A loopback address; IPv6 with or without brackets. */
export function isLoopback(address: string): boolean {
  const plain = address.replace(/^\[(.*)\]$/, '$1').replace(/^::ffff:/i, '')
  return plain === '::1' || /^127(\.\d{1,3}){3}$/.test(plain)
}

function speaksForOthers(header: string): boolean {
  return PROXY_HEADERS.has(header) || PROXY_PREFIXES.some(prefix => header.startsWith(prefix))
}

/** The header that names another site than that of the request. */
function otherSiteOf(headers: HttpHeaders): string | undefined {
  const { host, origin, referer } = headers
  if (!OWN_SITES.has(headers['sec-fetch-site'])) return 'sec-fetch-site'
  if (origin !== undefined && !isOfHost(origin, host)) return 'origin'
  if (referer !== undefined && !isOfHost(referer, host)) return 'referer'
  return undefined
}

function isOfHost(page: unknown, host: unknown): boolean {
  if (typeof page !== 'string' || typeof host !== 'string') return false
  const site = URL.parse(page)?.host
  return site !== undefined && site !== '' && site === URL.parse(`http://${host}`)?.host
}

function isBrowser(headers: HttpHeaders): boolean {
  const { origin, referer } = headers
  const language = headers['accept-language'] ?? ANY_LANGUAGE
  return (
    origin !== undefined ||
    referer !== undefined ||
    language !== ANY_LANGUAGE ||
    headers['sec-fetch-site'] !== undefined ||
    BROWSER_AGENT.test(String(headers['user-agent'] ?? ''))
  )
}

/** Of a `host` header, as a URL has it; undefined: it is none. */
function nameOf(host: unknown): string | undefined {
  if (typeof host !== 'string' || !HOST.test(host)) return undefined
  const name = URL.parse(`http://${host}`)?.hostname
  return name === undefined ? undefined : normalName(name)
}

/** Lower case, IPv6 in brackets, without the dot at the end of a full name. */
function normalName(name: string): string {
  const bracketed = name.includes(':') && !name.startsWith('[') ? `[${name}]` : name
  return (URL.parse(`http://${bracketed}`)?.hostname ?? bracketed.toLowerCase()).replace(/\.$/, '')
}

function isAddress(name: string): boolean {
  return name.startsWith('[') || /^\d{1,3}(\.\d{1,3}){3}$/.test(name)
}
