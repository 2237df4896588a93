/**
 * The wire of one observer: the transport it is given. It loses, repeats and delays live batches, and notes
 * what came, by which `Signs` know what could be known.
 */

import type { Clock } from '@homing/base'
import { parseEventFrames, parseReplayReply, parseReplayRequest } from '@homing/protocol'
import type { Frames, HttpReply, HttpTransport, MessageTransport, Transport } from '@homing/transport'
import { type BatchOrigin, batchKey, type Origins, type PolledEvent } from './life-engine.ts'

/** What came, by endpoint. */
export interface WireListener {
  /** `sentMs`: when it was sent; it may have been delayed since. */
  live(endpoint: string, origin: BatchOrigin | undefined, sentMs: number): void
  repeated(endpoint: string, origin: BatchOrigin): void
  connected(endpoint: string): void
  disconnected(endpoint: string): void
  /** Events that were asked for. */
  polled(events: readonly PolledEvent[]): void
  /** The answer of `/metrics`. */
  probed(origin: string, metrics: string): void
}

/** What becomes of the next live batches, in this order; 0: nothing more. */
export interface WireFaults {
  drop: number
  duplicate: number
  delay: number
  delayMs: number
}

export class Wire {
  readonly faults: WireFaults = { drop: 0, duplicate: 0, delay: 0, delayMs: 0 }
  /** Live batches were lost, or came late; since it was last set. */
  hasFailed = false
  /** Endpoints whose subscribers receive the messages of another endpoint as well. */
  readonly merged = new Map<string, string>()
  /** Count of all arrivals. */
  arrivals = 0
  /** Requests for replays. */
  replays = 0
  readonly #cuts = new Set<(ms: number) => void>()
  readonly #clock: Clock
  readonly #origins: Origins
  readonly #listener: WireListener
  readonly #tell: (line: string) => void

  /** `tell`: each thing that comes, for people. */
  constructor(clock: Clock, origins: Origins, listener: WireListener, tell: (line: string) => void) {
    this.#tell = tell
    this.#clock = clock
    this.#origins = origins
    this.#listener = listener
  }

  /** The caller keeps `transport` and closes it. */
  over(transport: Transport): Transport {
    return {
      http: this.#http(transport.http),
      messages: this.#messages(transport.messages),
      brokers: () => transport.brokers(),
      tcp: transport.tcp,
      close: () => transport.close(),
    }
  }

