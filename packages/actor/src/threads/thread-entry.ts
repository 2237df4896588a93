/**
 * Thread entry: the code that a worker of an actor system runs. It gets everything from main: its name, a
 * link to every other thread, and the actors that were here before it was replaced. A worker with no such
 * data is a spare: it loads the modules that it is told about and waits for a name.
 */

import process from 'node:process'
import { parentPort, workerData } from 'node:worker_threads'
import { createLog, type ErrorRecord, systemClock, systemRandom } from '@homing/base'
import { openRing } from '../links/ring/ring-link.ts'
import { recordOf } from '../values/thrown.ts'
import { IdleHeap } from './idle-heap.ts'
import { startThread, type ThreadInit, tellEnd, threadName } from './thread.ts'

/** What main tells a spare. */
export type SpareMessage =
  | { readonly type: 'preload'; readonly moduleUrls: readonly string[] }
  | { readonly type: 'start'; readonly init: ThreadInit }

/** What a spare tells main, once. */
export type SpareReport = 'loaded'

/** How long the modules of the actors that go with a new life may hold it up. */
const LOAD_MS_MAX = 2000

async function start(init: ThreadInit): Promise<void> {
  ;(globalThis as { [threadName]?: string })[threadName] = init.thread
  await load(init)
  const runtime = startThread(init, {
    clock: systemClock,
    random: systemRandom,
    log: createLog(init.logLevel, { thread: init.thread }, init.logFormat),
    provide: [],
    open: openRing,
  })
  new IdleHeap(systemClock)
  preload(init.pools.find(({ threads }) => threads.includes(init.thread))?.preload ?? [])
  // When main ends the thread, or its heap is full, none of this runs.
  let error: ErrorRecord | undefined
  process.on('uncaughtExceptionMonitor', thrown => {
    error = recordOf(thrown)
  })
  process.on('exit', exitCode => {
    tellEnd(runtime, { reason: 'threadExit', exitCode, ...(error === undefined ? {} : { error }) })
  })
}

/**
 * Before a link is read: what waits there is not to overflow mailboxes, nor to be lost in them when this life
 * ends.
 */
async function load({ spawns }: ThreadInit): Promise<void> {
  const urls = new Set(spawns.map(({ moduleUrl }) => moduleUrl))
  if (urls.size === 0) return
  const late = Promise.withResolvers<void>()
  const limit = systemClock.after(LOAD_MS_MAX, () => late.resolve())
  // If a module throws here, it throws again, and is reported, when its actors use it.
  await Promise.race([Promise.allSettled([...urls].map(url => import(url))), late.promise])
  limit.cancel()
}

/** If a module throws here, it throws again, and is reported, when an actor of it is spawned. */
function preload(moduleUrls: readonly string[]): void {
  for (const url of moduleUrls) import(url).catch(() => {})
}

if (workerData !== null && workerData !== undefined) {
  void start(workerData as ThreadInit)
} else {
  const port = parentPort!
  const take = (message: SpareMessage): void => {
    if (message.type === 'start') {
      port.off('message', take)
      void start(message.init)
      return
    }
    preload(message.moduleUrls)
  }
  port.on('message', take)
  port.postMessage('loaded' satisfies SpareReport)
}
