/**
 * Transformations: what benches do to a trace before they replay it, always in this order.
 *
 *   spread    request j of the n that share a timestamp moves to t + binMs · j / n, or less far if the next
 *             timestamp is nearer
 *   copies    copy d of each request comes 0.37 · d s later, with ids of its own: the trees stay disjoint
 *   speed     all times are divided by it
 *   stretch   each id becomes `stretch` ids, and prompts are as many times as long
 *
 * All of them stream. Spread holds the requests of one timestamp, copies those of the last
 * 0.37 · (copies − 1) s.
 *
 * Speed and copies differ: speed shortens the time between two uses of a block, copies multiply the blocks.
 */

import { TRACE_BLOCK_TOKENS, type TraceRequest, type TraceSource } from './trace-request.ts'

const COPY_SHIFT_MS = 370

export interface Transformations {
  readonly spread?: {
    readonly binMs: number
    /**
     * Each request may move by so much of a step within its bin, 0 … 1; needs `next`. The order stays.
     * Default 0.
     */
    readonly jitterShare?: number
    /** Uniform in [0, 1). */
    readonly next?: () => number
  }
  readonly copies?: number
  /** Ids of copy d are ids + d · idStride: larger than any id. Needed if copies > 1; see `scanTrace`. */
  readonly idStride?: number
  readonly speed?: number
  readonly stretch?: number
  /** Tokens that an id stands for; default 512. For `stretch`. */
  readonly blockTokens?: number
}

/** Results of reading a trace once. */
export interface TraceScan {
  readonly requests: number
  /** −1 without any. */
  readonly idMax: number
  readonly firstMs: number
  readonly lastMs: number
}

/** Reads the whole source; it must be one that starts anew at each iteration. */
export async function scanTrace(source: TraceSource): Promise<TraceScan> {
  let requests = 0
  let idMax = -1
  let firstMs = 0
  let lastMs = 0
  for await (const { timestampMs, hashIds } of source) {
    if (requests === 0) firstMs = timestampMs
    requests++
    lastMs = timestampMs
    for (let i = 0; i < hashIds.length; i++) if (hashIds[i]! > idMax) idMax = hashIds[i]!
  }
  return { requests, idMax, firstMs, lastMs }
}

/** Throws RangeError for parameters out of range. */
export function transformTrace(source: TraceSource, transformations: Transformations): TraceSource {
  const { spread, copies = 1, idStride, speed = 1, stretch = 1 } = transformations
  whole('copies', copies)
  whole('stretch', stretch)
  if (!(speed > 0 && speed < Infinity)) {
    throw new RangeError(`cannot replay a trace at speed ${speed}: use a number above 0`)
  }
  let result = source
  if (spread !== undefined && spread.binMs > 0) {
    result = spreadBins(result, spread.binMs, spread.jitterShare ?? 0, spread.next)
  }
  if (copies > 1) {
    if (idStride === undefined) throw new RangeError('cannot copy a trace: idStride is not given')
    result = copy(result, copies, idStride)
  }
  if (speed !== 1 || stretch !== 1) {
    result = scale(result, speed, stretch, transformations.blockTokens ?? TRACE_BLOCK_TOKENS)
  }
  return result
}

async function* spreadBins(
  source: TraceSource,
  binMs: number,
  jitterShare: number,
  next: (() => number) | undefined,
): AsyncGenerator<TraceRequest> {
  let bin: TraceRequest[] = []
  const spread = function* (widthMs: number): Generator<TraceRequest> {
    for (const [j, request] of bin.entries()) {
      const jitter = next === undefined ? 0 : jitterShare * (2 * next() - 1)
      const offsetMs = (widthMs * Math.max(0, j + jitter)) / bin.length
      yield { ...request, timestampMs: request.timestampMs + offsetMs }
    }
  }
  for await (const request of source) {
    const binStartMs = bin[0]?.timestampMs
    if (binStartMs !== undefined && binStartMs !== request.timestampMs) {
      yield* spread(Math.min(binMs, request.timestampMs - binStartMs))
      bin = []
    }
    bin.push(request)
  }
  yield* spread(binMs)
}

async function* copy(source: TraceSource, copies: number, idStride: number): AsyncGenerator<TraceRequest> {
  /** Requests that some copy still waits for; `nexts[d]` is the place of the next one of copy d. */
  let waiting: TraceRequest[] = []
  const nexts: number[] = new Array(copies).fill(0)
  const due = function* (untilMs: number): Generator<TraceRequest> {
    for (;;) {
      let earliest = -1
      let earliestMs = untilMs
      for (let d = 0; d < copies; d++) {
        const request = waiting[nexts[d]!]
        if (request === undefined) continue
        const atMs = request.timestampMs + COPY_SHIFT_MS * d
        if (atMs < earliestMs || (atMs === earliestMs && earliest < 0)) {
          earliest = d
          earliestMs = atMs
        }
      }
      if (earliest < 0) break
      yield copyOf(waiting[nexts[earliest]!++]!, earliest, idStride)
    }
    const done = nexts[copies - 1]!
    if (done > waiting.length / 2 && done > 1024) {
      waiting = waiting.slice(done)
      for (let d = 0; d < copies; d++) nexts[d]! -= done
    }
  }
  for await (const request of source) {
    yield* due(request.timestampMs)
    waiting.push(request)
  }
  yield* due(Infinity)
}

function copyOf(request: TraceRequest, d: number, idStride: number): TraceRequest {
  if (d === 0) return request
  const { hashIds, sessionId } = request
  const ids = idArray(hashIds.length, (d + 1) * idStride)
  for (let i = 0; i < ids.length; i++) ids[i] = hashIds[i]! + d * idStride
  return {
    ...request,
    timestampMs: request.timestampMs + COPY_SHIFT_MS * d,
    hashIds: ids,
    ...(sessionId !== undefined && { sessionId: `${sessionId}/${d}` }),
  }
}

async function* scale(
  source: TraceSource,
  speed: number,
  stretch: number,
  blockTokens: number,
): AsyncGenerator<TraceRequest> {
  for await (const request of source) {
    const timestampMs = request.timestampMs / speed
    if (stretch === 1) {
      yield { ...request, timestampMs }
      continue
    }
    const inputTokens = request.inputTokens * stretch
    const { hashIds } = request
    const count = Math.min(hashIds.length * stretch, Math.ceil(inputTokens / blockTokens))
    const ids = new Float64Array(count)
    for (let i = 0; i < ids.length; i++) ids[i] = hashIds[Math.floor(i / stretch)]! * stretch + (i % stretch)
    yield { ...request, timestampMs, inputTokens, hashIds: ids }
  }
}

/** Room for ids below `bound`. */
function idArray(count: number, bound: number): Int32Array | Float64Array {
  return bound <= 2 ** 31 ? new Int32Array(count) : new Float64Array(count)
}

function whole(name: string, value: number): void {
  if (!Number.isInteger(value) || value < 1) {
    throw new RangeError(`cannot transform a trace with ${name} ${value}: use a whole number ≥ 1`)
  }
}
