/**
 * A network in memory: transports that reach each other by endpoint, without sockets, on any clock.
 *
 * Everything arrives asynchronously and in order per connection. Equal calls in equal order give equal
 * histories: with a SimulatedClock a run can be repeated exactly. Faults are decided by functions, so
 * that a test can draw them from its own seeded generator.
 */

import type { Clock } from '@homing/clock'
import type { Frames, HttpRequest, Transport } from '../types.ts'
import { MemoryHttp } from './http.ts'
import { MemoryMessages } from './messages.ts'
import { placeOf } from './place.ts'

/**
 * `no-socket`: the caller's machine has none left. `stale`: the connection was closed for idleness while the request was written; nothing is answered.
 * `stall-body`: the head of the request arrives, its body never does.
 */
export type HttpFate =
  | 'deliver'
  | 'no-socket'
  | 'refuse'
  | 'stale'
  | 'stall-body'
  | { readonly delayMs: number }
export type MessageFate = 'deliver' | 'drop' | { readonly delayMs: number }

/** What happens to traffic; asked for every request, and for every message on every connection. */
export interface MemoryFaults {
  http?: ((request: HttpRequest) => HttpFate) | undefined
  /** `endpoint` is the bound one; messages of both directions are asked about. */
  message?: ((endpoint: string, frames: Frames) => MessageFate) | undefined
}

export interface MemoryNetworkOptions {
  readonly clock: Clock
  /** Added to everything that is sent; default 0: delivered in a microtask. */
  readonly latencyMs?: number
}

export class MemoryNetwork {
  readonly clock: Clock
  readonly latencyMs: number
  /** May be changed at any time. */
  readonly faults: MemoryFaults = {}
  readonly #http: MemoryHttp
  readonly #messages: MemoryMessages
  #nextPort = 49_152

  constructor({ clock, latencyMs = 0 }: MemoryNetworkOptions) {
    this.clock = clock
    this.latencyMs = latencyMs
    this.#http = new MemoryHttp(this)
    this.#messages = new MemoryMessages(this)
  }

  /** A transport of its own on this network: of a thread, or of a host. */
  transport(): Transport {
    const http = this.#http.transport()
    const messages = this.#messages.transport()
    return {
      http,
      messages,
      close() {
        http.close()
        messages.close()
      },
    }
  }

  /** Breaks every connection of an endpoint ('tcp://…' or 'http://…') and lets none be made until `reconnect`. */
  disconnect(endpoint: string): void {
    if (endpoint.startsWith('http://')) this.#http.disconnect(placeOf(endpoint))
    else this.#messages.disconnect(placeOf(endpoint))
  }

  /** Ends a `disconnect`: whoever waits for the endpoint is connected again. */
  reconnect(endpoint: string): void {
    if (endpoint.startsWith('http://')) this.#http.reconnect(placeOf(endpoint))
    else this.#messages.reconnect(placeOf(endpoint))
  }

  /** A port that was not given out before. */
  freePort(): number {
    return this.#nextPort++
  }
}
