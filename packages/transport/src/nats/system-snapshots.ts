/** Snapshots beside a stream, in buckets of JetStream: see stream-store.ts. */

import { createHash } from 'node:crypto'
import { systemClock } from '@homing/base'
import type * as nats from 'nats'
import {
  type BrokerSnapshots,
  type NamedSnapshot,
  NO_FILL,
  NO_SNAPSHOT,
  type Replaced,
  type SnapshotLock,
  type StoredSnapshot,
  type StreamFill,
} from '../stream-store.ts'
import { chunkSubject, entrySubject, streamOfBucket, uploadObject } from './object-upload.ts'
import { ANSWER_MS_MAX, asStreamError, withinMs } from './stream-errors.ts'
import { purgeableOf } from './stream-position.ts'
import { type BrokerStreams, streamName, streamSubject } from './streams.ts'

/** A lock that is not renewed for so long is free. */
const LOCK_MS = 30_000
/** An object that is no snapshot and older may not be about to become one. */
const UNNAMED_MS = 2 * LOCK_MS
const LOCK_KEY = 'snapshots'
/** Written to hear the broker's time, so often. */
const NOW_KEY = 'now'
const LEAD_MS_MAX = 30_000
const NANOS = 1_000_000
const WRONG_LAST_SEQUENCE = 10_071
const NO_MESSAGE = 10_037
const STREAM_NOT_FOUND = 10_059
const READ_ATTEMPTS_MAX = 3
/** A look at what is there takes no longer, however many questions it has. */
const LOOK_MS_MAX = 5000
/** Of a whole snapshot; an object that is deleted while it is read has no end. */
const SNAPSHOT_READ_MS_MAX = 15_000

/** An entry of the bucket of snapshots. */
interface Named {
  readonly object: string
  /** Of the endpoint of its publisher. */
  readonly subject: string
  readonly life: string
  readonly keepFrom: number
}

interface Buckets {
  readonly images: nats.ObjectStore
  readonly snapshots: nats.KV
  readonly locks: nats.KV
}

export interface SystemSnapshotsOptions {
  readonly connection: nats.NatsConnection
  readonly streams: BrokerStreams
  readonly namespace: string
  /** Letters and digits, others each time. */
  readonly newName: () => string
  /** Default UNNAMED_MS. */
  readonly unnamedMs?: number
}

export class SystemSnapshots implements BrokerSnapshots {
  readonly #options: SystemSnapshotsOptions
  readonly #stream: string
  #buckets: Promise<Buckets> | undefined
  /** By how much the broker's clock is ahead of the one here, and when it was asked. */
  #lead: { readonly atMs: number; readonly ms: number } | undefined

  constructor(options: SystemSnapshotsOptions) {
    this.#options = options
    this.#stream = streamName(options.namespace)
  }

