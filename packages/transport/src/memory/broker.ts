/** Brokers on a network in memory, one for each list of addresses that is named. */

import { BrokerCounts } from '../broker-counts.ts'
import { callOwner } from '../callback.ts'
import type { Broker, BrokerHandler, BrokerLink, BrokerUser } from '../nats/broker.ts'
import type { MemoryConditions } from './conditions.ts'
import { Lane } from './lane.ts'
import { LinkStreams, MemoryStreams } from './streams.ts'

const PAYLOAD_BYTES_MAX = 2 ** 20

interface Subscription {
  readonly subject: string
  readonly handler: BrokerHandler
  readonly queue: string | undefined
}

/** Brokers as one transport sees them. */
type Opened = Map<string, Broker>

/** Of one transport with one broker. */
interface Connection {
  readonly opened: Opened
  readonly users: Set<BrokerUser>
  readonly counts: BrokerCounts
  /** Undefined while it is down. */
  session: MemorySession | undefined
}

export class MemoryBrokers {
  readonly #network: MemoryConditions
  readonly #sessions = new Map<string, Set<MemorySession>>()
  readonly #connections = new Map<string, Set<Connection>>()
  readonly #down = new Set<string>()
  /** Transports that are cut off alone, and from which brokers. */
  readonly #cutOff = new Map<Opened, Set<string>>()
  readonly #streams = new Map<string, MemoryStreams>()
  #inboxes = 0

  constructor(network: MemoryConditions) {
    this.#network = network
  }

  /** Opens brokers for one transport; `own` has the brokers that it has named. */
  opener(own: Opened): (servers: readonly string[]) => Broker {
    return servers => {
      const key = servers.join(',')
      const broker = own.get(key) ?? this.#broker(key, own)
      own.set(key, broker)
      return broker
    }
  }

  /** Published by somebody else. */
  say(servers: string, subject: string, payload: Uint8Array): void {
    for (const session of this.#sessions.get(servers) ?? []) session.deliver(subject, payload, '')
  }

  /** What a broker keeps, over all connections. */
  streams(servers: string): MemoryStreams {
    const streams = this.#streams.get(servers) ?? new MemoryStreams(this.#network.clock)
    this.#streams.set(servers, streams)
    return streams
  }

  /** `of`: only the connection of that one, as its opener knows it. */
  disconnect(servers: string, of?: Opened): void {
    if (of === undefined) this.#down.add(servers)
    else this.#cutOff.set(of, (this.#cutOff.get(of) ?? new Set()).add(servers))
    for (const connection of this.#connections.get(servers) ?? [])
      if (of === undefined || connection.opened === of) this.#end(servers, connection)
  }

  reconnect(servers: string, of?: Opened): void {
    if (of === undefined) this.#down.delete(servers)
    else this.#cutOff.get(of)?.delete(servers)
    for (const connection of this.#connections.get(servers) ?? []) this.#begin(servers, connection)
  }

  #broker(servers: string, opened: Opened): Broker {
    const counts = new BrokerCounts()
    const connection: Connection = { opened, users: new Set(), counts, session: undefined }
    const all = this.#connections.get(servers) ?? new Set()
    this.#connections.set(servers, all.add(connection))
    return {
      counts,
      newInbox: () => `_INBOX.${++this.#inboxes}`,
      join: user => {
        const member = { ...user }
        connection.users.add(member)
        const { session } = connection
        if (session === undefined) this.#begin(servers, connection)
        // One that is not open yet tells all who are there then.
        else if (session.isOpen)
          queueMicrotask(() => {
            if (connection.users.has(member) && connection.session === session) member.up(session.of(member))
          })
        return () => {
          connection.users.delete(member)
          connection.session?.left(member)
          // What was sent before still arrives, as from a connection that is closed in good order.
          if (connection.users.size === 0) this.#end(servers, connection, false)
        }
      },
    }
  }

  #begin(servers: string, connection: Connection): void {
    if (this.#down.has(servers) || this.#cutOff.get(connection.opened)?.has(servers) === true) return
    if (connection.session !== undefined || connection.users.size === 0) return
    const sessions = this.#sessions.get(servers) ?? new Set()
    const session = new MemorySession(
      this.#network,
      servers,
      sessions,
      connection.counts,
      this.streams(servers),
    )
    this.#sessions.set(servers, sessions.add(session))
    connection.session = session
    connection.counts.connections++
    connection.counts.isConnected = true
    session.later(() => {
      session.isOpen = true
      for (const user of [...connection.users]) callOwner(() => user.up(session.of(user)))
    })
  }

  #end(servers: string, connection: Connection, isCut = true): void {
    const { session } = connection
    if (session === undefined) return
    connection.session = undefined
    connection.counts.isConnected = false
    session.end(isCut)
    this.#sessions.get(servers)?.delete(session)
    for (const user of [...connection.users]) callOwner(() => user.down())
  }
}

class MemorySession {
  isOpen = false
  readonly #network: MemoryConditions
  readonly #servers: string
  readonly #all: ReadonlySet<MemorySession>
  readonly #counts: BrokerCounts
  readonly #toClient: Lane
  readonly #toBroker: Lane
  readonly #streams: LinkStreams
  readonly #subscriptions = new Map<BrokerUser, Set<Subscription>>()

