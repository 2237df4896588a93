/** Blocks its thread, or kills it. */

import { defineActor, type Reply } from '@homing/actor'

export type TunnelMessage =
  | { readonly type: 'where'; readonly reply: Reply<string> }
  | { readonly type: 'block' }
  | { readonly type: 'exit' }

export const tunnel = defineActor<TunnelMessage>(
  import.meta.url,
  'tunnel',
)({
  setup: ctx => ({
    where: ({ reply }) => reply(ctx.thread),
    block(): void {
      for (;;);
    },
    exit: () => process.exit(1),
  }),
})
