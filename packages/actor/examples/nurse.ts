/** Watches actors of any thread, and keeps what became of them. */

import { type ActorRef, defineActor, type Reply, signal } from '@homing/actor'

export type NurseMessage =
  | { readonly type: 'watch'; readonly patients: readonly ActorRef<never>[] }
  | { readonly type: 'report'; readonly reply: Reply<readonly string[]> }

export const nurse = defineActor<NurseMessage>(
  import.meta.url,
  'nurse',
)({
  setup(ctx) {
    const ends: string[] = []
    let count = 0
    let waiting: Reply<readonly string[]> | undefined
    const answer = (): void => {
      if (ends.length === count) waiting?.(ends.toSorted())
    }
    return {
      watch({ patients }) {
        count = patients.length
        for (const patient of patients) ctx.watch(patient)
      },
      report({ reply }) {
        waiting = reply
        answer()
      },
      [signal](given) {
        if (given.type !== 'terminated') return
        ends.push(
          `${given.ref.name}: ${given.reason}${given.error === undefined ? '' : `, ${given.error.code}`}`,
        )
        answer()
      },
    }
  },
})
