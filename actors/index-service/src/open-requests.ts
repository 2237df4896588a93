/**
 * Bounds on open requests and the bytes of their bodies. Only bytes that have arrived count, never announced
 * lengths. Queries and operator requests have places apart (ViewRoom), so that neither takes those of the
 * other. A request is open until its client has taken the answer.
 */

import { Bodies, type ViewPlace, ViewRoom } from '@homing/http'
import type { HttpExchange } from '@homing/transport'
import { ServiceBusyError } from './errors.ts'

export interface OpenRequestsOptions {
  readonly openRequestsMax: number
  readonly openOperatorRequestsMax?: number
  readonly bodyBytesMax: number
  readonly bodiesBytesMax: number
}

/** `watching`: for those who watch over the service. */
export type RouteKind = 'query' | 'operator' | 'watching'

export class OpenRequests {
  readonly #options: OpenRequestsOptions
  readonly #bodies: Bodies
  readonly views: ViewRoom
  #count = 0

  constructor(options: OpenRequestsOptions) {
    this.#options = options
    this.views = new ViewRoom({ openMax: options.openOperatorRequestsMax })
    this.#bodies = new Bodies(
      options.bodiesBytesMax,
      (_bytes, bytesMax) =>
        new ServiceBusyError('bytes of bodies are the limit', bytesMax, '--max-bodies-bytes'),
    )
  }

  get count(): number {
    return this.#count + this.views.open
  }

  get bodyBytes(): number {
    return this.#bodies.bytes
  }

  /** Serves one request within the bounds; throws ServiceBusyError and ViewsBusyError past them. */
  async during<T>(
    exchange: HttpExchange,
    kind: RouteKind,
    serve: (body: () => Promise<Uint8Array>, place: ViewPlace | undefined) => Promise<T> | T,
  ): Promise<T> {
    const place = kind === 'query' ? undefined : this.views.enter(exchange, kind === 'watching')
    if (place === undefined) this.#enter(exchange)
    const hold = this.#bodies.hold()
    try {
      return await serve(() => hold.readDecoded(exchange, this.#options.bodyBytesMax), place)
    } finally {
      hold.release()
    }
  }

  #enter(exchange: HttpExchange): void {
    const { openRequestsMax } = this.#options
    if (this.#count >= openRequestsMax) {
      throw new ServiceBusyError('requests are open', openRequestsMax, '--max-open-requests')
    }
    this.#count++
    exchange.onOver(() => {
      this.#count--
    })
  }
}
