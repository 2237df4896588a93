/**
 * Task pool: runs the tokenizer's tasks on worker threads, or on the actor's own thread if there are to be none.
 *
 *   request ──▶ up to LONG_BODY_BYTES ──▶ the thread of its affinity, or one that has less to do
 *           └─▶ longer ──▶ a thread for these alone, started with the first of them
 *
 * A thread reads one body at a time, to its end. A request that has waited too long for its turn is dropped, with its body; one that is
 * being read is not, because that would take the thread. So a request waits for at most the bodies before it on its thread, and none of
 * these is longer than LONG_BODY_BYTES, whatever text others send.
 */

import { availableParallelism } from 'node:os'
import { type Capability, defineCapability } from '@homing/actor'
import type { Clock } from '@homing/base'
import { Piscina } from 'piscina'
import { BodyReader, type BodyReaderOptions } from './body-reader.ts'
import { NoTokenizerThreadError, TokenizerOverloadedError } from './errors.ts'
import type { PoolOutcome, PoolTask, ReaderConfiguration, ReadTask, ThreadAnswer } from './pool-tasks.ts'
import { poolTasksUrl } from './pool-tasks-url.ts'

/** A thread that remembers the conversation is preferred until it has so many tasks more than another. */
const AFFINITY_QUEUE = 1

/** The worst text known takes 0.7 s a MiB, new prose 0.06. */
export const LONG_BODY_BYTES = 2 ** 20
/** The thread for long bodies gets this part of what is for remembering. */
const LONG_CACHE_SHARE = 1 / 4

export interface TaskPoolOptions {
  readonly clock: Clock
  readonly threads: number
  /** Tasks that may wait. */
  readonly queueMax: number
  /** Bytes for what the threads together remember of bodies and prompts. */
  readonly promptCacheBytes: number
  /** Bytes for the words that each tokenizer on each thread has seen. */
  readonly wordTableBytes: number
  /** A thread failed outside of a task, or could not be started. */
  readonly onError: (error: unknown) => void
}

export interface TaskPool {
  /** Resolves once every thread runs; rejects with NoTokenizerThreadError where one cannot be started. */
  start(): Promise<void>
  /**
   * Tasks of equal `affinity` (an integer) go to the same thread, which remembers what it has read of them, unless others
   * have less to do. Starts a thread that is gone; rejects with NoTokenizerThreadError where that is not possible, and
   * with TokenizerOverloadedError where `queueMax` tasks wait, or this one has waited `waitMsMax` milliseconds (default: no limit).
   */
  run(task: PoolTask, affinity?: number, waitMsMax?: number): Promise<PoolOutcome>
  /** What tasks from now on need; each thread is told of it before the first of them. */
  configure(configuration: ReaderConfiguration): void
  /** Bytes of what the threads remember of bodies and prompts, as of their last answers. */
  readonly promptCacheBytes: number
  /** Bytes of the words that the tokenizers of the threads have seen, likewise. */
  readonly wordTableBytes: number
  destroy(): Promise<void>
}

export type StartTaskPool = (options: TaskPoolOptions) => TaskPool

/** How a tokenizer makes its pool: of threads, unless something else is provided. */
export const taskPoolCapability: Capability<StartTaskPool> = defineCapability({
  name: 'tokenizer-pool',
  create: () => threadPool,
})

