/**
 * Brokers by the nats package, for the main thread: one connection for all roles of the process that name the
 * same addresses.
 *
 * A connection that ends is made again after RECONNECT_MS_MIN, twice as long each time, up to
 * RECONNECT_MS_MAX. The package's own reconnection is off: it would hide that messages were lost meanwhile.
 *
 * Bounds   bytes under way to the broker are counted until the broker has read them; past
 *          BROKER_UNDER_WAY_BYTES_MAX no more are accepted. A broker cuts a connection that reads too
 *          slowly; after that a new connection is made as after any end.
 */

import { createRequire } from 'node:module'
import { isIP } from 'node:net'
import { checkServerIdentity } from 'node:tls'
import type { Clock, Timer } from '@homing/base'
import type * as nats from 'nats'
import { BrokerCounts } from '../broker-counts.ts'
import { callFor } from '../callback.ts'
import { believedCertificates } from '../certificates.ts'
import type { Broker, BrokerHandler, BrokerLink, BrokerUser, OpenBroker } from './broker.ts'
import { SystemStreams } from './system-streams.ts'

/** How connections to brokers are made. It is in no message and no view. */
export interface BrokerAccess {
  /**
   * The servers that the login is for, 'host:port' each: engines and their registrations name brokers, too,
   * which must not get it. Undefined: any.
   */
  readonly servers?: readonly string[] | undefined
  /** What a credentials file holds: JWT and seed. */
  readonly credentials?: string | undefined
  readonly user?: string | undefined
  readonly password?: string | undefined
  readonly token?: string | undefined
  /**
   * Certificates in PEM that are believed besides those of Node and of the system. Given: the connection must
   * be TLS, and nothing is sent before it is.
   */
  readonly certificates?: string | undefined
}

const CONNECT_MS_MAX = 5000
const RECONNECT_MS_MIN = 100
const RECONNECT_MS_MAX = 5000
/** A broker that does not answer two pings in a row is gone. */
const PING_MS = 5000
const PINGS_OUT_MAX = 2
/** Bytes between two flushes. */
const FLUSH_BYTES = 2 ** 18
const BROKER_UNDER_WAY_BYTES_MAX = 64 * 2 ** 20

let access: BrokerAccess = {}
const brokers = new Map<string, SystemBroker>()

/** How this process connects to brokers from now on. */
export function setBrokerAccess(given: BrokerAccess): void {
  access = given
}

/**
 * The broker with these addresses, of this process. One that only strangers named is forgotten when it rests.
 */
export function systemBrokers(clock: Clock): OpenBroker {
  return servers => {
    const key = servers.join(',')
    const known = brokers.get(key)
    if (known !== undefined) return known
    const broker = new SystemBroker(servers, clock, () => {
      if (!isOwn(servers)) brokers.delete(key)
    })
    brokers.set(key, broker)
    return broker
  }
}

/** What each broker did for this thread, by its addresses. */
export function brokerCounts(): readonly (readonly [string, BrokerCounts])[] {
  return [...brokers].map(([servers, { counts }]) => [servers, counts])
}

function isOwn(servers: readonly string[]): boolean {
  const own = access.servers
  return own === undefined || servers.every(server => own.includes(server))
}

class SystemBroker implements Broker {
  readonly counts = new BrokerCounts()
  readonly #servers: readonly string[]
  readonly #clock: Clock
  readonly #users = new Set<BrokerUser>()
  #session: SystemSession | undefined
  #isRunning = false
  #timer: Timer | undefined
  #wake: (() => void) | undefined
  #warned: string | undefined

  readonly #rested: () => void

  /** `rested`: it has no user and no connection any more. */
  constructor(servers: readonly string[], clock: Clock, rested: () => void) {
    this.#servers = servers
    this.#clock = clock
    this.#rested = rested
  }

  newInbox(): string {
    return library().createInbox()
  }

