/**
 * Object feed: all objects of one kind in a namespace, by a listing and a watch from there on.
 *
 *   listing ──▶ watching ──the watch ends──▶ watching from the last version …
 *      ▲            │ 410, or an ERROR event: the version is forgotten
 *      └────────────┘
 *   no answer, 5xx, 429, 403   the same again after a growing pause; objects stay as they were
 *   401                        the token is read anew; other than before: at once, else after the pause
 *
 * A watch ends at the server's word after WATCH_S_MIN … WATCH_S_MAX, and bookmarks move its version on, so
 * that the next one begins where nothing was missed. A listing replaces all: what it lacks is gone.
 * Pauses grow from one failure or short watch to the next, until a watch has lived or has brought a change: a
 * listing that succeeds says nothing about the watch behind it.
 * Bounds   objectsMax objects; later ones are left out, which `leftOut` says. When one has gone there is room
 *          again: the next watch, within WATCH_S_MAX, begins with a listing. PAGE_OBJECTS objects a page.
 */

import type { Clock, Random, Timer } from '@homing/base'
import { HttpCallError, type HttpTransport } from '@homing/transport'
import { type ApiMap, mapIn, readApiList, readApiStatus, textIn } from './api-answers.ts'
import type { ApiCredentials } from './api-credentials.ts'
import { ApiWatch, retryAfterOf } from './api-watch.ts'

const API_ANSWER_MS_MAX = 10_000
const LIST_BYTES_MAX = 64 * 2 ** 20
const PAGE_OBJECTS = 500
const WATCH_S_MIN = 60
const WATCH_S_MAX = 90
/** A watch that lived shorter than this is followed by a pause. */
const SHORT_WATCH_MS = 1000
const PAUSE_MS_MIN = 100
export const PAUSE_MS_MAX = 5000

export interface ObjectFeedOptions<T> {
  readonly http: Pick<HttpTransport, 'fetch' | 'call'>
  readonly server: string
  readonly credentials: ApiCredentials
  readonly clock: Clock
  readonly random: Random
  /** '/api/v1/namespaces/NAMESPACE/pods'. */
  readonly path: string
  /** For people, in plural: 'pods'. */
  readonly kind: string
  /** Undefined: all of the namespace. */
  readonly labelSelector: string | undefined
  /** Names and labels are enough (PartialObjectMetadata): a pod is ten times as large. */
  readonly isMetadataOnly: boolean
  readonly objectsMax: number
  /** Undefined: it cannot be used. */
  readonly read: (object: ApiMap) => T | undefined
  readonly changed: () => void
  readonly failed: (reason: string) => void
  readonly recovered: () => void
}

/** Why nothing came, and when to ask again at the earliest. */
interface Failure {
  readonly status: number
  readonly reason: string
  readonly retryAfterMs?: number | undefined
}

export class ObjectFeed<T> {
  readonly #options: ObjectFeedOptions<T>
  /** By name. */
  #objects = new Map<string, T>()
  #isListed = false
  #leftOut = 0
  /** An object has gone while others were left out. */
  #hasRoom = false
  #version = ''
  #pauseMs = 0
  #told: string | undefined
  #watch: ApiWatch | undefined
  #wake: (() => void) | undefined
  #isClosed = false
  readonly #listing = new AbortController()

  constructor(options: ObjectFeedOptions<T>) {
    this.#options = options
    void this.#follow()
  }

  get objects(): ReadonlyMap<string, T> {
    return this.#objects
  }

  /** All objects have been listed at least once. */
  get isListed(): boolean {
    return this.#isListed
  }

  /** Objects beyond the bound, as of the last listing; those that came since then count as one. */
  get leftOut(): number {
    return this.#leftOut
  }

  close(): void {
    this.#isClosed = true
    this.#listing.abort()
    this.#watch?.close()
    this.#wake?.()
  }

  /** Never rejects. */
  async #follow(): Promise<void> {
    while (!this.#isClosed) {
      // A watch is begun every minute or so, long before a token that was replaced ends.
      await this.#options.credentials.renew()
      if (this.#isClosed) return
      const failure = this.#version === '' ? await this.#list() : await this.#watchOn()
      if (failure === undefined || this.#isClosed) continue
      await this.#recover(failure)
    }
  }

  async #recover({ status, reason, retryAfterMs = 0 }: Failure): Promise<void> {
    const { credentials, random } = this.#options
    if (status === 401 && (await credentials.renew())) return
    this.#tell(status, reason)
    this.#pauseMs = Math.min(Math.max(PAUSE_MS_MIN, 2 * this.#pauseMs), PAUSE_MS_MAX)
    await this.#sleep(Math.max(retryAfterMs, this.#pauseMs * (0.5 + random.next() / 2)))
  }

  #tell(status: number, reason: string): void {
    const { kind, path, credentials, failed } = this.#options
    const what =
      status === 403
        ? `it does not let the router read ${kind}: give its service account a Role with get, list and watch for ${kind} (${path})`
        : status === 401
          ? `it does not accept the router's token${credentials.fault === undefined ? '' : `; ${credentials.fault}`}`
          : `${reason}${credentials.fault === undefined ? '' : `; ${credentials.fault}`}`
    if (this.#told === what || this.#isClosed) return
    this.#told = what
    failed(what)
  }

  #answered(): void {
    if (this.#told === undefined) return
    this.#told = undefined
    this.#options.recovered()
  }

