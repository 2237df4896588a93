/** Fleets for the tests of this folder. */

import type { EngineFamily, Fleet, WorkerModel, WorkerState } from '@homing/fleet'

export interface WorkerOptions {
  readonly id?: string
  readonly origin?: string
  readonly state?: WorkerState
  readonly engine?: EngineFamily
  readonly models?: readonly WorkerModel[]
  readonly blockSizeTokens?: number | undefined
  readonly canTokenize?: boolean
  readonly promptsEpoch?: number
}

export function model(name: string, root?: string): WorkerModel {
  return { name, base: undefined, root, maxModelTokens: undefined }
}

export function adapter(name: string, base: string): WorkerModel {
  return { name, base, root: `/adapters/${name}`, maxModelTokens: undefined }
}

/** Workers that serve the model `m` in blocks of 16 tokens, unless they say otherwise. */
export function fleetOf(...workers: WorkerOptions[]): Fleet {
  return {
    version: 1,
    workers: workers.map((options, instanceId) => {
      const { id = `worker-${instanceId}`, blockSizeTokens } = { blockSizeTokens: 16, ...options }
      return {
        id,
        instanceId,
        joinedMs: 1,
        origin: options.origin ?? `http://${id}`,
        state: options.state ?? 'up',
        stateReason: '',
        engine: options.engine ?? 'vllm',
        engineVersion: '',
        models: options.models ?? [model('m')],
        blockSizeTokens:
          blockSizeTokens === undefined ? undefined : { value: blockSizeTokens, source: 'probed' },
        maxBatchedTokens: { value: 8192, source: 'default' },
        kvBlocks: undefined,
        ranks: { value: 1, source: 'default' },
        taints: [],
        canTokenize: options.canTokenize ?? false,
        promptsEpoch: options.promptsEpoch ?? 0,
        keys: [],
      }
    }),
  }
}
