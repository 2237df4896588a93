/**
 * Bounds on open requests and the bytes of their bodies. Only bytes that have arrived count, never announced
 * lengths.
 */

import { Bodies } from '@homing/http'
import type { HttpExchange } from '@homing/transport'
import { ServiceBusyError } from './errors.ts'

export interface OpenRequestsOptions {
  readonly openRequestsMax: number
  readonly bodyBytesMax: number
  readonly bodiesBytesMax: number
}

export class OpenRequests {
  readonly #options: OpenRequestsOptions
  readonly #bodies: Bodies
  #count = 0

  constructor(options: OpenRequestsOptions) {
    this.#options = options
    this.#bodies = new Bodies(
      options.bodiesBytesMax,
      (_bytes, bytesMax) =>
        new ServiceBusyError('bytes of bodies are the limit', bytesMax, '--max-bodies-bytes'),
    )
  }

  get count(): number {
    return this.#count
  }

  get bodyBytes(): number {
    return this.#bodies.bytes
  }

  /**
   * Serves one request within the bounds; throws ServiceBusyError past them. `isAlwaysServed`: whatever is
   * open.
   */
  async during<T>(
    exchange: HttpExchange,
    isAlwaysServed: boolean,
    serve: (body: () => Promise<Uint8Array>) => Promise<T> | T,
  ): Promise<T> {
    const { openRequestsMax, bodyBytesMax } = this.#options
    if (!isAlwaysServed && this.#count >= openRequestsMax) {
      throw new ServiceBusyError('requests are open', openRequestsMax, '--max-open-requests')
    }
    const hold = this.#bodies.hold()
    this.#count++
    try {
      return await serve(() => hold.readDecoded(exchange, bodyBytesMax))
    } finally {
      this.#count--
      hold.release()
    }
  }
}
