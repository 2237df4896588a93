/**
 * Player: answers a ball with a ball until the rally is over.
 *
 * In     hit, from the other player; serve, from the actor that starts the rally.
 * Out    hit, to the other player; over, to the one who wants to know.
 */

import { type ActorRef, defineActor } from '@homing/actor'

export type PlayerMessage =
  | {
      readonly type: 'serve'
      readonly to: ActorRef<PlayerMessage>
      readonly hits: number
      readonly over: ActorRef<Over>
    }
  | {
      readonly type: 'hit'
      readonly from: ActorRef<PlayerMessage>
      readonly left: number
      readonly over: ActorRef<Over>
    }

export interface Over {
  readonly type: 'over'
  readonly lastHitBy: string
}

export const player = defineActor<PlayerMessage>(
  import.meta.url,
  'player',
)({
  setup({ self, name }) {
    return {
      serve: ({ to, hits, over }) => void to.tell({ type: 'hit', from: self, left: hits, over }),
      hit({ from, left, over }) {
        if (left === 0) over.tell({ type: 'over', lastHitBy: name })
        else from.tell({ type: 'hit', from: self, left: left - 1, over })
      },
    }
  },
})
