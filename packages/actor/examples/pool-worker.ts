/** A worker of the pool: doubles numbers, and fails at those that it does not like. */

import { defineActor, type Reply } from '@homing/actor'

export type PoolWorkerMessage = { readonly type: 'double'; readonly n: number; readonly reply: Reply<number> }

export const poolWorker = defineActor<PoolWorkerMessage>(
  import.meta.url,
  'poolWorker',
)({
  setup: () => ({
    double({ n, reply }) {
      if (n === 13) throw new Error('not 13')
      reply(2 * n)
    },
  }),
})
