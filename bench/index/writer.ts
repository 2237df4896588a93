/** Writer: the writer thread as the issuer sees it. */

import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { type IndexMemory, IndexReader } from '@homing/index'
import { openCorpus } from './corpora.ts'
import { CHECK, createEventRing, EventIssuer, FRESH, REMOVED_MAX, STOP } from './event-ring.ts'
import type { Corpus } from './kvc1.ts'
import { ringSlots, warmUpChoice } from './parameters.ts'
import type { Reference } from './reference.ts'
import type { WriterTask } from './writer-thread.ts'

export class Writer {
  readonly issuer: EventIssuer
  /** By slot since `fresh`: from accepted to applied, in microseconds, of those issued with a time. */
  readonly appliedUs: Float64Array
  readonly #worker: Worker

  static async start(corpus: Corpus, reference: Reference): Promise<Writer> {
    const { totals } = corpus
    const ring = createEventRing(ringSlots)
    const slotsMax = totals.storedEvents + totals.removedEvents + totals.removedBlocks / REMOVED_MAX
    const task: WriterTask = {
      ring,
      workers: totals.workers,
      warmUpPath: openCorpus(warmUpChoice).path,
      held: reference.held,
      appliedUs: new Float64Array(new SharedArrayBuffer(8 * Math.ceil(slotsMax))),
    }
    const worker = new Worker(new URL('./writer-thread.ts', import.meta.url), {
      workerData: task,
      // It reads the parameters of the bench as this thread does.
      argv: process.argv.slice(2),
    })
    await once(worker, 'message')
    return new Writer(worker, new EventIssuer(ring), task.appliedUs)
  }

  private constructor(worker: Worker, issuer: EventIssuer, appliedUs: Float64Array) {
    this.#worker = worker
    this.issuer = issuer
    this.appliedUs = appliedUs
  }

  /** Begins a new index; a reader of it. */
  async fresh(): Promise<IndexReader> {
    const answered = once(this.#worker, 'message')
    this.issuer.order(FRESH)
    const [memory] = (await answered) as [IndexMemory]
    return new IndexReader([memory])
  }

  /** Rejects when the index does not hold what it should. CPU time of the writer thread since `fresh`. */
  async check(): Promise<number> {
    const answered = once(this.#worker, 'message')
    this.issuer.order(CHECK)
    const [cpuUs] = (await answered) as [number]
    return cpuUs
  }

  async stop(): Promise<void> {
    const ended = once(this.#worker, 'exit')
    this.issuer.order(STOP)
    await ended
  }
}
