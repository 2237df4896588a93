/**
 * Answer: the figures that the requests of the last minutes would have had with another fleet or policy.
 *
 *   kept requests ─▶ one model ─▶ caches filled ─▶ fit: as they were placed, beside the figures seen
 *                                               └▶ one cell for each question, "as it is" first
 *
 * A simulation is worth no more than its fit, so the fit comes first. If it is poor, the answer has no cells
 * unless the question asks for them anyway. All cells have the same requests at the same times; real clients
 * that wait for answers would send earlier or later with another fleet.
 */

import { type Clock, CodedError } from '@homing/base'
import { PROFILE_NAMES, type ProfileName, timingProfile } from '@homing/engine'
import { STEP_TOKENS_DEFAULT } from '@homing/load'
import {
  type CellResult,
  type CellSelection,
  type CellSpec,
  fitLog,
  fitText,
  type InlineProfile,
  isAutoSelection,
  type LogFit,
  type LogTrace,
  logTrace,
  parseColumn,
  simulateCell,
  UnknownPolicyError,
} from '@homing/simulate'
import type { DecisionLog, LoggedSelection, LoggedWorker } from '@homing/trace'
import { primed } from './prime.ts'
import { readKept } from './read-kept.ts'
import type { WhatIfAnswer, WhatIfFit, WhatIfProgress, WhatIfRow, WhatIfTask } from './types.ts'

/** There is no answer for these requests. */
export class WhatIfError extends CodedError {
  readonly code = 'HOMING_WHAT_IF_NOTHING_TO_SAY'

  constructor(reason: string) {
    super(`cannot say what would have been: ${reason}`, { reason })
  }
}

export interface AnswerOptions {
  readonly clock: Clock
  /** Processor time of this thread until now, in milliseconds. */
  readonly cpuMs: () => number
  readonly onProgress: (progress: WhatIfProgress) => void
}

/**
 * Of the requests of a log, the first that are simulated and not compared: those that were under way before
 * are not known.
 */
const WARMUP_SHARE = 0.1
/** How late the router hears of the engines. */
const LATE = { kind: 'late', eventDelayMs: 20, signalDelayMs: 2 } as const
const GUESSED = { kind: 'guessed', eventDelayMs: 0, signalDelayMs: 2 } as const
/** Policies to compare; the current one is left out. */
const POLICIES = ['auto', 'linear', 'least-loaded', 'round-robin'] as const
/** The default of engines. */
const SEQUENCES_MAX = 256
const LEARNED = 'learned'

/** A cell and its name. */
interface Question {
  readonly name: string
  readonly policy: string
  readonly change: Partial<CellSpec>
}

/** Throws WhatIfError, and SimulationError for requests that no simulation can replay. */
export async function answerWhatIf(task: WhatIfTask, options: AnswerOptions): Promise<WhatIfAnswer> {
  const { cpuMs } = options
  const startedMs = cpuMs()
  const read = readKept(task)
  const { log: ofModel, model, notes } = oneModel(read.log)
  if (read.leftOut > 0)
    notes.push(
      `the first ${read.leftOut} requests are left out: with them there would be too many blocks for one question`,
    )
  const { log, primes } = primed(ofModel)
  const trace = logTrace(log)
  const warmupShare = (primes + WARMUP_SHARE * (trace.requests.length - primes)) / trace.requests.length
  const present = policyOf(task.selection)
  if (present.note !== undefined) notes.push(present.note)
  const candidates = profilesOf(task, trace, ofModel.workers)
  const steps = candidates.length + questionsAbout(trace.workers, 0, present.name).length
  let step = 0
  const next = (what: string) => {
    step++
    const tell = (requests: number): void =>
      options.onProgress({ step, steps, what, requests, cpuMs: cpuMs() - startedMs })
    tell(0)
    return {
      clock: options.clock,
      onProgress: ({ requestsDone }: { readonly requestsDone: number }) => tell(requestsDone),
    }
  }

  const best = await bestFit(log, candidates, warmupShare, next)
  step = candidates.length
  const fit = fitOf(best)
  const known = { model, requests: trace.requests.length - primes, spanMs: spanOf(ofModel), fit, notes }
  if (!fit.isGood && !task.anyway) return { ...known, rows: [], cpuMs: cpuMs() - startedMs }
  if (trace.kvCapacityTokens === undefined)
    notes.push('not every worker says how large its cache is, or not the same: that of the profile is taken')

  const kvCapacityTokens = trace.kvCapacityTokens ?? kvTokensOf(best.profile)
  const base: CellSpec = {
    workers: trace.workers,
    profile: best.profile,
    blockTokens: trace.blockTokens,
    traceBlockTokens: trace.blockTokens,
    kvCapacityTokens,
    storeAt: 'chunk-start',
    baseLatencyMs: best.fit.routerMs + best.fit.baseMs,
    routers: 1,
    view: task.selection.followsEvents ? LATE : GUESSED,
    selection: present.selection,
    knowsOutput: false,
    speed: 1,
    copies: 1,
    stretch: 1,
    seed: 1,
    warmupShare,
  }
  const rows: WhatIfRow[] = []
  const filling = new Set(trace.requests.slice(0, primes))
  for (const { name, policy, change } of questionsAbout(trace.workers, kvCapacityTokens, present.name)) {
    const spec = { ...base, ...change }
    let computedTokens = 0
    const { result } = await simulateCell(spec, trace.requests, {
      ...next(name),
      onServed({ trace: request, reusedTokens }) {
        if (!filling.has(request)) computedTokens += request.inputTokens - reusedTokens
      },
    })
    rows.push(rowOf(name, policy, spec, result, computedTokens))
  }
  return { ...known, rows, cpuMs: cpuMs() - startedMs }
}

