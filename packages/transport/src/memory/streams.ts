/**
 * Streams of a broker in memory, as JetStream keeps them: messages by position, consumers with what they
 * have not acknowledged, duplicates by their ids.
 *
 * Everything asked takes a way to the broker and one back on the lanes of its session, so it comes in the
 * order in which it was asked, between other messages of the session. A session that ends leaves no
 * question open.
 *
 * Faults   a message that is stored is asked about as one of 'nats://SERVERS/SUBJECT': `refuse` is a broker
 *          without room; after `drop` no answer comes.
 */

import type { Clock } from '@homing/base'
import { StreamError } from '../errors.ts'
import type { StreamOptions } from '../message-types.ts'
import { ANSWER_MS_MAX } from '../nats/stream-errors.ts'
import {
  type BrokerStreams,
  type ConsumeOptions,
  type ConsumerHandler,
  type FoundStream,
  type StreamMessage,
  streamName,
  streamSubject,
  UNTAKEN_MAX,
} from '../nats/streams.ts'
import { type BrokerSnapshots, NO_FILL, type StreamFill } from '../stream-store.ts'
import type { MessageFate } from './conditions.ts'
import { MemoryBeside, MemorySnapshots, type SnapshotLink } from './snapshots.ts'

interface Stored extends StreamMessage {
  readonly subject: string
  readonly atMs: number
}

interface Stream {
  readonly prefix: string
  readonly bytesMax: number
  readonly retentionMs: number
  readonly ids: Set<string>
  readonly consumers: Set<Consumer>
  messages: Stored[]
  bytes: number
  lastPosition: number
}

interface Consumer {
  readonly subject: string
  readonly handler: ConsumerHandler
  readonly streams: LinkStreams
  readonly untaken: Set<number>
  /** The next position that it has not been sent. */
  next: number
  isOver: boolean
}

/** The streams of one broker, by name. */
export class MemoryStreams {
  readonly #clock: Clock
  readonly #streams = new Map<string, Stream>()
  readonly #beside = new Map<string, MemoryBeside>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** What is beside the stream of a namespace. */
  beside(namespace: string): MemoryBeside {
    const beside = this.#beside.get(namespace) ?? new MemoryBeside()
    this.#beside.set(namespace, beside)
    return beside
  }

  forgetBeside(namespace: string): void {
    this.#beside.delete(namespace)
  }

