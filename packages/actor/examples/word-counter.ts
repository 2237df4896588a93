/**
 * Word counter: an actor as you would write it in a module of your own.
 *
 * In     add; ask for a count.
 * Owns   the counts. They are lost when it restarts.
 * Fails  on text that is not a string; its supervisor restarts it.
 */

import { defineActor, type Reply } from '@homing/actor'

export type WordCounterMessage =
  | { readonly type: 'add'; readonly text: string }
  | { readonly type: 'count'; readonly word: string; readonly reply: Reply<number> }

export interface WordCounterArgs {
  readonly ignore: readonly string[]
}

export const wordCounter = defineActor<WordCounterMessage, WordCounterArgs>(
  import.meta.url,
  'wordCounter',
)({
  setup({ log, thread }, { ignore }) {
    const counts = new Map<string, number>()
    log.debug({ thread }, 'word counter started')
    return {
      add({ text }) {
        for (const word of text.toLowerCase().split(/\W+/)) {
          if (word !== '' && !ignore.includes(word)) counts.set(word, (counts.get(word) ?? 0) + 1)
        }
      },
      count({ word, reply }) {
        reply(counts.get(word) ?? 0)
      },
    }
  },
})
