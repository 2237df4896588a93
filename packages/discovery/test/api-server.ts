/**
 * For tests: an API server of Kubernetes, as far as a list and a watch of two kinds go. It speaks the wire of
 * a real one over HTTP or HTTPS: pages with `continue`, versions, bookmarks, 410 where a version is
 * forgotten (as a status, and as an ERROR event on a watch), 401 without the right token, and objects cut
 * down to their metadata where the client wants that. Its answers are chunked, and may be cut anywhere.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createServer as createSecureServer } from 'node:https'
import type { AddressInfo } from 'node:net'

export type ApiKind = 'endpointslices' | 'pods'

/** An object as Kubernetes writes it. */
export interface ApiObject {
  readonly metadata: {
    readonly name: string
    readonly namespace?: string
    readonly labels?: Readonly<Record<string, string>>
    readonly [member: string]: unknown
  }
  readonly [member: string]: unknown
}

export interface ApiServerOptions {
  readonly tls?: { readonly cert: string; readonly key: string; readonly ca?: string }
  /** Undefined: none is asked for. */
  readonly token?: string
  readonly namespace?: string
}

interface Change {
  readonly version: number
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED'
  readonly object: ApiObject
}

interface Watcher {
  readonly kind: ApiKind
  readonly response: ServerResponse
  readonly matches: (object: ApiObject) => boolean
  readonly isPartial: boolean
}

