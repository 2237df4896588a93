/**
 * Cell runner: runs cells on a pool of threads and keeps their results, so that no cell runs twice.
 *
 * A result is kept under the hash of everything that it depends on: the spec, the content of the trace or the
 * parameters of the generator, and the version of the code (see code-version.ts). A kept result starts no
 * thread.
 */

import { type Clock, fromErrorRecord } from '@homing/base'
import { Piscina } from 'piscina'
import type { CellOutcome, CellTask } from './cell-task.ts'
import { cellTaskUrl, cellThreadUrl } from './cell-task-url.ts'
import type { CellRun, CellSpec } from './cell-types.ts'
import { codeVersion, type SourceText, sourcesBehind } from './code-version.ts'
import { type ResultStore, resultKey } from './result-store.ts'
import { type Workload, workloadIdentity } from './workload.ts'

export interface CellRunnerOptions {
  readonly threads: number
  /** Undefined: nothing is kept. */
  readonly store: ResultStore<CellRun> | undefined
  readonly clock: Clock
  /** Where the threads find their task, for tests; default: the simulation. */
  readonly taskUrl?: string
}

export interface RunnerProgress {
  /** Cells that ended, those that were kept from an earlier run included. */
  readonly cellsDone: number
  readonly cellsKept: number
  readonly cellsExpected: number
  /** 0 … 1. */
  readonly share: number
  /** Undefined until something can be said. */
  readonly leftMs: number | undefined
}

/** The cell was given up because the runner was stopped. */
export class RunnerStopped extends Error {}

interface RunningCell {
  readonly weight: number
  readonly progress: Int32Array
}

export class CellRunner {
  readonly #options: CellRunnerOptions
  readonly #pool: Piscina<CellTask, CellOutcome>
  readonly #sources: readonly SourceText[]
  readonly #versions = new Map<string, string>()
  readonly #running = new Set<RunningCell>()
  #cellsDone = 0
  #cellsKept = 0
  #cellsExpected = 0
  /** Weights are in cells of average size. */
  #weightDone = 0
  #weightExpected = 0
  #startedMs: number | undefined
  #isStopped = false
  /** Why the pool cannot go on. */
  #fault: unknown

  constructor(options: CellRunnerOptions) {
    this.#options = options
    this.#sources = sourcesBehind(options.taskUrl ?? cellTaskUrl)
    this.#pool = new Piscina({
      filename: options.taskUrl ?? cellThreadUrl,
      name: 'runCellTask',
      minThreads: 0,
      maxThreads: options.threads,
      idleTimeout: 1000,
      // Without it, a task that finds every thread busy goes behind those that came after it.
      stricterFIFO: true,
    })
    // A thread that fails without a task; also an answer that crosses the end of the pool, which is nothing
    // to report.
    this.#pool.on('error', error => {
      if (this.#isStopped) return
      this.#fault = error
      void this.stop()
    })
  }

  /**
   * Says how many more cells will come (or, below 0, less), for the time left. `weight`: the work of one, in
   * any unit that all use.
   */
  expect(cells: number, weight: number): void {
    this.#cellsExpected += cells
    this.#weightExpected += cells * weight
  }

  /**
   * The run of a cell. Rejects with RunnerStopped after `stop`, and with what the simulation throws for bad
   * input.
   */
  async run(workload: Workload, spec: CellSpec, weight = 1): Promise<CellRun> {
    if (this.#isStopped) throw this.#fault ?? new RunnerStopped()
    const { store, clock } = this.#options
    const key = resultKey({ spec, workload: workloadIdentity(workload), code: this.#versionFor(spec) })
    const kept = store?.get(key)
    if (kept !== undefined) {
      this.#cellsKept++
      this.#cellsDone++
      this.#weightExpected -= weight
      return kept
    }
    this.#startedMs ??= clock.nowMs()
    const progress = new Int32Array(new SharedArrayBuffer(8))
    const cell = { weight, progress }
    this.#running.add(cell)
    let outcome: CellOutcome
    try {
      outcome = await this.#pool.run({ workload, spec, progress })
    } catch (thrown) {
      throw this.#isStopped ? (this.#fault ?? new RunnerStopped()) : thrown
    } finally {
      this.#running.delete(cell)
    }
    if (outcome.kind === 'error') throw fromErrorRecord(outcome.error)
    this.#cellsDone++
    this.#weightDone += weight
    store?.put(key, outcome.run)
    return outcome.run
  }

  get progress(): RunnerProgress {
    let weight = this.#weightDone
    for (const { weight: whole, progress } of this.#running) {
      const expected = Atomics.load(progress, 1)
      if (expected > 0) weight += whole * Math.min(1, Atomics.load(progress, 0) / expected)
    }
    const elapsedMs = this.#startedMs === undefined ? 0 : this.#options.clock.nowMs() - this.#startedMs
    const left = Math.max(0, this.#weightExpected - weight)
    return {
      cellsDone: this.#cellsDone,
      cellsKept: this.#cellsKept,
      cellsExpected: Math.max(this.#cellsExpected, this.#cellsDone),
      share: this.#weightExpected <= 0 ? 1 : Math.min(1, weight / this.#weightExpected),
      leftMs: weight > 0 ? (elapsedMs * left) / weight : undefined,
    }
  }

  /** Ends what runs; what waits is rejected. Idempotent. */
  async stop(): Promise<void> {
    this.#isStopped = true
    await this.#pool.destroy()
  }

  #versionFor({ selection }: CellSpec): string {
    // A rule or mode that uses no policy has a version without any.
    const policy = selection.rule === undefined && selection.mode === 'kv' ? (selection.policy ?? '') : ''
    let version = this.#versions.get(policy)
    if (version === undefined) {
      version = codeVersion(this.#sources, policy)
      this.#versions.set(policy, version)
    }
    return version
  }
}
