/**
 * An account that is robbed by those who look, wait and then take: between the two another may have taken.
 */

import { defineActor, type Reply } from '@homing/actor'

export type AccountMessage =
  | { readonly type: 'balance'; readonly reply: Reply<number> }
  | { readonly type: 'set'; readonly balance: number }

export const account = defineActor<AccountMessage, { readonly balance: number }>(
  import.meta.url,
  'account',
)({
  setup(_ctx, args) {
    let { balance } = args
    return {
      balance: ({ reply }) => reply(balance),
      set(message) {
        balance = message.balance
      },
    }
  },
})
