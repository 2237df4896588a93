/** The ZeroMQ roles on a network in memory. */

import { callOwner } from '../callback.ts'
import type { Closable } from '../closable.ts'
import { formatEndpoint, parseSocketEndpoint } from '../endpoint.ts'
import { ListenError } from '../errors.ts'
import type { Dealer, Frames, Publisher, RouterSocket, SocketRoles } from '../message-types.ts'
import type { MemoryConditions } from './conditions.ts'
import { Lane } from './lane.ts'
import { findBound, placeOf } from './place.ts'

const DEALER_QUEUE_MAX = 1000

/** One side that connects. */
interface Connector {
  readonly type: 'SUB' | 'DEALER'
  readonly place: string
  readonly topic: string
  link: Link | undefined
  connected(): void
  message(frames: Frames): void
  disconnected(): void
}

/** One side that binds. */
interface Bound {
  readonly type: 'PUB' | 'ROUTER'
  readonly endpoint: string
  readonly links: Set<Link>
  message(link: Link, frames: Frames): void
}

/** A connection; `identity` is what the binding side calls the other. */
interface Link {
  readonly connector: Connector
  readonly bound: Bound
  readonly identity: Uint8Array
  readonly toConnector: Lane
  readonly toBound: Lane
  isUp: boolean
}

export class MemoryMessages {
  readonly #network: MemoryConditions
  readonly #bound = new Map<string, Bound>()
  readonly #connectors = new Set<Connector>()
  readonly #severed = new Set<string>()
  #linkCount = 0

  constructor(network: MemoryConditions) {
    this.#network = network
  }

