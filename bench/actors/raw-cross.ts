/**
 * The raw figures between two threads: rings in shared memory with both sides spinning, and a MessagePort. No
 * names, types, bounds, deadlines, supervision, counters.
 */

import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { type CpuCosts, costsOf, cpuTimes } from './cpu.ts'
import { type Add, nextTurn, perSecond, requireEqual } from './loads.ts'
import { askRecords, createRawRing, writeRecords } from './raw-ring.ts'
import type { RawTally, RawTask, RingOrder } from './raw-worker.ts'

/** Rounds of the event loop come after so many messages: a port is read between them. */
const TURN_MESSAGES = 1024

export type RawTells = CpuCosts & { readonly perS: number }

/** A worker that runs `task`, and has said so. */
export async function startRawWorker(task: RawTask): Promise<Worker> {
  const worker = new Worker(new URL('./raw-worker.ts', import.meta.url), { workerData: task, execArgv: [] })
  await once(worker, 'message')
  return worker
}

/** Records of 64 bytes through bare rings; both threads spin, so CPU time says nothing of their cost. */
export class RawRings {
  readonly #worker: Worker
  readonly #outbound: Int32Array
  readonly #inbound: Int32Array

  static async open(): Promise<RawRings> {
    const [outbound, inbound] = [new Int32Array(createRawRing()), new Int32Array(createRawRing())]
    const worker = await startRawWorker({ task: 'ring', inbound: outbound, outbound: inbound })
    return new RawRings(worker, outbound, inbound)
  }

  constructor(worker: Worker, outbound: Int32Array, inbound: Int32Array) {
    this.#worker = worker
    this.#outbound = outbound
    this.#inbound = inbound
  }

  async tell(count: number): Promise<{ readonly perS: number }> {
    const read = once(this.#worker, 'message')
    this.#worker.postMessage({ read: count } satisfies RingOrder)
    const from = performance.now()
    writeRecords(this.#outbound, count)
    const [violations] = (await read) as [number]
    requireEqual('violations in a raw ring', violations, 0)
    return { perS: perSecond(count, from) }
  }

  async ask(width: number, count: number): Promise<{ readonly perS: number }> {
    this.#worker.postMessage({ echo: count } satisfies RingOrder)
    const from = performance.now()
    requireEqual('violations in raw rings', askRecords(this.#outbound, this.#inbound, width, count), 0)
    return { perS: perSecond(count, from) }
  }

  async close(): Promise<void> {
    await this.#worker.terminate()
  }
}

/** Numbered objects over a bare port. */
export class RawPort {
  readonly #worker: Worker
  #told = 0

  static async open(): Promise<RawPort> {
    return new RawPort(await startRawWorker({ task: 'count' }))
  }

  constructor(worker: Worker) {
    this.#worker = worker
  }

  /** `perPost` objects in each post: 1, or an array of them. */
  async tell(count: number, perPost: number, make: (n: number) => object): Promise<RawTells> {
    const before = await cpuTimes(async () => (await this.#tally()).cpuUs)
    const from = performance.now()
    const end = this.#told + count
    let turnAt = this.#told + TURN_MESSAGES
    while (this.#told < end) {
      if (perPost === 1) this.#worker.postMessage(make(++this.#told))
      else {
        const batch: object[] = []
        while (batch.length < perPost && this.#told < end) batch.push(make(++this.#told))
        this.#worker.postMessage(batch)
      }
      if (this.#told < turnAt) continue
      turnAt += TURN_MESSAGES
      await nextTurn()
    }
    const tally = await this.#tally()
    const perS = perSecond(count, from)
    requireEqual('objects over a raw port', tally.count - tally.violations, end)
    return { perS, ...costsOf(count, before, await cpuTimes(() => tally.cpuUs)) }
  }

  async close(): Promise<void> {
    await this.#worker.terminate()
  }

  async #tally(): Promise<RawTally> {
    this.#worker.postMessage(0)
    const [tally] = (await once(this.#worker, 'message')) as [RawTally]
    return tally
  }
}

/** An ask over a bare port, and the CPU time of its other side. */
export interface PortAdd {
  readonly add: Add
  readonly usageUs: () => Promise<number>
}

/** Runs `use` with an ask over a bare port. */
export async function withPortAdd<T>(use: (port: PortAdd) => Promise<T>): Promise<T> {
  const worker = await startRawWorker({ task: 'echo' })
  const waiting = new Map<number, (answer: number) => void>()
  let asks = 0
  let takeUsage: (us: number) => void = () => {}
  worker.on('message', (message: number | { n: number; answer: number }) => {
    if (typeof message === 'number') return takeUsage(message)
    waiting.get(message.n)!(message.answer)
    waiting.delete(message.n)
  })
  const add: Add = a =>
    new Promise(resolve => {
      waiting.set(++asks, resolve)
      worker.postMessage({ n: asks, a })
    })
  const usageUs = (): Promise<number> =>
    new Promise(resolve => {
      takeUsage = resolve
      worker.postMessage(0)
    })
  try {
    return await use({ add, usageUs })
  } finally {
    await worker.terminate()
  }
}
