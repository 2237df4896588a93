/**
 * Event publisher of one dp rank: a PUB socket for KV event batches and, unless it is switched off, a ROUTER
 * socket that repeats them.
 *
 *   publish(events)  ->  words of its manners  ->  encode  ->  replay buffer  ->  PUB
 *
 * Sequences are 0, 1, 2, … since the socket was bound. `beginAnew` is a restart that does not show at the
 * sockets: another cache, an empty buffer, and any first sequence.
 *
 * Sockets, buffer and pacing of replays come from @homing/publisher; this file adds the engine's way to write
 * events.
 *
 * Faults, as a network or a slow subscriber would cause them. Each counts down over the next batches:
 *   drop        the batch is numbered and can be replayed, but is not published
 *   forget      with drop: it cannot be replayed either
 *   duplicate   the batch is published twice
 *   delay       the batch is published `delayMs` late, so later batches overtake it
 *   replayLoseEvery   a replay leaves out every n-th message without a word, as vLLM's does at its send limit
 *   replayRepliesMax  a replay loses what is behind so many replies (0: nothing)
 *   replaySilent      replay requests get no answer
 *   unknownRemovals   the next n batches with removals name blocks that no router knows
 *   the manners       see event-manners.ts
 *
 * The buffer holds at most `replayBatchesMax` batches and `REPLAY_BYTES_MAX` bytes; older ones are forgotten.
 * A request without the empty delimiter gets no answer, as in vLLM.
 */

import type { Clock, Timer } from '@homing/base'
import { encodeKvBatch, type KvBatchForm, type KvHashForm, type ReplayForm } from '@homing/protocol'
import { BatchRing, type BufferedBatch, EventService } from '@homing/publisher'
import type { MessageTransport, StreamOptions } from '@homing/transport'
import type { CacheEvent } from './block-manager.ts'
import { type EventManners, EventWriter, PLAIN_MANNERS } from './event-manners.ts'
import type { BlocksMoved } from './pooled-tier.ts'

/** Bytes of payload that a replay buffer holds at most: 64 MiB. */
const REPLAY_BYTES_MAX = 67_108_864
/** As vLLM's publisher queues per subscriber. */
const QUEUED_MESSAGES_MAX = 100_000
/** Replays at one time; vLLM serves one after the other. */
const REPLIES_MAX = 1000
/** A port that was closed a moment ago may need a while until it can be bound again. */
const BIND_ATTEMPTS_MAX = 40
const BIND_RETRY_MS = 50

/** The forms the simulated engine speaks. */
export const EVENT_FORMS = ['vllm-map', 'vllm-array', 'vllm-array-8', 'sglang-map', 'sglang-array'] as const
export type EventForm = (typeof EVENT_FORMS)[number] & KvBatchForm

export interface EventPublisherOptions {
  readonly rank: number
  readonly host: string
  /** Where it publishes and answers, 'nats://…'; undefined: on the ports. */
  readonly atBroker?: string | undefined
  /** The stream there that it publishes into, too; undefined: none. */
  readonly stream?: StreamOptions | undefined
  /** 0: the system picks one. */
  readonly eventsPort: number
  /** Undefined: nothing is repeated. */
  readonly replayPort: number | undefined
  readonly topic: string
  readonly form: EventForm
  readonly hashForm: KvHashForm
  readonly replayForm: ReplayForm
  readonly replayBatchesMax: number
  readonly blockSizeTokens: number
}

/** Counters of faults still to come, where 0 is none, and the manners. */
export interface EventFaults extends EventManners {
  readonly drop: number
  readonly forget: boolean
  readonly duplicate: number
  readonly delay: number
  readonly delayMs: number
  readonly replayLoseEvery: number
  readonly replayRepliesMax: number
  readonly replaySilent: boolean
  readonly unknownRemovals: number
}

export const NO_EVENT_FAULTS: EventFaults = {
  drop: 0,
  forget: false,
  duplicate: 0,
  delay: 0,
  delayMs: 0,
  replayLoseEvery: 0,
  replayRepliesMax: 0,
  replaySilent: false,
  unknownRemovals: 0,
  ...PLAIN_MANNERS,
}

/** As long as the name that it takes the place of. */
const UNKNOWN_REMOVAL = Buffer.from('BlockEvicted')
const REMOVAL = Buffer.from('BlockRemoved')

export class EventPublisher {
  faults: EventFaults = NO_EVENT_FAULTS

  readonly #options: EventPublisherOptions
  readonly #clock: Clock
  #writer: EventWriter
  #ring: BatchRing
  /** The first sequence of this life. */
  #firstSequence = 0
  /** Sequences that a replay leaves out. */
  readonly #forgotten = new Set<number>()
  #service: EventService | undefined
  readonly #delayed = new Set<Timer>()
  #isClosed = false

  private constructor(options: EventPublisherOptions, clock: Clock) {
    this.#options = options
    this.#clock = clock
    const { form, blockSizeTokens } = options
    this.#writer = new EventWriter({ isVllm: form.startsWith('vllm'), blockSizeTokens })
    this.#ring = this.#newRing()
  }

