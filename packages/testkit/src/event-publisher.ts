/**
 * Event publisher of one dp rank: a PUB socket for KV event batches and a ROUTER socket that repeats them.
 *
 *   publish(events)  ->  encode  ->  replay buffer  ->  PUB      sequence 0, 1, 2, … since the socket was bound
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
  encodeEventFrames,
  encodeKvBatch,
  encodeReplayEnd,
  encodeReplayReply,
  KV_CLEARED,
  type KvBatchForm,
  type KvEvent,
  type KvHashForm,
  kvRemoved,
  kvStored,
  parseReplayRequest,
  type ReplayForm,
} from '@homing/protocol'
import type { MessageTransport, Publisher, Router } from '@homing/transport'
import type { CacheEvent } from './block-manager.ts'

/** Bytes of payload that a replay buffer holds at most: 64 MiB. */
const REPLAY_BYTES_MAX = 67_108_864
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
  readonly replayPort: number
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

interface BufferedBatch {
  readonly sequence: number
  readonly payload: Uint8Array
}

export class EventPublisher {
  faults: EventFaults = NO_EVENT_FAULTS

  readonly #options: EventPublisherOptions
  readonly #clock: Clock
  #publisher: Publisher | undefined
  #replay: Router | undefined
  #nextSequence = 0
  #publishedBatches = 0
  #buffer: BufferedBatch[] = []
  #bufferBytes = 0
  readonly #delayed = new Set<Timer>()

  private constructor(options: EventPublisherOptions, clock: Clock) {
    this.#options = options
    this.#clock = clock
  }

  /** Binds both sockets. Rejects as the transport does when a port stays taken for two seconds. */
  static async open(
    messages: MessageTransport,
    clock: Clock,
    options: EventPublisherOptions,
  ): Promise<EventPublisher> {
    const self = new EventPublisher(options, clock)
    const { host, eventsPort, replayPort } = options
    try {
      self.#publisher = await bind(clock, eventsPort, () =>
        messages.publish({ endpoint: `tcp://${host}:${eventsPort}` }),
      )
      self.#replay = await bind(clock, replayPort, () =>
        messages.serve({ endpoint: `tcp://${host}:${replayPort}` }, (identity, frames) =>
          self.#answer(identity, frames),
        ),
      )
    } catch (error) {
      self.close()
      throw error
    }
    return self
  }

  /** 'tcp://127.0.0.1:5557', with the real port. */
  get endpoint(): string {
    return this.#publisher?.endpoint ?? ''
  }

  get replayEndpoint(): string {
    return this.#replay?.endpoint ?? ''
  }

  /** The sequence that the next batch gets; equals the number of batches so far. */
  get nextSequence(): number {
    return this.#nextSequence
  }

  /** Batches that went out on the PUB socket, duplicates included. */
  get publishedBatches(): number {
    return this.#publishedBatches
  }

  /** Publishes the events as one batch; none, no batch. */
  publish(events: readonly CacheEvent[]): void {
    if (events.length === 0 || this.#publisher === undefined) return
    const { form, hashForm, rank, topic } = this.#options
    const sequence = this.#nextSequence++
    const payload = encodeKvBatch(
      {
        timestampSeconds: this.#clock.wallMs() / 1000,
        rank,
        events: events.map(event => this.#wireEvent(event)),
      },
      form,
      { hashes: hashForm },
    )
    const { faults } = this
    const isDropped = faults.drop > 0
    if (!isDropped || !faults.forget) this.#remember({ sequence, payload })
    if (isDropped) {
      this.faults = { ...faults, drop: faults.drop - 1 }
      return
    }
    const frames = encodeEventFrames(topic, sequence, payload)
    if (faults.delay > 0) {
      this.faults = { ...faults, delay: faults.delay - 1 }
      const timer = this.#clock.after(faults.delayMs, () => {
        this.#delayed.delete(timer)
        this.#send(frames)
      })
      this.#delayed.add(timer)
      return
    }
    this.#send(frames)
    if (faults.duplicate > 0) {
      this.faults = { ...faults, duplicate: faults.duplicate - 1 }
      this.#send(frames)
    }
  }

  /** Closes both sockets; delayed batches are lost. Idempotent. */
  close(): void {
    for (const timer of this.#delayed) timer.cancel()
    this.#delayed.clear()
    this.#publisher?.close()
    this.#publisher = undefined
    this.#replay?.close()
    this.#replay = undefined
    this.#buffer = []
    this.#bufferBytes = 0
  }

  #send(frames: readonly Uint8Array[]): void {
    this.#publishedBatches++
    this.#publisher?.send(frames)
  }

  #remember(batch: BufferedBatch): void {
    this.#buffer.push(batch)
    this.#bufferBytes += batch.payload.length
    let first = 0
    while (
      this.#buffer.length - first > this.#options.replayBatchesMax ||
      this.#bufferBytes > REPLAY_BYTES_MAX
    ) {
      this.#bufferBytes -= this.#buffer[first++]!.payload.length
    }
    if (first > 0) this.#buffer.splice(0, first)
  }

  #answer(identity: Uint8Array, frames: readonly Uint8Array[]): void {
    const start = parseReplayRequest(frames)
    const { replayLoseEvery, replaySilent } = this.faults
    if (start === undefined || replaySilent || this.#replay === undefined) return
    const { replayForm, topic } = this.#options
    let sent = 0
    for (const { sequence, payload } of this.#buffer) {
      if (sequence < start) continue
      sent++
      if (replayLoseEvery > 0 && sent % replayLoseEvery === 0) continue
      this.#replay.send(identity, encodeReplayReply(replayForm, topic, sequence, payload))
    }
    this.#replay.send(identity, encodeReplayEnd(replayForm))
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

async function bind<T>(clock: Clock, port: number, open: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await open()
    } catch (error) {
      if (port === 0 || attempt === BIND_ATTEMPTS_MAX) throw error
      await new Promise<void>(resolve => void clock.after(BIND_RETRY_MS, resolve))
    }
  }
}
