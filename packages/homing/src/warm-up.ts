/**
 * Warm-up: requests of the router's own, so that V8 has compiled the request path before clients need it. The
 * first dozen requests of a process otherwise take some 100 ms of its main thread, and those that come
 * meanwhile wait.
 *
 * They go through a second set of the router's actors (warm-up-router.ts): the router itself neither counts
 * them nor learns of them, and all of it is given back at the end.
 *
 * One request at a time, then a pause as long as it took. While this thread has other work to do, pauses are
 * longer: clients warm it up themselves. It ends after `WARM_UP_MS_MAX`, at a request that is not answered,
 * and when it is told to.
 */

import { performance } from 'node:perf_hooks'
import { type Log, systemClock, type Timer, toErrorRecord } from '@homing/base'
import type { RouterSettings } from '@homing/config'
import type { WarmUpInputs, WarmUpRouter } from './warm-up-router.ts'

/** A warm-up that is under way. */
export interface WarmUp {
  /** Requests that were answered so far. */
  readonly answered: number
  /** Resolves with the requests that were answered, once all of it is given back. Never rejects. */
  readonly whenOver: Promise<number>
  /** Resolves when it is over, or after `WARM_UP_STOP_MS_MAX`. */
  stop(): Promise<void>
}

export interface WarmUpOptions {
  /** 1 … 10,000. */
  readonly requests: number
  /** Wait before its first work; default: FIRST_PAUSE_MS. */
  readonly firstPauseMs?: number
  readonly log: Pick<Log, 'debug' | 'warn'>
}

const WARM_UP_MS_MAX = 60_000
/** Its start holds this thread up for 50 ms: not those clients who wait for the ready line. */
const FIRST_PAUSE_MS = 200
/** Beyond this share of a pause this thread has work of its own. */
const BUSY_SHARE = 0.3
const BUSY_PAUSE_MS = 250
const WARM_UP_STOP_MS_MAX = 1000

/** Whether there is something to warm up on main, where the router's own requests can go. */
export function warmsUp({ warmupRequests, frontend, gatewayThreads, routerMode }: RouterSettings): boolean {
  return warmupRequests > 0 && frontend && gatewayThreads === 1 && routerMode !== 'direct'
}

/** Begins soon; `settings` and `inputs` are those of the router. */
export function warmUp(settings: RouterSettings, inputs: WarmUpInputs, options: WarmUpOptions): WarmUp {
  const run = new WarmUpRun(settings, inputs, options)
  const whenOver = run.run()
  return {
    get answered() {
      return run.answered
    },
    whenOver,
    stop: () => run.stop(whenOver),
  }
}

class WarmUpRun {
  answered = 0
  readonly #settings: RouterSettings
  readonly #inputs: WarmUpInputs
  readonly #options: WarmUpOptions
  readonly #endMs = systemClock.nowMs() + WARM_UP_MS_MAX
  #isStopped = false
  /** Ends the pause, if there is one. */
  #wake: (() => void) | undefined

  constructor(settings: RouterSettings, inputs: WarmUpInputs, options: WarmUpOptions) {
    this.#settings = settings
    this.#inputs = inputs
    this.#options = options
  }

  async run(): Promise<number> {
    const { requests, firstPauseMs = FIRST_PAUSE_MS, log } = this.#options
    const beganMs = systemClock.nowMs()
    let router: WarmUpRouter | undefined
    try {
      await this.#pause(firstPauseMs)
      if (!this.#mayGoOn) return 0
      router = new (await import('./warm-up-router.ts')).WarmUpRouter(this.#settings, this.#inputs)
      if (this.#mayGoOn) await router.start()
      while (this.answered < requests && this.#mayGoOn) {
        const sentMs = systemClock.nowMs()
        await router.send(this.answered)
        this.answered++
        await this.#pause(systemClock.nowMs() - sentMs)
      }
    } catch (thrown) {
      log.warn({ error: toErrorRecord(thrown) }, 'the warm-up was given up')
    }
    await router?.stop().catch((thrown: unknown) => {
      log.warn({ error: toErrorRecord(thrown) }, 'the warm-up could not be ended')
    })
    const ms = Math.round(systemClock.nowMs() - beganMs)
    log.debug({ requests: this.answered, ms }, 'warm-up is over')
    return this.answered
  }

  async stop(whenOver: Promise<number>): Promise<void> {
    this.#isStopped = true
    this.#wake?.()
    let timer: Timer | undefined
    const late = new Promise<void>(resolve => {
      timer = systemClock.after(WARM_UP_STOP_MS_MAX, resolve, { unref: true })
    })
    await Promise.race([whenOver, late])
    timer?.cancel()
  }

  get #mayGoOn(): boolean {
    return !this.#isStopped && systemClock.nowMs() < this.#endMs
  }

  /** At least `ms`, and until this thread has little else to do, or may not go on. */
  async #pause(ms: number): Promise<void> {
    for (let pauseMs = Math.max(1, ms); this.#mayGoOn; pauseMs = BUSY_PAUSE_MS) {
      const before = performance.eventLoopUtilization()
      await new Promise<void>(resolve => {
        const timer = systemClock.after(pauseMs, resolve)
        this.#wake = () => {
          timer.cancel()
          resolve()
        }
      })
      this.#wake = undefined
      if (performance.eventLoopUtilization(before).utilization < BUSY_SHARE) return
    }
  }
}
