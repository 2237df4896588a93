/**
 * A network in memory: transports that reach each other by endpoint, without sockets, on any clock.
 *
 * Everything arrives asynchronously and in order per connection. Equal calls in equal order give equal
 * histories: with a SimulatedClock a run can be repeated exactly. Faults are decided by functions, so
 * that a test can draw them from its own seeded generator.
 */

import type { Clock } from '@homing/base'
import { isBrokerEndpoint, parseBrokerEndpoint } from '../endpoint.ts'
import type { MessageTransport } from '../message-types.ts'
import type { Broker } from '../nats/broker.ts'
import { brokerStreamStore } from '../nats/broker-stream-store.ts'
import { brokerMessages } from '../nats/messages.ts'
import { OwnLives } from '../nats/own-lives.ts'
import { RequestPlane } from '../request-plane.ts'
import type { Transport } from '../transport.ts'
import { MemoryBrokers } from './broker.ts'
import type { MemoryConditions, MemoryFaults } from './conditions.ts'
import { MemoryHttp } from './http.ts'
import { MemoryMessages } from './messages.ts'
import { placeOf } from './place.ts'
import type { MemoryStreams } from './streams.ts'

export interface MemoryNetworkOptions {
  readonly clock: Clock
  /** Added to everything that is sent; default 0: delivered in a microtask. */
  readonly latencyMs?: number
}

export class MemoryNetwork implements MemoryConditions {
  readonly clock: Clock
  readonly latencyMs: number
  /** May be changed at any time. */
  readonly faults: MemoryFaults = {}
  readonly #http: MemoryHttp
  readonly #messages: MemoryMessages
  readonly #brokers: MemoryBrokers
  /** By transport: the brokers that it has named. */
  readonly #opened = new WeakMap<Transport, Map<string, Broker>>()
  #nextPort = 49_152
  #lives = 0
  #calls = 0

  constructor({ clock, latencyMs = 0 }: MemoryNetworkOptions) {
    this.clock = clock
    this.latencyMs = latencyMs
    this.#http = new MemoryHttp(this)
    this.#messages = new MemoryMessages(this)
    this.#brokers = new MemoryBrokers(this)
  }

  /** A transport of its own on this network: of a thread, or of a host. */
  transport(): Transport {
    const brokers = new Map<string, Broker>()
    const openBroker = this.#brokers.opener(brokers)
    const log = { warn() {} }
    const newCallId = (): string => (++this.#calls).toString(16).padStart(16, '0')
    const plane = new RequestPlane({ clock: this.clock, log, openBroker, newCallId })
    const http = this.#http.transport(plane)
    const sockets = this.#messages.transport()
    const broker = brokerMessages({
      clock: this.clock,
      log,
      openBroker,
      own: new OwnLives(() => (++this.#lives).toString(16).padStart(16, '0')),
    })
    const of = ({ endpoint }: { readonly endpoint: string }) =>
      isBrokerEndpoint(endpoint) ? broker : sockets
    const messages: MessageTransport = {
      subscribe: (options, handler) => of(options).subscribe(options, handler),
      publish: options => of(options).publish(options),
      dial: (options, onMessage) => of(options).dial(options, onMessage),
      serve: (options, onMessage) => of(options).serve(options, onMessage),
      // One at etcd is told as at a broker of this address: it has its events, and ends with its silence.
      present: ({ endpoint, card }, handler) =>
        broker.present({ endpoint: endpoint.replace(/^etcds?:/, 'nats:'), card }, handler),
    }
    const transport: Transport = {
      http,
      messages,
      tcp: plane.tcp,
      brokers: () => [...brokers].map(([servers, { counts }]) => [servers, counts]),
      streamStore: (servers, stream) => brokerStreamStore(servers, stream, this.clock, openBroker),
      close() {
        http.close()
        sockets.close()
        broker.close()
      },
    }
    this.#opened.set(transport, brokers)
    return transport
  }

  /**
   * Breaks every connection of an endpoint ('tcp://…' or 'http://…') and lets none be made until `reconnect`;
   * of 'nats://…' those of all with its broker, or that of one transport of this network.
   */
  disconnect(endpoint: string, of?: Transport): void {
    if (isBrokerEndpoint(endpoint)) this.#brokers.disconnect(brokerOf(endpoint), of && this.#opened.get(of))
    else if (endpoint.startsWith('http://')) this.#http.disconnect(placeOf(endpoint))
    else this.#messages.disconnect(placeOf(endpoint))
  }

  /** Ends a `disconnect`: clients that wait for the endpoint are connected again. */
  reconnect(endpoint: string, of?: Transport): void {
    if (isBrokerEndpoint(endpoint)) this.#brokers.reconnect(brokerOf(endpoint), of && this.#opened.get(of))
    else if (endpoint.startsWith('http://')) this.#http.reconnect(placeOf(endpoint))
    else this.#messages.reconnect(placeOf(endpoint))
  }

  /** A foreign process publishes at a broker, 'host:port'. */
  sayAtBroker(server: string, subject: string, payload: Uint8Array): void {
    this.#brokers.say(server, subject, payload)
  }

  /** The streams that a broker, 'host:port', keeps. */
  streamsAt(server: string): MemoryStreams {
    return this.#brokers.streams(server)
  }

  /** A port that was not given out before. */
  freePort(): number {
    return this.#nextPort++
  }
}

function brokerOf(endpoint: string): string {
  return parseBrokerEndpoint(endpoint).servers.join(',')
}
