/**
 * Etcd presence: which peers are there under a subject, at etcd. Every peer keeps a key of its own, which
 * hangs on a lease and so goes by itself when its process has died.
 *
 *   homing/SUBJECT/LIFE   the card of a peer; empty: it says good-bye
 *
 *   no etcd ──▶ announced ──▶ listed ──▶ watched ──the watch ends──▶ listed again …
 *      ▲                                    │ no server answers
 *      └──────────── a growing pause ◀──────┘ all others are gone: 'no broker'
 *
 * A watch ends with its server, and where etcd has forgotten its revision (compaction). What was missed shows
 * in the next listing, which is also made every LIST_MS: so nothing depends on a watch that hangs. A listing
 * follows the end of a watch at once, and after a growing pause where watches end as soon as they begin.
 *
 * Bounds   PRESENT_MAX peers, as at a broker; later ones are not reported.
 */

import { Buffer } from 'node:buffer'
import type { Clock } from '@homing/base'
import { callFor, callOwner } from '../callback.ts'
import { StreamError } from '../errors.ts'
import { BEAT_MS, SILENCE_MS } from '../nats/lives.ts'
import { CARD_BYTES_MAX, PRESENT_MAX } from '../nats/presence.ts'
import type { AbsenceReason, OwnPresence, PresenceHandler } from '../presence-types.ts'
import type { EtcdClient } from './etcd-client.ts'

const LIST_MS = 10_000
const RETRY_MS_MIN = 100
const RETRY_MS_MAX = 5000
const LIFE = /^[0-9a-f]{16}$/

export interface EtcdPresenceOptions {
  readonly client: EtcdClient
  readonly subject: string
  readonly card: Uint8Array | undefined
  /** 16 hexadecimal digits, others each time. */
  readonly life: string
  readonly clock: Clock
  readonly handler: PresenceHandler
  /** Once for each reason, until etcd answers. */
  readonly failed: (reason: string) => void
  readonly released: (presence: EtcdPresence) => void
  /** Its good-bye is being said; it never rejects. */
  readonly saying?: (goodBye: Promise<void>) => void
}

export class EtcdPresence implements OwnPresence {
  readonly #options: EtcdPresenceOptions
  readonly #prefix: string
  readonly #others = new Map<string, Uint8Array>()
  #lease: string | undefined
  #watch: { close(): void } | undefined
  #listDueMs = 0
  #watchBeganMs = 0
  /** Before the listing that follows the next end of a watch. */
  #watchPauseMs = 0
  #retryMs = RETRY_MS_MIN
  #wake: (() => void) | undefined
  #warned: string | undefined
  #isClosed = false
  #closed: Promise<void> | undefined
  /** The work under way; it never rejects. */
  readonly #run: Promise<void>

  constructor(options: EtcdPresenceOptions) {
    this.#options = options
    this.#prefix = `homing/${options.subject}/`
    this.#run = this.#follow()
  }

  close(): void {
    if (this.#isClosed) return
    this.leave()
    this.#closed = this.#run.then(() => this.#sayGoodBye())
    this.#options.saying?.(this.#closed)
  }

  get closed(): Promise<void> | undefined {
    return this.#closed
  }

  leave(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#options.released(this)
    this.#watch?.close()
    this.#wake?.()
  }

  get #key(): string {
    return this.#prefix + this.#options.life
  }

