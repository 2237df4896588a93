/** Reads one note at a time, and none before its gate opens. */

import { defineActor, type Reply } from '@homing/actor'

export type SlowReaderMessage =
  | { readonly type: 'wait'; readonly gate: Int32Array }
  | { readonly type: 'note'; readonly key: string; readonly n: number }
  | { readonly type: 'urgent' }
  | { readonly type: 'read'; readonly reply: Reply<readonly string[]> }

export const slowReader = defineActor<SlowReaderMessage>(
  import.meta.url,
  'slowReader',
)({
  control: ['urgent'],
  coalesce: message => (message.type === 'note' ? message.key : undefined),
  setup() {
    const notes: string[] = []
    return {
      async wait({ gate }) {
        const { value } = Atomics.waitAsync(gate, 0, 0)
        await value
      },
      note: ({ key, n }) => void notes.push(`${key}${n}`),
      urgent: () => void notes.push('urgent'),
      read: ({ reply }) => reply(notes),
    }
  },
})
