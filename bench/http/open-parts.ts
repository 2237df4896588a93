/**
 * The parts of the bench in an open loop: one server at a time between one load process and one of mock
 * engines. See the header of main.ts.
 */

import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { freePorts } from '@homing/transport/testing'
import { isSmoke, type Measure, type Measures, parameter, Skip, say } from '../harness.ts'
import type { LoadOrder, LoadReport } from './load.ts'
import type { MockEngineOptions } from './mock-engines.ts'
import { writeModel } from './model-folder.ts'
import { isHeld, RateSearch, type WindowFigures } from './open-loop.ts'
import { knowsCpuTime, treeUsage } from './processes.ts'
import { BLOCK_TOKENS, MODEL, type OpenWorkload, outlineOf } from './prompts.ts'
import type { Command, Place } from './rivals.ts'
import {
  type Helper,
  PINNED,
  type Server,
  type Stoppable,
  startCompanion,
  startHelper,
  startServer,
} from './servers.ts'
import { untilExact } from './trust.ts'

const firstS = parameter('firstS', { smoke: 0.4, full: 5 })
const measureS = parameter('measureS', { smoke: 0.4, full: 8 })
const directS = parameter('directS', { smoke: 0.3, full: 3 })
const openWarmUp = parameter('openWarmUp', { smoke: 10, full: 3000 })
const rateStart = parameter('rateStart', { smoke: 50, full: 300 })
const rateMax = parameter('rateMax', { smoke: 100, full: 40_000 })
const rateS = parameter('rateS', { smoke: 0.3, full: 2 })
const rateP99MsMax = parameter('rateP99MsMax', { smoke: 5000, full: 50 })

/** Requests a second by thousands of prompt tokens: what an engine or two would have to do. */
const RATES: Readonly<Record<string, number>> = { 1: 200, 12: 25, 100: 3 }
const STREAM_RATE = 50
const STREAM_TOKENS = 50
const CHUNK_MS = 20
const ENGINES = 2
const RATE_BODIES = 4096
const WARM_UP_CONCURRENCY = 16
const OPENINGS_CONCURRENCY = 4
/** Smaller lengths of a smoke run are as good. */
const SMOKE_RATE_SHARE = 0.2
const IDLE_MS = 1000
const DEADLINE_MS = 1000
const DRAIN_MS = 300
/** A rate that is not held while something else may be the reason is tried again. */
const DOUBTFUL_TRIES_MAX = 2
/** Beyond these a latency is more than what the server did. */
const LAG_MS_MAX = 5
const FOREIGN_CORES_MAX = 0.3
const REST_CORES_MAX = 0.9
const PART = /^open-(?:(seen|new|next)-(1|12|100)k|(stream|rate))(-events)?$/
const LOAD_PROGRAM = fileURLToPath(new URL('load.ts', import.meta.url))
const ENGINES_PROGRAM = fileURLToPath(new URL('mock-engines.ts', import.meta.url))

/** True for the name of a part of this kind. */
export function isOpenPart(name: string): boolean {
  return PART.test(name)
}

/** Those that a comparison runs. */
export const OPEN_PARTS: readonly string[] = [
  ...['open-seen-1k', 'open-seen-12k', 'open-seen-100k', 'open-stream', 'open-rate'],
  ...['open-new-1k-events', 'open-next-12k-events', 'open-next-100k-events'],
]

/** What stands between load and engines. */
export interface Arm {
  readonly name: string
  /** Undefined: nothing does. */
  readonly command: ((place: Place) => Command) | undefined
  /** Engines that it brings, where it cannot use those of the bench. */
  readonly engines?: ((place: Place) => Command) | undefined
  /** It follows the KV events of engines, and says so. */
  readonly isHoming: boolean
}

interface OpenPart {
  readonly name: string
  readonly workload: OpenWorkload
  readonly ratePerS: number
  readonly isRate: boolean
  readonly hasEvents: boolean
}

function partOf(name: string): OpenPart {
  const [, kind, thousands, form, events] = PART.exec(name)!
  const share = isSmoke ? SMOKE_RATE_SHARE : 1
  const ratePerS = Math.max(3, (form === 'stream' ? STREAM_RATE : RATES[thousands ?? '1']!) * share)
  return {
    name,
    ratePerS,
    isRate: form === 'rate',
    hasEvents: events !== undefined,
    workload: {
      kind: (kind ?? 'seen') as OpenWorkload['kind'],
      promptTokens: Number(thousands ?? 1) * 1000,
      outputTokens: form === 'stream' ? STREAM_TOKENS : 1,
      isStream: form === 'stream',
      count: form === 'rate' && !isSmoke ? RATE_BODIES : Math.ceil(ratePerS * (firstS + measureS) * 1.3) + 20,
      warmUp: openWarmUp,
    },
  }
}

