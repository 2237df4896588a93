/**
 * Odd alarm: tells the operator of workers whose learned speed, or length of answers, is far from that of
 * their twins or from what any engine has (packages/load/src/odd-workers.ts). One line when that has lasted,
 * one when it is over.
 *
 * Twins     workers of the same engine family, base models and taints, whose KV caches are of about the same
 *           size: within KV_TWIN_RATIO from one to the next larger one. Engines do not say what hardware they
 *           run on; the size of the cache and the operator's taints show most of it.
 * Bounds    LINES_PER_MINUTE lines; those beyond it are counted in the next one. `GET /workers`, metrics and
 *           the page have all.
 */

import type { Log } from '@homing/base'
import type { WorkerRecord } from '@homing/fleet'
import { type ComparedWorker, type LearnedValues, type OddMark, OddWorkers } from '@homing/load'

/** Engines of the same hardware and settings differ by less: what is free when they start is not the same. */
const KV_TWIN_RATIO = 1.25
/** A fleet of one fault tells of it in a minute, and does not fill the log. */
const LINES_PER_MINUTE = 12
const MINUTE_MS = 60_000

export class OddAlarm {
  readonly #odd = new OddWorkers()
  readonly #log: Log
  #workers: readonly ComparedWorker[] = []
  /** Of the last fleet, if it came after the last look. */
  #fleet: readonly WorkerRecord[] | undefined
  #minuteMs = Number.NEGATIVE_INFINITY
  #lines = 0
  #untold = 0

  constructor(log: Log) {
    this.#log = log
  }

  takeFleet(workers: readonly WorkerRecord[]): void {
    this.#fleet = workers
  }

  look(learned: LearnedValues, nowMs: number): void {
    if (this.#fleet !== undefined) this.#workers = comparedWorkers(this.#fleet)
    this.#fleet = undefined
    for (const { worker, isOdd, figure, times, against, sinceMs } of this.#odd.look(
      learned,
      this.#workers,
      nowMs,
    )) {
      if (!this.#mayTell(nowMs)) {
        this.#untold++
        continue
      }
      const rounded = Number(times.toPrecision(3))
      const fields = { worker, figure, times: rounded, against, forMs: nowMs - sinceMs, untold: this.#untold }
      this.#untold = 0
      if (isOdd) this.#log.warn(fields, 'what was learned of a worker is far from what it should be')
      else this.#log.info(fields, 'what was learned of a worker is as it should be again')
    }
  }

  marks(worker: string): readonly OddMark[] {
    return this.#odd.marks(worker)
  }

  #mayTell(nowMs: number): boolean {
    if (nowMs - this.#minuteMs >= MINUTE_MS) {
      this.#minuteMs = nowMs
      this.#lines = 0
    }
    return ++this.#lines <= LINES_PER_MINUTE
  }
}

/** All worker keys, each with its kind. */
export function comparedWorkers(workers: readonly WorkerRecord[]): readonly ComparedWorker[] {
  const bySort = new Map<string, WorkerRecord[]>()
  for (const worker of workers) {
    const models = [...new Set(worker.models.map(({ base, name }) => base ?? name))].sort()
    const sort = JSON.stringify([worker.engine, models, [...worker.taints].sort()])
    const same = bySort.get(sort)
    if (same === undefined) bySort.set(sort, [worker])
    else same.push(worker)
  }
  const compared: ComparedWorker[] = []
  for (const [sort, same] of bySort) {
    let size = 0
    let last = 0
    for (const worker of same.sort((a, b) => blocksOf(a) - blocksOf(b))) {
      const blocks = blocksOf(worker)
      if (blocks > KV_TWIN_RATIO * last) size++
      last = blocks
      for (const { key, workerSlot } of worker.keys)
        compared.push({ worker: key, workerSlot, kind: `${size} ${sort}` })
    }
  }
  return compared
}

function blocksOf({ kvBlocks }: WorkerRecord): number {
  return kvBlocks?.value ?? 0
}