function threadPool(options: TaskPoolOptions): TaskPool {
  const configured: Configured = { current: undefined }
  const count = Math.max(1, Math.min(options.threads, availableParallelism()))
  const cacheBytes = (options.promptCacheBytes * (1 - LONG_CACHE_SHARE)) / count
  const threads = Array.from({ length: count }, () => new PoolThread(options, cacheBytes, configured))
  let long: PoolThread | undefined
  let isDestroyed = false
  /** One that is lost would keep for ever what waits: another one begins anew. */
  const thread = (number: number): PoolThread => {
    const current = threads[number]!
    if (current.lostTo === undefined || isDestroyed) return current
    threads[number] = new PoolThread(options, cacheBytes, configured)
    return threads[number]
  }
  const longThread = (): PoolThread => {
    if (long === undefined || (long.lostTo !== undefined && !isDestroyed))
      long = new PoolThread(options, options.promptCacheBytes * LONG_CACHE_SHARE, configured)
    return long
  }
  const all = (): readonly PoolThread[] => (long === undefined ? threads : [...threads, long])
  return {
    configure(configuration) {
      configured.current = configuration
    },
    get promptCacheBytes() {
      return all().reduce((sum, { cacheBytes }) => sum + cacheBytes, 0)
    },
    get wordTableBytes() {
      return all().reduce((sum, { wordTableBytes }) => sum + wordTableBytes, 0)
    },
    async start() {
      await Promise.all(threads.map((_, number) => thread(number).started))
    },
    async run(task, affinity = 0, waitMsMax) {
      const own = (affinity >>> 0) % count
      const free = threads.reduce(
        (best, { pending }, i) => (pending < threads[best]!.pending ? i : best),
        own,
      )
      const isBusy = threads[own]!.pending > threads[free]!.pending + AFFINITY_QUEUE
      const waiting = all().reduce((sum, { reads }) => sum + Math.max(0, reads - 1), 0)
      if (task.type !== 'load' && waiting >= options.queueMax)
        throw new TokenizerOverloadedError(`${options.queueMax} wait for a tokenizer thread`)
      if (bodyBytesOf(task) > LONG_BODY_BYTES && !isDestroyed) return longThread().run(task, waitMsMax)
      return thread(isBusy ? free : own).run(task, waitMsMax)
    },
    async destroy() {
      isDestroyed = true
      const reason = new Error('the tokenizer is being stopped')
      await Promise.all(all().map(current => current.destroy(reason)))
    },
  }
}

function bodyBytesOf(task: PoolTask): number {
  return task.type === 'read' || task.type === 'check' ? task.body.length : 0
}

/** What the threads of one pool are to know. */
interface Configured {
  current: ReaderConfiguration | undefined
}

/** Shared memory that a body lies in while a thread reads it. */
class Desk {
  isFree = true
  #memory = new Uint8Array(new SharedArrayBuffer(0))

  put(body: Uint8Array): Uint8Array {
    if (this.#memory.length < body.length) {
      const size = Math.min(DESK_BODY_BYTES_MAX, 2 ** Math.ceil(Math.log2(body.length)))
      this.#memory = new Uint8Array(new SharedArrayBuffer(size))
    }
    this.#memory.set(body)
    return this.#memory.subarray(0, body.length)
  }
}

/** Bodies of one thread that are in shared memory at a time: one is read, one waits. */
const DESKS = 2
/** Shorter bodies are copied faster; longer ones would keep too much memory. */
const DESK_BODY_BYTES_MIN = 16 * 1024
const DESK_BODY_BYTES_MAX = 4 * 2 ** 20

/** A thread, started at once: later there may be no files for it. One that dies is replaced; what waits for it stays. */
class PoolThread {
  readonly started: Promise<void>
  /** What made it impossible to have a thread here; undefined while there is one. */
  lostTo: unknown
  /** Tasks that wait or are done. */
  pending = 0
  /** Of those, requests. */
  reads = 0
  /** As of its last answer. */
  cacheBytes = 0
  wordTableBytes = 0
  readonly #thread: Piscina<PoolTask | undefined, ThreadAnswer>
  readonly #onError: (error: unknown) => void
  readonly #configured: Configured
  readonly #desks = Array.from({ length: DESKS }, () => new Desk())
  readonly #clock: Clock
  /** The thread has a task. */
  #isBusy = false
  /** What begins the tasks that wait for it, in order. */
  readonly #waiting = new Set<() => void>()

