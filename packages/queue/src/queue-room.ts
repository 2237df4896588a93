/** Queue room: what may wait in all queues of a process together, in requests, tokens and bytes. */

import type { QueueRefusal } from './types.ts'

export interface QueueRoomOptions {
  /** Default 100,000. */
  readonly requestsMax?: number
  /** Tokens of prompts; default 2³¹. */
  readonly tokensMax?: number
  /** Default 1 GiB. */
  readonly bytesMax?: number
}

const QUEUED_REQUESTS_MAX_DEFAULT = 100_000
const TOKENS_MAX_DEFAULT = 2 ** 31
const BYTES_MAX_DEFAULT = 2 ** 30

export class QueueRoom {
  readonly requestsMax: number
  readonly tokensMax: number
  readonly bytesMax: number
  #requests = 0
  #tokens = 0
  #bytes = 0

  /** Throws RangeError for bounds that are not whole numbers ≥ 0. */
  constructor(options: QueueRoomOptions = {}) {
    this.requestsMax = bound('requestsMax', options.requestsMax ?? QUEUED_REQUESTS_MAX_DEFAULT)
    this.tokensMax = bound('tokensMax', options.tokensMax ?? TOKENS_MAX_DEFAULT)
    this.bytesMax = bound('bytesMax', options.bytesMax ?? BYTES_MAX_DEFAULT)
  }

  get requests(): number {
    return this.#requests
  }

  get tokens(): number {
    return this.#tokens
  }

  get bytes(): number {
    return this.#bytes
  }

  /**
   * Takes room for a request, or says which bound it would pass: these, unlike the limits of classes, are
   * never passed.
   */
  take(promptTokens: number, bytes: number): QueueRefusal | undefined {
    if (this.#requests + 1 > this.requestsMax) return full('requests', this.#requests, this.requestsMax)
    if (this.#tokens + promptTokens > this.tokensMax) return full('tokens', this.#tokens, this.tokensMax)
    if (this.#bytes + bytes > this.bytesMax) return full('bytes', this.#bytes, this.bytesMax)
    this.#requests++
    this.#tokens += promptTokens
    this.#bytes += bytes
    return undefined
  }

  giveBack(promptTokens: number, bytes: number): void {
    this.#requests--
    this.#tokens -= promptTokens
    this.#bytes -= bytes
  }
}

function full(limitKind: 'requests' | 'tokens' | 'bytes', current: number, limit: number): QueueRefusal {
  return { reason: 'queue_full', limitKind, current, limit }
}

function bound(name: string, value: number): number {
  if (!Number.isSafeInteger(value) || value < 0) {
    throw new RangeError(`cannot bound a queue by ${name} ${value}: use a whole number ≥ 0`)
  }
  return value
}
