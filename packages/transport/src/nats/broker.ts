/** What the roles need of a broker: one connection for all users, made again whenever it ends. */

import type { BrokerCounts } from '../broker-counts.ts'
import type { BrokerStreams } from './streams.ts'

/** One connection that is up. */
export interface BrokerLink {
  /** Larger payloads are not taken. */
  readonly payloadBytesMax: number
  /**
   * Queues. False: too much is on its way to the broker already, or the connection has ended; the message is
   * lost.
   */
  publish(subject: string, payload: Uint8Array, reply?: string): boolean
  /** It has ended, which its users may not have been told yet. */
  hasEnded?(): boolean
  /**
   * Until the session ends, or the answer is called. Of all subscribers of a subject with one `queue`, each
   * message goes to one.
   */
  subscribe(subject: string, handler: BrokerHandler, queue?: string): () => void
  /** Undefined: it keeps no messages. */
  readonly streams?: BrokerStreams | undefined
}

export interface BrokerHandler {
  /** `reply`: where an answer would go; '': nowhere. */
  message(payload: Uint8Array, reply: string): void
  /** Nobody listened to a message that wanted its answer here. */
  unheard?(): void
}

/** Somebody who uses a broker. */
export interface BrokerUser {
  up(session: BrokerLink): void
  /** The session ended; nothing of it is told any more. */
  down(): void
  /** Why there is no session, or what the broker complains of; told to one of the users. */
  failed(reason: string): void
}

export interface Broker {
  readonly counts: BrokerCounts
  /**
   * `up` is called for a session that is there, in a later turn, and for each one that comes. Answers how to
   * leave.
   */
  join(user: BrokerUser): () => void
  /** A subject that nobody else uses. */
  newInbox(): string
}

/** Makes or finds the connection to a broker with these addresses, 'host:port' each. */
export type OpenBroker = (servers: readonly string[]) => Broker
