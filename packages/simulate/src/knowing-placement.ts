/**
 * Knowing placement: what a placement can reach that knows what no router knows, as a bound for policies.
 *
 * It knows the length of each answer, the steps that each running request still takes and what each cache
 * holds at this moment. It tries each worker: it runs the steps of that engine to their end, with the request
 * and without, and takes the worker where the times to the last byte of all requests there grow least. A
 * worker without the blocks that another one holds costs `copyMs` more: 0 is the least mean time to the last
 * byte that one look ahead finds, Infinity makes no copy.
 *
 * What it does not know: the requests that come. So it is a bound for those that weigh what is, not for one
 * that sees the future. Workers are equal, and while it looks ahead their caches have room; in the run itself
 * they are the simulated engines.
 */

import type { TraceSource } from '@homing/trace'
import { arrivalsOf } from './arrivals.ts'
import { RequestMetrics } from './cell-metrics.ts'
import type { CellSpec, ClosedLoop, RequestFigures } from './cell-types.ts'
import { SimEngine } from './engine.ts'
import { type EngineProfile, engineProfile } from './engine-profile.ts'
import { newSimRequest, type SimRequest } from './sim-request.ts'

/** Of two workers where all ends as soon, the one that was sent less: ms for each token sent. */
const EVEN_MS_PER_TOKEN = 0.001
/** Fewer tokens that another worker holds are no copy. */
const COPY_TOKENS_MIN = 1024

export type KnowingSpec = Pick<
  CellSpec,
  'workers' | 'profile' | 'blockTokens' | 'speed' | 'seed' | 'copies' | 'stretch' | 'warmupShare' | 'spread'
>

export interface KnowingRun extends RequestFigures {
  /** Requests after the warm-up that were sent to a worker without blocks that another one held. */
  readonly copied: number
}

/** Runs a cell whose requests have ids of blocks of `blockTokens`. */
export async function placeKnowingAll(
  spec: KnowingSpec,
  requests: TraceSource | ClosedLoop,
  copyMs: number,
): Promise<KnowingRun> {
  const { arrivals, expected } = await arrivalsOf(spec as CellSpec, requests)
  const { workers, blockTokens } = spec
  const profile = engineProfile(spec.profile)
  const warmupRequests = Math.floor(spec.warmupShare * (expected ?? 0))
  const metrics = new RequestMetrics()
  let nowMs = 0
  let copied = 0
  let arrived = 0
  const sides = Array.from(
    { length: workers },
    (_, worker) =>
      new Side(worker, profile, blockTokens, request => {
        const { index, arrivalMs, firstTokenMs, outputTokens, inputTokens, reusedTokens, trace } = request
        if (index >= warmupRequests)
          metrics.completed(
            firstTokenMs - arrivalMs,
            nowMs - arrivalMs,
            outputTokens,
            inputTokens,
            reusedTokens,
          )
        arrivals.completed(trace, nowMs)
      }),
  )
  for (;;) {
    await arrivals.fill()
    const next = sides.reduce((first, side) => (side.nextMs < first.nextMs ? side : first))
    if (next.nextMs <= arrivals.peekMs) {
      if (next.nextMs === Infinity) return { ...metrics.figures(), copied }
      nowMs = next.nextMs
      next.step()
      continue
    }
    nowMs = arrivals.peekMs
    const trace = arrivals.take()
    const blocks = Math.floor(trace.inputTokens / blockTokens)
    const request = newSimRequest(trace, arrived++, trace.hashIds, blocks, 0)
    const cached = sides.map(side => side.engine.cachedRun(request))
    const cachedMost = Math.max(...cached)
    const isCopy = cached.map(run => (cachedMost - run) * blockTokens > COPY_TOKENS_MIN)
    const costs = sides.map(
      (side, i) =>
        side.addedMs(request, nowMs) +
        EVEN_MS_PER_TOKEN * side.sentTokens +
        (isCopy[i] === true ? copyMs : 0),
    )
    const winner = costs.indexOf(Math.min(...costs))
    if (request.index >= warmupRequests && isCopy[winner] === true) copied++
    sides[winner]!.take(request, nowMs)
  }
}

/** An engine, and what runs there. */
class Side {
  readonly engine: SimEngine
  readonly #worker: number
  readonly #profile: EngineProfile
  readonly #blockTokens: number
  readonly #capacityBlocks: number
  readonly #pending: SimRequest[] = []
  readonly #decoding = new Set<SimRequest>()
  /** When its step ends; Infinity while it has none. */
  nextMs = Number.POSITIVE_INFINITY
  sentTokens = 0

