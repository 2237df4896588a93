/**
 * Worker table: the workers, in the order in which they were given or added, and facts about all of them
 * together.
 *
 * Owns the list. Otherwise pure: it answers from the fields that the other
 * modules wrote into the workers.
 */

import type { EventSource, Sourced, WorkerSpec } from '@homing/fleet'
import { blockSizeOfBoth, eventSourceOf, factsOf, type WorkerDefaults, type WorkerFacts } from '@homing/fleet'
import type { Worker } from './worker.ts'

interface SourcesOfRanks {
  readonly outcome: Worker['outcome']
  readonly byRank: Map<number, EventSource | undefined>
}

interface First {
  readonly worker: Worker
  readonly size: Sourced<number>
}

export class WorkerTable {
  readonly #defaults: WorkerDefaults
  readonly #workers = new Map<string, Worker>()
  /** Undefined: to be made anew. */
  #firsts: ReadonlyMap<string, First> | undefined
  /** Event sources of the ranks that were asked for, as long as the worker's answers are these. */
  readonly #eventSources = new WeakMap<WorkerSpec, SourcesOfRanks>()

  constructor(defaults: WorkerDefaults) {
    this.#defaults = defaults
  }

  /** Undefined: a worker of this id is there already. */
  tryAdd(spec: WorkerSpec, joinedMs: number, isOnTrial = false): Worker | undefined {
    if (this.#workers.has(spec.id)) return undefined
    const worker: Worker = {
      spec,
      state: 'probing',
      stateReason: 'not probed yet',
      unansweredSinceMs: undefined,
      isDownByAnswer: false,
      wasProbed: false,
      joinedMs,
      drain: undefined,
      pause: undefined,
      outcome: undefined,
      learnedBlockSizeTokens: undefined,
      promptsEpoch: 0,
      keys: [],
      wasAnnounced: false,
      isOnTrial,
    }
    this.#workers.set(spec.id, worker)
    this.#firsts = undefined
    return worker
  }

  get(workerId: string): Worker | undefined {
    return this.#workers.get(workerId)
  }

  /** Undefined: there is no worker with this id. The caller must end its keys and probes. */
  remove(workerId: string): Worker | undefined {
    const worker = this.#workers.get(workerId)
    this.#workers.delete(workerId)
    this.#firsts = undefined
    return worker
  }

  /** Whether this worker is still in the fleet. A later worker with the same id is a different one. */
  has(worker: Worker): boolean {
    return this.#workers.get(worker.spec.id) === worker
  }

  /** What a probe told, or its events showed. What follows from it for other workers is made anew. */
  learned(worker: Worker, facts: Partial<Pick<Worker, 'outcome' | 'learnedBlockSizeTokens'>>): void {
    Object.assign(worker, facts)
    this.#firsts = undefined
  }

  /** Where the events of a rank come from; undefined: from nowhere that is known. */
  eventSource({ spec, outcome }: Pick<Worker, 'spec' | 'outcome'>, dpRank: number): EventSource | undefined {
    // Every change of the fleet asks this of every key.
    const known = this.#eventSources.get(spec)
    const ofWorker = known?.outcome === outcome ? known : undefined
    if (ofWorker?.byRank.has(dpRank) === true) return ofWorker.byRank.get(dpRank)
    const { byRank } = ofWorker ?? { byRank: new Map<number, EventSource | undefined>() }
    if (ofWorker === undefined) this.#eventSources.set(spec, { outcome, byRank })
    const source = eventSourceOf(spec, outcome, dpRank, this.#defaults.broker)
    byRank.set(dpRank, source)
    return source
  }

  /** All workers, in the order given. */
  all(): Iterable<Worker> {
    return this.#workers.values()
  }

  facts(worker: Worker): WorkerFacts {
    return factsOf(worker.spec, worker.outcome, worker.learnedBlockSizeTokens, this.#defaults)
  }

  /** Block size that a listener may assume before its first event; undefined: none. */
  assumedBlockSizeTokens(worker: Worker): number | undefined {
    return worker.spec.blockSizeTokens ?? this.#defaults.blockSizeTokens ?? worker.outcome?.blockSizeTokens
  }

  /** Why the blocks of a worker cannot be compared with prompts; undefined: they can. */
  blockSizeFault(worker: Worker): string | undefined {
    const own = this.facts(worker).blockSizeTokens
    const learned = worker.learnedBlockSizeTokens
    if (own === undefined) return undefined
    if (learned !== undefined && learned !== own.value) {
      return `its events have blocks of ${learned} tokens, but ${own.value} were given: correct block_size or --kv-cache-block-size`
    }
    const firsts = this.#firstOfModels()
    for (const { name } of worker.outcome?.models ?? []) {
      const { worker: first, size } = firsts.get(name) ?? {}
      if (first === undefined || size === undefined || first === worker) continue
      // Its own events may show the size of its twin, too, where metrics name another one.
      if (own.source === 'probed' && size.source === 'learned') continue
      if (size.value !== own.value) {
        return `blocks of ${own.value} tokens, but ${first.spec.id} of the same model has ${size.value}: start both with the same block size`
      }
    }
    return undefined
  }

  /**
   * For each model the worker whose block size counts (`blockSizeOfBoth`); none: no size is known. Every key
   * asks for it, and there may be thousands of workers with a thousand models each.
   */
  #firstOfModels(): ReadonlyMap<string, First> {
    if (this.#firsts !== undefined) return this.#firsts
    const byModel = new Map<string, First>()
    for (const worker of this.#workers.values()) {
      if (worker.outcome === undefined) continue
      const { blockSizeTokens, models } = this.facts(worker)
      if (blockSizeTokens === undefined) continue
      for (const { name } of models) {
        const known = byModel.get(name)
        const better = blockSizeOfBoth(known?.size, blockSizeTokens)
        if (better === blockSizeTokens) byModel.set(name, { worker, size: blockSizeTokens })
      }
    }
    this.#firsts = byModel
    return byModel
  }
}