  constructor(
    network: MemoryConditions,
    servers: string,
    all: ReadonlySet<MemorySession>,
    counts: BrokerCounts,
    streams: MemoryStreams,
  ) {
    this.#network = network
    this.#servers = servers
    this.#all = all
    this.#counts = counts
    this.#toClient = new Lane(network.clock)
    this.#toBroker = new Lane(network.clock)
    this.#streams = new LinkStreams(streams, {
      clock: network.clock,
      toBroker: work => this.#toBroker.put(network.latencyMs, work),
      toClient: work => this.later(work),
      fateOf: (subject, payload) =>
        network.faults.message?.(`nats://${servers}/${subject}`, [payload]) ?? 'deliver',
    })
  }

  later(callback: () => void): void {
    this.#toClient.put(this.#network.latencyMs, callback)
  }

  end(isCut: boolean): void {
    this.#toClient.cut()
    if (isCut) this.#toBroker.cut()
    this.#subscriptions.clear()
    this.#streams.end()
  }

  left(user: BrokerUser): void {
    this.#subscriptions.delete(user)
  }

  of(user: BrokerUser): BrokerLink {
    return {
      payloadBytesMax: PAYLOAD_BYTES_MAX,
      publish: (subject, payload, reply = '') => this.#publish(subject, payload, reply),
      subscribe: (subject, handler, queue) => {
        const own = this.#subscriptions.get(user) ?? new Set()
        const subscription = { subject, handler, queue }
        this.#subscriptions.set(user, own.add(subscription))
        return () => void own.delete(subscription)
      },
      streams: this.#streams,
    }
  }

  #publish(subject: string, payload: Uint8Array, reply: string): boolean {
    const endpoint = `nats://${this.#servers}/${subject}`
    const fate = this.#network.faults.message?.(endpoint, [payload]) ?? 'deliver'
    if (fate === 'refuse') {
      this.#counts.lostMessages++
      return false
    }
    this.#counts.publishedBytes += payload.length
    if (fate === 'drop') return true
    const bytes = payload.slice()
    const delayMs = this.#network.latencyMs + (fate === 'deliver' ? 0 : fate.delayMs)
    this.#toBroker.put(delayMs, () => {
      let isHeard = false
      const queues = new Set<string>()
      for (const session of this.#all) if (session.deliver(subject, bytes, reply, queues)) isHeard = true
      if (!isHeard && reply !== '') this.deliver(reply, undefined, '')
    })
    return true
  }

  /**
   * Undefined: nobody heard the question. `queues` have their message already. True: somebody here listens.
   */
  deliver(
    subject: string,
    payload: Uint8Array | undefined,
    reply: string,
    queues: Set<string> = new Set(),
  ): boolean {
    let isHeard = false
    for (const [user, subscriptions] of this.#subscriptions) {
      for (const subscription of subscriptions) {
        const { queue } = subscription
        if (subscription.subject !== subject || (queue !== undefined && queues.has(queue))) continue
        if (queue !== undefined) queues.add(queue)
        isHeard = true
        this.later(() => {
          if (this.#subscriptions.get(user)?.has(subscription) !== true) return
          if (payload === undefined) subscription.handler.unheard?.()
          else subscription.handler.message(payload.slice(), reply)
        })
      }
    }
    return isHeard
  }
}
