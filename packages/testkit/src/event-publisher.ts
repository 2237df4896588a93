/**
 * Event publisher of one dp rank: a PUB socket for KV event batches and, unless it is switched off, a ROUTER socket that repeats them.
 *
 *   publish(events)  ->  encode  ->  replay buffer  ->  PUB      sequence 0, 1, 2, … since the socket was bound
 *
 * Sockets, buffer and pacing of replays are those of @homing/publisher; what is here is the engine's way to write events.
 *
 * Faults, as a network or a slow subscriber would cause them. Each counts down over the next batches:
 *   drop        the batch is numbered and can be replayed, but is not published
 *   forget      with drop: it cannot be replayed either
 *   duplicate   the batch is published twice
 *   delay       the batch is published `delayMs` late, so later batches overtake it
 *   replayLoseEvery   a replay leaves out every n-th message without a word, as vLLM's does at its send limit
 *   replaySilent      replay requests get no answer
 *
 * The buffer holds at most `replayBatchesMax` batches and `REPLAY_BYTES_MAX` bytes; older ones are forgotten. A request
 * without the empty delimiter gets no answer, as in vLLM.
 */

import type { Clock, Timer } from '@homing/clock'
import {
  encodeKvBatch,
  KV_CLEARED,
  type KvBatchForm,
  type KvEvent,
  type KvHashForm,
  kvRemoved,
  kvStored,
  type ReplayForm,
} from '@homing/protocol'
import { BatchRing, type BufferedBatch, EventService } from '@homing/publisher'
import type { MessageTransport } from '@homing/transport'
import type { CacheEvent } from './block-manager.ts'

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
export const EVENT_FORMS = ['vllm-map', 'vllm-array', 'sglang-map', 'sglang-array'] as const
export type EventForm = (typeof EVENT_FORMS)[number] & KvBatchForm

export interface EventPublisherOptions {
  readonly rank: number
  readonly host: string
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

/** Counters of faults still to come; 0 is none. */
export interface EventFaults {
  readonly drop: number
  readonly forget: boolean
  readonly duplicate: number
  readonly delay: number
  readonly delayMs: number
  readonly replayLoseEvery: number
  readonly replaySilent: boolean
}

export const NO_EVENT_FAULTS: EventFaults = {
  drop: 0,
  forget: false,
  duplicate: 0,
  delay: 0,
  delayMs: 0,
  replayLoseEvery: 0,
  replaySilent: false,
}

export class EventPublisher {
  faults: EventFaults = NO_EVENT_FAULTS

  readonly #options: EventPublisherOptions
  readonly #clock: Clock
  readonly #ring: BatchRing
  /** Sequences that a replay leaves out. */
  readonly #forgotten = new Set<number>()
  #service: EventService | undefined
  readonly #delayed = new Set<Timer>()
  #isClosed = false

  private constructor(options: EventPublisherOptions, clock: Clock) {
    this.#options = options
    this.#clock = clock
    this.#ring = new BatchRing({ batchesMax: options.replayBatchesMax, bytesMax: REPLAY_BYTES_MAX })
  }

  /** Binds the sockets. Rejects as the transport does when a port stays taken for two seconds. */
  static async open(
    messages: MessageTransport,
    clock: Clock,
    options: EventPublisherOptions,
  ): Promise<EventPublisher> {
    const self = new EventPublisher(options, clock)
    const { host, eventsPort, replayPort, topic, replayForm } = options
    self.#service = await bind(clock, [eventsPort, replayPort], () =>
      EventService.open({
        clock,
        messages,
        eventsEndpoint: `tcp://${host}:${eventsPort}`,
        replayEndpoint: replayPort === undefined ? undefined : `tcp://${host}:${replayPort}`,
        topic,
        replayForm,
        // Engines give no snapshots, so nobody reads it.
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

  /** The sequence that the next batch gets; equals the number of batches so far. */
  get nextSequence(): number {
    return this.#ring.nextSequence
  }

  /** Batches that went out on the PUB socket, duplicates included. */
  get publishedBatches(): number {
    return this.#service?.stats.publishedBatches ?? 0
  }

  /** Publishes the events as one batch; none, no batch. */
  publish(events: readonly CacheEvent[]): void {
    const service = this.#service
    if (events.length === 0 || service === undefined || this.#isClosed) return
    const { form, hashForm, rank } = this.#options
    const payload = encodeKvBatch(
      {
        timestampSeconds: this.#clock.wallMs() / 1000,
        rank,
        events: events.map(event => this.#wireEvent(event)),
      },
      form,
      { hashes: hashForm },
    )
    const sequence = this.#ring.add(payload)
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
    const { replayLoseEvery, replaySilent } = this.faults
    if (replaySilent) return undefined
    return this.#ring
      .range(start)
      .filter(({ sequence }) => !this.#forgotten.has(sequence))
      .filter((_, i) => replayLoseEvery === 0 || (i + 1) % replayLoseEvery !== 0)
  }

  #wireEvent(event: CacheEvent): KvEvent {
    const isVllm = this.#options.form.startsWith('vllm')
    const group = isVllm ? 0 : undefined
    switch (event.type) {
      case 'stored':
        return kvStored({
          hashes: event.hashes,
          parent: event.parentHash === undefined ? undefined : Int32Array.from(event.parentHash),
          tokens: event.tokenIds,
          blockSizeTokens: this.#options.blockSizeTokens,
          loraName: event.namespace.loraName,
          // vLLM names the salt on the first block of a sequence only; SGLang on every store.
          cacheSalt: isVllm && event.firstBlockIndex > 0 ? undefined : event.namespace.cacheSalt,
          group,
          attention: isVllm ? 'full_attention' : undefined,
          sessionId: event.sessionId,
        })
      case 'removed':
        return kvRemoved({ hashes: Int32Array.from(event.hash), group })
      case 'cleared':
        return KV_CLEARED
    }
  }
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
