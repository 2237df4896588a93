/**
 * Task pool: where the tokenizer's tasks run. Worker threads, or, where there are to be none, the thread itself.
 */

import { availableParallelism } from 'node:os'
import { type Capability, defineCapability } from '@homing/actor'
import { Piscina } from 'piscina'
import { type PoolOutcome, type PoolTask, runPoolTask } from './pool-tasks.ts'
import { poolTasksUrl } from './pool-tasks-url.ts'

export interface TaskPoolOptions {
  readonly threads: number
  /** Tasks that may wait. */
  readonly queueMax: number
  /** A thread failed outside of a task. */
  readonly onError: (error: unknown) => void
}

export interface TaskPool {
  /** Tasks that wait. */
  readonly queueSize: number
  run(task: PoolTask): Promise<PoolOutcome>
  destroy(): Promise<void>
}

export type StartTaskPool = (options: TaskPoolOptions) => TaskPool

/** How a tokenizer makes its pool: of threads, unless something else is provided. */
export const taskPoolCapability: Capability<StartTaskPool> = defineCapability({
  name: 'tokenizer-pool',
  create: () => startThreadPool,
})

function startThreadPool({ threads, queueMax, onError }: TaskPoolOptions): TaskPool {
  const pool = new Piscina<PoolTask, PoolOutcome>({
    filename: poolTasksUrl,
    name: 'runPoolTask',
    minThreads: 1,
    maxThreads: Math.max(1, Math.min(threads, availableParallelism())),
    maxQueue: queueMax,
    idleTimeout: Number.POSITIVE_INFINITY,
  })
  // A thread that crashes rejects its own task; the pool replaces it.
  pool.on('error', onError)
  return {
    get queueSize() {
      return pool.queueSize
    },
    run: task => pool.run(task),
    destroy: () => pool.destroy(),
  }
}

/**
 * A pool without threads: each task is copied and runs on this thread, after what `whenFree` answers; for simulations.
 * Prompts of token ids need no tokenizer; one that needs a directory of files would read real files.
 */
export function inlineTaskPool(whenFree: () => Promise<void>): StartTaskPool {
  return () => ({
    queueSize: 0,
    async run(task) {
      const copy = structuredClone(task)
      await whenFree()
      return structuredClone(await runPoolTask(copy))
    },
    async destroy() {},
  })
}