  async fill(): Promise<StreamFill> {
    const look = async (): Promise<StreamFill> => {
      const { streams } = await this.#manager()
      const info = await streams.info(this.#stream).catch((error: unknown) => {
        // Its first publisher makes it.
        if (errorCodeOf(error) !== STREAM_NOT_FOUND) throw error
      })
      if (info === undefined) return NO_FILL
      const { state, config } = info
      const { messages, bytes, first_ts } = state
      return {
        ...{ messages, messagesMax: limitOf(config.max_msgs) },
        ...{ bytes, bytesMax: limitOf(config.max_bytes) },
        ageMs: messages === 0 ? 0 : Math.max(0, (await this.#brokerMs()) - Date.parse(first_ts)),
        ageMsMax: limitOf(config.max_age / NANOS),
      }
    }
    return await this.#run('look at', () => withinMs(LOOK_MS_MAX, look))
  }

  async lock(): Promise<SnapshotLock | undefined> {
    return await this.#run('lock', async () => {
      const { locks } = await this.#opened()
      const owner = this.#options.newName()
      let revision: number
      try {
        revision = await locks.create(LOCK_KEY, owner)
      } catch (error) {
        if (isWrongLast(error)) return undefined
        throw error
      }
      return {
        renew: () =>
          this.#run('renew the lock of', async () => {
            try {
              revision = await locks.update(LOCK_KEY, owner, revision)
              return true
            } catch (error) {
              if (!isWrongLast(error)) throw error
              // The answer to the renewal before may have been lost.
              const entry = await liveEntry(locks, LOCK_KEY)
              if (entry?.string() !== owner) return false
              revision = await locks.update(LOCK_KEY, owner, entry.revision)
              return true
            }
          }),
        release: () =>
          this.#run('unlock', async () => {
            try {
              await locks.delete(LOCK_KEY, { previousSeq: revision })
            } catch (error) {
              // It has ended by itself, and another one may have it.
              if (!isWrongLast(error)) throw error
            }
          }),
      }
    })
  }

  async named(subject: string): Promise<NamedSnapshot> {
    const look = async (): Promise<NamedSnapshot> => {
      const { images, snapshots } = await this.#opened()
      const entry = await liveEntry(snapshots, keyOf(subject))
      if (entry === undefined) return NO_SNAPSHOT
      const { revision } = entry
      const named = tryNamed(entry)
      const object = named && (await images.info(named.object))
      // Nothing that could be read: the next one takes its place.
      if (named === undefined || object == null || object.deleted)
        return { ...NO_SNAPSHOT, revision, ageMs: Number.POSITIVE_INFINITY }
      const ageMs = Math.max(0, (await this.#brokerMs()) - entry.created.getTime())
      return { revision, life: named.life, keepFrom: named.keepFrom, ageMs }
    }
    return await this.#run('look at the snapshots of', () => withinMs(LOOK_MS_MAX, look))
  }

  async read(subject: string): Promise<Uint8Array | undefined> {
    const read = async (): Promise<Uint8Array | undefined> => {
      const { images, snapshots } = await this.#opened()
      for (let attempt = 1; ; attempt++) {
        const entry = await liveEntry(snapshots, keyOf(subject))
        if (entry === undefined) return undefined
        const named = tryNamed(entry)
        if (named === undefined) throw new Error(`entry ${entry.key} of its bucket is none of a snapshot`)
        const bytes = await images.getBlob(named.object)
        if (bytes !== null) return bytes
        // It was replaced meanwhile.
        if (attempt === READ_ATTEMPTS_MAX) throw new Error('its object is missing')
      }
    }
    return await this.#run('read a snapshot of', () => withinMs(SNAPSHOT_READ_MS_MAX, read))
  }

  async replace(
    subject: string,
    { bytes, life, keepFrom }: StoredSnapshot,
    revision: number,
  ): Promise<Replaced> {
    return await this.#run('store a snapshot of', async () => {
      const { images, snapshots } = await this.#opened()
      const key = keyOf(subject)
      const before = await liveEntry(snapshots, key)
      if ((before?.revision ?? 0) !== revision) return 'late'
      const named = before && tryNamed(before)
      if (named?.life === life && named.keepFrom > keepFrom) return 'older'
      const object = `${key}.${this.#options.newName()}`
      const { connection, newName } = this.#options
      const upload = { connection, bucket: this.#bucket, name: object, description: subject, id: newName() }
      await uploadObject(upload, bytes)
      const text = JSON.stringify({ object, subject, life, keepFrom })
      try {
        if (revision === 0) await snapshots.create(key, text)
        else await snapshots.update(key, text, revision)
      } catch (error) {
        // It may name it all the same, and the answer be lost: then only `tidy` can tell.
        if (!isWrongLast(error)) throw error
        await images.delete(object).catch(() => {})
        return 'late'
      }
      if (named !== undefined) await images.delete(named.object)
      return 'replaced'
    })
  }

  async purge(subject: string, snapshot?: Omit<StoredSnapshot, 'bytes'>): Promise<number> {
    return await this.#run('purge', async () => {
      const [stream, filter] = [this.#stream, streamSubject(this.#options.namespace, subject)]
      const { streams } = this.#options
      const manager = await this.#manager()
      let before = await purgeableOf(streams, stream, filter, snapshot)
      if (before === undefined) return 0
      let isFollowed = snapshot !== undefined
      for await (const listed of manager.consumers.list(stream)) {
        // The broker lists one that is being made or deleted as null: it may have yet to read all.
        if ((listed as nats.ConsumerInfo | null) === null) return 0
        const { config, ack_floor, delivered, num_pending } = listed
        // Not by `num_ack_pending`, which nats-server 2.9 forgets when a part of the stream is purged.
        const isDone = delivered.consumer_seq === ack_floor.consumer_seq && num_pending === 0
        if (config.filter_subject !== filter) continue
        isFollowed = true
        if (isDone) continue
        // One that reads for a replay acknowledges nothing, and may have yet to read what is there.
        before = config.ack_policy === 'none' ? 0 : Math.min(before, ack_floor.stream_seq + 1)
      }
      if (before <= 1 || !isFollowed) return 0
      return (await manager.streams.purge(stream, { filter, seq: before })).purged
    })
  }

  /** By the times of the broker: the clocks of those who upload and of those who tidy may differ. */
  async tidy(known: ReadonlySet<string> | undefined): Promise<void> {
    await this.#run('tidy', async () => {
      const { images, snapshots } = await this.#opened()
      const { unnamedMs = UNNAMED_MS } = this.#options
      const nowMs = await this.#brokerMs()
      const { ageMsMax = Number.POSITIVE_INFINITY } = await this.fill()
      const named = new Set<string>()
      // Not by the package's list of keys: one that is cut short would make left-overs of what is in use.
      const prefix = `$KV.${this.#stream}-snapshots.`
      for (const subject of await this.#subjectsOf(`KV_${this.#stream}-snapshots`)) {
        const entry = await liveEntry(snapshots, subject.slice(prefix.length))
        if (entry === undefined) continue
        const { object, subject: source } = tryNamed(entry) ?? {}
        const isOld = entry.created.getTime() < nowMs - ageMsMax
        if (isOld && known !== undefined && !(await this.#isInUse(source, known))) await this.#forget(entry)
        else if (object !== undefined) named.add(object)
      }
      const kept = new Set<string>()
      for (const name of named) {
        const info = await images.info(name)
        if (info === null) continue
        kept.add(entrySubject(this.#bucket, name)).add(chunkSubject(this.#bucket, info.nuid))
      }
      // Entries and chunks of objects, those that are deleted or not whole, too.
      for (const subject of await this.#subjectsOf(streamOfBucket(this.#bucket)))
        if (!kept.has(subject) && (await this.#storedMs(subject)) < nowMs - unnamedMs)
          await this.#purgeImages(subject)
    })
  }

  async #isInUse(subject: string | undefined, known: ReadonlySet<string>): Promise<boolean> {
    if (subject === undefined) return false
    if (known.has(subject)) return true
    const filter = streamSubject(this.#options.namespace, subject)
    return (await this.#options.streams.last(this.#stream, filter)) !== undefined
  }

  /** Without a mark that it was there: subjects of workers that left would pile up. */
  async #forget({ key, revision }: nats.KvEntry): Promise<void> {
    const { streams } = await this.#manager()
    const bucket = `${this.#stream}-snapshots`
    await streams.purge(`KV_${bucket}`, { filter: `$KV.${bucket}.${key}`, seq: revision + 1 })
  }

  async #subjectsOf(stream: string): Promise<readonly string[]> {
    const { streams } = await this.#manager()
    const { state } = await streams.info(stream, { subjects_filter: '>' })
    return Object.keys(state.subjects ?? {})
  }

  /** When the broker got the last message of a subject of the images; infinite: there is none. */
  async #storedMs(subject: string): Promise<number> {
    const { streams } = await this.#manager()
    try {
      const { time } = await streams.getMessage(streamOfBucket(this.#bucket), { last_by_subj: subject })
      return time.getTime()
    } catch (error) {
      if (errorCodeOf(error) === NO_MESSAGE) return Number.POSITIVE_INFINITY
      throw error
    }
  }

  async #purgeImages(subject: string): Promise<void> {
    const { streams } = await this.#manager()
    await streams.purge(streamOfBucket(this.#bucket), { filter: subject })
  }

  /** Of the images. */
  get #bucket(): string {
    return `${this.#stream}-images`
  }

  /** What the broker's clock says: clocks of routers may differ by days. It tells when it got a message. */
  async #brokerMs(): Promise<number> {
    const nowMs = systemClock.nowMs()
    if (this.#lead === undefined || nowMs - this.#lead.atMs > LEAD_MS_MAX) {
      const { locks } = await this.#opened()
      await locks.put(NOW_KEY, '')
      const entry = await locks.get(NOW_KEY)
      if (entry === null) throw new Error('the broker does not tell its time')
      this.#lead = { atMs: nowMs, ms: entry.created.getTime() - nowMs }
    }
    return nowMs + this.#lead.ms
  }

  /** A bucket may have been deleted: after a failure they are opened, and made, anew. */
  async #run<T>(what: string, run: () => Promise<T>): Promise<T> {
    try {
      return await asStreamError(`cannot ${what} stream ${this.#stream}`, run)
    } catch (error) {
      this.#buckets = undefined
      throw error
    }
  }

  #manager(): Promise<nats.JetStreamManager> {
    return this.#options.connection.jetstreamManager({ checkAPI: false, timeout: ANSWER_MS_MAX })
  }

  async #opened(): Promise<Buckets> {
    this.#buckets ??= this.#open()
    return await this.#buckets
  }

  async #open(): Promise<Buckets> {
    const { views } = this.#options.connection.jetstream({ timeout: ANSWER_MS_MAX })
    const [images, snapshots, locks] = await Promise.all([
      views.os(this.#bucket),
      views.kv(`${this.#stream}-snapshots`, { history: 1 }),
      views.kv(`${this.#stream}-locks`, { history: 1, ttl: LOCK_MS }),
    ])
    return { images, snapshots, locks }
  }
}

