/**
 * Log fit: how well the simulated run of a decision log agrees with the figures in the log.
 *
 * Every request goes to the worker that the log names. So the fit tests not the routing, only the model of
 * the engines: step times, scheduling, caches. An answer to "what if" is worth no more than this fit.
 *
 *   seen        arrival ──router──▶ call ──network, engine──▶ first token
 *               (ttft_ms, router_ms, cached_tokens)
 *   simulated                       call ──────────engine──▶ first token ─ base ─▶
 *
 * The router's time of each request is taken from the log. `baseMs` stands for the parts without a model: the
 * way to the engine and back, and the engine's work outside of its steps. It is learned from the log: by how
 * much the fastest tenth of the requests was slower than in the simulation. A constant shifts a distribution;
 * it hides neither a wrong queue nor a wrong cache.
 */

import { CodedError } from '@homing/base'
import type { ProfileName } from '@homing/engine'
import type { DecisionLog, LoggedRequest, TraceRequest } from '@homing/trace'
import { answersOf } from './answers-of-log.ts'
import type { CellSpec, InlineProfile, ServedRequest, SimulateOptions } from './cell-types.ts'
import { simulateCell } from './simulate-cell.ts'
import { SimulationError } from './simulation-error.ts'

/**
 * The simulation of the logged traffic does not agree with the log, so its other answers are worth nothing.
 */
export class PoorFitError extends CodedError {
  readonly code = 'HOMING_SIMULATE_POOR_FIT'

  constructor(faults: readonly string[]) {
    const reason = faults.join('; ')
    super(
      `cannot conclude anything from this decision log: ${reason}. Give the step times of your engines (--profile), or see the tables all the same (--anyway)`,
      { reason },
    )
  }
}

/** Beyond these, conclusions from a simulation of this log are refused. */
export const FIT_LIMITS = { ttftShare: 0.15, hitRatePoints: 3 } as const

export interface LogFitOptions {
  readonly profile: ProfileName | InlineProfile
  /** KV tokens of each worker; default: what the log says, or else the profile. */
  readonly kvCapacityTokens?: number
  /** When blocks can be reused; default 'chunk-start', as vLLM does it. */
  readonly storeAt?: CellSpec['storeAt']
  /** First requests that are simulated and not compared, as a share; default 0.1. */
  readonly warmupShare?: number
  /** As for a cell. */
  readonly clock?: SimulateOptions['clock'] | undefined
  readonly onProgress?: SimulateOptions['onProgress'] | undefined
}

export interface FitFigures {
  readonly mean: number
  readonly p50: number
  readonly p90: number
}

export interface LogFit {
  /** Requests that were simulated; of them compared by TTFT, and by their hits. */
  readonly simulated: number
  readonly ttftCompared: number
  readonly hitsCompared: number
  /** Requests of the log that were not simulated. */
  readonly leftOut: number
  readonly baseMs: number
  /** Mean time in the router before the call. */
  readonly routerMs: number
  readonly ttftMs: { readonly seen: FitFigures; readonly simulated: FitFigures }
  /** Reused prompt tokens ÷ prompt tokens. */
  readonly hitRate: { readonly seen: number; readonly simulated: number }
  /** Why conclusions are refused; empty: they are not. */
  readonly faults: readonly string[]
}

const WARMUP_SHARE = 0.1
/** The residual that this share of the requests is below is the base latency. */
const BASE_SHARE = 0.1
/** Fewer say nothing. */
const COMPARED_MIN = 100

/** The part of a log that can be simulated. */
export interface LogTrace {
  /** In order of call; `worker` is where each went. */
  readonly requests: readonly TraceRequest[]
  /** Requests of the log behind each. */
  readonly logged: readonly LoggedRequest[]
  readonly leftOut: number
  readonly workers: number
  readonly blockTokens: number
  /** Undefined: the log does not say it of every worker that took requests, or not the same. */
  readonly kvCapacityTokens: number | undefined
}

