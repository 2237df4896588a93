/**
 * Etcd client: the calls that we need of an etcd cluster, by its own JSON over HTTP (the gRPC gateway,
 * paths /v3/…, since etcd 3.4). Keys and values are text here and base64 on the wire; 64-bit numbers are
 * texts.
 *
 * Servers   the one that answered last is asked first; one that does not answer is passed over for the next.
 *           All together have CLUSTER_MS_MAX: a lease that is kept alive must not end meanwhile.
 * Listings  in pages of PAGE_ENTRIES at one revision; where that is forgotten meanwhile, from the beginning.
 *           A page whose answer is too large is asked for by halves.
 * Fails     StreamError: no server answers, or what the server says.
 */

import { Buffer } from 'node:buffer'
import { HttpCallError, StreamError } from '../errors.ts'
import type { HttpTransport } from '../http-types.ts'
import {
  type EtcdAnswer,
  type EtcdKeyValue,
  readEtcdAnswer,
  readEtcdWatchLine,
  resultOf,
} from './etcd-answers.ts'

/** A server that is asked answers within this time. */
const ANSWER_MS_MAX = 2000
/** …and one of all servers within this: with a beat before it less than a lease has. */
const CLUSTER_MS_MAX = 3000
const ETCD_ANSWER_BYTES_MAX = 4 * 2 ** 20
/** Of cards that are as large as they may be, less than an answer may have. */
const PAGE_ENTRIES = 128
const LIST_ATTEMPTS_MAX = 3
const COMPACTED = /has been compacted/
/** What etcd says of an answer that is too large for itself. */
const TOO_LARGE = /larger than max/

export interface EtcdEntry {
  readonly value: string
  /** Revision of the cluster at which the key was made; another one if it was deleted and made again. */
  readonly createRevision: string
  /** '0': none. */
  readonly lease: string
}

/** The keys under a prefix at one revision of the cluster. */
export interface EtcdListing {
  /** By what follows the prefix. */
  readonly values: ReadonlyMap<string, Uint8Array>
  readonly revision: bigint
}

export interface EtcdWatchHandler {
  /** In order; `name` follows the prefix. `value` undefined: the key is gone. */
  changed(name: string, value: Uint8Array | undefined): void
  /** Nothing comes any more: the server has gone, or has forgotten the revision (compaction). */
  ended(): void
}

export interface EtcdClientOptions {
  /** 'http://host:port' or 'https://host:port' each. */
  readonly servers: readonly string[]
  readonly http: Pick<HttpTransport, 'fetch' | 'call'>
}

export class EtcdClient {
  readonly #servers: string[]
  readonly #http: EtcdClientOptions['http']

  constructor({ servers, http }: EtcdClientOptions) {
    this.#servers = [...servers]
    this.#http = http
  }

  /** Ends by itself, with all keys that hang on it, unless it is kept alive. */
  async grantLease(seconds: number): Promise<string> {
    const { fields } = await this.#ask('lease/grant', { TTL: seconds })
    const id = fields['ID']
    if (typeof id !== 'string') throw new StreamError('cannot get a lease of etcd', 'the answer names none')
    return id
  }

  /** False: it has ended. */
  async keepAlive(lease: string): Promise<boolean> {
    const answer = await this.#ask('lease/keepalive', { ID: lease })
    return Number(resultOf(answer)['TTL'] ?? 0) > 0
  }

  /** Deletes what hangs on it, too. One that has ended already is no fault. */
  async revokeLease(lease: string): Promise<void> {
    await this.#ask('lease/revoke', { ID: lease }, [404])
  }

