/** Takes its time for each page, and says at its end how many it has filed. */

import { defineActor, type Reply, signal } from '@homing/actor'

export type ArchivistMessage =
  | { readonly type: 'page'; readonly n: number }
  | { readonly type: 'ready'; readonly reply: Reply<boolean> }

export interface ArchivistArgs {
  /** Pages that were filed, in memory that outlives the actor. */
  readonly filed: Int32Array
  readonly ms: number
}

export const archivist = defineActor<ArchivistMessage, ArchivistArgs>(
  import.meta.url,
  'archivist',
)({
  setup: (ctx, { filed, ms }) => ({
    ready: ({ reply }) => reply(true),
    page: () =>
      new Promise<void>(resolve => {
        ctx.clock.after(ms, () => {
          Atomics.add(filed, 0, 1)
          resolve()
        })
      }),
    [signal](given) {
      if (given.type === 'stopped') Atomics.store(filed, 1, 1)
    },
  }),
})
