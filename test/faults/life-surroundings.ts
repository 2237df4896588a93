/**
 * The surroundings of a history of lives: time, sockets, and the parts that get turns.
 *
 *   simulated   a network in memory; time stands still but for `advance`, and a history is the same each time
 *   real        sockets of this machine; the same clock is moved as real time goes on
 */

import { createTestSystem, type TestSystem } from '@homing/actor/testing'
import { type Random, SimulatedClock, seededRandom, silentLog, systemClock } from '@homing/base'
import { MemoryNetwork, systemTransport, type Transport } from '@homing/transport'
import { freePorts } from '@homing/transport/testing'
import type { Moments, Origins } from './life-engine.ts'

/** Where everything is. */
export interface Places {
  readonly host: string
  readonly engine: EnginePlaces
  readonly neighbour: EnginePlaces
  readonly sidecarEvents: string
  readonly sidecarReplay: string
  readonly service: { readonly host: string; readonly port: number }
  readonly peer: { readonly host: string; readonly port: number }
}

export interface EnginePlaces {
  readonly eventsPort: number
  readonly replayPort: number
  /** The second is for the worker that is followed through a sidecar. */
  readonly httpPorts: readonly number[]
}

type Ports = [
  ...[number, number, number, number, number, number],
  ...[number, number, number, number, number],
]

const HOST = '10.0.0.1'
const PLACES: Places = {
  host: HOST,
  engine: { eventsPort: 5557, replayPort: 6557, httpPorts: [8000, 8001] },
  neighbour: { eventsPort: 5567, replayPort: 6567, httpPorts: [8002] },
  sidecarEvents: `tcp://${HOST}:7557`,
  sidecarReplay: `tcp://${HOST}:8557`,
  service: { host: '10.0.0.8', port: 8090 },
  peer: { host: '10.0.0.9', port: 8090 },
}
const REAL_HOST = '127.0.0.1'
/** Real time goes on in such steps. */
const TICK_MS = 5
/** The longest time for work that needs no time, such as answering who is here. */
const SOON_MS_MAX = 1000
const FINISH_MS_MAX = 60_000

export abstract class Surroundings {
  readonly clock = new SimulatedClock()
  readonly moments: Moments = { now: 0 }
  readonly origins: Origins = new Map()
  readonly random: Random
  readonly places: Places
  /** The parts that get turns. */
  readonly systems = new Set<TestSystem>()
  /** Arrivals and beliefs, for people. */
  tellLine: ((line: string) => void) | undefined
  /** Lets pending work run when no other system does. */
  readonly #idle = createTestSystem({ clock: this.clock })

  constructor(seed: number, places: Places) {
    this.random = seededRandom(seed)
    this.places = places
  }

  /** A new transport; the caller closes it. */
  abstract transport(): Transport

  /** Lets time pass; actors run meanwhile. */
  abstract advance(ms: number): Promise<void>

  /** What comes without time going on, or nearly so; undefined: nothing does, or it fails. */
  abstract soon<T>(promise: Promise<T>): Promise<T | undefined>

  tell(line: string): void {
    this.tellLine?.(`${this.clock.nowMs().toFixed(0).padStart(7)} ${line}`)
  }

  close(): void {
    void this.#idle.shutdown()
  }

  /** Lets time go on until it has come. */
  async finish<T>(promise: Promise<T>): Promise<T> {
    let isOver = false
    const noted = promise.finally(() => {
      isOver = true
    })
    noted.catch(() => {})
    await this.settle()
    for (let ms = 0; !isOver && ms < FINISH_MS_MAX; ms += TICK_MS) await this.advance(TICK_MS)
    if (!isOver) throw new Error(`something did not end within ${FINISH_MS_MAX} ms`)
    return noted
  }

  protected async settle(): Promise<void> {
    await Promise.all([...this.systems, this.#idle].map(system => system.settle()))
  }
}

export class SimulatedSurroundings extends Surroundings {
  readonly #network = new MemoryNetwork({ clock: this.clock })

  constructor(seed: number) {
    super(seed, PLACES)
  }

  transport(): Transport {
    return this.#network.transport()
  }

  async advance(ms: number): Promise<void> {
    const { clock } = this
    const endMs = clock.nowMs() + ms
    await this.settle()
    for (let dueMs = clock.nextDueMs; dueMs !== undefined && dueMs <= endMs; dueMs = clock.nextDueMs) {
      clock.advance(Math.max(0, dueMs - clock.nowMs()))
      await this.settle()
    }
    clock.advance(Math.max(0, endMs - clock.nowMs()))
    await this.settle()
  }

  async soon<T>(promise: Promise<T>): Promise<T | undefined> {
    let value: T | undefined
    promise.then(
      came => {
        value = came
      },
      () => {},
    )
    await this.settle()
    return value
  }
}

/** On the main thread: ZeroMQ is there. */
export class RealSurroundings extends Surroundings {
  #lastMs = performance.now()
  readonly #transports: Transport[] = []

  static async open(seed: number): Promise<RealSurroundings> {
    const ports = await freePorts(11)
    const [a, b, c, d, e, f, g, h, i, j, k] = ports as Ports
    return new RealSurroundings(seed, {
      host: REAL_HOST,
      engine: { eventsPort: a, replayPort: b, httpPorts: [c, d] },
      neighbour: { eventsPort: e, replayPort: f, httpPorts: [g] },
      sidecarEvents: `tcp://${REAL_HOST}:${h}`,
      sidecarReplay: `tcp://${REAL_HOST}:${i}`,
      service: { host: REAL_HOST, port: j },
      peer: { host: REAL_HOST, port: k },
    })
  }

  transport(): Transport {
    const transport = systemTransport({ clock: systemClock, log: silentLog })
    this.#transports.push(transport)
    return transport
  }

  override close(): void {
    super.close()
    for (const transport of this.#transports) transport.close()
  }

  async advance(ms: number): Promise<void> {
    const endMs = this.clock.nowMs() + ms
    do await this.#tick()
    while (this.clock.nowMs() < endMs)
  }

  async soon<T>(promise: Promise<T>): Promise<T | undefined> {
    let isOver = false
    let value: T | undefined
    promise.then(
      came => {
        isOver = true
        value = came
      },
      () => {
        isOver = true
      },
    )
    const endMs = this.clock.nowMs() + SOON_MS_MAX
    while (!isOver && this.clock.nowMs() < endMs) await this.#tick()
    return value
  }

  async #tick(): Promise<void> {
    await this.settle()
    await new Promise<void>(resolve => setTimeout(resolve, TICK_MS))
    const nowMs = performance.now()
    this.clock.advance(nowMs - this.#lastMs)
    this.#lastMs = nowMs
    await this.settle()
  }
}
