/** Streams of a connection, by JetStream of the nats package. For the main thread. */

import { systemRandom } from '@homing/base'
import type * as nats from 'nats'
import { StreamError } from '../errors.ts'
import type { StreamOptions } from '../message-types.ts'
import type { BrokerSnapshots } from '../stream-store.ts'
import { ANSWER_MS_MAX, asStreamError, streamErrorOf } from './stream-errors.ts'
import {
  type BrokerStreams,
  type ConsumeOptions,
  type ConsumerHandler,
  type FoundStream,
  type StreamMessage,
  streamName,
  streamSubject,
  UNTAKEN_MAX,
} from './streams.ts'
import { bucketStreams, SystemSnapshots } from './system-snapshots.ts'
import { type SharingConsumer, UntakenShares } from './untaken-shares.ts'

/** A message with the id of one that was stored so long ago is not stored again. */
const SAME_ID_MS = 120_000
/** A consumer that is not asked for so long was left by a process that died: the broker removes it. */
const CONSUMER_INACTIVE_MS = 60_000
/** Longer than a replay holds messages back; what is not taken by then comes again, and is dropped. */
const TAKEN_MS_MAX = 600_000
const READER_INACTIVE_MS = 30_000
const READ_MESSAGES = 256
/**
 * Rounds in a row without a message that end a reading. One says nothing: a thread that stands still before
 * the first message of a request gets none of it.
 */
const VAIN_ROUNDS_MAX = 3
/** A pull is asked anew after this time, and the broker says twice meanwhile that it is there. */
const PULL_MS = 10_000
const HEARTBEATS_MISSED_MAX = 2
const NANOS = 1_000_000
const NO_MESSAGE = 10_037
const STREAM_NOT_FOUND = 10_059
const OTHER_CONFIGURATION = 10_058

export class SystemStreams implements BrokerStreams {
  readonly #connection: nats.NatsConnection
  readonly #client: nats.JetStreamClient
  readonly #shares = new UntakenShares()
  #manager: Promise<nats.JetStreamManager> | undefined

  constructor(connection: nats.NatsConnection) {
    this.#connection = connection
    this.#client = connection.jetstream({ timeout: ANSWER_MS_MAX })
  }

  async ensure({ namespace, retentionMs, bytesMax }: StreamOptions): Promise<FoundStream> {
    const name = streamName(namespace)
    const subject = streamSubject(namespace, '>')
    return await asStreamError(`cannot make stream ${name}`, async () => {
      const { streams } = await this.#jsm()
      const wanted = { max_age: retentionMs * NANOS, max_bytes: bytesMax }
      try {
        const { config } = await streams.add({
          name,
          subjects: [subject],
          description: 'KV events of homing',
          ...wanted,
          duplicate_window: Math.min(SAME_ID_MS, retentionMs) * NANOS,
          // Their types are only in the package, which is loaded when it is used.
          storage: 'file' as nats.StorageType,
          discard: 'old' as nats.DiscardPolicy,
        })
        return { difference: undefined, messageBytesMax: messageBytesMaxOf(config) }
      } catch (error) {
        if (codeOf(error) !== OTHER_CONFIGURATION) throw error
      }
      const { config } = await streams.info(name)
      if (!config.subjects.includes(subject))
        throw new Error(
          `it is there for other subjects (${config.subjects.join(', ')}): use another --namespace`,
        )
      const isSame = config.max_age === wanted.max_age && config.max_bytes === wanted.max_bytes
      const kept = `it was made to keep ${config.max_age / NANOS} ms and ${config.max_bytes} bytes`
      return { difference: isSame ? undefined : kept, messageBytesMax: messageBytesMaxOf(config) }
    })
  }

  async store(subject: string, payload: Uint8Array, id: string): Promise<void> {
    await asStreamError(`cannot store a message under ${subject}`, async () => {
      await this.#client.publish(subject, payload, { msgID: id, timeout: ANSWER_MS_MAX })
    })
  }

