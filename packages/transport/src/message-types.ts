/**
 * Message types: the four ZeroMQ roles that KV events need, over sockets or a broker, and the streams that a
 * broker keeps.
 */

import type { Closable } from './closable.ts'
import type { OwnPresence, PresenceHandler, PresenceOptions } from './presence-types.ts'

export type Frames = readonly Uint8Array[]

export interface SubscriberHandler {
  /** `number`: for `Subscription.done`; undefined or 0: nothing waits for that. */
  message(frames: Frames, number?: number): void
  /**
   * The connection is up (again): a publisher may be a new process. `path`: undefined is 'publisher'.
   * `life`: of a publisher at a broker, 16 hexadecimal digits, others in each life of it.
   */
  connected(path?: EventPath, life?: string): void
  disconnected(): void
}

/** How messages come: from their publisher, or from the stream that keeps them at the broker. */
export type EventPath = 'publisher' | 'stream'

/** Which stream, and how it is made if it is not there. One that is there keeps its limits. */
export interface StreamOptions {
  /** 1 to 64 letters, digits, '-' and '_': fleets with different ones do not see each other. */
  readonly namespace: string
  /** How long it keeps a message, in milliseconds. */
  readonly retentionMs: number
  /** Most bytes that it keeps; the oldest messages go first. */
  readonly bytesMax: number
}

export interface Subscription extends Closable {
  /**
   * The message with this number, and all before it, are dealt with: the broker need not keep them for us.
   */
  done?(number: number): void
}

export interface SubscribeOptions {
  readonly endpoint: string
  readonly topic: string
  /** Follow the stream of this namespace, as long as the publisher says that it has all. */
  readonly stream?: StreamOptions | undefined
}

export interface DialOptions {
  readonly endpoint: string
  /** Take from the stream of this namespace what the publisher of a replay has forgotten. */
  readonly stream?: StreamOptions | undefined
}

export interface Dealer extends Closable {
  /** Queues while there is no connection. False: closed, or too much is queued; the message is dropped. */
  send(frames: Frames): boolean
  /** Messages that are dealt with since the last call: a stream is read no faster. */
  took?(count: number): void
}

export interface Publisher extends Closable {
  /** The bound endpoint, with the real port when it was bound to 0: 'tcp://127.0.0.1:5557'. */
  readonly endpoint: string
  /**
   * Queues; never waits. Messages of one publisher keep their order. A subscriber that reads too slowly
   * loses messages, as with any PUB; frames must not be changed afterwards.
   */
  send(frames: Frames): void
  /** Messages lost so, summed over subscribers. */
  readonly droppedCount: number
}

export interface RouterSocket extends Closable {
  readonly endpoint: string
  /** False: that peer is not connected, or reads too slowly; the message is dropped. */
  send(identity: Uint8Array, frames: Frames): boolean
  /**
   * The same, and tells what became of it: so a sender that waits at 'full' has no more than
   * `queuedMessagesMax` messages in the socket for a peer that does not read.
   */
  offer(identity: Uint8Array, frames: Frames): Offered | Promise<Offered>
}

/** 'full': as many messages as may wait for that peer do, and this one is not among them. */
export type Offered = 'taken' | 'full' | 'gone'

/** A role that binds. */
export interface BindOptions {
  readonly endpoint: string
  /**
   * Messages held per peer that reads too slowly, 1 … 100,000, which is the default; further ones to it are
   * lost. In memory there is no bound.
   */
  readonly queuedMessagesMax?: number
  /** Of a publisher at a broker: publish into the stream of this namespace, too. */
  readonly stream?: StreamOptions | undefined
}

/**
 * ZeroMQ roles. Endpoints are 'tcp://host:port' and 'ipc://path'; to bind, the host may be '*' and the
 * port 0. Frames that are received belong to the receiver. Nothing is called after `close`. An endpoint that
 * cannot be read throws EndpointError, one that cannot be bound rejects with ListenError.
 */
export interface MessageTransport {
  /** SUB that connects; topics are byte prefixes, '' is all. Reconnects by itself (100 ms … 5 s). */
  subscribe(options: SubscribeOptions, handler: SubscriberHandler): Subscription
  /** PUB that binds. */
  publish(options: BindOptions): Promise<Publisher>
  /** DEALER that connects. */
  dial(options: DialOptions, onMessage: (frames: Frames) => void): Dealer
  /**
   * Announces this peer under a subject of a broker and reports other peers. Endpoints of sockets throw
   * EndpointError. On the main thread only.
   */
  present(options: PresenceOptions, handler: PresenceHandler): OwnPresence
  /** ROUTER that binds; `frames` are those after the identity. */
  serve(
    options: BindOptions,
    onMessage: (identity: Uint8Array, frames: Frames) => void,
  ): Promise<RouterSocket>
}

/** The roles that ZeroMQ sockets have. */
export type SocketRoles = Omit<MessageTransport, 'present'>
