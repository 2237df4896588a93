/**
 * WorkerHost: threads are workers, linked by rings in shared memory.
 *
 * Warm spare: one worker waits, with the runtime and the modules of all actors loaded, for a name. The first
 * thread that dies gets it (3 ms instead of 30), and another one is prepared in the background. It costs
 * memory but no time: the first one is made when the start of the system is over.
 */

import { MessageChannel, Worker } from 'node:worker_threads'
import { type Log, systemClock, type Timer } from '@homing/base'
import type { PeerAddress } from '../links/frames.ts'
import { AWAY, type Life } from '../links/life.ts'
import { openRing } from '../links/ring/ring-link.ts'
import { RingStock } from '../links/ring/ring-stock.ts'
import type { Runtime } from '../runtime/runtime.ts'
import { describe } from '../values/thrown.ts'
import type { ThreadInit } from './thread.ts'
import type { SpareMessage, SpareReport } from './thread-entry.ts'
import type { HostedThread, LifeEvents, ThreadHost } from './thread-host.ts'

export interface WorkerHostOptions {
  readonly log: Log
  readonly execArgv: readonly string[] | undefined
  /** Keep a worker ready for the next death. */
  readonly hasSpare: boolean
  /** Heap of each worker in MB; undefined: as Node has it. */
  readonly heapMb?: number | undefined
  /** Words of the ring from one thread to another; a power of two. */
  readonly ringWords: number
}

/**
 * What a worker runs: the module beside this one, which is `.ts` in the repository and `.js` once built, with
 * Node's compile cache, which keeps compiled modules on disk. A thread starts from TypeScript in 58 ms
 * instead of 160, from JavaScript in 57 instead of 66. An entry that is a file would be compiled first,
 * without the cache: 20 ms. One that is evaluated would not wait for the modules of `--import`.
 * NODE_COMPILE_CACHE says where it is (default: with temporary files), NODE_DISABLE_COMPILE_CACHE=1 does
 * without. Node 20 has none.
 */
const ENTRY = new URL(
  `data:text/javascript,${encodeURIComponent(
    `import * as nodeModule from 'node:module'
    nodeModule.enableCompileCache?.()
    await import(${JSON.stringify(entryUrl().href)})`,
  )}`,
)

/** After this many spares in a row have died unused, no more are made. */
const SPARE_DEATHS_MAX = 3
const YOUNG_MB_MAX = 48
/** The next spare is made this long after one was needed: heirs are at work by then. */
const SPARE_DELAY_MS = 50
/** And the first one after the start of the threads, whose actors need the cores themselves. */
const FIRST_SPARE_DELAY_MS = 2000

export class WorkerHost implements ThreadHost {
  readonly #options: WorkerHostOptions
  readonly #rings: RingStock
  readonly #modules = new Set<string>()
  #spare: SpareWorker | undefined
  #nextSpare: Timer | undefined
  #spareDeaths = 0
  #isSpareWanted = false

  constructor(options: WorkerHostOptions) {
    this.#options = options
    this.#rings = new RingStock(options.ringWords)
  }

  start(init: ThreadInit, events: LifeEvents): HostedThread {
    const ports = init.peers.map(peer => peer.port)
    const spare = this.#spare
    if (spare?.isLoaded === true && init.heapMb === undefined) {
      this.#spare = undefined
      this.#spareDeaths = 0
      spare.take(init, ports, events)
      // Making a worker takes main and a core some time, which the heir has more use for.
      this.#prepareSpareIn(SPARE_DELAY_MS)
      return spare
    }
    return new StartedWorker(
      this.#newWorker(init.thread, init, ports),
      events,
      this.#options.log,
      init.thread,
    )
  }

  link(running: Life, starting: Life): readonly [PeerAddress, PeerAddress] {
    const { port1, port2 } = new MessageChannel()
    const { toRunning, toStarting, isHeir } = this.#rings.link(running, starting)
    return [
      { name: running.name, uid: running.uid, port: port1, out: toRunning, in: toStarting, isHeir },
      { name: starting.name, uid: starting.uid, port: port2, out: toStarting, in: toRunning, isHeir: false },
    ]
  }

  linked(reader: Life, writer: Life): void {
    this.#rings.linked(reader, writer)
  }

  linkAway(name: string, starting: Life): PeerAddress {
    const { port1, port2 } = new MessageChannel()
    port2.close()
    const { toAway, silent } = this.#rings.linkAway(name, starting)
    return { name, uid: AWAY, port: port1, out: toAway, in: silent, isHeir: false }
  }

  open(runtime: Runtime, address: PeerAddress): void {
    openRing(runtime, address)
  }

  forgetLife(life: Life, hasEnded: boolean): void {
    this.#rings.forgetLife(life, hasEnded)
  }

  /** Its rings are used again as each of the others forgets it. */
  forgetThread(): void {}

  forgot(life: Life, thread: string): void {
    this.#rings.forgot(life, thread)
  }

