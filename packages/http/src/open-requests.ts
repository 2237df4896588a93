/**
 * Bounds on open requests and the bytes of their bodies, for a service whose requests are short. Only bytes
 * that have arrived count, never announced lengths. The requests that the service is there for and those of
 * operators have places apart (ViewRoom), so that neither takes those of the other. A request is open until
 * its client has taken the answer.
 */

import type { HttpExchange } from '@homing/transport'
import { Bodies } from './bodies.ts'
import { type ViewPlace, ViewRoom } from './view-room.ts'

export interface OpenRequestsOptions {
  readonly openRequestsMax: number
  readonly openOperatorRequestsMax?: number
  readonly bodyBytesMax: number
  readonly bodiesBytesMax: number
}

/** `query`: what the service is there for. `watching`: for those who watch over it. */
export type RouteKind = 'query' | 'operator' | 'watching'

/** What a request is refused with that finds no room. `what`: 'requests are open'. */
export type Refusal = (what: string, max: number, option: string) => Error

export class OpenRequests {
  readonly #options: OpenRequestsOptions
  readonly #refusal: Refusal
  readonly #bodies: Bodies
  readonly views: ViewRoom
  #count = 0

  constructor(options: OpenRequestsOptions, refusal: Refusal) {
    this.#options = options
    this.#refusal = refusal
    this.views = new ViewRoom({ openMax: options.openOperatorRequestsMax })
    this.#bodies = new Bodies(options.bodiesBytesMax, (_bytes, bytesMax) =>
      refusal('bytes of bodies are the limit', bytesMax, '--max-bodies-bytes'),
    )
  }

  get count(): number {
    return this.#count + this.views.open
  }

  get bodyBytes(): number {
    return this.#bodies.bytes
  }

  /** Serves one request within the bounds; throws the refusal and ViewsBusyError past them. */
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
    if (this.#count >= openRequestsMax)
      throw this.#refusal('requests are open', openRequestsMax, '--max-open-requests')
    this.#count++
    exchange.onOver(() => {
      this.#count--
    })
  }
}
