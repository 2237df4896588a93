/**
 * What-if threads: the door to the thread on which a question is answered. One thread for one question; it ends with it.
 *
 * It has a heap of its own with a bound, and the lowest priority that the system knows, so whatever else wants a core has it first.
 */

import { Worker } from 'node:worker_threads'
import type { Capability } from '@homing/actor'
import type { ErrorRecord } from '@homing/base'
import type { WhatIfAnswer, WhatIfProgress, WhatIfTask } from '@homing/simulate/what-if'

/** What a thread says. After `answer` and `error` it says no more. */
export type ThreadWord =
  | { readonly kind: 'progress'; readonly progress: WhatIfProgress }
  | { readonly kind: 'answer'; readonly answer: WhatIfAnswer }
  | { readonly kind: 'error'; readonly error: ErrorRecord }

export interface WhatIfThread {
  /** Ends it, wherever it is. Idempotent. */
  stop(): void
}

export interface WhatIfThreads {
  /** `ended` is called once, if the thread is gone without an answer or an error; never after `stop`. */
  start(task: WhatIfTask, said: (word: ThreadWord) => void, ended: (reason: string) => void): WhatIfThread
}

const HEAP_MIB_MAX = 1024

export const whatIfThreads: Capability<WhatIfThreads> = {
  name: 'what-if threads',
  create: () => ({ start }),
}

const entry = new URL(`run-thread${import.meta.url.slice(import.meta.url.lastIndexOf('.'))}`, import.meta.url)

function start(
  task: WhatIfTask,
  said: (word: ThreadWord) => void,
  ended: (reason: string) => void,
): WhatIfThread {
  const worker = new Worker(entry, {
    workerData: task,
    name: 'what-if',
    resourceLimits: { maxOldGenerationSizeMb: HEAP_MIB_MAX },
  })
  let isOver = false
  const end = (reason: string): void => {
    if (isOver) return
    isOver = true
    ended(reason)
  }
  worker.on('message', (word: ThreadWord) => {
    if (isOver) return
    isOver = word.kind !== 'progress'
    said(word)
  })
  worker.on('error', (error: unknown) => end(error instanceof Error ? error.message : String(error)))
  worker.on('exit', code => end(`its thread ended with code ${code}`))
  return {
    stop() {
      isOver = true
      void worker.terminate()
    },
  }
}
