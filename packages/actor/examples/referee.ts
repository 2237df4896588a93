/** Referee: has two players, on two threads, play one rally at a time. */

import { type ActorRef, defineActor, type Reply } from '@homing/actor'
import { type Over, type PlayerMessage, player } from './player.ts'

export type RefereeMessage =
  | { readonly type: 'rally'; readonly hits: number; readonly reply: Reply<string> }
  | Over

export const referee = defineActor<RefereeMessage, { readonly threads: readonly string[] }>(
  import.meta.url,
  'referee',
)({
  setup({ self, spawn }, { threads }) {
    const [ping, pong] = threads.map((thread, i): ActorRef<PlayerMessage> => {
      return spawn(player, { name: i === 0 ? 'ping' : 'pong', thread })
    })
    let answer: Reply<string> | undefined
    return {
      rally({ hits, reply }) {
        answer = reply
        ping!.tell({ type: 'serve', to: pong!, hits, over: self })
      },
      over: ({ lastHitBy }) => answer?.(lastHitBy),
    }
  },
})
