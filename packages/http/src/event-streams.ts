/**
 * Event streams: server-sent events from one source to many readers.
 *
 *   pull ─▶ events ─▶ only events with changed data ─▶ every reader that has room
 *
 * Invariants
 *   I1  The source is asked only while there is a reader, one question at a time, with a pause after each
 *       answer: the cost does not grow with the number of readers.
 *   I2  At most one frame waits for a reader. A reader that has not taken its last frame is skipped, and gets
 *       all events again once it has.
 *   I3  A reader that takes nothing for `silenceMsMax` is cut. A reader past `readersMax` is refused.
 *   I4  A reader is asked for again (`mayStay`) after it has come and whenever `rules` has changed, one
 *       question at a time, and ended if it may not stay. A question that fails is repeated.
 *
 * When the source fails, readers are not told: no event comes, and the source is asked again.
 */

import type { Clock, Timer } from '@homing/base'
import type { HttpExchange } from '@homing/transport'
import { errorAnswer, type HttpAnswer, sendAnswer } from './answers.ts'
import { StreamsBusyError } from './errors.ts'
import { ALONE, type CommonCount } from './gateway-counts.ts'

/** One event: its name, and its data in one line. */
export interface StreamEvent {
  readonly event: string
  readonly data: string
}

export interface Pulled {
  readonly events: readonly StreamEvent[]
  /** Until the source is asked again, in milliseconds. */
  readonly pauseMs: number
  /** Another text once readers may have lost their right to read; undefined: they never do. */
  readonly rules?: string | undefined
}

export interface EventStreamsOptions {
  readonly clock: Clock
  readonly readersMax: number
  /** Of the readers at all threads; default: there is no other thread. */
  readonly common?: CommonCount
  readonly silenceMsMax: number
  /** Asks the source; `isFirst`: for the first reader after a time without any. May reject. */
  readonly pull: (isFirst: boolean) => Promise<Pulled>
  /** Whether a reader may go on reading; default: it may. May reject. */
  readonly mayStay?: (exchange: HttpExchange) => Promise<boolean>
  /** Called when a count has changed. */
  readonly told: (counts: StreamCounts) => void
}

/** Counts since the start; `readers` are the current ones. */
export interface StreamCounts {
  readonly readers: number
  readonly skippedFrames: number
  readonly cutReaders: number
  readonly refusedReaders: number
}

interface Reader {
  readonly exchange: HttpExchange
  /** Since when it has not taken its last frame; undefined: it has. */
  waitsSinceMs: number | undefined
  /** It needs all events, not only what has changed. */
  isBehind: boolean
  /** Under which it may read; undefined: none that it was asked for. */
  rules: string | undefined
  isBeingAsked: boolean
}

/** An event stream follows. */
export function isStreamHead({ status, headers }: HttpAnswer): boolean {
  return status === 200 && headers['content-type']?.startsWith('text/event-stream') === true
}

/**
 * Sends an answer; one that is the head of an event stream goes on as one of `streams`, if there is room.
 * Returns the status.
 */
export function sendOrStream(exchange: HttpExchange, answer: HttpAnswer, streams: EventStreams): number {
  if (!isStreamHead(answer) || exchange.method === 'HEAD') return sendAnswer(exchange, answer)
  if (streams.open(exchange, answer.headers)) return answer.status
  return sendAnswer(exchange, errorAnswer(new StreamsBusyError(streams.readersMax)))
}

/**
 * Whether the request that has opened a stream would open one now: false if it is refused for its key or its
 * client. Throws if its answer does not tell.
 */
export async function mayStillRead(
  { method, path, query, headers, peerAddress }: HttpExchange,
  serve: (request: StreamRequest) => Promise<HttpAnswer>,
): Promise<boolean> {
  const answer = await serve({ method, path, query, headers, peerAddress, body: undefined })
  if (isStreamHead(answer)) return true
  if (answer.status === 401 || answer.status === 403) return false
  throw new Error(`cannot tell whether a stream may go on: answered ${answer.status}`)
}

/** A request for a stream, as it was sent. */
export type StreamRequest = Pick<HttpExchange, 'method' | 'path' | 'query' | 'headers' | 'peerAddress'> & {
  readonly body: undefined
}

const STREAM_RETRY_MS = 1000
const utf8 = new TextEncoder()

export class EventStreams {
  readonly #options: EventStreamsOptions
  readonly #common: CommonCount
  readonly #readers = new Set<Reader>()
  /** The last data of each event. */
  readonly #latest = new Map<string, string>()
  #timer: Timer | undefined
  #isPulling = false
  #skippedFrames = 0
  #cutReaders = 0
  #refusedReaders = 0

