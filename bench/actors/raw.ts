/**
 * The raw figures: the same loads with nothing but the means of the platform: an array and a microtask on one
 * thread, a ring in shared memory or a MessagePort between two, a bare worker. No names, bounds, deadlines,
 * supervision, counters.
 */

import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import type { Tally } from './actors.ts'
import { type Add, nextTurn, perSecond, requireEqual } from './loads.ts'
import { askRecords, createRawRing, writeRecords } from './raw-ring.ts'
import type { RawTask } from './raw-worker.ts'

const QUEUE_SIZE = 4096

/** A worker that runs `task`, and has said so. */
export async function startRawWorker(task: RawTask): Promise<Worker> {
  const worker = new Worker(new URL('./raw-worker.ts', import.meta.url), { workerData: task, execArgv: [] })
  await once(worker, 'message')
  return worker
}

// ── One thread ───────────────────────────────────────────────────────────────────────────────────

type Arms = Readonly<Record<string, (message: never) => void>>

/** A queue, a microtask for each burst and a table of functions: the kernel that any actor needs at least. */
export class BareActor {
  readonly #arms: Arms
  readonly #slots: unknown[] = new Array(QUEUE_SIZE).fill(undefined)
  #head = 0
  #tail = 0
  #isPlanned = false

  constructor(arms: Arms) {
    this.#arms = arms
  }

  tell(message: { readonly type: string }): void {
    this.#slots[this.#tail & (QUEUE_SIZE - 1)] = message
    this.#tail++
    if (this.#isPlanned) return
    this.#isPlanned = true
    queueMicrotask(this.#turn)
  }

  readonly #turn = (): void => {
    while (this.#head !== this.#tail) {
      const at = this.#head & (QUEUE_SIZE - 1)
      const message = this.#slots[at] as { readonly type: string }
      this.#slots[at] = undefined
      this.#head++
      this.#arms[message.type]!(message as never)
    }
    this.#isPlanned = false
  }
}

/** Messages per second through a bare queue, in bursts. */
export async function bareTells(count: number, burst: number): Promise<number> {
  let seen = 0
  let violations = 0
  const actor = new BareActor({
    step: ({ n }: { n: number }) => {
      if (n !== ++seen) violations++
    },
  })
  const from = performance.now()
  for (let n = 1; n <= count; n++) {
    actor.tell({ type: 'step', n } as { type: string })
    if (n % burst === 0) await undefined
  }
  await undefined
  const rate = perSecond(count, from)
  requireEqual('bare tells', seen - violations, count)
  return rate
}

/** A promise and its resolve function in the message. */
export function bareAdd(): Add {
  const actor = new BareActor({
    add: ({ a, resolve }: { a: number; resolve: (value: number) => void }) => resolve(a + 1),
  })
  return a => new Promise<number>(resolve => actor.tell({ type: 'add', a, resolve } as { type: string }))
}

/** What a list of actors holds at least for each: an object, its arms, its queue, its place in a map. */
export function bareCell(id: number): object {
  return {
    id,
    name: 'idler',
    arms: undefined,
    slots: new Array(4),
    head: 0,
    tail: 0,
    isQueued: false,
    parent: null,
  }
}

// ── Two threads ──────────────────────────────────────────────────────────────────────────────────

/** Records of 64 bytes per second through a bare ring. */
export async function ringTells(count: number): Promise<number> {
  const inbound = new Int32Array(createRawRing())
  const worker = await startRawWorker({ task: 'readRing', inbound, count })
  const ended = once(worker, 'message')
  const from = performance.now()
  writeRecords(inbound, count)
  const [violations] = (await ended) as [number]
  const rate = perSecond(count, from)
  await worker.terminate()
  requireEqual('violations in a raw ring', violations, 0)
  return rate
}

/** Answers per second through two bare rings. */
export async function ringAsks(width: number, count: number): Promise<number> {
  const inbound = new Int32Array(createRawRing())
  const outbound = new Int32Array(createRawRing())
  const worker = await startRawWorker({ task: 'echoRing', inbound, outbound, count })
  const from = performance.now()
  const violations = askRecords(inbound, outbound, width, count)
  const rate = perSecond(count, from)
  await worker.terminate()
  requireEqual('violations in raw rings', violations, 0)
  return rate
}

/** Objects per second over a port, `perPost` in each post (1: alone, else in an array). */
export async function portTells(
  count: number,
  perPost: number,
  make: (n: number) => object,
): Promise<number> {
  const worker = await startRawWorker({ task: 'count' })
  const from = performance.now()
  for (let n = 1; n <= count; ) {
    if (perPost === 1) worker.postMessage(make(n++))
    else {
      const batch: object[] = []
      while (batch.length < perPost && n <= count) batch.push(make(n++))
      worker.postMessage(batch)
    }
    if (n % 1024 === 1) await nextTurn()
  }
  worker.postMessage(0)
  const [tally] = (await once(worker, 'message')) as [Tally]
  const rate = perSecond(count, from)
  await worker.terminate()
  requireEqual('objects over a raw port', tally.count - tally.violations, count)
  return rate
}

/** Runs `use` with an ask over a bare port. */
export async function withPortAdd<T>(use: (add: Add) => Promise<T>): Promise<T> {
  const worker = await startRawWorker({ task: 'echo' })
  const waiting = new Map<number, (answer: number) => void>()
  let count = 0
  worker.on('message', ({ n, answer }: { n: number; answer: number }) => {
    waiting.get(n)!(answer)
    waiting.delete(n)
  })
  const add: Add = a =>
    new Promise(resolve => {
      waiting.set(++count, resolve)
      worker.postMessage({ n: count, a })
    })
  const result = await use(add)
  await worker.terminate()
  return result
}

/** Milliseconds from a new worker to its first word. */
export async function workerStartMs(): Promise<number> {
  const from = performance.now()
  const worker = await startRawWorker({ task: 'start' })
  const ms = performance.now() - from
  await worker.terminate()
  return ms
}

/** Milliseconds from the post that makes a worker end itself to its exit event. */
export async function workerExitMs(): Promise<number> {
  const worker = await startRawWorker({ task: 'start' })
  const from = performance.now()
  worker.postMessage('exit')
  await once(worker, 'exit')
  return performance.now() - from
}