  /** Binds the sockets. Rejects as the transport does when a port stays taken for two seconds. */
  static async open(
    messages: MessageTransport,
    clock: Clock,
    options: EventPublisherOptions,
  ): Promise<EventPublisher> {
    const self = new EventPublisher(options, clock)
    const { host, eventsPort, replayPort, topic, replayForm, atBroker, stream } = options
    const name = host.includes(':') ? `[${host}]` : host
    self.#service = await bind(clock, [eventsPort, replayPort], () =>
      EventService.open({
        clock,
        messages,
        eventsEndpoint: atBroker ?? `tcp://${name}:${eventsPort}`,
        replayEndpoint: replayPort === undefined ? undefined : (atBroker ?? `tcp://${name}:${replayPort}`),
        stream,
        topic,
        replayForm,
        // Engines send no snapshots, so no follower reads it.
        publisherId: '0000000000000000',
        queuedMessagesMax: QUEUED_MESSAGES_MAX,
        repliesMax: REPLIES_MAX,
        batchesFrom: start => self.#replayed(start),
        snapshot: undefined,
      }),
    )
    return self
  }

  /** 'tcp://127.0.0.1:5557', with the real port. */
  get endpoint(): string {
    return this.#service?.endpoint ?? ''
  }

  /** Undefined: nothing is repeated. */
  get replayEndpoint(): string | undefined {
    return this.#service?.replayEndpoint
  }

  /** The sequence that the next batch gets; the number of batches so far, unless `beginAnew` gave another. */
  get nextSequence(): number {
    return this.#firstSequence + this.#ring.nextSequence
  }

  /** The oldest batch that a replay brings; undefined: there is none. */
  get oldestKept(): number | undefined {
    const { oldest } = this.#ring
    return oldest === undefined ? undefined : this.#firstSequence + oldest
  }

  /** Batches that went out on the PUB socket, duplicates included. */
  get publishedBatches(): number {
    return this.#service?.stats.publishedBatches ?? 0
  }

  /**
   * Another life behind the same sockets: its cache is empty, its blocks may have another size, and nothing
   * of before is repeated. Batches that are delayed still come.
   */
  beginAnew(nextSequence = 0, blockSizeTokens = this.#options.blockSizeTokens): void {
    this.#ring = this.#newRing()
    this.#firstSequence = nextSequence
    this.#forgotten.clear()
    this.#writer = new EventWriter({ isVllm: this.#options.form.startsWith('vllm'), blockSizeTokens })
  }

  /** Publishes the events as one batch; none, no batch. Answers it, lost on the way or not. */
  publish(cacheEvents: readonly (CacheEvent | BlocksMoved)[]): BufferedBatch | undefined {
    const service = this.#service
    if (service === undefined || this.#isClosed) return undefined
    this.#writer.manners = this.faults
    const events = cacheEvents.flatMap(event => this.#writer.write(event))
    if (events.length === 0) return undefined
    const { form, hashForm, rank } = this.#options
    const timestampSeconds = this.#clock.wallMs() / 1000
    const payload = encodeKvBatch({ timestampSeconds, rank, events }, form, { hashes: hashForm })
    if (this.faults.unknownRemovals > 0 && renameRemovals(payload)) {
      this.faults = { ...this.faults, unknownRemovals: this.faults.unknownRemovals - 1 }
    }
    const sequence = this.#firstSequence + this.#ring.add(payload)
    this.#send(service, sequence, payload)
    return { sequence, payload }
  }

  #send(service: EventService, sequence: number, payload: Uint8Array): void {
    const { faults } = this
    if (faults.drop > 0) {
      if (faults.forget) this.#forgotten.add(sequence)
      this.faults = { ...faults, drop: faults.drop - 1 }
      return
    }
    if (faults.delay > 0) {
      this.faults = { ...faults, delay: faults.delay - 1 }
      const timer = this.#clock.after(faults.delayMs, () => {
        this.#delayed.delete(timer)
        service.publish(sequence, payload)
      })
      this.#delayed.add(timer)
      return
    }
    service.publish(sequence, payload)
    if (faults.duplicate > 0) {
      this.faults = { ...faults, duplicate: faults.duplicate - 1 }
      service.publish(sequence, payload)
    }
  }

  /** Closes the sockets; delayed batches are lost. Idempotent. */
  close(): void {
    for (const timer of this.#delayed) timer.cancel()
    this.#delayed.clear()
    this.#service?.close()
    this.#isClosed = true
  }

  #replayed(start: number): readonly BufferedBatch[] | undefined {
    const { replayLoseEvery, replayRepliesMax, replaySilent } = this.faults
    if (replaySilent) return undefined
    const first = this.#firstSequence
    const kept = this.#ring.range(start - first)
    const batches = first === 0 ? kept : kept.map(batch => ({ ...batch, sequence: first + batch.sequence }))
    return batches
      .filter(({ sequence }) => !this.#forgotten.has(sequence))
      .filter((_, i) => replayLoseEvery === 0 || (i + 1) % replayLoseEvery !== 0)
      .slice(0, replayRepliesMax === 0 ? undefined : replayRepliesMax)
  }

  #newRing(): BatchRing {
    return new BatchRing({ batchesMax: this.#options.replayBatchesMax, bytesMax: REPLAY_BYTES_MAX })
  }
}

/** False: there are none. */
function renameRemovals(payload: Uint8Array): boolean {
  const bytes = Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength)
  let at = bytes.indexOf(REMOVAL)
  if (at < 0) return false
  for (; at >= 0; at = bytes.indexOf(REMOVAL, at)) UNKNOWN_REMOVAL.copy(bytes, at)
  return true
}

async function bind<T>(
  clock: Clock,
  ports: readonly (number | undefined)[],
  open: () => Promise<T>,
): Promise<T> {
  const isGiven = ports.some(port => port !== undefined && port > 0)
  for (let attempt = 1; ; attempt++) {
    try {
      return await open()
    } catch (error) {
      if (!isGiven || attempt === BIND_ATTEMPTS_MAX) throw error
      await new Promise<void>(resolve => void clock.after(BIND_RETRY_MS, resolve))
    }
  }
}
