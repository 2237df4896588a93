/**
 * Thread entry: what a worker of an actor system runs. It gets everything from main: its name, a link to every
 * other thread, and the actors that were here before it was replaced. A worker with no such data is a spare: it
 * loads the modules that it is told of and waits to become somebody.
 */

import { parentPort, workerData } from 'node:worker_threads'
import { systemClock, systemRandom } from '@homing/clock'
import { createLog } from '@homing/log'
import { openRing } from './ring/ring-link.ts'
import { startThread, type ThreadInit, threadName } from './thread.ts'

/** What main tells a spare. */
export type SpareMessage =
  | { readonly type: 'preload'; readonly moduleUrls: readonly string[] }
  | { readonly type: 'start'; readonly init: ThreadInit }

/** What a spare tells main, once. */
export type SpareReport = 'loaded'

function start(init: ThreadInit): void {
  ;(globalThis as { [threadName]?: string })[threadName] = init.thread
  startThread(init, {
    clock: systemClock,
    random: systemRandom,
    log: createLog(init.logLevel, { thread: init.thread }),
    provide: [],
    open: openRing,
  })
}

if (workerData !== null && workerData !== undefined) {
  start(workerData as ThreadInit)
} else {
  const port = parentPort!
  const take = (message: SpareMessage): void => {
    if (message.type === 'start') {
      port.off('message', take)
      start(message.init)
      return
    }
    // What a module throws is met again, and reported, when an actor of it is spawned.
    for (const url of message.moduleUrls) import(url).catch(() => {})
  }
  port.on('message', take)
  port.postMessage('loaded' satisfies SpareReport)
}
