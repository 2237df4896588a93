/**
 * Warm-up: requests of the router's own, so that V8 has compiled the way of a request before clients need it.
 * The first dozen requests of a process otherwise take 100 to 200 ms of its main thread, and those that come
 * meanwhile wait.
 *
 * They go through a second set of the router's actors (warm-up-router.ts): the router itself neither counts
 * them nor learns of them, and all of it is given back at the end.
 *
 * One request at a time, then a pause as long as it took. While this thread has other work to do, pauses are
 * longer: clients warm it up themselves. It ends after `WARM_UP_MS_MAX`, whatever is left.
 */

import { performance } from 'node:perf_hooks'
import { type Log, systemClock, toErrorRecord } from '@homing/base'
import type { RouterSettings } from '@homing/config'
import type { WarmUpInputs, WarmUpRouter } from './warm-up-router.ts'

/** A warm-up that is under way. */
export interface WarmUp {
  /** Resolves with the requests that were answered, once all of it is given back. Never rejects. */
  readonly whenOver: Promise<number>
  /** Ends it after the request in hand. */
  stop(): Promise<void>
}

export interface WarmUpOptions {
  /** 1 … 10,000. */
  readonly requests: number
  readonly log: Pick<Log, 'debug'>
}

const WARM_UP_MS_MAX = 60_000
/** Its start holds this thread up for 50 ms: not those clients who wait for the ready line. */
const FIRST_PAUSE_MS = 200
/** Beyond this share of a pause this thread has work of its own. */
const BUSY_SHARE = 0.3
const BUSY_PAUSE_MS = 250

/** Begins soon; `settings` and `inputs` are those of the router. */
export function warmUp(
  settings: RouterSettings,
  inputs: WarmUpInputs,
  { requests, log }: WarmUpOptions,
): WarmUp {
  let isStopped = false
  const run = async (): Promise<number> => {
    const beganMs = systemClock.nowMs()
    const mayGoOn = (): boolean => !isStopped && systemClock.nowMs() - beganMs < WARM_UP_MS_MAX
    let router: WarmUpRouter | undefined
    let answered = 0
    try {
      await pauseOf(FIRST_PAUSE_MS, mayGoOn)
      if (!mayGoOn()) return 0
      router = new (await import('./warm-up-router.ts')).WarmUpRouter(settings, inputs)
      await router.start()
      for (let number = 0; number < requests && mayGoOn(); number++) {
        const sentMs = systemClock.nowMs()
        if (await router.send(number)) answered++
        await pauseOf(systemClock.nowMs() - sentMs, mayGoOn)
      }
    } catch (thrown) {
      log.debug({ error: toErrorRecord(thrown) }, 'the warm-up was given up')
    } finally {
      await router?.stop()
    }
    log.debug({ requests: answered, ms: Math.round(systemClock.nowMs() - beganMs) }, 'warm-up is over')
    return answered
  }
  const whenOver = run()
  return {
    whenOver,
    async stop() {
      isStopped = true
      await whenOver
    },
  }
}

/** At least `ms`, and until this thread has little else to do. */
async function pauseOf(ms: number, mayGoOn: () => boolean): Promise<void> {
  for (let pauseMs = Math.max(1, ms); ; pauseMs = BUSY_PAUSE_MS) {
    const before = performance.eventLoopUtilization()
    await new Promise<void>(resolve => systemClock.after(pauseMs, resolve))
    if (performance.eventLoopUtilization(before).utilization < BUSY_SHARE || !mayGoOn()) return
  }
}
