/**
 * Load run: sends the requests of one block and tells tallies what becomes of them.
 *
 *   closed loop   `concurrency` requests at one time; the next one when one has ended
 *   open loop     each request at an instant that was fixed before, by a rate or by the times of its source
 *
 * Open requests, waiting requests and the time of each are bounded. A request that is due while as many as
 * may be open are open waits, and its latency counts from the instant when it was due. One that finds no
 * place to wait is not sent, and has failed.
 */

import type { Clock, Random, Timer } from '@homing/base'
import { poissonGapMs } from '@homing/trace'
import type { LoadRequest } from './load-request.ts'
import type { Outcome } from './outcome.ts'
import type { Abort, Send } from './sender.ts'
import type { Tally } from './tally.ts'

export type Pace =
  | { readonly kind: 'closed'; readonly concurrency: number }
  | {
      readonly kind: 'rate'
      readonly perS: number
      readonly arrival: 'poisson' | 'constant'
      readonly openMax: number
    }
  /** The times of the source, divided by `speed`. */
  | { readonly kind: 'times'; readonly speed: number; readonly openMax: number }

export interface LoadRunOptions {
  readonly clock: Clock
  /** Of the times between requests. */
  readonly random: Random
  readonly send: Send
  readonly requests: AsyncIterable<LoadRequest>
  readonly pace: Pace
  readonly waitingMax: number
  readonly requestsMax: number
  /** Requests are sent so long. */
  readonly durationMs: number
  /** Number of requests at the beginning that are not counted. */
  readonly warmup: number
  /** From when a request was due. */
  readonly timeoutMs: number
  readonly tallies: readonly Tally[]
  /** Called when a request was issued, and when one has ended. */
  readonly onProgress?: () => void
}

interface Due {
  readonly request: LoadRequest
  readonly dueMs: number
  readonly isCounted: boolean
}

const READ_TICK_MS = 20
/** Requests that are late are sent in bursts of this size, so that answers are read between them. */
const BURST = 16

export class LoadRun {
  readonly #options: LoadRunOptions
  readonly #aborts = new Set<Abort>()
  #waiting: Due[] = []
  #isStopped = false
  #issued = 0
  #startMs = 0
  #drained: (() => void) | undefined
  #sleep: { readonly timer: Timer; readonly wake: () => void } | undefined

  constructor(options: LoadRunOptions) {
    this.#options = options
  }

  /** Requests that were sent or failed to be. */
  get issued(): number {
    return this.#issued
  }

