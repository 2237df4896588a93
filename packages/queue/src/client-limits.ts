/**
 * Client limits: which client a key belongs to, and whether it may send another request now.
 *
 *   concurrent_requests   leases that are open
 *   requests_per_minute   a bucket that holds a minute's worth, and fills steadily; a request takes one
 *   tokens_per_minute     the same of tokens; a request begins while something is left, and what it takes is
 *                         counted when it is known, so the bucket may be in debt
 *
 * Invariants
 *   I1  A client's `open` is the number of its leases that have not ended, over every change of the keys.
 *   I2  A request that is refused takes nothing.
 *
 * With several threads each has `1/threads` of every limit, rounded up.
 */

import type { ClientKey } from './client-keys.ts'

export type ClientLimit = 'concurrency' | 'rate' | 'tokens'

/** Why a client may not send another request now. */
export interface ClientRefusal {
  readonly reason: ClientLimit
  /** The limit, of all threads together. */
  readonly limit: number
  readonly retryAfterSeconds: number
}

/** A request of a client, until it ends. */
export interface ClientLease {
  readonly key: ClientKey
  /** Tokens that it has taken. */
  charge(tokens: number, nowMs: number): void
  /** Idempotent. */
  end(): void
}

const MINUTE_MS = 60_000
/** When one of the open requests ends is not known. */
const CONCURRENCY_RETRY_SECONDS = 1

export class ClientLimits {
  readonly #threads: number
  #byDigest: ReadonlyMap<string, ClientKey> = new Map()
  /** By name: of all keys, and of those that are gone while something of them is open. */
  readonly #accounts = new Map<string, Account>()
  #byName: ReadonlyMap<string, ClientKey> = new Map()

  constructor(keys: readonly ClientKey[], threads: number) {
    this.#threads = threads
    this.setKeys(keys)
  }

  /** Requests of keys that are gone go on to their end. A client that stays keeps what it has taken. */
  setKeys(keys: readonly ClientKey[]): void {
    this.#byDigest = new Map(keys.flatMap(key => key.digests.map(digest => [digest, key] as const)))
    this.#byName = new Map(keys.map(key => [key.name, key]))
    for (const name of [...this.#accounts.keys()]) this.#forget(name)
  }

  /** Requests that are open, of all clients. */
  get open(): number {
    let sum = 0
    for (const { open } of this.#accounts.values()) sum += open
    return sum
  }

  /**
   * The client whose key has this SHA-256. It is looked up, not compared with all: the caller cannot choose
   * the digest of what it sends, so how far that agrees with one in the table, which is all that time could
   * tell, brings it no nearer to a key.
   */
  find(digest: string): ClientKey | undefined {
    return this.#byDigest.get(digest)
  }

  enter(key: ClientKey, nowMs: number): ClientLease | ClientRefusal {
    const account = this.#accountOf(key.name, nowMs)
    const { concurrentRequests, requestsPerMinute, tokensPerMinute } = key
    if (concurrentRequests !== undefined && account.open >= this.#share(concurrentRequests))
      return {
        reason: 'concurrency',
        limit: concurrentRequests,
        retryAfterSeconds: CONCURRENCY_RETRY_SECONDS,
      }
    const { requests, tokens } = account
    if (requestsPerMinute !== undefined) {
      const missing = requests.missing(1, this.#share(requestsPerMinute), nowMs)
      if (missing > 0) return { reason: 'rate', limit: requestsPerMinute, retryAfterSeconds: missing }
    }
    if (tokensPerMinute !== undefined) {
      const missing = tokens.missing(1, this.#share(tokensPerMinute), nowMs)
      if (missing > 0) return { reason: 'tokens', limit: tokensPerMinute, retryAfterSeconds: missing }
    }
    if (requestsPerMinute !== undefined) requests.take(1)
    account.open++
    let isOpen = true
    return {
      key,
      charge: (count, atMs) => {
        // By the limit as it is now; of a key that is gone, as it was.
        const { tokensPerMinute: limit } = this.#byName.get(key.name) ?? key
        if (limit === undefined) return
        tokens.missing(0, this.#share(limit), atMs)
        tokens.take(count)
      },
      end: () => {
        if (!isOpen) return
        isOpen = false
        account.open--
        this.#forget(key.name)
      },
    }
  }

  #share(limit: number): number {
    return Math.ceil(limit / this.#threads)
  }

  #accountOf(name: string, nowMs: number): Account {
    let account = this.#accounts.get(name)
    if (account === undefined) {
      account = { open: 0, requests: new Bucket(nowMs), tokens: new Bucket(nowMs) }
      this.#accounts.set(name, account)
    }
    return account
  }

  #forget(name: string): void {
    if (!this.#byName.has(name) && this.#accounts.get(name)?.open === 0) this.#accounts.delete(name)
  }
}

interface Account {
  open: number
  readonly requests: Bucket
  readonly tokens: Bucket
}

/** What is left of a minute's worth; full at first. Counts in sixty-thousandths, which are whole. */
class Bucket {
  /** Undefined: nothing was taken yet, so it is full, whatever it holds. */
  #left: number | undefined
  #atMs: number

  constructor(nowMs: number) {
    this.#atMs = nowMs
  }

  /** Fills it up to now. Seconds until `count` are in it, 0 if they are. */
  missing(count: number, perMinute: number, nowMs: number): number {
    const full = perMinute * MINUTE_MS
    this.#left = Math.min(full, (this.#left ?? full) + Math.max(0, nowMs - this.#atMs) * perMinute)
    this.#atMs = Math.max(this.#atMs, nowMs)
    const missing = count * MINUTE_MS - this.#left
    return missing <= 0 ? 0 : Math.ceil(missing / perMinute / 1000)
  }

  /** Behind `missing`. */
  take(count: number): void {
    this.#left = (this.#left ?? 0) - count * MINUTE_MS
  }
}