function questionsAbout(workers: number, kvCapacityTokens: number, present: string): readonly Question[] {
  const ask = (name: string, change: Partial<CellSpec>, policy = present): Question => ({
    name,
    policy,
    change,
  })
  return [
    ask('as it is', {}),
    ask('one more worker', { workers: workers + 1 }),
    ...(workers > 1 ? [ask('one worker less', { workers: workers - 1 })] : []),
    ask('twice the cache', { kvCapacityTokens: 2 * kvCapacityTokens }),
    ...POLICIES.filter(policy => policy !== present).map(policy =>
      ask(`policy ${policy}`, { selection: selectionOf(policy) }, policy),
    ),
  ]
}

// ── What is simulated ────────────────────────────────────────────────────────────────────────────

/** The requests and workers of the model, and of the block size, that most requests are of. */
function oneModel(log: DecisionLog): {
  readonly log: DecisionLog
  readonly model: string
  readonly notes: string[]
} {
  if (log.requests.length === 0) throw new WhatIfError('no request has reached a worker in these minutes')
  const model = mostOf(log.requests.map(request => request.model))
  const blockTokens = mostOf(
    log.requests.filter(request => request.model === model).map(request => request.blockTokens),
  )
  const requests = log.requests.filter(
    request => request.model === model && request.blockTokens === blockTokens,
  )
  const notes: string[] = []
  if (requests.length < log.requests.length)
    notes.push(
      `${log.requests.length - requests.length} requests of other models or block sizes are left out`,
    )
  const used = new Set(requests.map(({ worker }) => worker!))
  const serving = log.workers.filter(
    ({ key, models, isUp }) => used.has(key) || (isUp && models.includes(model)),
  )
  const gone = [...used].filter(key => !serving.some(worker => worker.key === key))
  if (gone.length > 0)
    notes.push(`${gone.length} workers that took requests are gone: here they are still there`)
  const workers = [...serving, ...gone.map(key => goneWorker(key, model, blockTokens))]
  return { log: { ...log, requests, workers }, model, notes }
}

function goneWorker(key: string, model: string, blockTokens: number): LoggedWorker {
  return {
    key,
    models: [model],
    blockTokens,
    kvBlocks: undefined,
    stepTokensMax: STEP_TOKENS_DEFAULT,
    isUp: false,
  }
}

function mostOf<T>(values: readonly T[]): T {
  const counts = new Map<T, number>()
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1)
  return [...counts].reduce((best, each) => (each[1] > best[1] ? each : best))[0]
}

function spanOf({ requests }: DecisionLog): number {
  return requests.at(-1)!.timestampMs - requests[0]!.timestampMs
}

interface Present {
  readonly name: string
  readonly selection: CellSelection
  readonly note?: string
}

function policyOf(selection: LoggedSelection): Present {
  const name = selection.mode === 'kv' ? selection.policy : selection.mode
  try {
    const { temperature, overlapWeight } = selection
    const weighed = name === 'linear' ? { overlapWeight } : {}
    return { name, selection: { ...selectionOf(name), temperature, ...weighed } }
  } catch (error) {
    if (!(error instanceof UnknownPolicyError)) throw error
    const note = `how this router places (${name}) cannot be simulated: auto stands for it`
    return { name: 'auto', selection: selectionOf('auto'), note }
  }
}

/** As the router has it where nothing is given. Throws UnknownPolicyError. */
function selectionOf(name: string): CellSelection {
  const { selection } = parseColumn(name)
  return isAutoSelection(selection) ? { ...selection, queue: { threshold: 'auto' } } : selection
}

