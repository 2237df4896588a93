/** An actor whose heap grows to a level and stays there, and one that only answers. */

import { getHeapStatistics } from 'node:v8'
import { resourceLimits } from 'node:worker_threads'
import { defineActor, type Reply } from '@homing/actor'

export type LeakerMessage =
  /** Grow by `kilobytes` a turn until the share `level` of the heap is in use. */
  | { readonly type: 'leak'; readonly level: number; readonly kilobytes: number }
  /** Grow in one turn until the heap is full. */
  | { readonly type: 'burst' }
  /** Whether it has stopped to grow. */
  | { readonly type: 'hasStopped'; readonly reply: Reply<boolean> }
  | { readonly type: 'never'; readonly reply: Reply<never> }

export type AnswererMessage =
  | { readonly type: 'answer'; readonly reply: Reply<string> }
  | { readonly type: 'note' }

const MEBIBYTE = 2 ** 20

export const leaker = defineActor(
  import.meta.url,
  'leaker',
)<LeakerMessage>({
  control: ['hasStopped'],
  setup(ctx) {
    const kept: number[][] = []
    let hasStopped = false
    const grow = (kilobytes: number): void => {
      // 8 bytes for each number that is no integer.
      kept.push(new Array<number>(kilobytes * 128).fill(0.5))
    }
    return {
      leak(message) {
        grow(message.kilobytes)
        const limitBytes = resourceLimits.maxOldGenerationSizeMb! * MEBIBYTE
        if (getHeapStatistics().used_heap_size < message.level * limitBytes) ctx.schedule(0, message)
        else hasStopped = true
      },
      burst() {
        for (;;) grow(32)
      },
      hasStopped: m => m.reply(hasStopped),
      never() {},
    }
  },
})

export const answerer = defineActor(
  import.meta.url,
  'answerer',
)<AnswererMessage>({
  setup: ctx => ({ answer: m => m.reply(ctx.thread), note() {} }),
})
