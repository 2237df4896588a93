/** Tells itself something later, once and again and again. */

import { defineActor, type Reply } from '@homing/actor'

export type AlarmMessage =
  | { readonly type: 'start'; readonly reply: Reply<readonly string[]> }
  | { readonly type: 'tick' }
  | { readonly type: 'once' }
  | { readonly type: 'never' }

export const alarm = defineActor<AlarmMessage>(
  import.meta.url,
  'alarm',
)({
  setup(ctx) {
    const heard: string[] = []
    let done: Reply<readonly string[]> | undefined
    let ticks: { cancel(): void } | undefined
    return {
      start({ reply }) {
        done = reply
        ticks = ctx.scheduleEvery('20ms', { type: 'tick' })
        ctx.schedule('1ms', { type: 'once' })
        ctx.schedule('2ms', { type: 'never' }).cancel()
      },
      once: () => void heard.push('once'),
      never: () => void heard.push('never'),
      tick() {
        heard.push('tick')
        if (heard.length < 4) return
        ticks?.cancel()
        done?.(heard)
      },
    }
  },
})
