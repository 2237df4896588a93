/** An actor whose module loads slowly on other threads, like one with many imports. */

import { isMainThread } from 'node:worker_threads'
import { defineActor, type Reply } from '@homing/actor'

if (!isMainThread) await new Promise(resolve => setTimeout(resolve, 100))

export const slow = defineActor(
  import.meta.url,
  'slow',
)<{ readonly type: 'note' } | { readonly type: 'notes'; readonly reply: Reply<number> }>({
  setup() {
    let notes = 0
    return {
      note() {
        notes++
      },
      notes: m => m.reply(notes),
    }
  },
})