  disconnect(place: string): void {
    this.#severed.add(place)
    for (const connector of this.#connectors) {
      if (connector.link !== undefined && this.#isSevered(connector)) this.#unlink(connector.link)
    }
  }

  reconnect(place: string): void {
    this.#severed.delete(place)
    this.#linkAll()
  }

  transport(): SocketRoles & Closable {
    const open = new Set<Closable>()
    const owned = <T extends Closable>(socket: T): T => {
      open.add(socket)
      return socket
    }
    const released = (socket: Closable): void => void open.delete(socket)
    return {
      subscribe: ({ endpoint, topic }, handler) => {
        const connector = this.#connect('SUB', endpoint, topic, handler)
        const subscriber: Closable = {
          close: () => {
            released(subscriber)
            this.#drop(connector)
          },
        }
        return owned(subscriber)
      },
      publish: async ({ endpoint }) => owned(this.#publish(endpoint, released)),
      dial: ({ endpoint }, onMessage) => owned(this.#dial(endpoint, onMessage, released)),
      serve: async ({ endpoint }, onMessage) => owned(this.#serve(endpoint, onMessage, released)),
      close() {
        for (const socket of [...open]) socket.close()
      },
    }
  }

  #publish(endpoint: string, released: (socket: Closable) => void): Publisher {
    const bound = this.#bind('PUB', endpoint, () => {})
    const publisher: Publisher = {
      endpoint: bound.endpoint,
      droppedCount: 0,
      send: frames => {
        if (frames.length === 0) return
        const topic = Buffer.from(frames[0]!).toString('latin1')
        for (const link of bound.links) {
          const prefix = Buffer.from(link.connector.topic).toString('latin1')
          if (topic.startsWith(prefix)) this.#send(link, frames, 'toConnector')
        }
      },
      close: () => {
        released(publisher)
        this.#unbind(bound)
      },
    }
    return publisher
  }

  #serve(
    endpoint: string,
    onMessage: (identity: Uint8Array, frames: Frames) => void,
    released: (socket: Closable) => void,
  ): RouterSocket {
    const bound = this.#bind('ROUTER', endpoint, (link, frames) => onMessage(link.identity.slice(), frames))
    const router: RouterSocket = {
      endpoint: bound.endpoint,
      send: (identity, frames) => {
        for (const link of bound.links) {
          if (frames.length === 0 || Buffer.compare(link.identity, identity) !== 0) continue
          this.#send(link, frames, 'toConnector')
          return true
        }
        return false
      },
      offer: (identity, frames) => (router.send(identity, frames) ? 'taken' : 'gone'),
      close: () => {
        released(router)
        this.#unbind(bound)
      },
    }
    return router
  }

  #dial(endpoint: string, onMessage: (frames: Frames) => void, released: (socket: Closable) => void): Dealer {
    let queue: Frames[] = []
    let isClosed = false
    const connector = this.#connect('DEALER', endpoint, '', {
      connected: () => {
        for (const frames of queue.splice(0)) dealer.send(frames)
      },
      message: onMessage,
      disconnected() {},
    })
    const dealer: Dealer = {
      send: frames => {
        if (isClosed || frames.length === 0) return false
        if (connector.link?.isUp === true) {
          this.#send(connector.link, frames, 'toBound')
          return true
        }
        if (queue.length >= DEALER_QUEUE_MAX) return false
        queue.push(frames)
        return true
      },
      close: () => {
        isClosed = true
        queue = []
        released(dealer)
        this.#drop(connector)
      },
    }
    return dealer
  }

  #bind(type: Bound['type'], text: string, message: Bound['message']): Bound {
    const parsed = parseSocketEndpoint(text, 'bind')
    const isAnyPort = parsed.scheme === 'tcp' && parsed.port === 0
    const endpoint = formatEndpoint(isAnyPort ? { ...parsed, port: this.#network.freePort() } : parsed)
    if (this.#bound.has(placeOf(endpoint)))
      throw new ListenError(text, new Error('EADDRINUSE, it is bound already'))
    const bound: Bound = { type, endpoint, links: new Set(), message }
    this.#bound.set(placeOf(endpoint), bound)
    this.#linkAll()
    return bound
  }

  #unbind(bound: Bound): void {
    if (this.#bound.get(placeOf(bound.endpoint)) !== bound) return
    this.#bound.delete(placeOf(bound.endpoint))
    // Connections that are still being made are not among the links.
    for (const { link } of this.#connectors)
      if (link?.bound === bound) this.#unlink(link, bound.type === 'PUB')
  }

  #connect(
    type: Connector['type'],
    endpoint: string,
    topic: string,
    handler: Pick<Connector, 'connected' | 'message' | 'disconnected'>,
  ): Connector {
    parseSocketEndpoint(endpoint, 'connect')
    const connector: Connector = {
      type,
      place: placeOf(endpoint),
      topic,
      link: undefined,
      connected: () => handler.connected(),
      message: frames => handler.message(frames),
      disconnected: () => handler.disconnected(),
    }
    this.#connectors.add(connector)
    this.#link(connector)
    return connector
  }

  /** The owner closed it: nothing is told any more. */
  #drop(connector: Connector): void {
    this.#connectors.delete(connector)
    const link = connector.link
    if (link === undefined) return
    connector.link = undefined
    link.bound.links.delete(link)
    link.toConnector.cut()
    // What was sent before still arrives, as from a socket that is closed.
  }

  #linkAll(): void {
    for (const connector of this.#connectors) if (connector.link === undefined) this.#link(connector)
  }

  /** Connects to what is bound, if anything is. */
  #link(connector: Connector): void {
    const bound = findBound(this.#bound, connector.place)
    if (bound === undefined || this.#isSevered(connector)) return
    if ((bound.type === 'PUB') !== (connector.type === 'SUB')) return
    const identity = new Uint8Array(5)
    new DataView(identity.buffer).setUint32(1, ++this.#linkCount)
    const { clock, latencyMs } = this.#network
    const link: Link = {
      connector,
      bound,
      identity,
      toConnector: new Lane(clock),
      toBound: new Lane(clock),
      isUp: false,
    }
    connector.link = link
    link.toConnector.put(latencyMs, () => {
      link.isUp = true
      bound.links.add(link)
      callOwner(() => connector.connected())
    })
  }

  /** `saysLast`: messages that were sent before and are not delayed still arrive. */
  #unlink(link: Link, saysLast = false): void {
    const { connector, bound } = link
    if (!saysLast || !link.isUp) link.toConnector.cut()
    link.toBound.cut()
    bound.links.delete(link)
    connector.link = undefined
    if (!link.isUp) return
    link.isUp = false
    const goodbye = new Lane(this.#network.clock)
    goodbye.put(this.#network.latencyMs, () => {
      link.toConnector.cut()
      if (!this.#connectors.has(connector)) return
      callOwner(() => connector.disconnected())
      if (connector.link === undefined) this.#link(connector)
    })
  }

  #send(link: Link, frames: Frames, direction: 'toConnector' | 'toBound'): void {
    const fate = this.#network.faults.message?.(link.bound.endpoint, frames) ?? 'deliver'
    if (fate === 'drop' || fate === 'refuse') return
    const delayMs = this.#network.latencyMs + (fate === 'deliver' ? 0 : fate.delayMs)
    const copies = frames.map(frame => frame.slice())
    link[direction].put(delayMs, () => {
      if (direction === 'toConnector') {
        if (this.#connectors.has(link.connector)) callOwner(() => link.connector.message(copies))
      } else callOwner(() => link.bound.message(link, copies))
    })
  }

  #isSevered({ place }: Connector): boolean {
    if (this.#severed.size === 0) return false
    const bound = findBound(this.#bound, place)
    return this.#severed.has(place) || (bound !== undefined && this.#severed.has(placeOf(bound.endpoint)))
  }
}