  async #follow(): Promise<void> {
    while (!this.#isClosed) {
      try {
        await this.#session()
      } catch (error) {
        if (!(error instanceof StreamError)) throw error
        this.#lost(error.reason)
        await this.#sleep(this.#retryMs)
        this.#retryMs = Math.min(2 * this.#retryMs, RETRY_MS_MAX)
      }
    }
  }

  /** Rejects with StreamError when no server answers. */
  async #session(): Promise<void> {
    const { client, clock, handler } = this.#options
    await this.#announce()
    let isFirst = true
    let beatDueMs = clock.nowMs() + BEAT_MS
    while (!this.#isClosed) {
      if (isFirst || clock.nowMs() >= this.#listDueMs) {
        const listing = await client.list(this.#prefix, PRESENT_MAX)
        if (isFirst) callOwner(() => handler.connected?.())
        isFirst = false
        this.#retryMs = RETRY_MS_MIN
        this.#warned = undefined
        if (!this.#isClosed) this.#listed(listing.values, listing.revision)
        if (!listing.values.has(this.#options.life)) await this.#announce()
      }
      await this.#sleep(Math.min(beatDueMs, this.#listDueMs) - clock.nowMs())
      if (this.#isClosed) return
      if (clock.nowMs() < beatDueMs) continue
      beatDueMs = clock.nowMs() + BEAT_MS
      if (this.#lease === undefined) await client.get(this.#key)
      else if (!(await client.keepAlive(this.#lease))) await this.#announce()
    }
  }

  async #announce(): Promise<void> {
    const { client, card } = this.#options
    if (card === undefined || this.#isClosed) return
    this.#lease = await client.grantLease(SILENCE_MS / 1000)
    await client.put(this.#key, card, this.#lease)
  }

  /** Compares what is there with what was, and watches from there on. */
  #listed(values: ReadonlyMap<string, Uint8Array>, revision: bigint): void {
    const { client, clock } = this.#options
    this.#listDueMs = clock.nowMs() + LIST_MS
    for (const life of [...this.#others.keys()]) if (!values.has(life)) this.#gone(life, 'silence')
    for (const [life, card] of values) this.#changed(life, card)
    this.#watch?.close()
    const watch = client.watch(this.#prefix, revision + 1n, {
      changed: (life, card) => this.#changed(life, card),
      ended: () => {
        if (this.#watch === watch) this.#watchEnded()
      },
    })
    this.#watch = watch
    this.#watchBeganMs = clock.nowMs()
  }

  #watchEnded(): void {
    const nowMs = this.#options.clock.nowMs()
    this.#watch = undefined
    if (nowMs - this.#watchBeganMs >= RETRY_MS_MAX) this.#watchPauseMs = 0
    this.#listDueMs = Math.min(this.#listDueMs, nowMs + this.#watchPauseMs)
    this.#watchPauseMs = Math.min(Math.max(RETRY_MS_MIN, 2 * this.#watchPauseMs), RETRY_MS_MAX)
    this.#wake?.()
  }

  #changed(life: string, card: Uint8Array | undefined): void {
    const { handler, life: own, subject } = this.#options
    if (this.#isClosed || life === own || !LIFE.test(life)) return
    if (card === undefined || card.length === 0) {
      this.#gone(life, card === undefined ? 'silence' : 'bye')
      return
    }
    const before = this.#others.get(life)
    if (card.length > CARD_BYTES_MAX || (before === undefined && this.#others.size >= PRESENT_MAX)) return
    if (before !== undefined && Buffer.compare(before, card) === 0) return
    this.#others.set(life, card)
    callFor(`${subject}, life ${life}`, () => handler.present({ life, card }))
  }

  #gone(life: string, reason: AbsenceReason): void {
    const { handler, subject } = this.#options
    if (this.#others.delete(life) && !this.#isClosed) callFor(subject, () => handler.gone(life, reason))
  }

  #lost(reason: string): void {
    this.#watch?.close()
    this.#watch = undefined
    for (const life of [...this.#others.keys()]) this.#gone(life, 'no broker')
    if (this.#isClosed || reason === this.#warned) return
    this.#warned = reason
    this.#options.failed(reason)
  }

  /** Others see the good-bye, and then the key is gone. Without etcd the lease ends by itself. */
  async #sayGoodBye(): Promise<void> {
    const { client } = this.#options
    if (this.#lease === undefined) return
    try {
      await client.put(this.#key, new Uint8Array(0), this.#lease)
      await client.revokeLease(this.#lease)
    } catch (error) {
      if (!(error instanceof StreamError)) throw error
    }
  }

  /** `#wake` ends it. */
  #sleep(ms: number): Promise<void> {
    if (this.#isClosed) return Promise.resolve()
    return new Promise(resolve => {
      const timer = this.#options.clock.after(Math.max(0, ms), () => this.#wake?.())
      this.#wake = () => {
        timer.cancel()
        this.#wake = undefined
        resolve()
      }
    })
  }
}
