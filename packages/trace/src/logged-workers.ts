/** Logged workers: the worker keys of a fleet, as a decision log names them. */

import type { LoggedWorker } from './log-line.ts'

/** A worker, as the fleet of a router has it. */
export interface WorkerOfFleet {
  readonly keys: readonly { readonly key: string }[]
  readonly models: readonly { readonly name: string }[]
  readonly blockSizeTokens?: { readonly value: number } | undefined
  readonly kvBlocks?: { readonly value: number } | undefined
  readonly maxBatchedTokens: { readonly value: number }
  readonly state: string
}

export function loggedWorkers(workers: readonly WorkerOfFleet[]): readonly LoggedWorker[] {
  return workers.flatMap(worker =>
    worker.keys.map(({ key }) => ({
      key,
      models: worker.models.map(({ name }) => name),
      blockTokens: worker.blockSizeTokens?.value,
      kvBlocks: worker.kvBlocks?.value,
      stepTokensMax: worker.maxBatchedTokens.value,
      isUp: worker.state === 'up',
    })),
  )
}