  constructor(
    worker: number,
    profile: EngineProfile,
    blockTokens: number,
    onCompleted: (request: SimRequest) => void,
  ) {
    this.#worker = worker
    this.#profile = profile
    this.#blockTokens = blockTokens
    this.#capacityBlocks = Math.floor(profile.kvCapacityTokens / blockTokens)
    const { stepTokensMax, sequencesMax } = profile
    this.engine = new SimEngine({
      worker,
      blockTokens,
      capacityBlocks: this.#capacityBlocks,
      stepTokensMax,
      sequencesMax,
      storeAt: 'prompt-end',
      slowness: 1,
      stepMs: work => profile.stepMs(work),
      sink: {
        stored: () => {},
        evicted: () => {},
        admitted: () => {},
        gap: () => {},
        firstToken: request => {
          request.firstTokenMs = this.nextMs
          this.#pending.splice(this.#pending.indexOf(request), 1)
          if (request.outputTokens > 1) this.#decoding.add(request)
        },
        completed: request => {
          this.#decoding.delete(request)
          onCompleted(request)
        },
      },
    })
  }

  take(request: SimRequest, nowMs: number): void {
    request.worker = this.#worker
    request.placedMs = nowMs
    this.sentTokens += this.#newTokens(request)
    this.#pending.push(request)
    this.engine.enqueue(request)
    if (!this.engine.isStepping) this.nextMs = nowMs + this.engine.startStep()
  }

  step(): void {
    this.engine.finishStep()
    const ms = this.engine.startStep()
    this.nextMs = ms < 0 ? Number.POSITIVE_INFINITY : this.nextMs + ms
  }

  /** How much later all requests here end, and the new one, in ms. */
  addedMs(request: SimRequest, nowMs: number): number {
    const beginMs = this.nextMs === Number.POSITIVE_INFINITY ? nowMs : this.nextMs
    return this.#endsMs([...this.#pending, request], beginMs) - this.#endsMs(this.#pending, beginMs) - nowMs
  }

  /** Sum of the times at which all end if nothing else comes. */
  #endsMs(pending: readonly SimRequest[], beginMs: number): number {
    const { stepTokensMax } = this.#profile
    const queue = pending.map(request => ({ request, newTokens: this.#newTokens(request), doneTokens: 0 }))
    /** Requests that end with a step, by the number of the step. */
    const ends = new Map<number, SimRequest[]>()
    const endsWith = (step: number, request: SimRequest): void => {
      const there = ends.get(step)
      if (there === undefined) ends.set(step, [request])
      else there.push(request)
    }
    let decoding = this.#decoding.size
    let contextTokens = 0
    let usedBlocks = 0
    for (const request of this.#decoding) {
      const { inputTokens, outputTokens, lastStep } = request
      const left = lastStep - this.engine.steps
      endsWith(left, request)
      contextTokens += inputTokens + outputTokens - left
      usedBlocks += this.#ownBlocks(request)
    }
    for (const { request } of queue) usedBlocks += this.#ownBlocks(request)
    let atMs = beginMs
    let sumMs = 0
    for (let step = 1; decoding > 0 || queue.length > 0; step++) {
      let budget = stepTokensMax - decoding
      let prefillTokens = 0
      let prefillAttention = 0
      for (const each of queue) {
        const tokens = Math.min(Math.max(budget, 0), each.newTokens - each.doneTokens)
        const computed = each.request.inputTokens - each.newTokens + each.doneTokens
        prefillTokens += tokens
        prefillAttention += tokens * (computed + tokens / 2)
        each.doneTokens += tokens
        budget -= tokens
      }
      atMs += this.#profile.stepMs({
        prefillTokens,
        prefillAttention,
        decodeRequests: decoding,
        decodeContextTokens: contextTokens,
        kvUsage: Math.min(1, usedBlocks / this.#capacityBlocks),
      })
      contextTokens += decoding
      for (const request of ends.get(step) ?? []) {
        sumMs += atMs
        contextTokens -= request.inputTokens + request.outputTokens
        usedBlocks -= this.#ownBlocks(request)
        decoding--
      }
      while (queue.length > 0 && queue[0]!.doneTokens === queue[0]!.newTokens) {
        const { request } = queue.shift()!
        if (request.outputTokens === 1) {
          sumMs += atMs
          usedBlocks -= this.#ownBlocks(request)
          continue
        }
        endsWith(step + request.outputTokens - 1, request)
        contextTokens += request.inputTokens + 1
        decoding++
      }
    }
    return sumMs
  }

  /** Blocks that it holds beside those that were cached before it. */
  #ownBlocks(request: SimRequest): number {
    const cached =
      request.placesHeld > 0 ? request.reusedTokens / this.#blockTokens : this.engine.cachedRun(request)
    return Math.max(0, this.engine.blocksNeeded(request) - Math.floor(cached))
  }

  #newTokens(request: SimRequest): number {
    return Math.max(1, request.inputTokens - this.engine.cachedRun(request) * this.#blockTokens)
  }
}
