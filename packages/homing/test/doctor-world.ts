/**
 * Simulated engines with real sockets, and what a doctor prints about them: ports by the name of their
 * engine, no times.
 */

import { once } from 'node:events'
import { createServer, type Server } from 'node:net'
import { seededRandom, silentLog } from '@homing/base'
import type { DoctorSettings } from '@homing/config'
import {
  byteTokenizer,
  Engine,
  type EngineDescription,
  type EngineSettings,
  type EngineTokenizer,
} from '@homing/engine'
import { systemTransport, type Transport } from '@homing/transport'
import { freePort } from '@homing/transport/testing'
import { examine } from '../src/doctor-command.ts'
import { patientClock } from './patient-clock.ts'

/** Runs the teardown of what was begun; a test has it. */
export interface Ending {
  teardown(end: () => unknown): unknown
}

export type GivenDoctorSettings = Partial<Omit<DoctorSettings, 'workers' | 'json'>>

/** Long enough for a machine with other work, and waited out only for what does not answer. */
const SETTINGS: DoctorSettings = {
  workers: [],
  timeoutMs: 60_000,
  listenMs: 50,
  sends: false,
  asksHistory: true,
  engineKeyFile: undefined,
  engineCaFile: undefined,
  tokenizer: undefined,
  blockSizeTokens: undefined,
  json: false,
}

export interface StartedEngine extends EngineDescription {
  readonly engine: Engine
  readonly eventsPort: number
  readonly replayPort: number
}

/** The fields of `--json` that tests look at. */
export interface ShownDiagnosis {
  readonly worker: string
  readonly verdict: string
  readonly reachable_trust: string
  readonly reachable_trust_reason: string
  readonly engine_flags: string | null
  readonly findings: readonly {
    readonly level: string
    readonly about: string
    readonly text: string
    readonly remedy: string | null
  }[]
  readonly open_ports: readonly { readonly at: string; readonly use: string }[]
  readonly steps: readonly { readonly asked: string; readonly answered: string; readonly told: string }[]
}

export class DoctorWorld {
  /** Of the doctor and of its engines: they share this process. */
  readonly #clock = patientClock()
  readonly #transport: Transport = systemTransport({
    clock: this.#clock,
    log: silentLog,
    connectTimeoutMs: 5000,
  })
  /** What ports are called in what is printed. */
  readonly #names = new Map<number, string>()
  readonly #random = seededRandom(7)
  #count = 0

  constructor(t: Ending) {
    t.teardown(() => this.#transport.close())
  }

  /** Its ports are shown as 8001, 5557, 6557; those of the second as 8002, 5567, 6567. */
  async engine(
    t: Ending,
    settings: Partial<EngineSettings> = {},
    tokenizer: EngineTokenizer = byteTokenizer(),
  ): Promise<StartedEngine> {
    const engine = await Engine.start({
      settings: { port: 0, eventsPort: 0, replayPort: 0, speed: 0, blocks: 1000, ...settings },
      transport: this.#transport,
      tokenizer,
      clock: this.#clock,
      random: seededRandom(7),
      log: silentLog,
    })
    t.teardown(() => engine.close())
    const description = engine.describe()
    const { ranks, port } = description
    const position = this.#count++
    this.name(port, 8001 + position)
    for (const { rank, eventsPort, replayPort } of ranks) {
      this.name(eventsPort, 5557 + 10 * position + rank)
      // Where there is none, the port that would be proposed.
      this.name(replayPort ?? eventsPort + 1000, 6557 + 10 * position + rank)
    }
    const [first] = ranks
    return { ...description, engine, eventsPort: first?.eventsPort ?? 0, replayPort: first?.replayPort ?? 0 }
  }

  name(port: number, shown: number | string): void {
    this.#names.set(port, String(shown))
  }

  async show(workers: readonly string[], settings: GivenDoctorSettings = {}) {
    const { text, exitCode } = await this.#examine({ ...SETTINGS, ...settings, workers })
    return { text: this.#masked(text), exitCode }
  }

  /** Of one worker. */
  async look(worker: string, settings: GivenDoctorSettings = {}) {
    const { workers, exitCode } = await this.lookAtAll([worker], settings)
    return { ...workers[0]!, exitCode }
  }

  async lookAtAll(workers: readonly string[], settings: GivenDoctorSettings = {}) {
    const { text, exitCode } = await this.#examine({ ...SETTINGS, ...settings, workers, json: true })
    const read = JSON.parse(text) as {
      readonly exit_code: number
      readonly workers: readonly ShownDiagnosis[]
    }
    return { ...read, exitCode }
  }

  #examine(settings: DoctorSettings) {
    const world = { transport: this.#transport, clock: this.#clock, random: this.#random }
    return examine(settings, world)
  }

  #masked(text: string): string {
    return text
      .replace(/(?<=[:=]|on )\d{4,5}\b/g, port => this.#names.get(Number(port)) ?? port)
      .replace(/\b\d+ ms\b/g, 'N ms')
  }
}

/** A port of this machine where nothing listens, and which the system gives to no other process. */
export function closedPort(): Promise<number> {
  return freePort()
}

/** A server that sends back what it gets. */
export async function echoPort(t: Ending): Promise<number> {
  const server = await tcpServer()
  t.teardown(() => server.close())
  return (server.address() as { readonly port: number }).port
}

async function tcpServer(): Promise<Server> {
  const server = createServer(socket => {
    socket.on('error', () => {})
    socket.pipe(socket)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return server
}