  async consume(
    { stream, subject, name }: ConsumeOptions,
    handler: ConsumerHandler,
  ): Promise<{ close(): void }> {
    const sharing = this.#shares.join(async share => {
      const { consumers } = await this.#jsm()
      await consumers.update(stream, name, { max_ack_pending: share })
    })
    try {
      return await this.#consume({ stream, subject, name }, handler, sharing)
    } catch (error) {
      this.#shares.leave(sharing)
      throw error
    }
  }

  async #consume(
    { stream, subject, name }: ConsumeOptions,
    handler: ConsumerHandler,
    sharing: SharingConsumer,
  ): Promise<{ close(): void }> {
    return await asStreamError(`cannot follow stream ${stream}`, async () => {
      const { consumers } = await this.#jsm()
      await consumers.add(stream, {
        durable_name: name,
        description: `homing: KV events of ${subject}`,
        filter_subject: subject,
        deliver_policy: 'new' as nats.DeliverPolicy,
        ack_policy: 'all' as nats.AckPolicy,
        ack_wait: TAKEN_MS_MAX * NANOS,
        max_ack_pending: sharing.share,
        inactive_threshold: CONSUMER_INACTIVE_MS * NANOS,
        num_replicas: 1,
        mem_storage: true,
      })
      this.#shares.made(sharing)
      const consumer = await this.#client.consumers.get(stream, name)
      let isEnded = false
      const messages = await consumer.consume({
        max_messages: UNTAKEN_MAX / 2,
        expires: PULL_MS,
        idle_heartbeat: PULL_MS / 2,
        callback: message => {
          if (isEnded) return
          handler.message({ position: message.seq, payload: message.data }, () => message.ack())
        },
      })
      const end = (): void => {
        isEnded = true
        this.#shares.leave(sharing)
        messages.stop()
      }
      const watch = async (): Promise<void> => {
        for await (const { type, data } of await messages.status()) {
          if (isEnded) return
          const reason = endOf(type, data)
          if (reason === undefined) continue
          end()
          handler.ended(reason)
        }
      }
      // Its end is that of the messages.
      watch().catch(() => {})
      return {
        close: () => {
          if (isEnded) return
          end()
          // If it cannot be deleted now, the broker removes it when no router has asked it for a while.
          consumers.delete(stream, name).catch(() => {})
        },
      }
    })
  }

  async next(stream: string, subject: string, position: number): Promise<StreamMessage | undefined> {
    // The package's type lacks what the broker takes.
    return await this.#message(stream, { seq: position, next_by_subj: subject } as nats.MsgRequest)
  }

  async last(stream: string, subject: string): Promise<StreamMessage | undefined> {
    return await this.#message(stream, { last_by_subj: subject })
  }

  async *read(stream: string, subject: string, position: number): AsyncGenerator<StreamMessage> {
    try {
      // What its reader throws does not come here.
      yield* this.#read(stream, subject, position)
    } catch (error) {
      throw streamErrorOf(`cannot read stream ${stream}`, error)
    }
  }

  async *#read(stream: string, subject: string, position: number): AsyncGenerator<StreamMessage> {
    const reading: Reading = { from: Math.max(1, position), left: undefined }
    for (let vain = 0; vain < VAIN_ROUNDS_MAX; ) {
      const { from } = reading
      yield* this.#readOn(stream, subject, reading)
      if (reading.left === 0) return
      vain = reading.from === from ? vain + 1 : 0
    }
    throw new StreamError(`cannot read stream ${stream}`, 'the broker sends no more')
  }

  /**
   * Up to the end that the stream had when its reading began. A request for messages ends by its time, and
   * what is on its way then is lost here, but counts as delivered at the broker: then another consumer goes
   * on from this position, behind the last message that came.
   */
  async *#readOn(stream: string, subject: string, reading: Reading): AsyncGenerator<StreamMessage> {
    const { consumers } = await this.#jsm()
    const { name, num_pending } = await consumers.add(stream, {
      filter_subject: subject,
      deliver_policy: 'by_start_sequence' as nats.DeliverPolicy,
      opt_start_seq: reading.from,
      ack_policy: 'none' as nats.AckPolicy,
      inactive_threshold: READER_INACTIVE_MS * NANOS,
      num_replicas: 1,
      mem_storage: true,
    })
    // Less, if the stream has dropped some meanwhile.
    reading.left = Math.min(reading.left ?? num_pending, num_pending)
    try {
      const consumer = await this.#client.consumers.get(stream, name)
      for (let came = 0; reading.left > 0; ) {
        const wanted = Math.min(reading.left, READ_MESSAGES)
        const end = came + wanted
        const messages = await consumer.fetch({ max_messages: wanted, expires: ANSWER_MS_MAX })
        for await (const message of messages) {
          if (message.info.deliverySequence !== came + 1) return
          came++
          reading.left--
          reading.from = message.seq + 1
          yield { position: message.seq, payload: message.data }
        }
        if (came < end) return
      }
    } finally {
      consumers.delete(stream, name).catch(() => {})
    }
  }

  async reset(namespace: string): Promise<boolean> {
    return await asStreamError(`cannot reset namespace ${namespace}`, async () => {
      const { streams } = await this.#jsm()
      const unlessMissing = async (work: Promise<unknown>): Promise<boolean> => {
        try {
          await work
          return true
        } catch (error) {
          if (codeOf(error) === STREAM_NOT_FOUND) return false
          throw error
        }
      }
      // Snapshots first: one without the stream that follows it would be believed.
      for (const bucket of bucketStreams(namespace)) await unlessMissing(streams.delete(bucket))
      return await unlessMissing(streams.purge(streamName(namespace)))
    })
  }

  snapshots(namespace: string): BrokerSnapshots {
    const newName = (): string => Buffer.from(systemRandom.bytes(8)).toString('hex')
    return new SystemSnapshots({ connection: this.#connection, streams: this, namespace, newName })
  }

  async #message(stream: string, which: nats.MsgRequest): Promise<StreamMessage | undefined> {
    return await asStreamError(`cannot read stream ${stream}`, async () => {
      const { streams } = await this.#jsm()
      try {
        const { seq, data } = await streams.getMessage(stream, which)
        return { position: seq, payload: data }
      } catch (error) {
        if (codeOf(error) === NO_MESSAGE) return undefined
        throw error
      }
    })
  }

  /** One that failed is made again. */
  #jsm(): Promise<nats.JetStreamManager> {
    if (this.#manager === undefined) {
      const made = this.#connection.jetstreamManager({ checkAPI: false, timeout: ANSWER_MS_MAX })
      made.catch(() => {
        if (this.#manager === made) this.#manager = undefined
      })
      this.#manager = made
    }
    return this.#manager
  }
}

/** How far a stream has been read. */
interface Reading {
  /** The position to go on from. */
  from: number
  /** Messages up to the end; undefined: not known yet. */
  left: number | undefined
}

/** Why a consumer is over; undefined: it goes on. */
function endOf(type: string, data: unknown): string | undefined {
  if (type === 'consumer_deleted' || type === 'consumer_not_found') return 'its consumer was deleted'
  if (type === 'stream_not_found') return 'the stream was deleted'
  if (type === 'heartbeats_missed' && Number(data) >= HEARTBEATS_MISSED_MAX) return 'the broker is silent'
  return undefined
}

/** -1 at the broker: no limit. */
function messageBytesMaxOf({ max_msg_size: bytes }: nats.StreamConfig): number | undefined {
  return bytes > 0 ? bytes : undefined
}

function codeOf(error: unknown): number | undefined {
  return (error as { readonly api_error?: { readonly err_code?: number } }).api_error?.err_code
}