/** Throws SimulationError for a log that no simulation can replay. */
export function logTrace(log: DecisionLog): LogTrace {
  const keys = log.workers.map(({ key }) => key)
  const taken = log.requests.filter(({ wasTaken, worker, inputTokens }) => {
    return wasTaken && worker !== undefined && inputTokens > 0
  })
  if (taken.length === 0) throw new SimulationError('this decision log', 'no request of it reached a worker')
  const sizes = new Set(taken.map(({ blockTokens }) => blockTokens))
  if (sizes.size > 1) {
    const reason = `its prompts are in blocks of ${[...sizes].join(' and ')} tokens; log each model to a file of its own`
    throw new SimulationError('this decision log', reason)
  }
  const [blockTokens] = sizes as unknown as [number]
  const known = taken.filter(({ outputTokens }) => outputTokens > 0)
  const outputMean =
    known.reduce((sum, { outputTokens }) => sum + outputTokens, 0) / Math.max(1, known.length)
  const calls = taken
    .map(logged => ({ logged, calledMs: logged.timestampMs + logged.routerMs }))
    .sort((a, b) => a.calledMs - b.calledMs)
  const answers = answersOf(taken.toSorted((a, b) => a.timestampMs - b.timestampMs))
  const requests = calls.map(({ logged, calledMs }) => ({
    timestampMs: calledMs,
    inputTokens: logged.inputTokens,
    outputTokens: logged.outputTokens > 0 ? logged.outputTokens : Math.max(1, Math.round(outputMean)),
    hashIds: logged.hashIds,
    model: logged.model,
    worker: keys.indexOf(logged.worker!),
    ...(answers.has(logged) && { answerIds: answers.get(logged)! }),
    ...(logged.sessionId !== undefined && { sessionId: logged.sessionId }),
  }))
  const taking = new Set(taken.map(({ worker }) => worker))
  const capacities = new Set(log.workers.filter(({ key }) => taking.has(key)).map(({ kvBlocks }) => kvBlocks))
  const [kvBlocks] = capacities
  return {
    requests,
    logged: calls.map(({ logged }) => logged),
    leftOut: log.requests.length - taken.length,
    workers: keys.length,
    blockTokens,
    kvCapacityTokens: capacities.size === 1 && kvBlocks !== undefined ? kvBlocks * blockTokens : undefined,
  }
}

/** Simulates what really was chosen, and compares. Throws SimulationError. */
export async function fitLog(log: DecisionLog, options: LogFitOptions): Promise<LogFit> {
  const trace = logTrace(log)
  const kvCapacityTokens = options.kvCapacityTokens ?? trace.kvCapacityTokens
  const spec: CellSpec = {
    workers: trace.workers,
    profile: options.profile,
    blockTokens: trace.blockTokens,
    traceBlockTokens: trace.blockTokens,
    ...(kvCapacityTokens !== undefined && { kvCapacityTokens }),
    storeAt: options.storeAt ?? 'chunk-start',
    routers: 1,
    view: { kind: 'none', eventDelayMs: 0, signalDelayMs: 0 },
    selection: { rule: 'logged' },
    knowsOutput: false,
    speed: 1,
    copies: 1,
    stretch: 1,
    seed: 1,
    warmupShare: 0,
  }
  const served = new Map<TraceRequest, ServedRequest>()
  const { clock, onProgress } = options
  await simulateCell(spec, trace.requests, {
    onServed: one => void served.set(one.trace, one),
    ...(clock !== undefined && { clock }),
    ...(onProgress !== undefined && { onProgress }),
  })
  const first = Math.floor((options.warmupShare ?? WARMUP_SHARE) * trace.requests.length)
  const pairs = trace.requests.slice(first).flatMap((request, i) => {
    const one = served.get(request)
    return one === undefined ? [] : [{ seen: trace.logged[first + i]!, simulated: one }]
  })
  return compare(pairs, served.size, trace)
}