  constructor(options: TaskPoolOptions, promptCacheBytes: number, configured: Configured) {
    const { clock, wordTableBytes, onError } = options
    this.#clock = clock
    this.#onError = onError
    this.#configured = configured
    const readerOptions: BodyReaderOptions = {
      promptCacheBytes: Math.floor(promptCacheBytes),
      wordTableBytes,
    }
    this.#thread = new Piscina({
      filename: poolTasksUrl,
      name: 'runPoolTask',
      minThreads: 1,
      maxThreads: 1,
      idleTimeout: Number.POSITIVE_INFINITY,
      workerData: readerOptions,
    })
    // A thread that fails without a task, which is how one that cannot start fails. With a task it rejects that.
    this.#thread.on('error', error => {
      onError(error)
      this.#afterFailure(error)
    })
    this.started = this.#start()
    // Callers of `started` get the rejection; without callers it must not be an unhandled one.
    this.started.catch(() => {})
  }

  async run(task: PoolTask, waitMsMax: number | undefined): Promise<PoolOutcome> {
    const reads = task.type === 'load' ? 0 : 1
    this.pending++
    this.reads += reads
    const desk = task.type === 'read' ? this.#deskFor(task.body.length) : undefined
    try {
      const lent = desk === undefined ? task : { ...task, body: desk.put((task as ReadTask).body) }
      if (this.#isBusy) await this.#turn(waitMsMax)
      this.#isBusy = true
      return await this.#run(lent).finally(() => this.#next())
    } finally {
      this.pending--
      this.reads -= reads
      if (desk !== undefined) desk.isFree = true
    }
  }

  /** Resolves when the thread is free for one more, in order. */
  #turn(waitMsMax: number | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const drop = () => {
        this.#waiting.delete(begin)
        reject(new TokenizerOverloadedError(`no tokenizer thread was free within ${waitMsMax} ms`))
      }
      const timer = waitMsMax === undefined ? undefined : this.#clock.after(waitMsMax, drop)
      const begin = () => {
        timer?.cancel()
        resolve()
      }
      this.#waiting.add(begin)
    })
  }

  #next(): void {
    const [begin] = this.#waiting
    if (begin === undefined) {
      this.#isBusy = false
      return
    }
    this.#waiting.delete(begin)
    begin()
  }

  async #run(task: PoolTask): Promise<PoolOutcome> {
    try {
      await this.started
      // It was lost while this waited; a pool that has ended would keep it for ever.
      if (this.lostTo !== undefined) throw new NoTokenizerThreadError(this.lostTo)
      const outcome = this.#noted(await this.#thread.run(task))
      const configuration = this.#configured.current
      if (outcome.kind !== 'unconfigured' || configuration === undefined) return outcome
      // The thread is new, or the configuration is.
      await this.#thread.run({ type: 'configure', configuration })
      return this.#noted(await this.#thread.run(task))
    } catch (thrown) {
      // Tasks never throw, so a thread has failed, or it was never there.
      if (this.lostTo !== undefined) throw new NoTokenizerThreadError(this.lostTo)
      this.#afterFailure(thrown)
      throw thrown
    }
  }

  #noted({ outcome, cacheBytes, wordTableBytes }: ThreadAnswer): PoolOutcome {
    this.cacheBytes = cacheBytes
    this.wordTableBytes = wordTableBytes
    return outcome
  }

  /** Shared memory for a body of this size, if it is worth it and some is free: else the body is copied twice, and each time anew. */
  #deskFor(size: number): Desk | undefined {
    if (size < DESK_BODY_BYTES_MIN || size > DESK_BODY_BYTES_MAX) return undefined
    const desk = this.#desks.find(({ isFree }) => isFree)
    if (desk !== undefined) desk.isFree = false
    return desk
  }

  /** Rejects what waits or runs. */
  async destroy(reason: unknown): Promise<void> {
    this.lostTo ??= reason
    await this.#thread.destroy()
  }

  async #start(): Promise<void> {
    try {
      await this.#thread.run(undefined, { name: 'startThread' })
    } catch (thrown) {
      if (this.lostTo === undefined) this.#onError(thrown)
      await this.destroy(thrown)
      throw new NoTokenizerThreadError(this.lostTo)
    }
  }

  #afterFailure(error: unknown): void {
    if (this.lostTo === undefined && this.#thread.threads.length === 0) void this.destroy(error)
  }
}

/**
 * A pool without threads: each task is copied and runs on this thread, after what `whenFree` answers; for simulations.
 * Prompts of token ids need no tokenizer; one that needs a directory of files would read real files.
 */
export function inlineTaskPool(whenFree: () => Promise<void>): StartTaskPool {
  return ({ promptCacheBytes, wordTableBytes }) => {
    const reader = new BodyReader({ promptCacheBytes, wordTableBytes })
    return {
      async start() {},
      configure(configuration) {
        reader.configure(structuredClone(configuration))
      },
      get promptCacheBytes() {
        return reader.bytes
      },
      get wordTableBytes() {
        return reader.wordTableBytes
      },
      async run(task) {
        const copy = structuredClone(task)
        await whenFree()
        return structuredClone(await reader.run(copy))
      },
      async destroy() {},
    }
  }
}