  /** Resolves when every request has ended. */
  async run(): Promise<void> {
    const ticks = this.#watchTicks()
    const requests = this.#options.requests[Symbol.asyncIterator]()
    try {
      if (this.#options.pace.kind === 'closed')
        await this.#closedLoop(requests, this.#options.pace.concurrency)
      else await this.#openLoop(requests, this.#options.pace)
      await this.#drain()
    } finally {
      ticks.cancel()
      await requests.return?.()
      for (const tally of this.#options.tallies) tally.endWindow()
    }
  }

  /** Sends no more, and ends what is open: nothing of that is counted. Idempotent. */
  stop(): void {
    this.#isStopped = true
    this.#waiting = []
    this.#sleep?.timer.cancel()
    this.#sleep?.wake()
    for (const abort of [...this.#aborts]) abort({ kind: 'connection', detail: 'stopped' })
    if (this.#aborts.size === 0) this.#drained?.()
  }

  async #closedLoop(requests: AsyncIterator<LoadRequest>, concurrency: number): Promise<void> {
    const { clock, durationMs, requestsMax } = this.#options
    let startMs: number | undefined
    let taken = 0
    const sendOn = async (): Promise<void> => {
      while (!this.#isStopped && taken < requestsMax) {
        taken++
        const next = await requests.next()
        const nowMs = clock.nowMs()
        startMs ??= nowMs
        if (next.done === true || this.#isStopped || nowMs - startMs >= durationMs) return
        const due = this.#due(next.value, nowMs)
        await new Promise<void>(resolve => this.#send(due, resolve))
      }
    }
    await Promise.all(Array.from({ length: Math.min(concurrency, requestsMax) }, sendOn))
  }

  async #openLoop(
    requests: AsyncIterator<LoadRequest>,
    pace: Exclude<Pace, { readonly kind: 'closed' }>,
  ): Promise<void> {
    const { clock, durationMs, requestsMax, tallies } = this.#options
    const offsetOf = offsets(pace, this.#options.random)
    for (let number = 0; number < requestsMax; number++) {
      const next = await requests.next()
      if (next.done === true || this.#isStopped) return
      if (number === 0) this.#startMs = clock.nowMs()
      const offsetMs = offsetOf(next.value)
      if (offsetMs >= durationMs) return
      const dueMs = this.#startMs + offsetMs
      await this.#until(dueMs, number)
      if (this.#isStopped) return
      const due = this.#due(next.value, dueMs)
      if (due.isCounted) for (const tally of tallies) tally.issued(clock.nowMs() - dueMs)
      this.#place(due, pace.openMax)
    }
  }

  #due(request: LoadRequest, dueMs: number): Due {
    this.#issued++
    this.#options.onProgress?.()
    return { request, dueMs, isCounted: this.#issued > this.#options.warmup }
  }

  async #until(dueMs: number, number: number): Promise<void> {
    const leftMs = dueMs - this.#options.clock.nowMs()
    if (leftMs <= 0 && number % BURST !== 0) return
    await new Promise<void>(resolve => {
      const timer = this.#options.clock.after(Math.max(0, leftMs), resolve)
      this.#sleep = { timer, wake: resolve }
    })
    this.#sleep = undefined
  }

  #place(due: Due, openMax: number): void {
    if (this.#aborts.size < openMax) {
      this.#send(due, () => this.#sendWaiting())
      return
    }
    if (due.isCounted) for (const tally of this.#options.tallies) tally.waited()
    if (this.#waiting.length < this.#options.waitingMax) this.#waiting.push(due)
    else {
      const detail = `${openMax} requests were open, and ${this.#options.waitingMax} waited`
      this.#end(due, { failure: { kind: 'unsent', detail } })
    }
  }

  #sendWaiting(): void {
    const { clock, timeoutMs } = this.#options
    for (let due = this.#waiting.shift(); due !== undefined; due = this.#waiting.shift()) {
      if (due.dueMs + timeoutMs > clock.nowMs()) {
        this.#send(due, () => this.#sendWaiting())
        return
      }
      this.#end(due, { failure: { kind: 'timeout', detail: `not sent within ${timeoutMs} ms` } })
    }
    if (this.#aborts.size === 0) this.#drained?.()
  }

  #send(due: Due, ended: () => void): void {
    const { clock, send, tallies, timeoutMs } = this.#options
    const counted = due.isCounted ? tallies : []
    const detail = `not answered within ${timeoutMs} ms`
    let abort: Abort = () => {}
    let timer: Timer | undefined
    let hasEnded = false
    abort = send(due.request, {
      gap: ms => {
        for (const tally of counted) tally.gap(ms)
      },
      ended: outcome => {
        hasEnded = true
        timer?.cancel()
        this.#aborts.delete(abort)
        if (!this.#isStopped || !('failure' in outcome)) this.#end(due, outcome)
        ended()
      },
    })
    if (hasEnded) {
      this.#aborts.delete(abort)
      return
    }
    this.#aborts.add(abort)
    const leftMs = Math.max(0, due.dueMs + timeoutMs - clock.nowMs())
    timer = clock.after(leftMs, () => abort({ kind: 'timeout', detail }))
  }

  #end({ dueMs, isCounted }: Due, outcome: Outcome): void {
    const nowMs = this.#options.clock.nowMs()
    if (isCounted) for (const tally of this.#options.tallies) tally.ended(outcome, dueMs, nowMs)
    this.#options.onProgress?.()
  }

  async #drain(): Promise<void> {
    if (this.#aborts.size === 0 && this.#waiting.length === 0) return
    await new Promise<void>(resolve => {
      this.#drained = resolve
    })
  }

  #watchTicks(): Timer {
    const { clock, tallies } = this.#options
    let timer: Timer
    const plan = (): void => {
      const dueMs = clock.nowMs() + READ_TICK_MS
      timer = clock.after(
        READ_TICK_MS,
        () => {
          for (const tally of tallies) tally.ticked(clock.nowMs() - dueMs)
          plan()
        },
        { unref: true },
      )
    }
    plan()
    return { cancel: () => timer.cancel() }
  }
}

/** Milliseconds from the start at which requests are due, one after the other. */
function offsets(
  pace: Exclude<Pace, { readonly kind: 'closed' }>,
  random: Random,
): (request: LoadRequest) => number {
  if (pace.kind === 'times') {
    let firstMs: number | undefined
    return ({ atMs = 0 }) => {
      firstMs ??= atMs
      return (atMs - firstMs) / pace.speed
    }
  }
  let number = 0
  let offsetMs = 0
  return () => {
    if (pace.arrival === 'constant') return (number++ * 1000) / pace.perS
    offsetMs += poissonGapMs(random, pace.perS)
    return offsetMs
  }
}
