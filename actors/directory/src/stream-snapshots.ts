/**
 * Stream snapshots: the snapshots of worker keys beside the stream of their events
 * (--router-durable-kv-events).
 *
 *   every TICK_MS   a pass, if the stream has more messages than the threshold, or is half full or half as
 *                   old as it may be (snapshot-pass.ts)
 *   a listener      asks for the stored snapshot before it begins
 *   a key that      is only partly known although there is a snapshot: its listener begins again from
 *                   that. The stream no longer has what the snapshot stands for
 *
 * Looks    at keys that are only partly known do not wait for a pass, which may take a minute for each key.
 * Bounds   one pass at a time; behind one that ran, PAUSE_MS, and twice as long each time that it was in
 *          vain, up to VAIN_DOUBLINGS_MAX times. If it could not begin, TICK_MS, and twice as long each time,
 *          up to PAUSE_MS. A listener begins again BEGINS_MAX times for one snapshot.
 */

import type { ActorContext } from '@homing/actor'
import { toErrorRecord } from '@homing/base'
import {
  type NamedSnapshot,
  parseBrokerEndpoint,
  type StreamOptions,
  type StreamStore,
  transportCapability,
} from '@homing/transport'
import type { KeyListeners } from './key-listeners.ts'
import type { DirectoryMessage } from './messages.ts'
import { type SnapshotCounts, type SnapshotSource, snapshotPass, turnsBehind } from './snapshot-pass.ts'
import type { Key } from './worker.ts'
import type { WorkerKeys } from './worker-keys.ts'
import type { WorkerTable } from './worker-table.ts'

export interface StreamSnapshotsArgs {
  /** 'host:port' each. */
  readonly servers: readonly string[]
  readonly stream: StreamOptions
  readonly thresholdMessages: number
  /** Etcd, where the lock is: 'http://host:port' each; undefined: at the broker. */
  readonly lockServers: readonly string[] | undefined
}

export interface StreamSnapshotsOptions extends StreamSnapshotsArgs {
  readonly context: ActorContext<DirectoryMessage>
  readonly workers: WorkerTable
  readonly keys: WorkerKeys
  readonly listeners: KeyListeners
}

const TICK_MS = 1000
const PAUSE_MS = 30_000
/** Passes in the time that the stream keeps a message. */
const PAUSES_MIN = 16
const VAIN_DOUBLINGS_MAX = 5
const PARTIAL_LOOK_TICKS = 5
const BEGINS_MAX = 3
/** Of an indexer that replays much. */
const TAKE_MS_MAX = 60_000

export class StreamSnapshots {
  readonly #options: StreamSnapshotsOptions
  readonly #store: StreamStore
  readonly #passes = { below: 0, locked: 0, done: 0, lost: 0, failed: 0 }
  readonly #startedMs: number
  /** When there was a key with this subject last. */
  readonly #seen = new Map<string, number>()
  /** By key: for which snapshot its listener began again, and how often. */
  readonly #begun = new Map<string, { readonly revision: number; readonly times: number }>()
  #sum = { taken: 0, unchanged: 0, skipped: 0, failed: 0, purgedMessages: 0, begunAgain: 0 }
  #ticks = 0
  #passDueMs = Number.NEGATIVE_INFINITY
  /** The subject of the last key that had its turn: the next pass begins behind it. */
  #last: string | undefined
  /** Passes in a row that have stored and purged nothing, and those that could not begin. */
  #vain = 0
  #notBegun = 0
  #isPassing = false
  #isClosed = false
  #warned: string | undefined

  /** Undefined: brokers of this transport keep nothing. */
  static over(options: StreamSnapshotsOptions): StreamSnapshots | undefined {
    const { context, servers, stream, lockServers } = options
    const store = context.use(transportCapability).streamStore?.(servers, stream, lockServers)
    return store && new StreamSnapshots(options, store)
  }

  private constructor(options: StreamSnapshotsOptions, store: StreamStore) {
    this.#options = options
    this.#store = store
    this.#startedMs = options.context.clock.nowMs()
    options.context.schedule(TICK_MS, { type: 'snapshotsDue' })
  }

