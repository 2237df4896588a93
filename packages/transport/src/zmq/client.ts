/**
 * The four ZeroMQ roles on any thread but the main one: a port to the host there (see host.ts), which has the
 * sockets.
 *
 * Order    per socket as on the main thread; between sockets of one thread, too.
 * Bounds   messages that were sent and that the host has not yet handled are counted: publishers and routers
 *          lose messages past Link's bound, a dealer past DEALER_QUEUE_MAX messages that libzmq has not
 *          taken.
 * Fails    when the main thread has not loaded this package: binds reject, and a thread that subscribed or
 *          dialled stops with SocketHostError: the host cannot come later than the threads it serves. When
 *          the thread ends, its port closes, and with it all its sockets.
 * Lifetime the port keeps the thread alive while sockets are open, as sockets of node do.
 */

import { MessageChannel, type MessagePort, postMessageToThread, threadId } from 'node:worker_threads'
import { callFor, callOwner, callSubscriber } from '../callback.ts'
import type { Closable } from '../closable.ts'
import { parseEndpoint } from '../endpoint.ts'
import { EndpointError, ListenError, SocketHostError } from '../errors.ts'
import type {
  BindOptions,
  Dealer,
  DialOptions,
  Frames,
  MessageTransport,
  Offered,
  Publisher,
  RouterSocket,
  SubscribeOptions,
  SubscriberHandler,
  Subscription,
} from '../message-types.ts'
import { OFFERED, OP, type Op, PATHS } from './batch.ts'
import { fatal, type ZmqEnvironment } from './library.ts'
import { Link } from './link.ts'
import { DEALER_QUEUE_MAX } from './messages.ts'
import { PeerNames } from './peer-names.ts'
import type { ClientCommand, HandOver, HostCommand } from './protocol.ts'

/** Numbers of offers begin again after this many, far more than can be unanswered. */
const OFFER_MASK = 2 ** 30 - 1

/** Gives the host its end of a port; rejects when there is no host. */
export type HandOverPort = (port: MessagePort) => Promise<void>

/** The roles, and one `close` for all that was opened. */
export function hostedMessages(
  { log }: Pick<ZmqEnvironment, 'log'>,
  handOver: HandOverPort = handOverToMain,
): MessageTransport & Closable {
  const client = new Client(log, handOver)
  return {
    subscribe: (options, handler) => client.subscribe(options, handler),
    publish: options => client.publish(options),
    dial: (options, onMessage) => client.dial(options, onMessage),
    serve: (options, onMessage) => client.serve(options, onMessage),
    present: ({ endpoint }) => {
      throw new EndpointError(endpoint, 'presence is told on the main thread only')
    },
    close: () => client.close(),
  }
}

function handOverToMain(port: MessagePort): Promise<void> {
  const handOver: HandOver = { type: 'homing-transport-client', port }
  return postMessageToThread(0, handOver, [port])
}

/** What an open socket does with what the host tells of it. */
interface Open {
  onEntry(op: Op, value: number, frames: Uint8Array[]): void
  close(): void
}

interface Binding {
  readonly endpoint: string
  bound(endpoint: string): void
  reject(error: unknown): void
}

class Client {
  readonly #log: ZmqEnvironment['log']
  readonly #handOver: HandOverPort
  readonly #open = new Map<number, Open>()
  readonly #binding = new Map<number, Binding>()
  #connection: { readonly link: Link; readonly port: MessagePort } | undefined
  #socketCount = 0
  #isClosed = false

  constructor(log: ZmqEnvironment['log'], handOver: HandOverPort) {
    this.#log = log
    this.#handOver = handOver
  }

