/**
 * Reader threads: the readers of a tokenizer, each an actor on its own thread, and the tasks that wait.
 *
 *   task ──▶ up to LONG_BODY_BYTES to read ──▶ the reader of its affinity, or one that has less to do
 *        └─▶ longer ──▶ a reader for these alone, started with the first of them
 *
 * A reader gets one task at a time and finishes it. Waiting tasks stay here, because a mailbox on the other
 * thread could not do this: leave a waiting body uncopied, drop a request that has waited too long while the
 * thread is busy, and keep all waiting tasks when the thread dies. So a request waits only for the bodies
 * before it, none of which is longer than LONG_BODY_BYTES.
 *
 * Fails  if a reader ends, its current task is lost; another one is spawned and gets the waiting tasks. If no
 *        thread can be started, the waiting tasks are refused, and the next request tries again.
 */

import { availableParallelism } from 'node:os'
import {
  type ActorContext,
  type ActorRef,
  ActorTerminatedError,
  AskRefusedError,
  type Message,
  type SpawnOptions,
  ThreadDownError,
} from '@homing/actor'
import type { BodyReaderOptions } from './body-reader.ts'
import { NoTokenizerThreadError, TokenizerOverloadedError } from './errors.ts'
import { sizeToRead } from './read-request.ts'
import { type ReaderMessage, reader } from './reader.ts'
import type {
  ReaderAnswer,
  ReaderConfiguration,
  ReaderOutcome,
  ReaderTask,
  ReadTask,
} from './reader-tasks.ts'

/** A reader that remembers the conversation is preferred until it has so many tasks more than another. */
const AFFINITY_QUEUE = 1

/** The worst text known takes 0.7 s a MiB, new prose 0.06. */
export const LONG_BODY_BYTES = 2 ** 20
/** The reader of long bodies gets this part of what is for remembering. */
const LONG_CACHE_SHARE = 1 / 4
/**
 * The longest body that a gateway takes is read in a small part of this, also by a machine that is busy with
 * other work.
 */
const READER_READ_MS_MAX = 10 * 60_000
/**
 * A task ends only with its thread: this limit is far beyond READER_READ_MS_MAX, after which a hanging thread
 * is ended.
 */
const READER_ASK_MS_MAX = 6 * READER_READ_MS_MAX

export interface ReaderThreadsOptions {
  readonly threads: number
  /** The readers are on the thread of their parent. */
  readonly isOnOneThread?: boolean
  /** Tasks that may wait. */
  readonly queueMax: number
  /** Bytes for what the readers together remember of bodies and prompts. */
  readonly promptCacheBytes: number
  /** Bytes for the words that each tokenizer of each reader has seen. */
  readonly wordTableBytes: number
  /** A reader failed outside of a task, or could not be started. */
  readonly onError: (error: unknown) => void
}

export interface ReaderThreads {
  /** Resolves once every reader runs; rejects with NoTokenizerThreadError where one cannot be started. */
  start(): Promise<void>
  /**
   * Tasks of equal `affinity` (an integer) go to the same reader, which remembers what it has read of them,
   * unless others have less to do. Starts a reader that is gone; rejects with NoTokenizerThreadError where
   * that is not possible, and with TokenizerOverloadedError where `queueMax` tasks wait, or this one has
   * waited `waitMsMax` milliseconds (default: no limit).
   */
  run(task: ReaderTask, affinity?: number, waitMsMax?: number): Promise<ReaderOutcome>
  /** Configuration for all later tasks; each reader gets it before its next task. */
  configure(configuration: ReaderConfiguration): void
  /** Bytes of what the readers remember of bodies and prompts, as of their last answers. */
  readonly promptCacheBytes: number
  /** Bytes of the words that the tokenizers of the readers have seen, likewise. */
  readonly wordTableBytes: number
}

/** The part of a context that is needed for children. */
export type Spawner = Pick<ActorContext<Message>, 'clock' | 'spawn' | 'watch'>

export class SpawnedReaders implements ReaderThreads {
  readonly #spawner: Spawner
  readonly #options: ReaderThreadsOptions
  readonly #readers: readonly ReaderThread[]
  /** Undefined until a long body comes. */
  #long: ReaderThread | undefined
  #configuration: ReaderConfiguration | undefined

