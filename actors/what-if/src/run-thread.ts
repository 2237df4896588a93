/**
 * Run thread: answers one question, and takes no more than its share of a core.
 *
 * A simulation pauses ten times a second; each pause is as long as what was used since the last one allows.
 */

import { setPriority } from 'node:os'
import { performance } from 'node:perf_hooks'
import process from 'node:process'
import { parentPort, workerData } from 'node:worker_threads'
import { type Clock, CodedError, systemClock, toErrorRecord } from '@homing/base'
import type { WhatIfTask } from '@homing/simulate/what-if'
import type { ThreadWord } from './what-if-threads.ts'

const LOWEST_PRIORITY = 19

// On Linux this is of the thread that says it; elsewhere it would be of the whole router.
if (process.platform === 'linux') setPriority(0, LOWEST_PRIORITY)
// Reading the simulator is half a second of work; it is done at that priority, too.
const { answerWhatIf } = await import('@homing/simulate/what-if/answer')

const task = workerData as WhatIfTask
const say = (word: ThreadWord): void => parentPort!.postMessage(word)

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

try {
  const answer = await answerWhatIf(task, {
    clock: pacedClock,
    cpuMs,
    onProgress: progress => say({ kind: 'progress', progress }),
  })
  say({ kind: 'answer', answer })
} catch (thrown) {
  // A bug ends the thread, with its stack.
  if (!(thrown instanceof CodedError)) throw thrown
  say({ kind: 'error', error: toErrorRecord(thrown) })
}

/** Of this thread. */
function cpuMs(): number {
  // Node 22 does not have it.
  const usage = (process as { threadCpuUsage?: NodeJS.Process['cpuUsage'] }).threadCpuUsage?.()
  if (usage === undefined) return performance.eventLoopUtilization().active
  return (usage.user + usage.system) / 1000
}