  constructor(options: EventStreamsOptions) {
    this.#options = options
    this.#common = options.common ?? ALONE
  }

  get readersMax(): number {
    return this.#options.readersMax
  }

  get counts(): StreamCounts {
    return {
      readers: this.#readers.size,
      skippedFrames: this.#skippedFrames,
      cutReaders: this.#cutReaders,
      refusedReaders: this.#refusedReaders,
    }
  }

  /** False: there are as many readers as may be; the exchange is not touched. */
  open(exchange: HttpExchange, headers: Readonly<Record<string, string>>): boolean {
    if (this.#readers.size + this.#common.others >= this.#options.readersMax) {
      this.#refusedReaders++
      this.#tell()
      return false
    }
    const reader: Reader = {
      exchange,
      waitsSinceMs: undefined,
      isBehind: true,
      rules: undefined,
      isBeingAsked: false,
    }
    this.#readers.add(reader)
    exchange.onClientGone(() => this.#gone(reader))
    exchange.writeHead(200, headers)
    this.#tell()
    // Known events are better than none, except for the first reader: for it they are old.
    if (this.#readers.size > 1) this.#send(reader, [])
    if (!this.#isPulling && this.#readers.size === 1) void this.#pull(true)
    return true
  }

  /** Ends all streams. */
  close(): void {
    this.#timer?.cancel()
    this.#timer = undefined
    for (const { exchange } of this.#readers) exchange.end()
    this.#readers.clear()
    this.#latest.clear()
  }

  #gone(reader: Reader): void {
    if (!this.#readers.delete(reader)) return
    if (this.#readers.size === 0) {
      this.#timer?.cancel()
      this.#timer = undefined
      this.#latest.clear()
    }
    this.#tell()
  }

  async #pull(isFirst: boolean): Promise<void> {
    this.#timer = undefined
    this.#isPulling = true
    let pauseMs = STREAM_RETRY_MS
    try {
      const pulled = await this.#options.pull(isFirst)
      pauseMs = pulled.pauseMs
      for (const reader of [...this.#readers]) void this.#review(reader, pulled.rules)
      this.#share(pulled.events)
    } catch {
      // Readers see by themselves that nothing comes.
      this.#cutSilent()
    } finally {
      this.#isPulling = false
    }
    if (this.#readers.size === 0) return
    this.#timer = this.#options.clock.after(pauseMs, () => void this.#pull(false), { unref: true })
  }

  /** Ends a reader that has lost its right to read. Never rejects. */
  async #review(reader: Reader, rules: string | undefined): Promise<void> {
    const { mayStay } = this.#options
    if (mayStay === undefined || reader.rules === rules || reader.isBeingAsked) return
    reader.isBeingAsked = true
    try {
      if (await mayStay(reader.exchange)) reader.rules = rules
      else if (this.#readers.has(reader)) {
        this.#gone(reader)
        reader.exchange.end()
      }
    } catch {
      // It is asked for again after the next answer of the source.
    } finally {
      reader.isBeingAsked = false
    }
  }

  #share(events: readonly StreamEvent[]): void {
    const changed = events.filter(({ event, data }) => this.#latest.get(event) !== data)
    for (const { event, data } of changed) this.#latest.set(event, data)
    this.#cutSilent()
    if (changed.length === 0) return
    for (const reader of [...this.#readers]) this.#send(reader, changed)
  }

  #cutSilent(): void {
    const nowMs = this.#options.clock.nowMs()
    for (const reader of [...this.#readers]) {
      if (nowMs - (reader.waitsSinceMs ?? nowMs) <= this.#options.silenceMsMax) continue
      this.#cutReaders++
      reader.exchange.destroy()
      this.#gone(reader)
    }
  }

  #send(reader: Reader, changed: readonly StreamEvent[]): void {
    if (reader.waitsSinceMs !== undefined) {
      this.#skippedFrames++
      reader.isBehind = true
      this.#tell()
      return
    }
    const events = reader.isBehind ? [...this.#latest].map(([event, data]) => ({ event, data })) : changed
    if (events.length === 0) return
    reader.isBehind = false
    const text = events.map(({ event, data }) => `event: ${event}\ndata: ${data}\n\n`).join('')
    if (reader.exchange.write(utf8.encode(text))) return
    reader.waitsSinceMs = this.#options.clock.nowMs()
    reader.exchange.onDrain(() => {
      reader.waitsSinceMs = undefined
    })
  }

  #tell(): void {
    this.#common.set(this.#readers.size)
    this.#options.told(this.counts)
  }
}