  /** As it is now: without what is too old. */
  get(name: string): Stream | undefined {
    const stream = this.#streams.get(name)
    if (stream !== undefined) dropFirst(stream, ({ atMs }) => this.#clock.nowMs() - atMs > stream.retentionMs)
    return stream
  }

  /** Another hand deletes it. */
  delete(name: string): void {
    const stream = this.#streams.get(name)
    this.#streams.delete(name)
    for (const consumer of stream?.consumers ?? []) end(consumer, 'the stream was deleted')
  }

  /** Another hand deletes all consumers of it. */
  deleteConsumers(name: string): void {
    const stream = this.#streams.get(name)
    for (const consumer of stream?.consumers ?? []) end(consumer, 'its consumer was deleted')
    stream?.consumers.clear()
  }

  /** Makes it, unless it is there. */
  ensure({ namespace, bytesMax, retentionMs }: StreamOptions): void {
    const name = streamName(namespace)
    if (this.#streams.has(name)) return
    const prefix = streamSubject(namespace, '')
    const rest = { ids: new Set<string>(), consumers: new Set<Consumer>(), messages: [] }
    this.#streams.set(name, { prefix, bytesMax, retentionMs, ...rest, bytes: 0, lastPosition: 0 })
  }

  /** False: no stream takes this subject. */
  store(subject: string, payload: Uint8Array, id?: string): boolean {
    for (const stream of this.#streams.values()) {
      if (!subject.startsWith(stream.prefix)) continue
      if (id !== undefined && stream.ids.has(id)) return true
      if (id !== undefined) stream.ids.add(id)
      const atMs = this.#clock.nowMs()
      stream.messages.push({ position: ++stream.lastPosition, subject, payload: payload.slice(), atMs })
      stream.bytes += payload.length
      dropFirst(stream, () => stream.bytes > stream.bytesMax)
      for (const consumer of stream.consumers) send(stream, consumer)
      return true
    }
    return false
  }
}

/** What a session needs of its lanes. */
export interface LinkLanes {
  readonly clock: Clock
  /** Both directions, in order; nothing is called any more once the session has ended. */
  toBroker(work: () => void): void
  toClient(work: () => void): void
  fateOf(subject: string, payload: Uint8Array): MessageFate
}

/** The streams of a broker as one session has them. */
export class LinkStreams implements BrokerStreams, SnapshotLink {
  readonly #streams: MemoryStreams
  readonly lanes: LinkLanes
  readonly #open = new Set<(error: StreamError) => void>()
  readonly #consumers = new Set<Consumer>()

  constructor(streams: MemoryStreams, lanes: LinkLanes) {
    this.#streams = streams
    this.lanes = lanes
  }

  /** The session has ended. */
  end(): void {
    for (const consumer of this.#consumers) {
      consumer.isOver = true
      this.#streams.get(streamOf(consumer.subject))?.consumers.delete(consumer)
    }
    for (const reject of [...this.#open])
      reject(new StreamError('cannot use a stream', 'the connection ended'))
  }

  async ensure(options: StreamOptions): Promise<FoundStream> {
    await this.ask('make a stream', () => this.#streams.ensure(options))
    return { difference: undefined, messageBytesMax: undefined }
  }

  async store(subject: string, payload: Uint8Array, id: string): Promise<void> {
    const fate = this.lanes.fateOf(subject, payload)
    const what = `store a message under ${subject}`
    await this.ask(what, () => {
      if (fate === 'drop') return NO_ANSWER
      if (fate === 'refuse') throw new StreamError(`cannot ${what}`, 'there is no room')
      if (this.#streams.store(subject, payload, id)) return undefined
      throw new StreamError(`cannot ${what}`, 'no stream takes it')
    })
  }

  async consume(
    { stream: name, subject }: ConsumeOptions,
    handler: ConsumerHandler,
  ): Promise<{ close(): void }> {
    return await this.ask(`follow stream ${name}`, () => {
      const stream = this.#existing(name)
      const next = stream.lastPosition + 1
      const consumer: Consumer = {
        subject,
        handler,
        streams: this,
        untaken: new Set(),
        next,
        isOver: false,
      }
      stream.consumers.add(consumer)
      this.#consumers.add(consumer)
      return {
        close: () => {
          consumer.isOver = true
          this.#consumers.delete(consumer)
          stream.consumers.delete(consumer)
        },
      }
    })
  }

  async next(name: string, subject: string, position: number): Promise<StreamMessage | undefined> {
    return await this.ask(`read stream ${name}`, () =>
      this.#existing(name).messages.find(one => one.subject === subject && one.position >= position),
    )
  }

  async last(name: string, subject: string): Promise<StreamMessage | undefined> {
    return await this.ask(`read stream ${name}`, () =>
      this.#existing(name).messages.findLast(one => one.subject === subject),
    )
  }

  async *read(name: string, subject: string, position: number): AsyncGenerator<StreamMessage> {
    yield* await this.ask(`read stream ${name}`, () =>
      this.#existing(name).messages.filter(one => one.subject === subject && one.position >= position),
    )
  }

  async reset(namespace: string): Promise<boolean> {
    return await this.ask(`reset namespace ${namespace}`, () => {
      const stream = this.#streams.get(streamName(namespace))
      this.#streams.forgetBeside(namespace)
      if (stream !== undefined) Object.assign(stream, { messages: [], bytes: 0 })
      return stream !== undefined
    })
  }

  snapshots(namespace: string): BrokerSnapshots {
    return new MemorySnapshots(this, namespace)
  }

  get clock(): Clock {
    return this.lanes.clock
  }

  beside(namespace: string): MemoryBeside {
    return this.#streams.beside(namespace)
  }

  fill(name: string): StreamFill {
    const stream = this.#streams.get(name)
    if (stream === undefined) return NO_FILL
    const { messages, bytes, bytesMax, retentionMs: ageMsMax } = stream
    const ageMs = messages.length === 0 ? 0 : this.clock.nowMs() - messages[0]!.atMs
    return { messages: messages.length, messagesMax: undefined, bytes, bytesMax, ageMs, ageMsMax }
  }

  hasMessages(subject: string): boolean {
    const stream = this.#streams.get(streamOf(subject))
    return stream?.messages.some(one => one.subject === subject) === true
  }

  purge(subject: string, position: number, needsConsumer: boolean): number {
    const stream = this.#existing(streamOf(subject))
    if (needsConsumer && ![...stream.consumers].some(one => one.subject === subject)) return 0
    let before = position
    for (const { subject: followed, untaken, next } of stream.consumers)
      if (followed === subject) before = Math.min(before, next, ...untaken)
    const isKept = (one: Stored): boolean => one.subject !== subject || one.position >= before
    const kept = stream.messages.filter(isKept)
    const purged = stream.messages.length - kept.length
    stream.messages = kept
    stream.bytes = kept.reduce((sum, { payload }) => sum + payload.length, 0)
    return purged
  }

  #existing(name: string): Stream {
    const stream = this.#streams.get(name)
    if (stream === undefined) throw new StreamError(`cannot use stream ${name}`, 'stream not found')
    return stream
  }

  ask<T>(what: string, work: () => T | typeof NO_ANSWER, step?: string): Promise<T> {
    const fate = step === undefined ? 'deliver' : this.lanes.fateOf(step, new Uint8Array(0))
    return new Promise<T>((resolve, reject) => {
      const over = (): void => {
        timer.cancel()
        this.#open.delete(fail)
      }
      const fail = (error: StreamError): void => {
        over()
        reject(error)
      }
      this.#open.add(fail)
      const timer = this.lanes.clock.after(ANSWER_MS_MAX, () =>
        fail(new StreamError(`cannot ${what}`, `no answer within ${ANSWER_MS_MAX} ms`)),
      )
      this.lanes.toBroker(() => {
        try {
          if (fate === 'refuse') throw new StreamError(`cannot ${what}`, 'there is no room')
          const value = fate === 'drop' ? NO_ANSWER : work()
          if (value === NO_ANSWER) return
          this.lanes.toClient(() => {
            over()
            resolve(value as T)
          })
        } catch (error) {
          if (!(error instanceof StreamError)) throw error
          this.lanes.toClient(() => fail(error))
        }
      })
    })
  }
}

const NO_ANSWER = Symbol('no answer')

function dropFirst(stream: Stream, isOver: (first: Stored) => boolean): void {
  while (stream.messages.length > 0 && isOver(stream.messages[0]!))
    stream.bytes -= stream.messages.shift()!.payload.length
}

/** What it may be sent now. */
function send(stream: Stream, consumer: Consumer): void {
  const { handler, streams, untaken } = consumer
  for (const message of stream.messages) {
    if (consumer.isOver || untaken.size >= UNTAKEN_MAX) return
    if (message.position < consumer.next || message.subject !== consumer.subject) continue
    consumer.next = message.position + 1
    untaken.add(message.position)
    streams.lanes.toClient(() => {
      if (consumer.isOver) return
      handler.message({ position: message.position, payload: message.payload.slice() }, () =>
        streams.lanes.toBroker(() => {
          for (const position of untaken) if (position <= message.position) untaken.delete(position)
          send(stream, consumer)
        }),
      )
    })
  }
}

function end(consumer: Consumer, reason: string): void {
  if (consumer.isOver) return
  consumer.isOver = true
  consumer.streams.lanes.toClient(() => consumer.handler.ended(reason))
}

/** 'homing-kv-NAMESPACE' of 'homing-kv.NAMESPACE.SUBJECT'. */
function streamOf(subject: string): string {
  return streamName(subject.split('.')[1]!)
}
