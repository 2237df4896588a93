/**
 * Cell engines: the engines of a cell, and which of their steps ends next. An engine that has work is in a
 * step; a worker that stalls ends its step later.
 */

import { seededRandom } from '@homing/base'
import type { CellSpec } from './cell-types.ts'
import { type EngineSink, SimEngine } from './engine.ts'
import { engineProfile } from './engine-profile.ts'
import { EventHeap } from './event-heap.ts'
import type { SimRequest } from './sim-request.ts'

export interface EnginesSink extends EngineSink {
  /** What an engine tells from now on is of this time. */
  beginBatch(nowMs: number): void
}

/** Blocks that the cache of each engine of a cell takes. */
export function capacityBlocksOf({ kvCapacityTokens, profile, blockTokens }: CellSpec): number {
  return Math.floor((kvCapacityTokens ?? engineProfile(profile).kvCapacityTokens) / blockTokens)
}

export class CellEngines {
  readonly all: readonly SimEngine[]
  readonly #sink: EnginesSink
  readonly #heap: EventHeap
  readonly #stalls: NonNullable<CellSpec['stalls']>

  constructor(spec: CellSpec, sink: EnginesSink) {
    const { workers, blockTokens } = spec
    const profile = engineProfile(spec.profile)
    const capacityBlocks = capacityBlocksOf(spec)
    const slow = slowWorkers(spec)
    this.#sink = sink
    this.#stalls = spec.stalls ?? []
    this.#heap = new EventHeap(workers)
    this.all = Array.from({ length: workers }, (_, worker) => {
      return new SimEngine({
        worker,
        blockTokens,
        capacityBlocks,
        stepTokensMax: profile.stepTokensMax,
        sequencesMax: profile.sequencesMax,
        storeAt: spec.storeAt ?? 'prompt-end',
        slowness: slow.has(worker) ? spec.slow!.factor : 1,
        stepMs: work => profile.stepMs(work),
        sink,
      })
    })
  }

  /** When the next step ends; infinite: no engine has work. */
  get nextMs(): number {
    return this.#heap.nextMs
  }

  of(worker: number): SimEngine {
    return this.all[worker]!
  }

  /** Ends the next step, and begins another if its engine has more to do. */
  step(): void {
    const heap = this.#heap
    const nowMs = heap.nextMs
    const engine = this.all[heap.next]!
    this.#sink.beginBatch(nowMs)
    engine.finishStep()
    const ms = engine.startStep()
    if (ms < 0) heap.pop()
    else heap.moveNext(this.#stepEndMs(heap.next, nowMs, ms))
  }

  /** Begins a step of an engine that has got work, if it is in none. */
  wake(worker: number, nowMs: number): void {
    const engine = this.all[worker]!
    if (engine.isStepping) return
    this.#sink.beginBatch(nowMs)
    this.#heap.push(worker, this.#stepEndMs(worker, nowMs, engine.startStep()))
  }

  /** A worker dies. Returns the requests that it had. */
  kill(worker: number): SimRequest[] {
    const requests = this.all[worker]!.clear()
    this.#heap.remove(worker)
    return requests
  }

  /** When a step ends that begins now. A worker that stalls does nothing meanwhile. */
  #stepEndMs(worker: number, beganMs: number, stepMs: number): number {
    let endMs = beganMs + stepMs
    for (const stall of this.#stalls)
      if (stall.worker === worker && stall.atMs < endMs && beganMs < stall.atMs + stall.forMs)
        endMs += stall.atMs + stall.forMs - Math.max(beganMs, stall.atMs)
    return endMs
  }
}

/** Which workers are slow is drawn from the seed. */
function slowWorkers({ workers, slow, seed }: CellSpec): ReadonlySet<number> {
  const chosen = new Set<number>()
  if (slow === undefined) return chosen
  if (slow.worker !== undefined) return chosen.add(slow.worker)
  const random = seededRandom(seed ^ 0x1b873593)
  const count = Math.min(workers, Math.round(slow.share * workers))
  while (chosen.size < count) chosen.add(random.below(workers))
  return chosen
}
