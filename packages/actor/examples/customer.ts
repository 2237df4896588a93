/** Takes one coin out of an account: right when it is alone there. */

import { type ActorRef, defineActor, type Reply } from '@homing/actor'
import type { AccountMessage } from './account.ts'

export interface TakeMessage {
  readonly type: 'take'
  readonly from: ActorRef<AccountMessage>
  readonly reply: Reply<boolean>
}

export const customer = defineActor<TakeMessage>(
  import.meta.url,
  'customer',
)({
  setup: () => ({
    async take({ from, reply }) {
      const balance = await from.ask({ type: 'balance' }, { timeout: '1s' })
      if (balance > 0) from.tell({ type: 'set', balance: balance - 1 })
      reply(balance > 0)
    },
  }),
})