/** One run of one part with one arm. */
export async function runOpenPart(name: string, arm: Arm, tokenizer: string): Promise<Measures | Skip> {
  if (!knowsCpuTime) return new Skip('the CPU time of another process is read from /proc, which is not here')
  const part = partOf(name)
  const helpers: Stoppable[] = []
  try {
    const engines: MockEngineOptions = {
      // The last is for what is sent directly, so that the server's ones begin with empty caches.
      ...{ count: ENGINES + 1, tokenizer, model: MODEL, chunkMs: CHUNK_MS },
      ...{ workload: part.workload, hasEvents: part.hasEvents },
    }
    const started = await Promise.all([
      startHelper(ENGINES_PROGRAM, [JSON.stringify(engines)]),
      startHelper(LOAD_PROGRAM, [JSON.stringify(part.workload)]),
    ])
    helpers.push(...started)
    return await new OpenRun({
      part,
      arm,
      tokenizer,
      engines: started[0],
      load: started[1],
      helpers,
    }).measure()
  } finally {
    // What was started last may need the others to end, and its files.
    for (const helper of helpers.toReversed()) await helper.stop()
  }
}

interface OpenRunOptions {
  readonly part: OpenPart
  readonly arm: Arm
  readonly tokenizer: string
  readonly engines: Helper
  readonly load: Helper
  /** All that is to be stopped; what the run starts is added. */
  readonly helpers: Stoppable[]
}

class OpenRun {
  readonly #part: OpenPart
  readonly #arm: Arm
  readonly #tokenizer: string
  /** Processes of the bench beside server and load. */
  readonly #others: number[]
  readonly #load: Helper
  readonly #helpers: Stoppable[]
  readonly #measures: Record<string, Measure> = {}
  readonly #urls: readonly string[]
  readonly #deadlineMs: number
  #server: Server | undefined
  #url = ''

  constructor({ part, arm, tokenizer, engines, load, helpers }: OpenRunOptions) {
    this.#part = part
    this.#arm = arm
    this.#tokenizer = tokenizer
    this.#others = [engines.pid]
    this.#load = load
    this.#helpers = helpers
    this.#deadlineMs = DEADLINE_MS + (part.workload.isStream ? STREAM_TOKENS * CHUNK_MS : 0)
    this.#urls = engines.first.match(/http:\/\/[^\s,]+/g) ?? []
  }

  async measure(): Promise<Measures> {
    const { workload, isRate, hasEvents } = this.#part
    const { first } = outlineOf(workload)
    const direct = await this.#direct(first)
    await this.#start()
    if (isRate) {
      await this.#warmUp()
      await this.#search(first)
    } else {
      let next = first
      if (workload.kind === 'next') {
        const count = first - workload.warmUp
        await this.#closed(workload.warmUp, count, OPENINGS_CONCURRENCY)
      } else {
        const report = await this.#open(this.#url, first, firstS, 1)
        this.#add(' first', report, direct.figures)
        next = report.next
      }
      await this.#warmUp()
      const report = await this.#open(this.#url, next, measureS, 2)
      this.#add('', report, direct.figures)
      if (report.overlapBlocks !== undefined)
        this.#measure('overlap', report.overlapBlocks * BLOCK_TOKENS, 'tokens')
    }
    if (this.#server !== undefined)
      this.#measure('resident after', treeUsage(this.#server.pid).residentMb, 'MB')
    if (this.#arm.isHoming && hasEvents) await untilExact(this.#url, ENGINES)
    return this.#measures
  }

  /** Load and engines are programs that compile, too; the figures are of when they have. */
  async #direct(first: number): Promise<LoadReport> {
    const url = this.#urls.at(-1)!
    await this.#closed(0, this.#part.workload.warmUp, WARM_UP_CONCURRENCY, url)
    await this.#open(url, first, directS / 2, 3)
    return this.#open(url, first, directS, 2)
  }

  async #start(): Promise<void> {
    const { command, engines } = this.#arm
    if (command === undefined) {
      this.#url = this.#urls[0]!
      return
    }
    const [port, ownPort] = (await freePorts(2)) as [number, number]
    this.#url = `http://127.0.0.1:${port}`
    const hello = { model: MODEL, messages: [{ role: 'user', content: 'hello' }], max_tokens: 1 }
    const folder = mkdtempSync(join(tmpdir(), 'homing-bench-'))
    this.#helpers.push({ stop: async () => rmSync(folder, { recursive: true, force: true }) })
    const modelFolder = join(folder, 'model')
    writeModel(modelFolder, this.#tokenizer)
    const place = { port, ownPort, folder, modelFolder, engines: this.#urls.slice(0, ENGINES) }
    if (engines !== undefined) {
      const companion = startCompanion(engines(place))
      this.#helpers.unshift(companion)
      this.#others.push(companion.pid)
    }
    this.#server = await startServer(command(place), this.#url, Buffer.from(JSON.stringify(hello)))
    this.#helpers.push(this.#server)
    this.#measure('ready', this.#server.readyMs / 1000, 's')
    if (!isSmoke) await pause(IDLE_MS)
    this.#measure('resident idle', treeUsage(this.#server.pid).residentMb, 'MB')
  }

  async #warmUp(): Promise<void> {
    await this.#closed(0, this.#part.workload.warmUp, WARM_UP_CONCURRENCY)
  }

  async #closed(from: number, count: number, concurrency: number, url = this.#url): Promise<void> {
    const { figures } = await this.#order({ type: 'closed', url, from, count, concurrency })
    assert.equal(figures.failed, 0, `${this.#arm.name} fails in the warm-up: ${figures.failure}`)
  }

