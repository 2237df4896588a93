/**
 * Streams: what the roles need of a broker that keeps messages (JetStream). A stream has one namespace,
 * and keeps what is published under its subjects until it is too old or too much.
 *
 *   homing-kv-NAMESPACE            the stream
 *   homing-kv.NAMESPACE.SUBJECT    in it, what the publisher of SUBJECT publishes (payload.ts)
 */

import type { StreamOptions } from '../message-types.ts'
import type { BrokerSnapshots } from '../stream-store.ts'

export interface StreamMessage {
  /** In the stream, from 1; grows, with holes where other subjects are. */
  readonly position: number
  readonly payload: Uint8Array
}

export interface ConsumerHandler {
  /** `taken` tells the broker that this message and all before it are dealt with. */
  message(message: StreamMessage, taken: () => void): void
  /** The consumer or its stream is gone, or the broker is silent; nothing comes any more. */
  ended(reason: string): void
}

/** Pauses before a stream that failed is tried again. */
export const STREAM_RETRY_MS_MIN = 250
export const STREAM_RETRY_MS_MAX = 5000

/** A stream that was made, or was there. */
export interface FoundStream {
  /** What is different from what was asked. */
  readonly difference: string | undefined
  /** Of a message with its headers; undefined: as much as the broker takes. */
  readonly messageBytesMax: number | undefined
}

/** The streams of a connection. What cannot be done rejects with StreamError. */
export interface BrokerStreams {
  /** Makes the stream, unless it is there. */
  ensure(options: StreamOptions): Promise<FoundStream>
  /**
   * Resolves when the stream has stored the message. One with an id of the last two minutes is stored once.
   */
  store(subject: string, payload: Uint8Array, id: string): Promise<void>
  /**
   * What comes from now on under a subject, by a durable consumer of this name. No more than its share
   * (untaken-shares.ts) comes that is not taken. Closing it deletes the consumer.
   */
  consume(options: ConsumeOptions, handler: ConsumerHandler): Promise<{ close(): void }>
  /** The first message of a subject at this position or behind it; undefined: there is none. */
  next(stream: string, subject: string, position: number): Promise<StreamMessage | undefined>
  /** The last message of a subject; undefined: there is none. */
  last(stream: string, subject: string): Promise<StreamMessage | undefined>
  /** The messages of a subject from this position on that are there now, in order. */
  read(stream: string, subject: string, position: number): AsyncIterable<StreamMessage>
  /** Snapshots of the publishers of this namespace; undefined: this broker keeps none. */
  snapshots?(namespace: string): BrokerSnapshots
  /** Deletes what a namespace has at the broker. False: it had nothing. */
  reset(namespace: string): Promise<boolean>
}

export interface ConsumeOptions {
  readonly stream: string
  readonly subject: string
  /** Letters, digits, '-' and '_'. */
  readonly name: string
}

/** Messages of a consumer that are not taken yet; then it brings no more. */
export const UNTAKEN_MAX = 256
/** …where there are many consumers. */
export const UNTAKEN_MIN = 4
/** …of all consumers of a connection: 256 MiB. */
export const UNTAKEN_ALL_MAX = 4096
/** Messages of a publisher that go into a stream as one. */
export const PACK_MESSAGES_MAX = 32
/** Of a message of a stream; a larger one of a publisher goes in parts. */
export const PACK_BYTES_MAX = 2 ** 16
/** Messages of a publisher that are on their way to a stream at one time. */
export const UNDER_WAY_MAX = 4
/** A message goes into a stream with its id. */
export const STREAM_HEADER_BYTES = 128

export function streamName(namespace: string): string {
  return `homing-kv-${namespace}`
}

/** The subject in the stream for what is published under a subject. */
export function streamSubject(namespace: string, subject: string): string {
  return `homing-kv.${namespace}.${subject}`
}
