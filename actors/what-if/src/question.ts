/**
 * Question: answers one question, on a thread of its own that ends with it.
 *
 * In     its task, with its args.
 * Out    `questionSaid` to what-if: progress, then one answer or error, which is the last message.
 * Owns   the simulation. The kept requests are in memory that both threads can read.
 * Bounds a heap of its own, the lowest priority of the system, and `cpuShare` of a core: a simulation pauses
 *        ten times a second, long enough to stay within its share.
 * Fails  a bug ends it, and its thread.
 */

import { setPriority } from 'node:os'
import { performance } from 'node:perf_hooks'
import process from 'node:process'
import { type ActorDefinition, type ActorRef, type Capability, defineActor } from '@homing/actor'
import { type Clock, CodedError, type ErrorRecord, systemClock, toErrorRecord } from '@homing/base'
import type { WhatIfAnswer, WhatIfProgress, WhatIfTask } from '@homing/simulate/what-if'

/** A report of a question. `answer` or `error` is the last one. */
export type QuestionWord =
  | { readonly kind: 'progress'; readonly progress: WhatIfProgress }
  | { readonly kind: 'answer'; readonly answer: WhatIfAnswer }
  | { readonly kind: 'error'; readonly error: ErrorRecord }

/** The message with a report. */
export interface QuestionSaid {
  readonly type: 'questionSaid'
  readonly run: string
  readonly word: QuestionWord
}

export interface QuestionArgs {
  readonly task: WhatIfTask
  /** Identifies the question in its reports. */
  readonly run: string
  readonly whatIf: ActorRef<QuestionSaid>
}

export type QuestionMessage =
  // From itself.
  | { readonly type: 'answered'; readonly answer: WhatIfAnswer }
  | { readonly type: 'failed'; readonly thrown: unknown }

const LOWEST_PRIORITY = 19

export const question = defineActor(
  import.meta.url,
  'question',
)<QuestionMessage, QuestionArgs>({
  setup({ pipe }, { task, run, whatIf }) {
    const say = (word: QuestionWord): void => void whatIf.tell({ type: 'questionSaid', run, word })
    const answering = answer(task, progress => say({ kind: 'progress', progress }))
    pipe(
      answering,
      answer => ({ type: 'answered', answer }),
      thrown => ({ type: 'failed', thrown }),
    )
    return {
      answered: ({ answer }) => say({ kind: 'answer', answer }),
      failed({ thrown }) {
        if (!(thrown instanceof CodedError)) throw thrown
        say({ kind: 'error', error: toErrorRecord(thrown) })
      },
    }
  },
})

/** The actor that answers; a test has its own, because this one changes the priority of its thread. */
export const questionActor: Capability<ActorDefinition<QuestionMessage, QuestionArgs>> = {
  name: 'question actor',
  create: () => question,
}

async function answer(
  task: WhatIfTask,
  onProgress: (progress: WhatIfProgress) => void,
): Promise<WhatIfAnswer> {
  // On Linux this sets the priority of this thread only; elsewhere it would be that of the whole router.
  if (process.platform === 'linux') setPriority(0, LOWEST_PRIORITY)
  // Reading the simulator is half a second of work; it is done at that priority, too.
  const { answerWhatIf } = await import('@homing/simulate/what-if/answer')
  let settledMs = 0
  const pacedClock: Clock = {
    ...systemClock,
    after(delayMs, callback, options) {
      const usedMs = cpuMs()
      const pauseMs = (usedMs - settledMs) * (1 / task.cpuShare - 1)
      settledMs = usedMs
      return systemClock.after(delayMs + pauseMs, callback, options)
    },
  }
  return answerWhatIf(task, { clock: pacedClock, cpuMs, onProgress })
}

/** Of this thread. */
function cpuMs(): number {
  // Node 22 does not have it.
  const usage = (process as { threadCpuUsage?: NodeJS.Process['cpuUsage'] }).threadCpuUsage?.()
  if (usage === undefined) return performance.eventLoopUtilization().active
  return (usage.user + usage.system) / 1000
}
