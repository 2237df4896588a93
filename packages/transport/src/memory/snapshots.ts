/**
 * Snapshots beside a stream in memory, as JetStream keeps them: see stream-store.ts.
 *
 * Faults   each step is asked about as a message at 'nats://SERVERS/SNAPSHOT_STEPS.STEP', in this order where
 *          a pass takes one: fill lock named renew compare chunks upload switch drop purge tidy unlock; and
 *          read. After `refuse` and `drop` it is not done; after `drop` no answer comes either.
 */

import type { Clock } from '@homing/base'
import { purgeableOf } from '../nats/stream-position.ts'
import { type BrokerStreams, streamName, streamSubject } from '../nats/streams.ts'
import {
  type BrokerSnapshots,
  type NamedSnapshot,
  NO_SNAPSHOT,
  type Replaced,
  type SnapshotLock,
  type StoredSnapshot,
  type StreamFill,
} from '../stream-store.ts'

/** Before the name of a step. */
export const SNAPSHOT_STEPS = '$snapshots'
const LOCK_MS = 30_000

interface Named extends Omit<StoredSnapshot, 'bytes'> {
  readonly object: string
  readonly revision: number
  readonly atMs: number
}

/** What a broker keeps beside the stream of one namespace. */
export class MemoryBeside {
  /** Bytes of objects, by id; by the name of an object, the id of its bytes. */
  readonly chunks = new Map<string, Uint8Array>()
  readonly images = new Map<string, string>()
  readonly named = new Map<string, Named>()
  lock: { readonly owner: object; readonly endMs: number } | undefined
  /** Of what was named last. */
  revision = 0
  /** That were ever uploaded. */
  objects = 0
}

/** What one session has of its broker. */
export interface SnapshotLink extends Pick<BrokerStreams, 'next' | 'last'> {
  readonly clock: Clock
  /** Does it there; `step`: as which faults are asked about it. */
  ask<T>(what: string, work: () => T, step: string): Promise<T>
  /** At the broker: how full a stream is. */
  fill(stream: string): StreamFill
  /** At the broker: whether a stream has any under a subject. */
  hasMessages(subject: string): boolean
  /**
   * At the broker: purges what is before a position and was dealt with by all consumers of the subject, of
   * which there must be one if `needsConsumer`.
   */
  purge(subject: string, position: number, needsConsumer: boolean): number
  /** At the broker: what is beside the stream of a namespace. */
  beside(namespace: string): MemoryBeside
}

export class MemorySnapshots implements BrokerSnapshots {
  readonly #link: SnapshotLink
  readonly #namespace: string
  readonly #stream: string

  constructor(link: SnapshotLink, namespace: string) {
    this.#link = link
    this.#namespace = namespace
    this.#stream = streamName(namespace)
  }

  fill(): Promise<StreamFill> {
    return this.#step('fill', () => this.#link.fill(this.#stream))
  }

  async lock(): Promise<SnapshotLock | undefined> {
    const { clock } = this.#link
    const owner = {}
    const hold = (): true => {
      this.#beside.lock = { owner, endMs: clock.nowMs() + LOCK_MS }
      return true
    }
    const isMine = (): boolean => this.#held === owner
    if (!(await this.#step('lock', () => this.#held === undefined && hold()))) return undefined
    return {
      renew: () => this.#step('renew', () => isMine() && hold()),
      release: () =>
        this.#step('unlock', () => {
          if (isMine()) this.#beside.lock = undefined
        }),
    }
  }

  named(subject: string): Promise<NamedSnapshot> {
    return this.#step('named', () => {
      const named = this.#beside.named.get(subject)
      if (named === undefined) return NO_SNAPSHOT
      const { object, revision, life, keepFrom, atMs } = named
      if (!this.#beside.images.has(object))
        return { ...NO_SNAPSHOT, revision, ageMs: Number.POSITIVE_INFINITY }
      return { revision, life, keepFrom, ageMs: this.#link.clock.nowMs() - atMs }
    })
  }

  read(subject: string): Promise<Uint8Array | undefined> {
    return this.#step('read', () => {
      const named = this.#beside.named.get(subject)
      const id = named && this.#beside.images.get(named.object)
      return id === undefined ? undefined : this.#beside.chunks.get(id)?.slice()
    })
  }

  async replace(subject: string, snapshot: StoredSnapshot, revision: number): Promise<Replaced> {
    const { bytes, life, keepFrom } = snapshot
    const before = await this.#step('compare', () => this.#beside.named.get(subject))
    if ((before?.revision ?? 0) !== revision) return 'late'
    if (before?.life === life && before.keepFrom > keepFrom) return 'older'
    const object = `object ${++this.#beside.objects}`
    await this.#step('chunks', () => this.#beside.chunks.set(object, bytes.slice()))
    await this.#step('upload', () => this.#beside.images.set(object, object))
    const drop = (name: string) =>
      this.#step('drop', () => {
        this.#beside.chunks.delete(this.#beside.images.get(name) ?? '')
        this.#beside.images.delete(name)
      })
    const isSwitched = await this.#step('switch', () => {
      const beside = this.#beside
      if ((beside.named.get(subject)?.revision ?? 0) !== revision) return false
      const next = ++beside.revision
      beside.named.set(subject, { object, life, keepFrom, revision: next, atMs: this.#link.clock.nowMs() })
      return true
    })
    const dropped = isSwitched ? before?.object : object
    if (dropped !== undefined) await drop(dropped)
    return isSwitched ? 'replaced' : 'late'
  }

  async purge(subject: string, snapshot?: Omit<StoredSnapshot, 'bytes'>): Promise<number> {
    const filter = streamSubject(this.#namespace, subject)
    const before = await purgeableOf(this.#link, this.#stream, filter, snapshot)
    const needsConsumer = snapshot === undefined
    return await this.#step('purge', () =>
      before === undefined ? 0 : this.#link.purge(filter, before, needsConsumer),
    )
  }

  /** No time passes between upload and switch here, so what is not named by now is left over. */
  async tidy(known: ReadonlySet<string> | undefined): Promise<void> {
    await this.#step('tidy', () => {
      const { chunks, images, named } = this.#beside
      const { ageMsMax = Number.POSITIVE_INFINITY } = this.#link.fill(this.#stream)
      for (const [subject, { atMs }] of named) {
        const hasMessages = this.#link.hasMessages(streamSubject(this.#namespace, subject))
        const isOld = this.#link.clock.nowMs() - atMs > ageMsMax
        if (isOld && !hasMessages && known?.has(subject) === false) named.delete(subject)
      }
      const objects = new Set([...named.values()].map(({ object }) => object))
      for (const name of images.keys()) if (!objects.has(name)) images.delete(name)
      const ids = new Set(images.values())
      for (const id of chunks.keys()) if (!ids.has(id)) chunks.delete(id)
    })
  }

  get #beside(): MemoryBeside {
    return this.#link.beside(this.#namespace)
  }

  /** Whose lock it is now. */
  get #held(): object | undefined {
    const { lock } = this.#beside
    return lock !== undefined && lock.endMs > this.#link.clock.nowMs() ? lock.owner : undefined
  }

  #step<T>(step: string, work: () => T): Promise<T> {
    return this.#link.ask(`${step} snapshots of stream ${this.#stream}`, work, `${SNAPSHOT_STEPS}.${step}`)
  }
}