/** The streams of the buckets of a namespace. */
export function bucketStreams(namespace: string): readonly string[] {
  const name = streamName(namespace)
  return [`OBJ_${name}-images`, `KV_${name}-snapshots`, `KV_${name}-locks`]
}

/** Undefined: there is none, or it was deleted. */
async function liveEntry(bucket: nats.KV, key: string): Promise<nats.KvEntry | undefined> {
  const entry = await bucket.get(key)
  return entry === null || entry.operation !== 'PUT' ? undefined : entry
}

/** Undefined: another program has written it. The next snapshot takes its place. */
function tryNamed(entry: nats.KvEntry): Named | undefined {
  let named: Partial<Named> | null
  try {
    named = entry.json<Partial<Named> | null>()
  } catch {
    return undefined
  }
  const { object, subject, life, keepFrom } = named ?? {}
  if (typeof object !== 'string' || typeof subject !== 'string' || typeof life !== 'string') return undefined
  return Number.isSafeInteger(keepFrom) ? { object, subject, life, keepFrom: keepFrom! } : undefined
}

/** 0 or less: none. */
function limitOf(limit: number): number | undefined {
  return limit > 0 ? limit : undefined
}

function keyOf(subject: string): string {
  return createHash('sha256').update(subject).digest('hex').slice(0, 32)
}

function isWrongLast(error: unknown): boolean {
  return errorCodeOf(error) === WRONG_LAST_SEQUENCE
}

function errorCodeOf(error: unknown): number | undefined {
  return (error as { readonly api_error?: { readonly err_code?: number } }).api_error?.err_code
}