  join(user: BrokerUser): () => void {
    const member = { ...user }
    this.#users.add(member)
    const session = this.#session
    if (session !== undefined)
      queueMicrotask(() => {
        if (this.#users.has(member) && this.#session === session) member.up(session.of(member))
      })
    if (!this.#isRunning) void this.#run()
    return () => {
      this.#users.delete(member)
      this.#session?.left(member)
      if (this.#users.size === 0) this.#rest()
    }
  }

  /** Nobody needs it: the connection ends, unless somebody comes back within the same turn. */
  #rest(): void {
    setImmediate(() => {
      if (this.#users.size > 0) return
      this.#timer?.cancel()
      this.#wake?.()
      this.#session?.close()
    })
  }

  async #run(): Promise<void> {
    this.#isRunning = true
    let delayMs = RECONNECT_MS_MIN
    while (this.#users.size > 0) {
      const connection = await this.#connect()
      if (connection === undefined) {
        await this.#sleep(delayMs)
        delayMs = Math.min(2 * delayMs, RECONNECT_MS_MAX)
        continue
      }
      delayMs = RECONNECT_MS_MIN
      this.#warned = undefined
      const session = new SystemSession(connection, this.counts)
      this.#session = session
      this.counts.connections++
      this.counts.isConnected = true
      for (const user of [...this.#users]) user.up(session.of(user))
      if (this.#users.size === 0) session.close()
      void this.#watch(connection)
      const error = await connection.closed()
      session.isEnded = true
      this.#session = undefined
      this.counts.isConnected = false
      this.counts.underWayBytes = 0
      for (const user of [...this.#users]) user.down()
      if (this.#users.size > 0) {
        this.#warn(error instanceof Error ? error.message : 'the broker closed the connection')
        await this.#sleep(delayMs)
      }
    }
    this.#isRunning = false
    this.#rested()
  }

  async #connect(): Promise<nats.NatsConnection | undefined> {
    try {
      const { certificates } = access
      return await library().connect(
        optionsOf(this.#servers, isOwn(this.#servers) ? access : { certificates }),
      )
    } catch (error) {
      this.#warn((error as Error).message)
      return undefined
    }
  }

  /** What the broker complains of. */
  async #watch(connection: nats.NatsConnection): Promise<void> {
    for await (const { type, data } of connection.status()) {
      if (type === 'error' && this.#users.size > 0) this.#warn(String(data))
    }
  }

  #sleep(delayMs: number): Promise<void> {
    return new Promise(resolve => {
      this.#wake = resolve
      this.#timer = this.#clock.after(delayMs, resolve)
    })
  }

  /** Once for each reason, until there is a connection. */
  #warn(reason: string): void {
    if (reason === this.#warned) return
    this.#warned = reason
    for (const user of this.#users) {
      user.failed(reason)
      return
    }
  }
}

/** A connection, shared by its users. */
class SystemSession {
  isEnded = false
  readonly #connection: nats.NatsConnection
  readonly #subscriptions = new Map<BrokerUser, nats.Subscription[]>()
  readonly #counts: BrokerCounts
  readonly #streams: SystemStreams
  #unflushedBytes = 0
  #underWayBytes = 0

  constructor(connection: nats.NatsConnection, counts: BrokerCounts) {
    this.#connection = connection
    this.#counts = counts
    this.#streams = new SystemStreams(connection)
  }

  close(): void {
    if (!this.isEnded) void this.#connection.close()
  }

  left(user: BrokerUser): void {
    for (const subscription of this.#subscriptions.get(user) ?? []) subscription.unsubscribe()
    this.#subscriptions.delete(user)
  }

  /** The session as one of its users has it. */
  of(user: BrokerUser): BrokerLink {
    return {
      payloadBytesMax: this.#connection.info?.max_payload ?? 2 ** 20,
      publish: (subject, payload, reply) => this.#publish(subject, payload, reply),
      hasEnded: () => this.#hasEnded,
      subscribe: (subject, handler, queue) => this.#subscribe(user, subject, handler, queue),
      streams: this.#streams,
    }
  }

  get #hasEnded(): boolean {
    return this.isEnded || this.#connection.isClosed()
  }

  #publish(subject: string, payload: Uint8Array, reply: string | undefined): boolean {
    if (this.#hasEnded || this.#underWayBytes > BROKER_UNDER_WAY_BYTES_MAX) {
      this.#counts.lostMessages++
      return false
    }
    this.#connection.publish(subject, payload, reply === undefined ? {} : { reply })
    this.#counts.publishedBytes += payload.length
    this.#unflushedBytes += payload.length
    if (this.#unflushedBytes >= FLUSH_BYTES) this.#flush()
    return true
  }

  #flush(): void {
    const bytes = this.#unflushedBytes
    this.#unflushedBytes = 0
    this.#underWayBytes += bytes
    this.#counts.underWayBytes = this.#underWayBytes
    const done = (): void => {
      this.#underWayBytes -= bytes
      if (!this.isEnded) this.#counts.underWayBytes = this.#underWayBytes
    }
    // It rejects when the connection ends, and nothing is under way then.
    this.#connection.flush().then(done, done)
  }

  #subscribe(
    user: BrokerUser,
    subject: string,
    handler: BrokerHandler,
    queue: string | undefined,
  ): () => void {
    const subscription = this.#connection.subscribe(subject, {
      ...(queue === undefined ? {} : { queue }),
      // An error is the end of the subscription: it comes with that of the connection, or is among its
      // complaints.
      callback: (error, message) => {
        if (error !== null) return
        callFor(`broker, subject ${message.subject}`, () => {
          if (message.headers?.code === NO_RESPONDERS && message.data.length === 0) handler.unheard?.()
          else handler.message(message.data, message.reply ?? '')
        })
      },
    })
    const all = this.#subscriptions.get(user) ?? []
    all.push(subscription)
    this.#subscriptions.set(user, all)
    return () => {
      subscription.unsubscribe()
      const at = all.indexOf(subscription)
      if (at !== -1) all.splice(at, 1)
    }
  }
}

const NO_RESPONDERS = 503

function optionsOf(
  servers: readonly string[],
  { credentials, user, password, token, certificates }: BrokerAccess,
): nats.ConnectionOptions {
  const { credsAuthenticator } = library()
  return {
    servers: [...servers],
    name: 'homing',
    reconnect: false,
    timeout: CONNECT_MS_MAX,
    pingInterval: PING_MS,
    maxPingOut: PINGS_OUT_MAX,
    noAsyncTraces: true,
    ...(credentials === undefined ? {} : { authenticator: credsAuthenticator(Buffer.from(credentials)) }),
    ...(user === undefined ? {} : { user }),
    ...(password === undefined ? {} : { pass: password }),
    ...(token === undefined ? {} : { token }),
    ...(certificates === undefined ? {} : { tls: tlsOf(servers, certificates) }),
  }
}

/** More than the package's own type says of it: all of it goes to Node. */
function tlsOf(servers: readonly string[], certificates: string): nats.TlsOptions {
  const ca = believedCertificates(certificates)
  return { ca, checkServerIdentity: identityCheck(servers) } as unknown as nats.TlsOptions
}

/**
 * For a server given as an IP address the package passes no name, and Node then checks for `localhost`. In
 * that case the certificate must be for one of the given servers.
 */
function identityCheck(servers: readonly string[]): typeof checkServerIdentity {
  const hosts = servers.map(server => server.replace(/:\d+$/, '').replace(/^\[(.*)\]$/, '$1'))
  return (name, certificate) => {
    const names = name === 'localhost' ? hosts.filter(host => host === name || isIP(host) > 0) : [name]
    // Another spelling of an address, such as 127.1.
    if (names.length === 0) return checkServerIdentity(name, certificate)
    const faults = names.map(one => checkServerIdentity(one, certificate))
    return faults.includes(undefined) ? undefined : faults[0]
  }
}

let loaded: typeof nats | undefined

function library(): typeof nats {
  loaded ??= createRequire(import.meta.url)('nats') as typeof nats
  return loaded
}