  counts(): SnapshotCounts {
    return { passes: { ...this.#passes }, ...this.#sum }
  }

  close(): void {
    this.#isClosed = true
    this.#store.close()
  }

  /** For a listener that begins. */
  async stored(key: Key | undefined): Promise<Uint8Array | undefined> {
    const subject = key && this.#subjectOf(key)
    if (subject === undefined) return undefined
    try {
      return await this.#store.read(subject)
    } catch (error) {
      this.#failed(error, 'the snapshot beside the stream cannot be read: the listener begins without it')
      return undefined
    }
  }

  async due(): Promise<void> {
    const { context } = this.#options
    if (context.clock.nowMs() >= this.#passDueMs && !this.#isPassing) void this.#passAlone()
    if (++this.#ticks % PARTIAL_LOOK_TICKS === 0) {
      try {
        await this.#beginAgain()
      } catch (error) {
        this.#failed(error, 'the snapshots beside the stream cannot be looked at')
      }
    }
    if (!this.#isClosed) context.schedule(TICK_MS, { type: 'snapshotsDue' })
  }

  async #passAlone(): Promise<void> {
    this.#isPassing = true
    try {
      await this.#pass()
      this.#notBegun = 0
    } catch (error) {
      this.#passes.failed++
      this.#pause(Math.min(PAUSE_MS, TICK_MS * 2 ** ++this.#notBegun))
      this.#failed(error, 'no snapshots can be taken of the stream')
    }
    this.#isPassing = false
  }

  async #pass(): Promise<void> {
    const { context, thresholdMessages } = this.#options
    this.#see()
    const pass = await snapshotPass(this.#store, {
      thresholdMessages,
      sources: this.#sources(),
      known: keptMs => this.#known(keptMs),
      clock: context.clock,
      warn: (error, text) => this.#failed(error, text),
    })
    const {
      outcome,
      taken,
      unchanged,
      skipped,
      failed,
      purgedMessages,
      ageMsMax = Number.POSITIVE_INFINITY,
    } = pass
    this.#passes[outcome]++
    this.#last = pass.last ?? this.#last
    this.#sum.taken += taken
    this.#sum.unchanged += unchanged
    this.#sum.skipped += skipped
    this.#sum.failed += failed
    this.#sum.purgedMessages += purgedMessages
    if (outcome !== 'failed') this.#warned = undefined
    if (outcome === 'below') this.#vain = 0
    if (outcome === 'below' || outcome === 'locked') return
    this.#vain = taken + purgedMessages > 0 ? 0 : Math.min(this.#vain + 1, VAIN_DOUBLINGS_MAX)
    this.#pause(Math.min(PAUSE_MS * 2 ** this.#vain, ageMsMax / PAUSES_MIN))
    context.log.info({ ...pass }, 'snapshots beside the stream')
  }

  #see(): void {
    const nowMs = this.#options.context.clock.nowMs()
    for (const key of this.#options.keys.all()) {
      const subject = this.#subjectOf(key)
      if (subject !== undefined) this.#seen.set(subject, nowMs)
    }
  }

  /** A worker may be found late, or be away for a while: its snapshot is left over when the stream is. */
  #known(keptMs: number): ReadonlySet<string> | undefined {
    const nowMs = this.#options.context.clock.nowMs()
    for (const [subject, seenMs] of this.#seen) if (nowMs - seenMs > keptMs) this.#seen.delete(subject)
    return nowMs - this.#startedMs > keptMs ? new Set(this.#seen.keys()) : undefined
  }

  #pause(pauseMs: number): void {
    this.#passDueMs = this.#options.context.clock.nowMs() + pauseMs
  }

  #sources(): SnapshotSource[] {
    const sources = [...this.#options.keys.all()].flatMap(key => {
      const subject = this.#subjectOf(key)
      const { listener, phase } = key
      if (subject === undefined || listener === undefined || phase !== 'running') return []
      return [
        {
          subject,
          take: ({ revision, life, keepFrom }: NamedSnapshot) => {
            const stored = revision > 0 ? { life, keepFrom } : undefined
            return listener.ask({ type: 'snapshot', stored }, { timeout: TAKE_MS_MAX }).catch(() => undefined)
          },
        },
      ]
    })
    return turnsBehind(sources, this.#last)
  }

  /** The listeners of keys that are only partly known, and whose snapshot says more. */
  async #beginAgain(): Promise<void> {
    for (const key of this.#options.keys.all()) {
      const subject = this.#subjectOf(key)
      const { trust, isCatchingUp } = key.heard
      if (subject === undefined || trust !== 'partial' || isCatchingUp === true) continue
      const { revision } = await this.#store.named(subject)
      const before = this.#begun.get(key.name)
      const times = before?.revision === revision ? before.times : 0
      if (revision === 0 || times >= BEGINS_MAX || key.phase !== 'running') continue
      this.#begun.set(key.name, { revision, times: times + 1 })
      this.#sum.begunAgain++
      this.#options.listeners.beginAgain(key, 'its listener begins again from the snapshot beside the stream')
    }
    for (const name of this.#begun.keys())
      if (this.#options.keys.get(name) === undefined) this.#begun.delete(name)
  }

  /** Undefined: its events are elsewhere. */
  #subjectOf({ worker, dpRank }: Key): string | undefined {
    const endpoint = this.#options.workers.eventSource(worker, dpRank)?.endpoint
    if (endpoint === undefined || !endpoint.startsWith('nats://')) return undefined
    const { servers, subject } = parseBrokerEndpoint(endpoint)
    return servers.join() === this.#options.servers.join() ? subject : undefined
  }

  /** Once for each reason, until it works again. */
  #failed(error: unknown, text: string): void {
    const { message } = toErrorRecord(error)
    if (message === this.#warned || this.#isClosed) return
    this.#warned = message
    this.#options.context.log.warn({ reason: message }, text)
  }
}
