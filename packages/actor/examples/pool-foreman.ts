/**
 * The foreman of the pool: supervises its workers, and hands each job on to the next of them, which answers.
 */

import { defineActor, type Reply } from '@homing/actor'
import { poolWorker } from './pool-worker.ts'

export type ForemanMessage = { readonly type: 'double'; readonly n: number; readonly reply: Reply<number> }

export const foreman = defineActor<ForemanMessage, { readonly workers: number }>(
  import.meta.url,
  'foreman',
)({
  setup(ctx, { workers }) {
    const pool = Array.from({ length: workers }, (_, index) =>
      ctx.spawn(poolWorker, {
        name: `worker-${index}`,
        thread: { pool: 'core', key: index },
        supervision: { directive: 'restart', max: 10, within: '1m', backoff: { min: '1ms', max: '1s' } },
      }),
    )
    let next = 0
    return {
      double({ n, reply }) {
        const worker = pool[next++ % pool.length]
        worker?.tell({ type: 'double', n, reply })
      },
    }
  },
})