  noteModule(moduleUrl: string): void {
    if (this.#modules.has(moduleUrl)) return
    this.#modules.add(moduleUrl)
    this.#spare?.preload([moduleUrl])
  }

  started(): void {
    this.#isSpareWanted = this.#options.hasSpare
    if (this.#isSpareWanted) this.#prepareSpareIn(FIRST_SPARE_DELAY_MS)
  }

  async dispose(): Promise<void> {
    this.#isSpareWanted = false
    this.#nextSpare?.cancel()
    const spare = this.#spare
    this.#spare = undefined
    await spare?.terminate()
  }

  #prepareSpareIn(delayMs: number): void {
    this.#nextSpare = systemClock.after(delayMs, () => this.#prepareSpare(), { unref: true })
  }

  #prepareSpare(): void {
    if (!this.#isSpareWanted || this.#spare !== undefined) return
    let worker: Worker
    try {
      worker = this.#newWorker('spare', undefined, [])
    } catch (error) {
      this.#options.log.warn({ error: describe(error) }, 'no spare thread: it could not be made')
      return
    }
    const spare = new SpareWorker(worker, this.#options.log, () => {
      if (this.#spare !== spare) return
      this.#spare = undefined
      this.#spareDeaths++
      if (this.#spareDeaths < SPARE_DEATHS_MAX) this.#prepareSpare()
      else this.#options.log.warn({ deaths: this.#spareDeaths }, 'no spare thread left: each has died')
    })
    spare.preload([...this.#modules])
    this.#spare = spare
  }

  #newWorker(name: string, init: ThreadInit | undefined, transferList: readonly MessagePort[]): Worker {
    const heapMb = init?.heapMb ?? this.#options.heapMb
    return new Worker(ENTRY, {
      name,
      workerData: init,
      transferList: [...transferList] as never,
      ...(heapMb === undefined ? {} : { resourceLimits: limitsOf(heapMb) }),
      ...(this.#options.execArgv === undefined ? {} : { execArgv: [...this.#options.execArgv] }),
    })
  }
}

/** By default the young generation may take 192 MB beside the old one. */
function limitsOf(heapMb: number): { maxOldGenerationSizeMb: number; maxYoungGenerationSizeMb: number } {
  return {
    maxOldGenerationSizeMb: heapMb,
    maxYoungGenerationSizeMb: Math.min(YOUNG_MB_MAX, Math.ceil(heapMb / 8)),
  }
}

type MessagePort = PeerAddress['port']

/** A worker with the life that it was started for. */
class StartedWorker implements HostedThread {
  protected readonly worker: Worker
  protected events: LifeEvents | undefined

  constructor(worker: Worker, events: LifeEvents | undefined, log: Log, thread: string) {
    this.worker = worker
    this.events = events
    // Without an error listener the crash of a thread would be rethrown here and end the process.
    worker.on('error', error => this.failed(error))
    worker.on('messageerror', error => {
      log.warn({ peer: thread, error: describe(error) }, 'unreadable message of a thread')
    })
    worker.on('exit', exitCode => this.exited(`it exited with code ${exitCode}`))
  }

  terminate(): Promise<unknown> {
    return this.worker.terminate()
  }

  abandon(): void {
    this.worker.unref()
  }

  protected failed(error: unknown): void {
    this.events?.failed(error)
  }

  protected exited(why: string): void {
    this.events?.exited(why)
  }
}

/** A worker that waits for a life. */
class SpareWorker extends StartedWorker {
  /** The runtime is loaded; modules may still be. */
  isLoaded = false
  readonly #log: Log
  readonly #onDeath: () => void

  constructor(worker: Worker, log: Log, onDeath: () => void) {
    super(worker, undefined, log, 'spare')
    this.#log = log
    this.#onDeath = onDeath
    worker.once('message', (report: SpareReport) => {
      this.isLoaded = report === 'loaded'
    })
    // It must not keep the process alive before it has something to do.
    worker.unref()
  }

  preload(moduleUrls: readonly string[]): void {
    this.worker.postMessage({ type: 'preload', moduleUrls } satisfies SpareMessage)
  }

  /** Makes it the thread of a life. */
  take(init: ThreadInit, ports: readonly MessagePort[], events: LifeEvents): void {
    this.events = events
    this.worker.ref()
    this.worker.postMessage({ type: 'start', init } satisfies SpareMessage, [...ports])
  }

  protected override failed(error: unknown): void {
    if (this.events === undefined) this.#log.warn({ error: describe(error) }, 'spare thread failed')
    else super.failed(error)
  }

  protected override exited(why: string): void {
    if (this.events === undefined) this.#onDeath()
    else super.exited(why)
  }
}

function entryUrl(): URL {
  const extension = import.meta.url.slice(import.meta.url.lastIndexOf('.'))
  return new URL(`./thread-entry${extension}`, import.meta.url)
}