  constructor(spawner: Spawner, options: ReaderThreadsOptions) {
    this.#spawner = spawner
    this.#options = options
    const count = Math.max(1, Math.min(options.threads, availableParallelism()))
    const cacheBytes = (options.promptCacheBytes * (1 - LONG_CACHE_SHARE)) / count
    this.#readers = Array.from({ length: count }, (_, number) =>
      this.#newReader(`reader-${number}`, cacheBytes),
    )
  }

  configure(configuration: ReaderConfiguration): void {
    this.#configuration = configuration
  }

  get promptCacheBytes(): number {
    return this.#all.reduce((sum, { cacheBytes }) => sum + cacheBytes, 0)
  }

  get wordTableBytes(): number {
    return this.#all.reduce((sum, { wordTableBytes }) => sum + wordTableBytes, 0)
  }

  async start(): Promise<void> {
    await Promise.all(this.#readers.map(one => one.start()))
  }

  async run(task: ReaderTask, affinity = 0, waitMsMax?: number): Promise<ReaderOutcome> {
    const readers = this.#readers
    const own = (affinity >>> 0) % readers.length
    const free = readers.reduce((best, { pending }, i) => (pending < readers[best]!.pending ? i : best), own)
    const isBusy = readers[own]!.pending > readers[free]!.pending + AFFINITY_QUEUE
    const waiting = this.#all.reduce((sum, { reads }) => sum + Math.max(0, reads - 1), 0)
    const { queueMax } = this.#options
    if (!isLoad(task) && waiting >= queueMax)
      throw new TokenizerOverloadedError(`${queueMax} wait for a tokenizer thread`)
    if (sizeOf(task) > LONG_BODY_BYTES) return this.#longReader.run(task, waitMsMax)
    return readers[isBusy ? free : own]!.run(task, waitMsMax)
  }

  /** An actor that was watched has ended. */
  terminated(ref: ActorRef<never>, error: unknown): void {
    for (const one of this.#all) one.terminated(ref, error)
  }

  get #all(): readonly ReaderThread[] {
    return this.#long === undefined ? this.#readers : [...this.#readers, this.#long]
  }

  get #longReader(): ReaderThread {
    this.#long ??= this.#newReader('reader-long', this.#options.promptCacheBytes * LONG_CACHE_SHARE)
    return this.#long
  }

  #newReader(name: string, promptCacheBytes: number): ReaderThread {
    const { wordTableBytes, isOnOneThread = false, onError } = this.#options
    const args = { promptCacheBytes: Math.floor(promptCacheBytes), wordTableBytes }
    const place = { name, thread: isOnOneThread ? 'here' : OWN_THREAD } as const
    return new ReaderThread(this.#spawner, place, args, () => this.#configuration, onError)
  }
}

function isLoad({ type }: ReaderTask): boolean {
  return type === 'load' || type === 'decoder'
}

/** As a thread reads it, with the ids beside the body. */
function sizeOf(task: ReaderTask): number {
  return task.type === 'read' || task.type === 'check' ? sizeToRead(task) : 0
}

function bodyBytesOf(task: ReaderTask): number {
  return task.type === 'read' || task.type === 'check' ? task.body.length : 0
}

const OWN_THREAD = { dedicated: { hungAfter: READER_READ_MS_MAX } } as const

/** Shorter bodies are cloned faster than moved. */
const MOVED_BYTES_MIN = 16 * 1024

type ReaderPlace = Required<Pick<SpawnOptions<never>, 'name' | 'thread'>>

/** One reader after the other on the same place. */
interface ReaderLife {
  readonly ref: ActorRef<ReaderMessage>
  /** Resolves when it runs; rejects with NoTokenizerThreadError. */
  readonly started: Promise<void>
  hasStarted: boolean
  /** Version of its configuration. */
  version: number
}

/**
 * A place for a reader, filled at once: later there may be no files for its thread. A reader that ends is
 * replaced; what waits stays.
 */
class ReaderThread {
  /** Tasks that wait or are done. */
  pending = 0
  /** Of those, requests. */
  reads = 0
  /** From the last answer. */
  cacheBytes = 0
  wordTableBytes = 0
  readonly #spawner: Spawner
  readonly #place: ReaderPlace
  readonly #args: BodyReaderOptions
  readonly #configuration: () => ReaderConfiguration | undefined
  readonly #onError: (error: unknown) => void
  /** Undefined: none could be started, and no task has come since. */
  #life: ReaderLife | undefined
  /** The reader has a task. */
  #isBusy = false
  /** The tasks that wait for it, in order. */
  readonly #waiting = new Set<Waiting>()

  constructor(
    spawner: Spawner,
    place: ReaderPlace,
    args: BodyReaderOptions,
    configuration: () => ReaderConfiguration | undefined,
    onError: (error: unknown) => void,
  ) {
    this.#spawner = spawner
    this.#place = place
    this.#args = args
    this.#configuration = configuration
    this.#onError = onError
    this.#life = this.#newLife()
  }

  async start(): Promise<void> {
    this.#life ??= this.#newLife()
    await this.#life.started
  }