  async #open(url: string, from: number, seconds: number, seed: number, rate = this.#part.ratePerS) {
    const report = await this.#order({
      type: 'open',
      isChecked: this.#arm.engines === undefined || url !== this.#url,
      ...{ url, from, ratePerS: rate, durationMs: seconds * 1000, seed, deadlineMs: this.#deadlineMs },
      ...{ server: this.#server?.pid, others: this.#others },
    })
    this.#sayDoubts(report, rate)
    return report
  }

  async #order(order: LoadOrder): Promise<LoadReport> {
    return JSON.parse(await this.#load.ask(JSON.stringify(order)))
  }

  async #search(first: number): Promise<void> {
    const search = new RateSearch(rateStart, rateMax)
    let from = first
    let cpuMs = 0
    for (let rate = search.next; rate !== undefined; rate = search.next) {
      let report: LoadReport
      let tries = 0
      do {
        report = await this.#open(this.#url, from, rateS, 1, rate)
        from = report.next
        await pause(DRAIN_MS)
      } while (
        !isHeld(report.figures, rateP99MsMax) &&
        doubts(report).length > 0 &&
        ++tries < DOUBTFUL_TRIES_MAX
      )
      const wasHeld = isHeld(report.figures, rateP99MsMax)
      if (wasHeld) cpuMs = (report.serverMs ?? 0) / report.figures.answered
      search.tried(wasHeld)
    }
    this.#measure('held', search.held, 'request/s')
    this.#measure('held CPU', cpuMs, 'ms CPU')
  }

  #add(when: string, report: LoadReport, direct: WindowFigures): void {
    const { figures } = report
    assert.ok(figures.answered > 0, `${this.#arm.name} answers nothing: ${figures.failure}`)
    if (report.serverMs !== undefined)
      this.#measure(`CPU${when}`, report.serverMs / figures.answered, 'ms CPU')
    this.#measure(`p50${when}`, figures.p50Ms, 'ms')
    this.#measure(`p99${when}`, figures.p99Ms, 'ms')
    if (this.#server !== undefined) {
      this.#measure(`added p50${when}`, figures.p50Ms - direct.p50Ms, 'ms')
      this.#measure(`added p99${when}`, figures.p99Ms - direct.p99Ms, 'ms')
    }
    if (this.#part.workload.isStream) {
      this.#measure(`first chunk p50${when}`, figures.firstP50Ms, 'ms')
      this.#measure(`gap p99${when}`, figures.gapP99Ms, 'ms')
    }
    this.#measure(`lag p99${when}`, figures.lagP99Ms, 'ms')
    this.#measure(`other cores${when}`, report.foreignCores, 'cores')
    const lost = figures.failed + figures.dropped
    if (lost > 0) this.#measure(`lost${when}`, lost, 'requests')
    if (figures.late > 0) this.#measure(`late${when}`, figures.late, 'requests')
    if (lost > 0)
      say(`    ${this.#arm.name} ${this.#part.name}: ${lost} of ${figures.due} lost: ${figures.failure}`)
  }

  #sayDoubts(report: LoadReport, rate: number): void {
    const reasons = doubts(report)
    if (reasons.length === 0 || isSmoke) return
    say(
      `    do not trust ${this.#arm.name} ${this.#part.name} at ${Math.round(rate)}/s: ${reasons.join('; ')}`,
    )
  }

  #measure(what: string, value: number, unit: string): void {
    this.#measures[`${this.#part.name} ${what}`] = { value, unit }
  }
}

/** Why the figures of a window may not be those of the server alone. */
function doubts({ figures, foreignCores, restCores }: LoadReport): readonly string[] {
  const { lagP99Ms } = figures
  return [
    ...(lagP99Ms > LAG_MS_MAX ? [`the load itself was late: lag p99 ${lagP99Ms.toFixed(1)} ms`] : []),
    ...(foreignCores > FOREIGN_CORES_MAX ? [`other processes took ${foreignCores.toFixed(2)} cores`] : []),
    ...(restCores > REST_CORES_MAX
      ? [`load and engines took ${restCores.toFixed(2)} cores, and are the limit`]
      : []),
    ...(PINNED === undefined ? ["no core is the server's alone (one core, or no taskset)"] : []),
  ]
}