/** One line for people: both sides, and the time added to the simulation. */
export function fitText(fit: LogFit): string {
  const { ttftMs, hitRate } = fit
  const ratio = (name: keyof FitFigures): string => (ttftMs.simulated[name] / ttftMs.seen[name]).toFixed(2)
  const ms = (value: number): string => value.toFixed(value < 100 ? 1 : 0)
  const percent = (share: number): string => (100 * share).toFixed(1)
  const points = 100 * (hitRate.simulated - hitRate.seen)
  return [
    `${fit.faults.length === 0 ? 'the simulation fits' : 'the simulation does not fit'}: of ${fit.ttftCompared} requests placed as logged`,
    `TTFT mean ${ms(ttftMs.simulated.mean)} ms, seen ${ms(ttftMs.seen.mean)} (ratio ${ratio('mean')}, of p50 ${ratio('p50')}, of p90 ${ratio('p90')})`,
    `hit rate ${percent(hitRate.simulated)} %, seen ${percent(hitRate.seen)} (${points < 0 ? '−' : '+'}${Math.abs(points).toFixed(1)} points)`,
    `in the simulated TTFT, ${ms(fit.routerMs)} ms are the router's, as logged, and ${ms(fit.baseMs)} ms a constant learned from the log`,
  ].join('; ')
}

interface Pair {
  readonly seen: LoggedRequest
  readonly simulated: ServedRequest
}

function compare(pairs: readonly Pair[], simulated: number, trace: LogTrace): LogFit {
  const streams = pairs.filter(({ seen }) => seen.outcome === 'ok' && seen.firstTokenMs !== undefined)
  const engineMs = ({ arrivalMs, firstTokenMs }: ServedRequest): number => firstTokenMs - arrivalMs
  const residuals = streams
    .map(({ seen, simulated }) => seen.firstTokenMs! - seen.routerMs - engineMs(simulated))
    .sort((a, b) => a - b)
  const baseMs = Math.max(0, percentile(residuals, BASE_SHARE))
  const seenMs = streams.map(({ seen }) => seen.firstTokenMs!)
  const simulatedMs = streams.map(({ seen, simulated }) => seen.routerMs + engineMs(simulated) + baseMs)
  // An engine that reports cached tokens leaves them out where there are none.
  const reporting = new Set(
    trace.logged.flatMap(({ worker, cachedTokens }) => (cachedTokens === undefined ? [] : [worker])),
  )
  const hits = pairs.filter(({ seen }) => seen.outcome === 'ok' && reporting.has(seen.worker))
  const promptTokens = sum(hits.map(({ seen }) => seen.inputTokens))
  const hitRate = {
    seen: sum(hits.map(({ seen }) => seen.cachedTokens ?? 0)) / Math.max(1, promptTokens),
    simulated: sum(hits.map(({ simulated }) => simulated.reusedTokens)) / Math.max(1, promptTokens),
  }
  const ttftMs = { seen: figures(seenMs), simulated: figures(simulatedMs) }
  return {
    simulated,
    ttftCompared: streams.length,
    hitsCompared: hits.length,
    leftOut: trace.leftOut + trace.requests.length - simulated,
    baseMs,
    routerMs: sum(streams.map(({ seen }) => seen.routerMs)) / Math.max(1, streams.length),
    ttftMs,
    hitRate,
    faults: faultsOf(streams.length, hits.length, ttftMs, hitRate),
  }
}

function faultsOf(
  streams: number,
  hits: number,
  ttftMs: LogFit['ttftMs'],
  hitRate: LogFit['hitRate'],
): readonly string[] {
  const faults: string[] = []
  if (streams < COMPARED_MIN)
    faults.push(`only ${streams} streamed answers can be compared, and ${COMPARED_MIN} are needed`)
  const ratio = ttftMs.simulated.mean / ttftMs.seen.mean
  if (Math.abs(ratio - 1) > FIT_LIMITS.ttftShare)
    faults.push(`the mean time to the first token is ${ratio.toFixed(2)} times what was seen`)
  if (hits < COMPARED_MIN)
    faults.push(`only ${hits} answers say what was cached, and ${COMPARED_MIN} are needed`)
  const points = 100 * (hitRate.simulated - hitRate.seen)
  if (Math.abs(points) > FIT_LIMITS.hitRatePoints)
    faults.push(`the hit rate is off by ${points.toFixed(1)} points`)
  return faults
}

function figures(values: readonly number[]): FitFigures {
  const sorted = values.toSorted((a, b) => a - b)
  return {
    mean: sum(sorted) / Math.max(1, sorted.length),
    p50: percentile(sorted, 0.5),
    p90: percentile(sorted, 0.9),
  }
}

/** `sorted` ascending; 0 without values. */
function percentile(sorted: readonly number[], share: number): number {
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? 0
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}