// ── Step times ───────────────────────────────────────────────────────────────────────────────────

type Profile = ProfileName | InlineProfile

/** Step times that the engines may have, the likeliest first. */
function profilesOf(
  { profile, learned }: WhatIfTask,
  trace: LogTrace,
  workers: readonly LoggedWorker[],
): Profile[] {
  if (profile !== undefined && profile !== LEARNED) return [profile as ProfileName]
  const own = learnedProfile(learned, trace, workers)
  if (profile === LEARNED) {
    if (own === undefined)
      throw new WhatIfError('the router has not learned the step times of its workers yet')
    return [own]
  }
  return own === undefined ? [...PROFILE_NAMES] : [own, ...PROFILE_NAMES]
}

/** Means over the workers with learned figures. */
function learnedProfile(
  learned: WhatIfTask['learned'],
  { kvCapacityTokens }: LogTrace,
  workers: readonly LoggedWorker[],
): InlineProfile | undefined {
  const speeds = workers.flatMap(({ key }) => {
    const speed = learned[key]
    return speed === undefined || speed.prefill.source === 'prior' || speed.decode.source === 'prior'
      ? []
      : [speed]
  })
  if (speeds.length === 0) return undefined
  const mean = (of: (speed: (typeof speeds)[number]) => number): number =>
    speeds.reduce((sum, speed) => sum + of(speed), 0) / speeds.length
  const stepMs = mean(({ decode }) => decode.coefficients[0])
  // The constant part of a prefill step contains no weights: they are read while the step computes.
  const overheadMs = Math.min(
    stepMs,
    mean(({ prefill }) => prefill.coefficients[0]),
  )
  return {
    name: LEARNED,
    overheadMs,
    weightsMs: stepMs - overheadMs,
    msPerToken: mean(({ prefill }) => prefill.coefficients[1]),
    msPerTokenContext: mean(({ prefill }) => prefill.coefficients[2]),
    msPerDecodeContext: mean(({ decode }) => decode.coefficients[2]),
    kvCapacityTokens: kvCapacityTokens ?? kvTokensOf(PROFILE_NAMES[0]),
    stepTokensMax: Math.min(...workers.map(({ stepTokensMax }) => stepTokensMax)),
    sequencesMax: SEQUENCES_MAX,
  }
}

function kvTokensOf(profile: Profile): number {
  return typeof profile === 'string' ? timingProfile(profile).kvCapacityTokens : profile.kvCapacityTokens
}

interface Fitted {
  readonly profile: Profile
  readonly fit: LogFit
}

/** The first profile that fits; if none does, the one with the nearest times. */
async function bestFit(
  log: DecisionLog,
  candidates: readonly Profile[],
  warmupShare: number,
  next: (what: string) => Pick<Parameters<typeof simulateCell>[2] & object, 'clock' | 'onProgress'>,
): Promise<Fitted> {
  let best: Fitted | undefined
  for (const profile of candidates) {
    const what = `what happened, with step times ${nameOf(profile)}`
    const fit = await fitLog(log, { profile, warmupShare, ...next(what) })
    if (best === undefined || distance(fit) < distance(best.fit)) best = { profile, fit }
    if (fit.faults.length === 0) break
  }
  return best!
}

function distance({ ttftMs }: LogFit): number {
  const ratio = ttftMs.simulated.mean / ttftMs.seen.mean
  return ratio > 0 ? Math.abs(Math.log(ratio)) : Number.POSITIVE_INFINITY
}

function nameOf(profile: Profile): string {
  return typeof profile === 'string' ? profile : profile.name
}

// ── What is said ─────────────────────────────────────────────────────────────────────────────────

function fitOf({ profile, fit }: Fitted): WhatIfFit {
  return {
    isGood: fit.faults.length === 0,
    text: fitText(fit),
    faults: fit.faults,
    profile: nameOf(profile),
    comparedRequests: fit.ttftCompared,
    ttftMs: { seen: fit.ttftMs.seen.mean, simulated: fit.ttftMs.simulated.mean },
    hitRate: fit.hitRate,
  }
}

function rowOf(
  name: string,
  policy: string,
  spec: CellSpec,
  result: CellResult,
  computedTokens: number,
): WhatIfRow {
  return {
    name,
    workers: spec.workers,
    policy,
    kvTokens: spec.kvCapacityTokens!,
    ttftMs: result.ttftMs,
    e2eMsMean: result.e2eMs.mean,
    hitRate: result.hitRate,
    computedTokens,
    unservedRequests: result.refused + result.lost,
  }
}