  subscribe({ endpoint, topic, stream }: SubscribeOptions, handler: SubscriberHandler): Subscription {
    parseEndpoint(endpoint, 'connect')
    const socket = ++this.#socketCount
    return this.#connect(
      { type: 'subscribe', socket, endpoint, topic, stream },
      {
        onEntry(op, value, frames) {
          if (op === OP.message) callSubscriber(endpoint, handler, frames, value)
          else if (op === OP.connected) {
            const life = frames[0] && Buffer.from(frames[0]).toString()
            callOwner(() => handler.connected(PATHS[value]!, life))
          } else if (op === OP.disconnected) callOwner(() => handler.disconnected())
        },
        done: (number: number) => this.#linkOf(socket)?.add(OP.handled, socket, number),
        close: () => this.#release(socket),
      },
    )
  }

  dial({ endpoint, stream }: DialOptions, onMessage: (frames: Frames) => void): Dealer {
    parseEndpoint(endpoint, 'connect')
    const socket = ++this.#socketCount
    let queuedCount = 0
    return this.#connect(
      { type: 'dial', socket, endpoint, stream },
      {
        onEntry(op, value, frames) {
          if (op === OP.message) callFor(endpoint, onMessage, frames)
          else if (op === OP.taken) queuedCount -= value
        },
        send: (frames: Frames) => {
          const link = this.#linkOf(socket)
          if (link === undefined || frames.length === 0 || queuedCount >= DEALER_QUEUE_MAX) return false
          queuedCount++
          link.add(OP.message, socket, 0, frames)
          return true
        },
        took: (count: number) => this.#linkOf(socket)?.add(OP.handled, socket, count),
        close: () => this.#release(socket),
      },
    )
  }

  async publish({ endpoint: text, queuedMessagesMax, stream }: BindOptions): Promise<Publisher> {
    const socket = ++this.#socketCount
    return this.#bind({ type: 'publish', socket, endpoint: text, queuedMessagesMax, stream }, endpoint => {
      let droppedCount = 0
      return {
        endpoint,
        get droppedCount() {
          return droppedCount
        },
        onEntry() {},
        send: (frames: Frames) => {
          const link = this.#linkOf(socket)
          if (link === undefined || frames.length === 0) return
          if (link.isFull) droppedCount++
          else link.add(OP.message, socket, 0, frames)
        },
        close: () => this.#release(socket),
      }
    })
  }

  async serve(
    { endpoint: text, queuedMessagesMax }: BindOptions,
    onMessage: (identity: Uint8Array, frames: Frames) => void,
  ): Promise<RouterSocket> {
    const socket = ++this.#socketCount
    const command = { type: 'serve', socket, endpoint: text, queuedMessagesMax, stream: undefined } as const
    return this.#bind(command, endpoint => {
      const peers = new PeerNames()
      /** Offers that the host has not answered, by number. */
      const offers = new Map<number, (outcome: Offered) => void>()
      let offerCount = 0
      return {
        endpoint,
        onEntry(op: Op, value: number, [identity, ...frames]: Uint8Array[]) {
          if (op === OP.offered) {
            offers.get(value)?.(OFFERED[identity![0]!]!)
            offers.delete(value)
          } else if (op === OP.gone) peers.delete(identity!)
          else if (op === OP.message) {
            peers.add(identity!)
            callFor(
              `${endpoint}, peer ${Buffer.from(identity!).toString('hex')}`,
              onMessage,
              identity!,
              frames,
            )
          }
        },
        send: (identity: Uint8Array, frames: Frames) => {
          const link = this.#linkOf(socket)
          if (link === undefined || frames.length === 0 || !peers.has(identity) || link.isFull) return false
          link.add(OP.message, socket, 0, [identity, ...frames])
          return true
        },
        offer: (identity: Uint8Array, frames: Frames) => {
          const link = this.#linkOf(socket)
          if (link === undefined || frames.length === 0 || !peers.has(identity)) return 'gone'
          if (link.isFull) return 'full'
          offerCount = (offerCount + 1) & OFFER_MASK
          const { promise, resolve } = Promise.withResolvers<Offered>()
          offers.set(offerCount, resolve)
          link.add(OP.offer, socket, offerCount, [identity, ...frames])
          return promise
        },
        close: () => {
          this.#release(socket)
          for (const resolve of offers.values()) resolve('gone')
          offers.clear()
        },
      }
    })
  }

  close(): void {
    this.#isClosed = true
    this.#open.clear()
    for (const binding of this.#binding.values()) {
      binding.reject(new ListenError(binding.endpoint, 'the transport was closed'))
    }
    this.#binding.clear()
    this.#connection?.link.close()
    this.#connection = undefined
  }

  #connect<T extends Open>(command: HostCommand, open: T): T {
    if (this.#isClosed) return open
    const { link, port } = this.#connected()
    this.#open.set(command.socket, open)
    port.ref()
    link.command(command)
    return open
  }

  /** `create` makes what is open from the real endpoint, before anything can arrive for it. */
  #bind<T extends Open>(command: HostCommand, create: (endpoint: string) => T): Promise<T> {
    const { socket, endpoint: text } = command
    parseEndpoint(text, 'bind')
    if (this.#isClosed) throw new ListenError(text, 'the transport was closed')
    const { link, port } = this.#connected()
    return new Promise((resolve, reject) => {
      const bound = (endpoint: string): void => {
        const open = create(endpoint)
        this.#open.set(socket, open)
        resolve(open)
      }
      this.#binding.set(socket, { endpoint: text, bound, reject })
      port.ref()
      link.command(command)
    })
  }

  #release(socket: number): void {
    if (!this.#open.delete(socket)) return
    this.#connection?.link.add(OP.close, socket)
    this.#rest()
  }

  /** Without sockets the port does not keep the thread alive. */
  #rest(): void {
    if (this.#open.size + this.#binding.size === 0) this.#connection?.port.unref()
  }

  #linkOf(socket: number): Link | undefined {
    return this.#open.has(socket) ? this.#connection?.link : undefined
  }

  /** Hands the other end of a port to the host; what is sent meanwhile waits in the port. */
  #connected(): { readonly link: Link; readonly port: MessagePort } {
    if (this.#connection !== undefined) return this.#connection
    const { port1: port, port2 } = new MessageChannel()
    const link = new Link(
      port,
      {
        entry: (op, socket, value, frames) => this.#open.get(socket)?.onEntry(op, value, frames),
        command: command => this.#onCommand(command as ClientCommand),
        drained() {},
      },
      flush => process.nextTick(flush),
    )
    this.#connection = { link, port }
    this.#handOver(port2).catch((cause: unknown) => this.#notHosted(cause))
    return this.#connection
  }

  #notHosted(cause: unknown): void {
    if (this.#isClosed) return
    const error = new SocketHostError(threadId, cause)
    for (const binding of this.#binding.values()) binding.reject(new ListenError(binding.endpoint, error))
    this.#binding.clear()
    this.#rest()
    if (this.#open.size > 0) fatal(error)
  }

  #onCommand(command: ClientCommand): void {
    if (command.type === 'warning') {
      this.#log.warn(command.fields, command.text)
      return
    }
    const binding = this.#binding.get(command.socket)
    this.#binding.delete(command.socket)
    if (command.type === 'bound') binding?.bound(command.endpoint)
    else binding?.reject(new ListenError(binding.endpoint, command.reason))
    this.#rest()
  }
}
