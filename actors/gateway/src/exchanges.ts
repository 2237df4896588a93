/**
 * Exchanges: the open exchanges, at most `openMax`. Checks each of them periodically, and ends all of them
 * when the gateway ends.
 *
 * A request that has ended counts as open until the router has accepted the message about its end
 * (placement.ts), so the number of those messages is bounded too.
 */

import type { ErrorRecord } from '@homing/base'
import type { Bodies } from '@homing/http'
import type { HttpExchange } from '@homing/transport'
import type { AccessNote } from './access-note.ts'
import { TooManyExchangesError } from './errors.ts'
import { Exchange, type ExchangeParts } from './exchange.ts'

/** A little longer than from one look to the next. */
const SENT_WITHIN_MS = 1500

export class Exchanges {
  readonly #open = new Set<Exchange>()
  readonly #openMax: number
  readonly #bodies: Bodies
  readonly #parts: ExchangeParts

  constructor(openMax: number, bodies: Bodies, parts: Omit<ExchangeParts, 'ended'>) {
    this.#openMax = openMax
    this.#bodies = bodies
    this.#parts = { ...parts, ended: exchange => void this.#open.delete(exchange) }
  }

  get size(): number {
    return this.#open.size + this.#parts.placements.untoldCount
  }

  /** Throws TooManyExchangesError. */
  open(http: HttpExchange, route: string, note?: AccessNote): Exchange {
    if (this.size >= this.#openMax) throw new TooManyExchangesError(this.#openMax)
    const exchange = new Exchange(this.#parts, http, route, this.#bodies.hold(), note)
    this.#open.add(exchange)
    return exchange
  }

  /**
   * Gives up exchanges that take too long, sends signs of life (to the tracker those of the others, to the
   * directory those of workers), and repeats messages that found a mailbox full.
   */
  look(): void {
    this.#parts.placements.tellUntold()
    const nowMs = this.#parts.context.clock.nowMs()
    for (const exchange of [...this.#open]) exchange.look(nowMs)
    const { progress, directory } = this.#parts
    const workerIds = progress.alive(nowMs - SENT_WITHIN_MS)
    if (workerIds.length > 0) directory.tell({ type: 'alive', workerIds })
  }

  endAll(error: ErrorRecord): void {
    for (const exchange of [...this.#open]) exchange.end(error)
  }
}
