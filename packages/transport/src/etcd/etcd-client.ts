/**
 * Etcd client: the few calls that we need of an etcd cluster, by its own JSON over HTTP (the gRPC gateway,
 * paths /v3/…, since etcd 3.4). Keys and values are text here and base64 on the wire; 64-bit numbers are
 * texts.
 *
 * Servers   the one that answered last is asked first; one that does not answer is passed over for the next.
 * Fails     StreamError: no server answers, or what the server says.
 */

import { Buffer } from 'node:buffer'
import { StreamError } from '../errors.ts'
import type { HttpTransport } from '../types.ts'

/** A server that is asked answers within this time. */
const ANSWER_MS_MAX = 2000
const ETCD_ANSWER_BYTES_MAX = 4 * 2 ** 20

export interface EtcdEntry {
  readonly value: string
  /** Revision of the cluster at which the key was made; another one if it was deleted and made again. */
  readonly createRevision: string
  /** '0': none. */
  readonly lease: string
}

export interface EtcdClientOptions {
  /** 'http://host:port' or 'https://host:port' each. */
  readonly servers: readonly string[]
  readonly http: Pick<HttpTransport, 'fetch'>
}

type Answer = Readonly<Record<string, unknown>>

export class EtcdClient {
  readonly #servers: string[]
  readonly #http: Pick<HttpTransport, 'fetch'>

  constructor({ servers, http }: EtcdClientOptions) {
    this.#servers = [...servers]
    this.#http = http
  }

  /** Ends by itself, with all keys that hang on it, unless it is kept alive. */
  async grantLease(seconds: number): Promise<string> {
    const { ID: id } = await this.#ask('lease/grant', { TTL: seconds })
    if (typeof id !== 'string') throw new StreamError('cannot get a lease of etcd', 'the answer names none')
    return id
  }

  /** False: it has ended. */
  async keepAlive(lease: string): Promise<boolean> {
    const { result } = (await this.#ask('lease/keepalive', { ID: lease })) as {
      result?: { readonly TTL?: string }
    }
    return Number(result?.TTL ?? 0) > 0
  }

  /** Deletes what hangs on it, too. One that has ended already is no fault. */
  async revokeLease(lease: string): Promise<void> {
    await this.#ask('lease/revoke', { ID: lease }, [404])
  }

  /** Undefined: there is no such key. */
  async get(key: string): Promise<EtcdEntry | undefined> {
    const { kvs } = (await this.#ask('kv/range', { key: encoded(key) })) as {
      readonly kvs?: readonly { value?: string; create_revision?: string; lease?: string }[]
    }
    const found = kvs?.[0]
    if (found === undefined) return undefined
    return {
      value: Buffer.from(found.value ?? '', 'base64').toString(),
      createRevision: found.create_revision ?? '0',
      lease: found.lease ?? '0',
    }
  }

  /** Makes a key that is not there. Undefined: it is there; otherwise its `createRevision`. */
  async create(key: string, value: string, lease: string): Promise<string | undefined> {
    const put = { key: encoded(key), value: encoded(value), lease }
    const { succeeded, header } = (await this.#ask('kv/txn', {
      compare: [{ key: encoded(key), target: 'CREATE', result: 'EQUAL', create_revision: '0' }],
      success: [{ request_put: put }],
    })) as { readonly succeeded?: boolean; readonly header?: { readonly revision?: string } }
    return succeeded === true ? header?.revision : undefined
  }

  /** Deletes a key, if it is the one that was made then. */
  async deleteCreated(key: string, createRevision: string): Promise<void> {
    await this.#ask('kv/txn', {
      compare: [{ key: encoded(key), target: 'CREATE', result: 'EQUAL', create_revision: createRevision }],
      success: [{ request_delete_range: { key: encoded(key) } }],
    })
  }

  /** `allowed`: statuses that are no fault. */
  async #ask(path: string, body: object, allowed: readonly number[] = []): Promise<Answer> {
    let reason = 'no server is named'
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
          { timeoutMs: ANSWER_MS_MAX, maxBytes: ETCD_ANSWER_BYTES_MAX },
        )
      } catch (error) {
        reason = (error as Error).message
        continue
      }
      const answer = parsed(reply.body)
      if (reply.status === 200 || allowed.includes(reply.status)) {
        this.#prefer(server)
        return answer
      }
      reason = `${server} answers ${reply.status} to /v3/${path}: ${String(answer['error'] ?? answer['message'] ?? 'no reason')}`
    }
    throw new StreamError('cannot use etcd', reason)
  }

  #prefer(server: string): void {
    if (this.#servers[0] === server) return
    this.#servers.splice(this.#servers.indexOf(server), 1)
    this.#servers.unshift(server)
  }
}

function encoded(text: string): string {
  return Buffer.from(text).toString('base64')
}

/** Empty if it is no object: the status says more then. */
function parsed(body: Uint8Array): Answer {
  try {
    const value: unknown = JSON.parse(Buffer.from(body).toString())
    return typeof value === 'object' && value !== null ? (value as Answer) : {}
  } catch {
    return {}
  }
}
