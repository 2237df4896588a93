/** The bounds of what is open at one time: requests, and the bytes of their bodies. What has come is counted, never what is announced. */

import type { BodyRoom, HttpExchange } from '@homing/transport'
import { ServiceBusyError } from './errors.ts'

export interface OpenRequestsOptions {
  readonly openRequestsMax: number
  readonly bodyBytesMax: number
  readonly bodiesBytesMax: number
}

export class OpenRequests {
  readonly #options: OpenRequestsOptions
  #count = 0
  #bytes = 0

  constructor(options: OpenRequestsOptions) {
    this.#options = options
  }

  get count(): number {
    return this.#count
  }

  get bodyBytes(): number {
    return this.#bytes
  }

  /** Serves one request within the bounds; throws ServiceBusyError past them. `isAlwaysServed`: whatever is open. */
  async during<T>(
    exchange: HttpExchange,
    isAlwaysServed: boolean,
    serve: (body: () => Promise<Uint8Array>) => Promise<T> | T,
  ): Promise<T> {
    const { openRequestsMax, bodyBytesMax, bodiesBytesMax } = this.#options
    if (!isAlwaysServed && this.#count >= openRequestsMax) {
      throw new ServiceBusyError('requests are open', openRequestsMax, '--max-open-requests')
    }
    let held = 0
    const room: BodyRoom = {
      check: byteCount => {
        if (this.#bytes + byteCount <= bodiesBytesMax) return
        throw new ServiceBusyError(
          'bytes of bodies are all there is room for',
          bodiesBytesMax,
          '--max-bodies-bytes',
        )
      },
      take: byteCount => {
        room.check(byteCount)
        this.#bytes += byteCount
        held += byteCount
      },
    }
    this.#count++
    try {
      return await serve(() => exchange.readBody(bodyBytesMax, room))
    } finally {
      this.#count--
      this.#bytes -= held
    }
  }
}
