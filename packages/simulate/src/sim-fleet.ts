/**
 * Sim fleet: the workers of a cell, in the form of the fleet that a router knows. One rank each; worker w has
 * worker slot w.
 */

import type { Fleet, WorkerRecord } from '@homing/fleet'
import type { Trust } from '@homing/index'
import type { CellSpec, ViewSpec } from './cell-types.ts'
import { engineProfile } from './engine-profile.ts'

/** How far a router may believe what its view says. */
export function trustOf({ kind }: ViewSpec): Trust {
  if (kind === 'none') return 'none'
  return kind === 'exact' || kind === 'late' ? 'exact' : 'approximate'
}

export class SimFleet {
  readonly #records: readonly WorkerRecord[]
  #version = 0

  constructor(spec: CellSpec) {
    this.#records = Array.from({ length: spec.workers }, (_, worker) => recordOf(spec, worker))
  }

  /** With these workers. */
  of(workers: ArrayLike<number>): Fleet {
    this.#version++
    return { version: this.#version, workers: Array.from(workers, worker => this.#records[worker]!) }
  }
}

function recordOf(spec: CellSpec, worker: number): WorkerRecord {
  const { blockTokens, view, pools } = spec
  const profile = engineProfile(spec.profile)
  const kvCapacityTokens = spec.kvCapacityTokens ?? profile.kvCapacityTokens
  return {
    id: String(worker),
    instanceId: worker,
    joinedMs: worker,
    origin: '',
    state: 'up',
    stateReason: '',
    engine: 'homing',
    engineVersion: '',
    models: [],
    blockSizeTokens: { value: blockTokens, source: 'given' },
    maxBatchedTokens: { value: profile.stepTokensMax, source: 'given' },
    // A fraction, where the capacity is no multiple of the block: all of its tokens count.
    kvBlocks: { value: kvCapacityTokens / blockTokens, source: 'given' },
    ranks: { value: 1, source: 'given' },
    taints: [],
    ...(pools !== undefined && {
      role: {
        value: worker < pools.prefill ? ('prefill' as const) : ('decode' as const),
        source: 'given' as const,
      },
    }),
    canTokenize: false,
    keys: [
      {
        key: `${worker}/0`,
        workerSlot: worker,
        dpRank: 0,
        eventsEndpoint: undefined,
        replayEndpoint: undefined,
        topic: '',
        shard: 0,
        trust: trustOf(view),
        trustReason: '',
        trustSinceMs: 0,
        epoch: 0,
      },
    ],
  }
}
