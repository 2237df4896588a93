/**
 * View room: how many requests for views of a service are open, and how many bytes of their answers wait for
 * slow clients, over all connections. Apart from the requests that the service is there for: neither takes
 * room of the other.
 *
 * A request is open until all of its answer was handed to the system, or its client has gone: requests that
 * one client sends without reading an answer count each. What watches over the service has a few places of
 * its own, so that other views do not close it; and one client takes half of the places at most.
 */

import type { HttpExchange } from '@homing/transport'
import type { HttpAnswer } from './answers.ts'
import { ViewsBusyError } from './errors.ts'
import { type EventStreams, isStreamHead, sendOrStream } from './event-streams.ts'
import { ALONE, type CommonCount } from './gateway-counts.ts'
import { sendPieces } from './pieces.ts'

const OPEN_DEFAULT = 64
/** Open requests of what is always to be seen, such as metrics. */
const WATCHING_MAX = 8
/** Bytes of answers that wait for clients, together; an answer of a router with 10,000 workers is 5 MB. */
const UNSENT_BYTES_MAX = 64 * 1024 * 1024

/** What these ask for, as errors name it. */
const WATCHING = 'requests for metrics and health'

export interface ViewRoomOptions {
  /** The requests that do not watch, as errors name them; default: 'operator requests'. */
  readonly what?: string
  readonly openMax?: number | undefined
  readonly unsentBytesMax?: number
  /** Of the open requests of all threads, but those that watch; default: there is no other thread. */
  readonly common?: CommonCount
}

/** The place of one request. */
export interface ViewPlace {
  /** Throws ViewsBusyError; an answer that is alone is always taken. */
  take(bytes: number): void
  /** It does not count any more: another bound counts it. */
  leave(): void
}

export class ViewRoom {
  readonly #what: string
  readonly #openMax: number
  readonly #unsentBytesMax: number
  readonly #common: CommonCount
  readonly refused = { requests: 0, bytes: 0 }
  /** By address, of the requests that are open and do not watch. */
  readonly #byClient = new Map<string, number>()
  #open = 0
  #watching = 0
  #unsentBytes = 0

  constructor({
    what = 'operator requests',
    openMax = OPEN_DEFAULT,
    unsentBytesMax = UNSENT_BYTES_MAX,
    common = ALONE,
  }: ViewRoomOptions) {
    this.#what = what
    this.#common = common
    this.#openMax = openMax
    this.#unsentBytesMax = unsentBytesMax
  }

  get open(): number {
    return this.#open + this.#watching
  }

  get unsentBytes(): number {
    return this.#unsentBytes
  }

  /** Throws ViewsBusyError. `isWatching`: for those who watch over the service. */
  enter(exchange: HttpExchange, isWatching: boolean): ViewPlace {
    const what = isWatching ? WATCHING : this.#what
    const [open, openMax, option] = isWatching
      ? [this.#watching, WATCHING_MAX, '']
      : [this.#open + this.#common.others, this.#openMax, ' (--max-open-operator-requests)']
    if (open >= openMax) {
      this.refused.requests++
      throw new ViewsBusyError(`${what} are open${option}`, openMax)
    }
    const { peerAddress } = exchange
    const ofClientMax = Math.ceil(this.#openMax / 2)
    if (!isWatching && (this.#byClient.get(peerAddress) ?? 0) >= ofClientMax) {
      this.refused.requests++
      throw new ViewsBusyError(`${what} of this client are open`, ofClientMax)
    }
    this.#count(isWatching, peerAddress, 1)
    let bytes = 0
    let isOver = false
    const leave = (): void => {
      if (isOver) return
      isOver = true
      this.#count(isWatching, peerAddress, -1)
      this.#unsentBytes -= bytes
    }
    exchange.onOver(leave)
    return {
      take: more => {
        if (isOver) return
        if (this.#unsentBytes > 0 && this.#unsentBytes + more > this.#unsentBytesMax) {
          this.refused.bytes++
          throw new ViewsBusyError('bytes of answers may wait for clients', this.#unsentBytesMax)
        }
        bytes += more
        this.#unsentBytes += more
      },
      leave,
    }
  }

  #count(isWatching: boolean, client: string, change: 1 | -1): void {
    if (isWatching) {
      this.#watching += change
      return
    }
    this.#open += change
    this.#common.set(this.#open)
    const ofClient = (this.#byClient.get(client) ?? 0) + change
    if (ofClient > 0) this.#byClient.set(client, ofClient)
    else this.#byClient.delete(client)
  }
}

/** Where the rest of some answers comes from. */
export interface ViewSources {
  readonly streams: EventStreams
  /** Undefined: the body is whole. */
  readonly pieces: AsyncIterator<Uint8Array, void, undefined> | undefined
}

/** Sends an answer within the bounds of the room. Returns the status; rejects with ViewsBusyError. */
export async function sendView(
  exchange: HttpExchange,
  place: ViewPlace,
  answer: HttpAnswer,
  { streams, pieces }: ViewSources,
): Promise<number> {
  if (pieces !== undefined) return sendPieces(exchange, answer.headers, pieces)
  // Streams have bounds of their own, by their number and what waits for each.
  if (isStreamHead(answer)) place.leave()
  else place.take(answer.body.length)
  return sendOrStream(exchange, answer, streams)
}