  /** Breaks the connections of all subscribers for so long. */
  cut(ms: number): void {
    for (const cut of this.#cuts) cut(ms)
  }

  calm(): void {
    Object.assign(this.faults, { drop: 0, duplicate: 0, delay: 0 })
  }

  #messages(messages: MessageTransport): MessageTransport {
    return {
      publish: options => messages.publish(options),
      present: (options, handler) => messages.present(options, handler),
      serve: (options, onMessage) => messages.serve(options, onMessage),
      subscribe: (options, handler) => {
        const { endpoint } = options
        let connection = 0
        let isUp = false
        let isCut = false
        let isClosed = false
        const down = (): void => {
          connection++
          this.hasFailed = true
          if (!isUp) return
          isUp = false
          this.arrivals++
          this.#tell(`down ${endpoint}`)
          this.#listener.disconnected(endpoint)
          handler.disconnected()
        }
        const up = (): void => {
          if (isUp || isCut || isClosed) return
          isUp = true
          this.arrivals++
          this.#tell(`up ${endpoint}`)
          this.#listener.connected(endpoint)
          handler.connected()
        }
        const arrive = (frames: Frames, sentMs = this.#clock.nowMs()): void => {
          this.arrivals++
          const origin = this.#originOf(frames)
          this.#tell(`live ${endpoint} ${parseEventFrames(frames).sequence}${lifeOf(origin)}`)
          this.#listener.live(endpoint, origin, sentMs)
          handler.message(frames)
        }
        const receive = (frames: Frames): void => {
          const { faults } = this
          if (isCut) return
          if (faults.drop > 0) {
            faults.drop--
            this.hasFailed = true
          } else if (faults.delay > 0) {
            faults.delay--
            this.hasFailed = true
            const ofConnection = connection
            const sentMs = this.#clock.nowMs()
            this.#clock.after(faults.delayMs, () => {
              if (ofConnection === connection) arrive(frames, sentMs)
            })
          } else {
            arrive(frames)
            if (faults.duplicate === 0) return
            faults.duplicate--
            arrive(frames)
          }
        }
        const other = this.merged.get(endpoint)
        const silent = { message: receive, connected() {}, disconnected() {} }
        const others =
          other === undefined ? undefined : messages.subscribe({ endpoint: other, topic: '' }, silent)
        let isLinked = false
        const subscriber = messages.subscribe(options, {
          message: receive,
          connected() {
            isLinked = true
            up()
          },
          disconnected() {
            isLinked = false
            down()
          },
        })
        const cut = (ms: number): void => {
          isCut = true
          down()
          this.#clock.after(ms, () => {
            isCut = false
            if (isLinked) up()
          })
        }
        this.#cuts.add(cut)
        return {
          close: () => {
            connection++
            isClosed = true
            this.#cuts.delete(cut)
            others?.close()
            subscriber.close()
          },
        }
      },
      dial: (options, onMessage) => {
        const dealer = messages.dial(options, frames => {
          this.arrivals++
          const reply = parseReplayReply(frames)
          if (reply.kind !== 'batch') this.#tell(`reply ${reply.kind}`)
          else {
            const origin = this.#origins.get(batchKey(reply.sequence, reply.payload))
            this.#tell(`reply ${reply.sequence}${lifeOf(origin)}`)
            if (origin !== undefined) this.#listener.repeated(options.endpoint, origin)
          }
          onMessage(frames)
        })
        return {
          send: frames => {
            this.replays++
            const from = parseReplayRequest(frames)
            this.#tell(`asks ${options.endpoint} ${from === undefined ? 'for a snapshot' : `from ${from}`}`)
            return dealer.send(frames)
          },
          close: () => dealer.close(),
        }
      },
    }
  }

  #http(http: HttpTransport): HttpTransport {
    return {
      listen: (options, onExchange) => http.listen(options, onExchange),
      setAccess: (origin, access) => http.setAccess(origin, access),
      setPeer: (origin, tls) => http.setPeer(origin, tls),
      setRoute: (origin, route) => http.setRoute(origin, route),
      serve: (options, onExchange) => http.serve(options, onExchange),
      trust: certificates => http.trust(certificates),
      call: (request, handler) => http.call(request, handler),
      fetch: async (request, options) => {
        if (request.path === '/kv_cache_events') return this.#poll(http, request, options)
        const reply = await http.fetch(request, options)
        this.arrivals++
        if (request.path === '/metrics' && reply.status === 200) {
          this.#listener.probed(request.origin, Buffer.from(reply.body).toString())
        }
        return reply
      },
    }
  }

  /** A second client that polls takes events from the first one: this is how events are lost here. */
  async #poll(
    http: HttpTransport,
    ...[request, options]: Parameters<HttpTransport['fetch']>
  ): Promise<HttpReply> {
    let reply: HttpReply
    try {
      reply = await http.fetch(request, options)
    } catch (error) {
      this.hasFailed = true
      this.#listener.disconnected(request.origin)
      throw error
    }
    if (reply.status !== 200) {
      this.hasFailed = true
      this.#listener.disconnected(request.origin)
      return reply
    }
    const events = JSON.parse(Buffer.from(reply.body).toString()) as readonly PolledEvent[]
    if (events.length > 0 && this.faults.drop > 0) {
      this.faults.drop--
      this.hasFailed = true
      return { ...reply, body: Buffer.from('[]') }
    }
    if (events.length > 0) this.arrivals++
    this.#listener.polled(events)
    return reply
  }

  #originOf(frames: Frames): BatchOrigin | undefined {
    const { sequence, payload } = parseEventFrames(frames)
    return this.#origins.get(batchKey(sequence, payload))
  }
}

function lifeOf(origin: BatchOrigin | undefined): string {
  return origin === undefined ? '' : ` of ${origin.engine.name}, life ${origin.life}: ${origin.told}`
}
