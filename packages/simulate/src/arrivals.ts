/**
 * Arrivals: the requests of a cell one after the other, from a trace or from users who wait for their
 * answers.
 */

import { seededRandom } from '@homing/base'
import {
  scanTrace,
  TRACE_BLOCK_TOKENS,
  type TraceRequest,
  type TraceSource,
  transformTrace,
} from '@homing/trace'
import type { CellSpec, ClosedLoop } from './cell-types.ts'
import { SimulationError } from './simulation-error.ts'

/**
 * Where requests come from, one after the other; `peekMs` is Infinity when none is left, or none is known
 * yet.
 */
export interface Arrivals {
  readonly peekMs: number
  take(): TraceRequest
  /** Makes the next one known; true if that takes no waiting. */
  fill(): Promise<void> | undefined
  completed(request: TraceRequest, atMs: number): void
}

/** Throws SimulationError where the source must be read twice and cannot be, and what reading it throws. */
export async function arrivalsOf(
  spec: CellSpec,
  requests: TraceSource | ClosedLoop,
): Promise<{ readonly arrivals: Arrivals; readonly expected: number | undefined }> {
  if ('onComplete' in requests) {
    return { arrivals: new LoopArrivals(requests), expected: requests.requestsExpected }
  }
  const { copies, speed, stretch, seed, spread } = spec
  const needsScan = copies > 1 || spec.warmupShare > 0
  if (needsScan && isOneShot(requests)) {
    const reason = 'copies and the warm-up share need to read it twice: give an array or a file'
    throw new SimulationError('a trace that can be read once', reason)
  }
  const scan = needsScan ? await scanTrace(requests) : undefined
  const random = seededRandom(seed ^ 0x5bd1e995)
  const source = transformTrace(requests, {
    copies,
    speed,
    stretch,
    blockTokens: spec.traceBlockTokens ?? TRACE_BLOCK_TOKENS,
    ...(scan !== undefined && { idStride: scan.idMax + 1 }),
    ...(spread !== undefined && { spread: { ...spread, next: () => random.next() } }),
  })
  return { arrivals: new StreamArrivals(source), expected: scan && scan.requests * copies }
}

function isOneShot(source: TraceSource): boolean {
  if (Symbol.asyncIterator in source) return (source as unknown) === source[Symbol.asyncIterator]()
  return (source as unknown) === source[Symbol.iterator]()
}

/** Requests of a trace, in order of time. */
class StreamArrivals implements Arrivals {
  readonly #source: AsyncIterator<TraceRequest> | Iterator<TraceRequest>
  #next: TraceRequest | undefined
  #isDone = false
  #latestMs = 0

  constructor(source: TraceSource) {
    this.#source = Symbol.asyncIterator in source ? source[Symbol.asyncIterator]() : source[Symbol.iterator]()
  }

  get peekMs(): number {
    return this.#next?.timestampMs ?? Number.POSITIVE_INFINITY
  }

  take(): TraceRequest {
    const request = this.#next!
    this.#next = undefined
    return request
  }

  fill(): Promise<void> | undefined {
    if (this.#next !== undefined || this.#isDone) return undefined
    const answer = this.#source.next()
    if (answer instanceof Promise) return answer.then(result => this.#put(result))
    this.#put(answer)
    return undefined
  }

  completed(): void {}

  #put({ done, value }: IteratorResult<TraceRequest>): void {
    if (done === true) {
      this.#isDone = true
      return
    }
    const { timestampMs } = value
    if (!(timestampMs >= this.#latestMs && timestampMs < Number.POSITIVE_INFINITY)) {
      throw new SimulationError(
        `a request at ${timestampMs} ms`,
        `requests must be in order of time, and the one before is at ${this.#latestMs} ms`,
      )
    }
    this.#latestMs = timestampMs
    this.#next = value
  }
}

/**
 * Requests of a closed loop: those that begin, as they come, and a heap of next turns by time, then by order
 * of becoming known. At one instant those that begin come first.
 */
class LoopArrivals implements Arrivals {
  readonly #loop: ClosedLoop
  readonly #firsts: Iterator<TraceRequest>
  #nextFirst: TraceRequest | undefined
  readonly #heap: LoopEntry[] = []
  #orders = 0

  constructor(loop: ClosedLoop) {
    this.#loop = loop
    this.#firsts = loop.first()[Symbol.iterator]()
    this.#readFirst(0)
  }

  get peekMs(): number {
    return Math.min(this.#firstMs, this.#heap[0]?.request.timestampMs ?? Number.POSITIVE_INFINITY)
  }

  take(): TraceRequest {
    const first = this.#nextFirst
    if (first === undefined || first.timestampMs > this.peekMs) return this.#pop()
    this.#readFirst(first.timestampMs)
    return first
  }

  fill(): undefined {
    return undefined
  }

  completed(request: TraceRequest, atMs: number): void {
    const next = this.#loop.onComplete(request, atMs)
    if (next === undefined) return
    if (!(next.timestampMs >= atMs)) {
      const reason = `it follows an answer that ended at ${atMs} ms`
      throw new SimulationError(`a next turn at ${next.timestampMs} ms`, reason)
    }
    this.#push(next)
  }

  get #firstMs(): number {
    return this.#nextFirst?.timestampMs ?? Number.POSITIVE_INFINITY
  }

  #readFirst(latestMs: number): void {
    const { done, value } = this.#firsts.next()
    this.#nextFirst = done === true ? undefined : value
    if (!(this.#firstMs >= latestMs)) {
      const reason = `first requests must be in order of time, and the one before is at ${latestMs} ms`
      throw new SimulationError(`a request at ${this.#firstMs} ms`, reason)
    }
  }

  #pop(): TraceRequest {
    const heap = this.#heap
    const first = heap[0]!
    const last = heap.pop()!
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      if (child >= heap.length) break
      if (child + 1 < heap.length && isEarlier(heap[child + 1]!, heap[child]!)) child++
      if (!isEarlier(heap[child]!, last)) break
      heap[at] = heap[child]!
      at = child
    }
    if (heap.length > 0) heap[at] = last
    return first.request
  }

  #push(request: TraceRequest): void {
    const heap = this.#heap
    const entry = { request, order: this.#orders++ }
    let at = heap.length
    heap.push(entry)
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (!isEarlier(entry, heap[parent]!)) break
      heap[at] = heap[parent]!
      at = parent
    }
    heap[at] = entry
  }
}

interface LoopEntry {
  readonly request: TraceRequest
  readonly order: number
}

function isEarlier(a: LoopEntry, b: LoopEntry): boolean {
  const difference = a.request.timestampMs - b.request.timestampMs
  return difference < 0 || (difference === 0 && a.order < b.order)
}