  /** Undefined: it is done. */
  async #list(): Promise<Failure | undefined> {
    const { http, server, credentials, objectsMax, read, changed, path } = this.#options
    const found = new Map<string, T>()
    let leftOut = 0
    let next: string | undefined
    do {
      const query = new URLSearchParams({ limit: String(PAGE_OBJECTS), ...this.#selector })
      if (next !== undefined) query.set('continue', next)
      let list: ReturnType<typeof readApiList>
      try {
        const reply = await http.fetch(
          {
            origin: server,
            method: 'GET',
            path: `${path}?${query}`,
            headers: { ...credentials.headers, accept: this.#accept('PartialObjectMetadataList') },
          },
          { timeoutMs: API_ANSWER_MS_MAX, maxBytes: LIST_BYTES_MAX, signal: this.#listing.signal },
        )
        const text = Buffer.from(reply.body).toString()
        // The rest of a listing is forgotten: from its beginning.
        if (reply.status === 410 && next !== undefined) return undefined
        if (reply.status !== 200)
          return {
            status: reply.status,
            reason: `it answers ${reply.status}: ${readApiStatus(text).message}`,
            retryAfterMs: retryAfterOf(reply.headers),
          }
        list = readApiList(text)
      } catch (error) {
        if (!(error instanceof HttpCallError)) throw error
        return { status: 0, reason: error.message }
      }
      if (list === undefined) return { status: 0, reason: 'its answer is no list of Kubernetes' }
      for (const item of list.items) {
        const name = textIn(mapIn(item, 'metadata'), 'name')
        const object = name === undefined ? undefined : read(item)
        if (name === undefined || object === undefined) continue
        if (found.size < objectsMax) found.set(name, object)
        else leftOut++
      }
      next = list.next
      // Of the last page: that of the first holds for all of them.
      this.#version = next === undefined ? list.resourceVersion : ''
    } while (next !== undefined && !this.#isClosed)
    if (this.#isClosed) return undefined
    this.#objects = found
    this.#leftOut = leftOut
    this.#hasRoom = false
    this.#isListed = true
    this.#answered()
    changed()
    return undefined
  }

  /** Undefined: go on at once. */
  async #watchOn(): Promise<Failure | undefined> {
    const { http, server, clock, random, credentials, path } = this.#options
    const query = new URLSearchParams({
      watch: '1',
      allowWatchBookmarks: 'true',
      resourceVersion: this.#version,
      ...this.#selector,
    })
    const beganMs = clock.nowMs()
    let error: Failure | undefined
    let isAnswered = false
    this.#watch = new ApiWatch({
      http,
      clock,
      origin: server,
      path: `${path}?${query}`,
      headers: { ...credentials.headers, accept: this.#accept('PartialObjectMetadata') },
      timeoutSeconds: WATCH_S_MIN + random.below(WATCH_S_MAX - WATCH_S_MIN + 1),
      event: event => {
        if (event.type === 'error') {
          error = { status: event.code, reason: event.message }
          return false
        }
        this.#answered()
        isAnswered = true
        if (event.type === 'unknown') return true
        this.#version = event.resourceVersion ?? this.#version
        if (event.type === 'bookmark') return true
        this.#pauseMs = 0
        this.#apply(event.type, event.object)
        return true
      },
    })
    const ended = await this.#watch.ended
    this.#watch = undefined
    const isShort = clock.nowMs() - beganMs < SHORT_WATCH_MS
    const failure: Failure | undefined = error ?? (ended.status === 200 ? undefined : ended)
    if (!isShort && (failure === undefined || isAnswered)) this.#pauseMs = 0
    // An error that is none of the versions: they are listed anew, too.
    if (error !== undefined || failure?.status === 410 || this.#hasRoom) this.#version = ''
    // Where even fresh versions are forgotten, listings do not follow each other at once.
    if (failure === undefined || failure.status === 410) return isShort ? this.#rest() : undefined
    return failure
  }

  /** A watch ended as soon as it began. The first pause is none: a restarted server is back at once. */
  async #rest(): Promise<undefined> {
    await this.#sleep(this.#pauseMs)
    this.#pauseMs = Math.min(Math.max(PAUSE_MS_MIN, 2 * this.#pauseMs), PAUSE_MS_MAX)
    return undefined
  }

  #apply(type: 'changed' | 'gone', item: ApiMap): void {
    const { read, objectsMax, changed } = this.#options
    const name = textIn(mapIn(item, 'metadata'), 'name')
    if (name === undefined) return
    const object = type === 'gone' ? undefined : read(item)
    if (type === 'gone' && this.#leftOut > 0) this.#hasRoom = true
    if (object === undefined) {
      if (!this.#objects.delete(name)) return
    } else if (this.#objects.has(name) || this.#objects.size < objectsMax) this.#objects.set(name, object)
    else if (this.#leftOut === 0) this.#leftOut = 1
    // Another event of one that is left out already, or of one more.
    else return
    changed()
  }

  get #selector(): Record<string, string> {
    const { labelSelector } = this.#options
    return labelSelector === undefined ? {} : { labelSelector }
  }

  /** Servers that cannot cut objects down send them whole. */
  #accept(form: string): string {
    return this.#options.isMetadataOnly
      ? `application/json;as=${form};g=meta.k8s.io;v=v1,application/json`
      : 'application/json'
  }

  /** `close` ends it. */
  #sleep(ms: number): Promise<void> {
    if (this.#isClosed) return Promise.resolve()
    return new Promise(resolve => {
      const timer: Timer = this.#options.clock.after(ms, () => this.#wake?.())
      this.#wake = () => {
        timer.cancel()
        this.#wake = undefined
        resolve()
      }
    })
  }
}