  /** Undefined: there is no such key. */
  async get(key: string): Promise<EtcdEntry | undefined> {
    const [found] = (await this.#ask('kv/range', { key: encoded(key) })).keyValues
    if (found === undefined) return undefined
    const { value, createRevision, lease } = found
    return { value: Buffer.from(value).toString(), createRevision, lease }
  }

  /** Makes a key that is not there. Undefined: it is there; otherwise its `createRevision`. */
  async create(key: string, value: string, lease: string): Promise<string | undefined> {
    const put = { key: encoded(key), value: encoded(value), lease }
    const { fields, revision } = await this.#ask('kv/txn', {
      compare: [{ key: encoded(key), target: 'CREATE', result: 'EQUAL', create_revision: '0' }],
      success: [{ request_put: put }],
    })
    return fields['succeeded'] === true ? revision : undefined
  }

  /** Deletes a key, if it is the one that was made then. */
  async deleteCreated(key: string, createRevision: string): Promise<void> {
    await this.#ask('kv/txn', {
      compare: [{ key: encoded(key), target: 'CREATE', result: 'EQUAL', create_revision: createRevision }],
      success: [{ request_delete_range: { key: encoded(key) } }],
    })
  }

  async put(key: string, value: Uint8Array, lease: string): Promise<void> {
    await this.#ask('kv/put', { key: encoded(key), value: encoded(value), lease })
  }

  async delete(key: string): Promise<void> {
    await this.#ask('kv/deleterange', { key: encoded(key) })
  }

  /** `entriesMax`: more are left out. */
  async list(prefix: string, entriesMax: number): Promise<EtcdListing> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#listAll(prefix, entriesMax)
      } catch (error) {
        const isForgotten = error instanceof StreamError && COMPACTED.test(error.reason)
        if (!isForgotten || attempt === LIST_ATTEMPTS_MAX) throw error
      }
    }
  }

  async #listAll(prefix: string, entriesMax: number): Promise<EtcdListing> {
    const values = new Map<string, Uint8Array>()
    let range: { readonly key: string; readonly range_end: string; readonly revision?: string } =
      rangeOf(prefix)
    let pageEntries = PAGE_ENTRIES
    for (let rest = entriesMax; ; ) {
      const limit = Math.min(rest, pageEntries)
      let page: EtcdAnswer
      try {
        page = await this.#ask('kv/range', { ...range, limit: String(limit) })
      } catch (error) {
        if (!(error instanceof StreamError && error.isTooLarge) || limit === 1) throw error
        pageEntries = Math.ceil(limit / 2)
        continue
      }
      const { keyValues } = page
      for (const { key, value } of keyValues) values.set(key.slice(prefix.length), value)
      const revision = range.revision ?? page.revision
      rest -= keyValues.length
      const last = keyValues.at(-1)
      if (last === undefined || keyValues.length < limit || rest <= 0)
        return { values, revision: BigInt(revision) }
      range = { ...range, key: encoded(behind(last)), revision }
    }
  }

  /** What changes under a prefix from a revision on, at the server that answered last. */
  watch(prefix: string, from: bigint, { changed, ended }: EtcdWatchHandler): { close(): void } {
    let isOver = false
    let rest = ''
    const end = (): void => {
      if (isOver) return
      isOver = true
      call.abort()
      ended()
    }
    const line = (text: string): void => {
      const { isOver: isLast, changes } = readEtcdWatchLine(text)
      for (const { key, value } of changes) changed(key.slice(prefix.length), value)
      if (isLast) end()
    }
    const request = { create_request: { ...rangeOf(prefix), start_revision: String(from) } }
    const text = new TextDecoder()
    const call = this.#http.call(
      {
        origin: this.#servers[0]!,
        method: 'POST',
        path: '/v3/watch',
        headers: { 'content-type': 'application/json' },
        body: Buffer.from(JSON.stringify(request)),
      },
      {
        head: status => {
          if (status !== 200) queueMicrotask(end)
        },
        data(bytes) {
          const lines = (rest + text.decode(bytes, { stream: true })).split('\n')
          rest = lines.pop()!
          for (const one of lines) if (!isOver && one !== '') line(one)
          if (rest.length > ETCD_ANSWER_BYTES_MAX) end()
        },
        end,
        failed: end,
      },
    )
    return {
      close() {
        if (isOver) return
        isOver = true
        call.abort()
      },
    }
  }

  /** `allowed`: statuses that are no fault. */
  async #ask(path: string, body: object, allowed: readonly number[] = []): Promise<EtcdAnswer> {
    let reason = 'no server is named'
    let isTooLarge = false
    const timeoutMs = Math.min(ANSWER_MS_MAX, CLUSTER_MS_MAX / this.#servers.length)
    for (const server of [...this.#servers]) {
      let reply: Awaited<ReturnType<HttpTransport['fetch']>>
      try {
        reply = await this.#http.fetch(
          {
            origin: server,
            method: 'POST',
            path: `/v3/${path}`,
            headers: { 'content-type': 'application/json' },
            body: Buffer.from(JSON.stringify(body)),
          },
          { timeoutMs, maxBytes: ETCD_ANSWER_BYTES_MAX },
        )
      } catch (error) {
        reason = (error as Error).message
        isTooLarge ||= error instanceof HttpCallError && error.failure === 'tooLarge'
        continue
      }
      const answer = readEtcdAnswer(reply.body)
      if (reply.status === 200 || allowed.includes(reply.status)) {
        this.#prefer(server)
        return answer
      }
      isTooLarge ||= TOO_LARGE.test(answer.error)
      reason = `${server} answers ${reply.status} to /v3/${path}: ${answer.error || 'no reason'}`
    }
    throw new StreamError('cannot use etcd', reason, isTooLarge)
  }

  #prefer(server: string): void {
    if (this.#servers[0] === server) return
    this.#servers.splice(this.#servers.indexOf(server), 1)
    this.#servers.unshift(server)
  }
}

function encoded(value: string | Uint8Array): string {
  return Buffer.from(value as Uint8Array).toString('base64')
}

/** The next key that there can be. */
function behind({ keyBytes }: EtcdKeyValue): Uint8Array {
  return Buffer.concat([keyBytes, new Uint8Array(1)])
}

/** All keys that begin so: up to the one whose last byte is greater by 1. */
function rangeOf(prefix: string): { readonly key: string; readonly range_end: string } {
  const end = Buffer.from(prefix)
  end[end.length - 1]!++
  return { key: encoded(prefix), range_end: encoded(end) }
}