const FORMS: Readonly<Record<ApiKind, { readonly apiVersion: string; readonly kind: string }>> = {
  endpointslices: { apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice' },
  pods: { apiVersion: 'v1', kind: 'Pod' },
}

export class ApiServer {
  readonly #server: Server
  readonly #options: ApiServerOptions
  readonly #objects: Record<ApiKind, Map<string, ApiObject>> = { endpointslices: new Map(), pods: new Map() }
  readonly #history: Record<ApiKind, Change[]> = { endpointslices: [], pods: [] }
  readonly #watchers = new Set<Watcher>()
  #version = 1000
  /** Versions up to this one are forgotten. */
  #compacted = 0
  /** Requests, as 'list pods', 'watch endpointslices' and what was answered, in order. */
  readonly log: string[] = []
  token: string | undefined
  /** Bytes of one write of a watch; undefined: whole lines. */
  pieceBytes: number | undefined
  /** The most that a page of a listing has, whatever the client asks. */
  pageMax = Number.POSITIVE_INFINITY
  /** Answered to each request in place of what it wants; undefined: nothing is wrong. */
  failsWith: number | undefined

  private constructor(options: ApiServerOptions) {
    this.#options = options
    this.token = options.token
    const answer = (request: IncomingMessage, response: ServerResponse): void =>
      this.#answer(request, response)
    this.#server =
      options.tls === undefined
        ? createServer(answer)
        : (createSecureServer(
            { ...options.tls, ...(options.tls.ca === undefined ? {} : { requestCert: true }) },
            answer,
          ) as unknown as Server)
  }

  static async start(options: ApiServerOptions = {}): Promise<ApiServer> {
    const server = new ApiServer(options)
    await server.up()
    return server
  }

  #port = 0

  get url(): string {
    return `${this.#options.tls === undefined ? 'http' : 'https'}://127.0.0.1:${this.#port}`
  }

  /** Listens, at the same port as before. */
  async up(): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject)
      this.#server.listen(this.#port, '127.0.0.1', resolve)
    })
    this.#port = (this.#server.address() as AddressInfo).port
  }

  /** Ends with all its connections; objects stay. */
  async down(): Promise<void> {
    const closed = new Promise<void>(resolve => this.#server.close(() => resolve()))
    this.#watchers.clear()
    this.#server.closeAllConnections()
    await closed
  }

  get watchCount(): number {
    return this.#watchers.size
  }

  put(kind: ApiKind, object: ApiObject): void {
    const { name } = object.metadata
    const version = ++this.#version
    const isNew = !this.#objects[kind].has(name)
    const stored = { ...object, metadata: { ...object.metadata, resourceVersion: String(version) } }
    this.#objects[kind].set(name, stored)
    this.#changed(kind, { version, type: isNew ? 'ADDED' : 'MODIFIED', object: stored })
  }

  delete(kind: ApiKind, name: string): void {
    const object = this.#objects[kind].get(name)
    if (object === undefined) return
    this.#objects[kind].delete(name)
    const version = ++this.#version
    const last = { ...object, metadata: { ...object.metadata, resourceVersion: String(version) } }
    this.#changed(kind, { version, type: 'DELETED', object: last })
  }

  /** Tells every watch how far it is. */
  bookmark(): void {
    for (const { kind, response } of this.#watchers)
      this.#write(response, {
        type: 'BOOKMARK',
        object: {
          ...FORMS[kind],
          metadata: { resourceVersion: String(this.#version), creationTimestamp: null },
        },
      })
  }

  /** Forgets all versions up to now, as etcd does every few minutes. */
  compact(): void {
    this.#compacted = this.#version
    for (const kind of ['endpointslices', 'pods'] as const) this.#history[kind] = []
  }

  /** `end`: in good order. `reset`: as a balancer that dies. `mid-line`: behind half an event. */
  cutWatches(how: 'end' | 'reset' | 'mid-line'): void {
    for (const watcher of [...this.#watchers]) {
      this.#watchers.delete(watcher)
      const { response } = watcher
      if (how === 'end') response.end()
      else if (how === 'reset') response.socket?.resetAndDestroy()
      else response.write('{"type":"MODIFIED","object":{"kind":"EndpointSl', () => response.destroy())
    }
  }

  /** Sends an ERROR event to every watch, and ends it. */
  failWatches(code: number): void {
    for (const watcher of [...this.#watchers]) {
      this.#watchers.delete(watcher)
      this.#write(watcher.response, { type: 'ERROR', object: statusOf(code) })
      watcher.response.end()
    }
  }

  #changed(kind: ApiKind, change: Change): void {
    this.#history[kind].push(change)
    for (const watcher of this.#watchers) if (watcher.kind === kind) this.#tell(watcher, change)
  }

  #tell({ response, matches, isPartial, kind }: Watcher, { type, object }: Change): void {
    if (matches(object)) this.#write(response, { type, object: formOf(kind, object, isPartial) })
  }

  #write(response: ServerResponse, event: object): void {
    const bytes = Buffer.from(`${JSON.stringify(event)}\n`)
    const size = this.pieceBytes ?? bytes.length
    for (let at = 0; at < bytes.length; at += size) response.write(bytes.subarray(at, at + size))
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const url = new URL(request.url!, 'http://api')
    const kind = url.pathname.endsWith('/pods') ? 'pods' : 'endpointslices'
    const verb = url.searchParams.get('watch') === '1' ? 'watch' : 'list'
    const fault = this.#faultOf(request, url, kind)
    if (fault !== undefined) {
      this.log.push(`${verb} ${kind} ${fault}`)
      sendStatus(response, fault)
      return
    }
    const isPartial = request.headers.accept?.includes('as=PartialObjectMetadata') === true
    const matches = selectorOf(url.searchParams.get('labelSelector'))
    if (verb === 'list') this.#list(kind, url, matches, isPartial, response)
    else this.#watch({ kind, response, matches, isPartial }, url)
  }

  #faultOf(request: IncomingMessage, url: URL, kind: ApiKind): number | undefined {
    if (this.failsWith !== undefined) return this.failsWith
    if (this.token !== undefined && request.headers.authorization !== `Bearer ${this.token}`) return 401
    const { namespace = 'default' } = this.#options
    const group = kind === 'pods' ? '/api/v1' : '/apis/discovery.k8s.io/v1'
    return url.pathname === `${group}/namespaces/${namespace}/${kind}` ? undefined : 403
  }

  #list(
    kind: ApiKind,
    url: URL,
    matches: Watcher['matches'],
    isPartial: boolean,
    response: ServerResponse,
  ): void {
    const limit = Math.min(Number(url.searchParams.get('limit') ?? 500), this.pageMax)
    const [from, version] = (url.searchParams.get('continue') ?? `0 ${this.#version}`)
      .split(' ')
      .map(Number) as [number, number]
    if (from > 0 && version <= this.#compacted) {
      this.log.push(`list ${kind} 410`)
      sendStatus(response, 410)
      return
    }
    const all = [...this.#objects[kind].values()].filter(matches)
    const items = all.slice(from, from + limit)
    const isLast = from + items.length >= all.length
    const { apiVersion, kind: form } = FORMS[kind]
    const body = {
      kind: isPartial ? 'PartialObjectMetadataList' : `${form}List`,
      apiVersion: isPartial ? 'meta.k8s.io/v1' : apiVersion,
      metadata: {
        resourceVersion: String(version),
        ...(isLast
          ? {}
          : {
              continue: `${from + items.length} ${version}`,
              remainingItemCount: all.length - from - items.length,
            }),
      },
      items: items.map(object => (isPartial ? formOf(kind, object, true) : object)),
    }
    this.log.push(`list ${kind} 200`)
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(JSON.stringify(body))
  }

  #watch(watcher: Watcher, url: URL): void {
    const { kind, response } = watcher
    const from = Number(url.searchParams.get('resourceVersion'))
    this.log.push(`watch ${kind} from ${from < this.#compacted ? 'a forgotten version' : 'a version'}`)
    response.writeHead(200, { 'content-type': 'application/json', 'transfer-encoding': 'chunked' })
    response.flushHeaders()
    if (from < this.#compacted) {
      // A real one answers so where the watch has begun already.
      this.#write(response, { type: 'ERROR', object: statusOf(410) })
      response.end()
      return
    }
    for (const change of this.#history[kind]) if (change.version > from) this.#tell(watcher, change)
    this.#watchers.add(watcher)
    const timer = setTimeout(
      () => {
        if (this.#watchers.delete(watcher)) response.end()
      },
      Number(url.searchParams.get('timeoutSeconds') ?? 300) * 1000,
    )
    response.on('close', () => {
      clearTimeout(timer)
      this.#watchers.delete(watcher)
    })
  }
}

function formOf(kind: ApiKind, { metadata, ...rest }: ApiObject, isPartial: boolean): object {
  return isPartial
    ? { kind: 'PartialObjectMetadata', apiVersion: 'meta.k8s.io/v1', metadata }
    : { ...FORMS[kind], metadata, ...rest }
}

const REASONS: Readonly<Record<number, readonly [reason: string, message: string]>> = {
  401: ['Unauthorized', 'Unauthorized'],
  403: [
    'Forbidden',
    'endpointslices.discovery.k8s.io is forbidden: User "system:serviceaccount:default:homing" cannot list resource "endpointslices" in API group "discovery.k8s.io" in the namespace "default"',
  ],
  410: ['Expired', 'too old resource version: 812 (1204)'],
  429: ['TooManyRequests', 'too many requests, please try again later'],
  500: ['InternalError', 'etcdserver: request timed out'],
  503: ['ServiceUnavailable', 'apiserver is shutting down'],
}

function statusOf(code: number): object {
  const [reason, message] = REASONS[code] ?? ['Unknown', 'unknown']
  return { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Failure', message, reason, code }
}

function sendStatus(response: ServerResponse, code: number): void {
  response.writeHead(code, {
    'content-type': 'application/json',
    ...(code === 429 ? { 'retry-after': '1' } : {}),
  })
  response.end(JSON.stringify(statusOf(code)))
}

/** 'a=b', 'a in (b,c)', joined by commas. */
function selectorOf(text: string | null): (object: ApiObject) => boolean {
  const parts = (text ?? '').split(/,(?![^(]*\))/).filter(part => part.trim() !== '')
  return ({ metadata: { labels = {} } }) =>
    parts.every(part => {
      const [, name, list] = /^\s*(\S+) in \(([^)]*)\)\s*$/.exec(part) ?? []
      if (name !== undefined) return list!.split(',').some(value => labels[name] === value.trim())
      const [key, value] = part.split('=').map(side => side.trim()) as [string, string]
      return labels[key] === value
    })
}