  async run(task: ReaderTask, waitMsMax: number | undefined): Promise<ReaderOutcome> {
    const reads = isLoad(task) ? 0 : 1
    this.pending++
    this.reads += reads
    try {
      if (this.#isBusy) await this.#turn(waitMsMax)
      this.#isBusy = true
      return await this.#run(task).finally(() => this.#next())
    } finally {
      this.pending--
      this.reads -= reads
    }
  }

  /** An actor that was watched has ended. */
  terminated(ref: ActorRef<never>, error: unknown): void {
    const life = this.#life
    if (life?.ref.key !== ref.key || !life.hasStarted) return
    this.#onError(error)
    this.#replace(life)
  }

  /** Resolves when the reader is free for one more, in order. */
  #turn(waitMsMax: number | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const drop = () => {
        this.#waiting.delete(waiting)
        reject(new TokenizerOverloadedError(`no tokenizer thread was free within ${waitMsMax} ms`))
      }
      const timer = waitMsMax === undefined ? undefined : this.#spawner.clock.after(waitMsMax, drop)
      const waiting: Waiting = {
        begin() {
          timer?.cancel()
          resolve()
        },
        refuse(error) {
          timer?.cancel()
          reject(error)
        },
      }
      this.#waiting.add(waiting)
    })
  }

  #next(): void {
    const [first] = this.#waiting
    if (first === undefined) {
      this.#isBusy = false
      return
    }
    this.#waiting.delete(first)
    first.begin()
  }

  async #run(task: ReaderTask): Promise<ReaderOutcome> {
    this.#life ??= this.#newLife()
    const life = this.#life
    await life.started
    this.#configure(life)
    try {
      const { outcome, cacheBytes, wordTableBytes } = await ask(life.ref, task)
      this.cacheBytes = cacheBytes
      this.wordTableBytes = wordTableBytes
      return outcome
    } catch (thrown) {
      if (thrown instanceof AskRefusedError)
        throw new TokenizerOverloadedError('the heap of its tokenizer thread is nearly full')
      if (!(thrown instanceof ThreadDownError || thrown instanceof ActorTerminatedError)) throw thrown
      this.#replace(life)
      throw new Error(`cannot read the request: ${thrown.message}`, { cause: thrown })
    }
  }

  /** Sends the configuration, which arrives before the next task. */
  #configure(life: ReaderLife): void {
    const configuration = this.#configuration()
    if (configuration === undefined || configuration.version <= life.version) return
    if (life.ref.tell({ type: 'configure', configuration }) === 'ok') life.version = configuration.version
  }

  /** Another reader takes the place of one that has ended. */
  #replace(life: ReaderLife): void {
    if (this.#life !== life) return
    this.cacheBytes = 0
    this.wordTableBytes = 0
    try {
      this.#life = this.#newLife()
    } catch (thrown) {
      // The tokenizer has ended.
      this.#giveUp(life, new NoTokenizerThreadError(thrown))
    }
  }

  #newLife(): ReaderLife {
    const ref = this.#spawner.spawn(reader, {
      ...this.#place,
      args: this.#args,
      shutdown: 'kill',
    })
    this.#spawner.watch(ref)
    const started = ref.ask({ type: 'start' }, { timeout: READER_ASK_MS_MAX }).then(
      () => {
        life.hasStarted = true
      },
      (thrown: unknown) => {
        const error = new NoTokenizerThreadError((thrown as Error).cause ?? thrown)
        this.#onError(error)
        this.#giveUp(life, error)
        throw error
      },
    )
    // Callers of `start` and `run` get the rejection; without callers it must not be an unhandled one.
    started.catch(() => {})
    const life: ReaderLife = { ref, started, hasStarted: false, version: 0 }
    return life
  }

  /** No reader can be had: what waits is refused, and the next task tries again. */
  #giveUp(life: ReaderLife, error: NoTokenizerThreadError): void {
    if (this.#life === life) this.#life = undefined
    const waiting = [...this.#waiting]
    this.#waiting.clear()
    for (const { refuse } of waiting) refuse(error)
  }
}

interface Waiting {
  readonly begin: () => void
  readonly refuse: (error: Error) => void
}

/** A long body outside shared memory is copied once, and then moved. */
function ask(ref: ActorRef<ReaderMessage>, task: ReaderTask): Promise<ReaderAnswer> {
  const options = { timeout: READER_ASK_MS_MAX }
  if (bodyBytesOf(task) < MOVED_BYTES_MIN) return ref.ask({ type: 'run', task }, options)
  const { body } = task as ReadTask
  if (body.buffer instanceof SharedArrayBuffer) return ref.ask({ type: 'run', task }, options)
  const copy = new Uint8Array(body)
  return ref.ask(
    { type: 'run', task: { ...task, body: copy } as ReaderTask },
    { ...options, transfer: [copy.buffer] },
  )
}
