/**
 * Place: chooses the worker key for a request, from all that is known of the fleet.
 *
 *   candidatesFor   fleet ─▶ eligible workers ─▶ session binding
 *   (the caller gathers overlaps and loads of the candidates)
 *   place           experts ─▶ custom filter ─▶ busy thresholds ─▶ room ─▶ selector ─▶ guard
 *   (the caller writes the receipt, and books)
 *
 * Both are functions of their arguments and never wait. `place` writes only the scratch memory of the
 * selector and of the guard, and draws from the random numbers that it is given. Turn, guard and sessions
 * change only when the caller reports that the request was placed.
 */

import { type ErrorRecord, type Random, toErrorRecord } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import type { RoomRule } from '@homing/queue'
import type { Candidates, Choice, RouterMode, SelectionSettings, Selector } from '@homing/selection'
import { BusyCheck, thresholdsFor } from './busy-workers.ts'
import type { Candidate } from './candidate.ts'
import type { CandidateLoads } from './candidate-loads.ts'
import type { ConversationAffinity } from './conversation-affinity.ts'
import type { DecideResult } from './decision.ts'
import { type Eligible, eligible, type UnlistedModels } from './eligible.ts'
import { AllBusyError, AllFilteredError, NoHedgeError, WorkerNotNamedError } from './errors.ts'
import { inputOf, type Known, selectionRequestOf, without } from './known-candidates.ts'
import type { Overlaps } from './overlaps.ts'
import type { GuardReceipt } from './receipt.ts'
import { bestCachedTokens, isBusy } from './room.ts'
import type { RoutingGuard } from './routing-guard.ts'
import type { RoutingRequest } from './routing-request.ts'
import type { WorkerHealth } from './worker-health.ts'

/** One in TRIAL_EVERY decisions considers workers on trial, too. */
const TRIAL_EVERY = 20

/** The request must wait. */
export type Busy = Extract<DecideResult, { readonly kind: 'busy' }>

/** The input of `candidatesFor`: what is known before overlaps and loads. */
export interface CandidatesQuestion {
  readonly fleet: Fleet
  readonly request: RoutingRequest
  readonly settings: PlacementSettings
  /** Number of earlier requests that had candidates: one in TRIAL_EVERY considers workers on trial, too. */
  readonly questions: number
  /** Undefined: sessions are not bound to workers. */
  readonly affinity: ConversationAffinity | undefined
  /** Failures of the workers; undefined: not known. */
  readonly health?: WorkerHealth | undefined
  /** The decision will be carried out, so it may be the trial of an ejected worker; default false. */
  readonly mayTry?: boolean
  /** Undefined: a model that no worker lists is not known. */
  readonly unlisted?: UnlistedModels | undefined
  /** Worker keys that take no first slice if others can; default: none. */
  readonly slicedBeside?: readonly string[] | undefined
  readonly nowMs: number
  /** The request may wait while no worker has been probed yet. */
  readonly mayWait: boolean
}

/** The input of `place`: all that the caller has gathered about a request. */
export interface Situation {
  readonly fleet: Fleet
  readonly request: RoutingRequest
  readonly found: Eligible
  /** Slots of the candidates, in their order. */
  readonly workerSlots: Int32Array
  readonly overlaps: Overlaps
  readonly load: CandidateLoads
  /** Blocks that a candidate's device holds by its events, or −1. Undefined: not known for any candidate. */
  readonly heldBlocks: ((candidate: Candidate) => number) | undefined
  /** Loads of `otherRanks` of the candidates; undefined: no other ranks, or no busy threshold. */
  readonly otherLoads: { readonly workerSlots: Int32Array; readonly load: CandidateLoads } | undefined
  /** By ascending `uncachedTokensMin`; undefined: the request is placed even if all workers are busy. */
  readonly roomRules: readonly RoomRule[] | undefined
  /** The request waits already; it keeps waiting while all workers are past a busy threshold. */
  readonly isWaiting: boolean
  /** Its worker was chosen before: no filter and no busy threshold counts. Default false. */
  readonly isChosen?: boolean
  /** The decision will be carried out; otherwise the guard makes no experiment of it. */
  readonly isReal: boolean
}

/** What the caller owns and `place` uses. */
export interface PlacementMeans {
  readonly selector: Selector
  /** Undefined: there is no guard. */
  readonly guard: RoutingGuard | undefined
  readonly random: Random
  /** The turn of round-robin. */
  readonly turn: number
}

export interface PlacementSettings {
  readonly usual: SelectionSettings
  /** For requests whose prompt is not known. */
  readonly byLoad: SelectionSettings
  /** For requests that bring their own weights, if the policy is auto. */
  readonly linear: SelectionSettings
  /** HTTP status if all workers are busy; undefined: that of the error. */
  readonly overloadStatus: number | undefined
}

/** Figures of a choice that are not in its receipt. */
export interface PlacedFigures {
  readonly winner: Candidate
  /** The guessed part of the winner's overlap. */
  readonly guessedBlocks: number
  /** The part in pooled memory. */
  readonly pooledBlocks: number
  /** The largest overlap of a candidate. */
  readonly bestOverlapBlocks: number
  /** Prompt tokens that the winner is predicted to compute. */
  readonly prefillTokens: number
}

/** The result of `place`: where the request goes. */
export interface Placed extends PlacedFigures {
  readonly request: RoutingRequest
  readonly mode: RouterMode
  readonly known: Known
  readonly input: Candidates
  /** Overwritten when the selector chooses again. */
  readonly choice: Choice
  /** Undefined: the guard does not apply. */
  readonly guard: GuardReceipt | undefined
  /** Full blocks of the prompt that count as held by the winner. */
  readonly overlapBlocks: number
  /** The turn of round-robin after this placement. */
  readonly nextTurn: number
}

export function placementSettings(selection: SelectionSettings, overloadStatus?: number): PlacementSettings {
  return {
    usual: selection,
    byLoad: { ...selection, mode: 'least-loaded' },
    linear: { ...selection, policy: 'linear' },
    overloadStatus,
  }
}

/**
 * The selection settings for a request. If its prompt is not known, only load can tell workers apart: `auto`
 * weighs it by the estimate of the prompt, and with any other policy the request goes to the worker with the
 * fewest requests. A custom selection is told that the prompt is unknown.
 * A request with its own weight or temperature gets the linear rule: auto has neither.
 */
export function settingsFor(
  { usual, byLoad, linear }: PlacementSettings,
  { unknownPromptReason, estimate, override, leg }: RoutingRequest,
): SelectionSettings {
  if (usual.mode !== 'kv' || usual.custom !== undefined) return usual
  if (unknownPromptReason !== undefined)
    return usual.policy === 'auto' && estimate !== undefined ? usual : byLoad
  // That a decode leg has nothing to compute auto knows, and others are told by a weight of 0.
  if (leg?.kind === 'decode' && usual.policy === 'auto') return usual
  const isWeighed = override.overlapWeight !== undefined || override.temperature !== undefined
  return isWeighed && usual.policy === 'auto' ? linear : usual
}

/** Whether the fleet that is known here has no probed worker yet. */
export function isBeginning({ version, workers }: Fleet): boolean {
  return version === 0 || (workers.length > 0 && workers.every(({ state }) => state === 'probing'))
}

/** The worker keys that may take a request, after its session's binding; or why there are none. */
export function eligibleByAffinity({
  fleet,
  request,
  questions,
  affinity,
  health,
  mayTry = false,
  unlisted,
  nowMs,
}: Omit<CandidatesQuestion, 'settings' | 'mayWait'>): Eligible | ErrorRecord {
  const find = (may: boolean): Eligible | ErrorRecord => {
    const known = health === undefined ? undefined : { health, nowMs, mayTry: may }
    return eligible(fleet, request, questions % TRIAL_EVERY === 0, known, unlisted)
  }
  // The worker of a prompt that is sent in slices was chosen once, for all of them.
  const isPart = request.slice !== undefined || request.leg?.kind === 'prefill'
  // A second worker is one that the session is not bound to.
  const session = isPart || request.hedges !== undefined ? undefined : affinity?.keyOf(request)
  const found = find(mayTry)
  if ('code' in found || session === undefined) return found
  if (found.trialOf === undefined) return affinity!.applied(found, session, nowMs)
  // A session that is bound to a healthy worker stays there: another request will be the trial.
  const others = find(false)
  const applied = 'code' in others ? others : affinity!.applied(others, session, nowMs)
  return applied === others ? found : applied
}

/** The candidates for a request, or why it must wait or is refused. */
export function candidatesFor(question: CandidatesQuestion): Eligible | Busy | ErrorRecord {
  const { fleet, request, settings, mayWait } = question
  if (settings.usual.mode === 'direct' && request.pinnedInstanceId === undefined) {
    return toErrorRecord(new WorkerNotNamedError())
  }
  const found = eligibleByAffinity(question)
  // The router or the directory has just started: requests that may wait are not refused for that.
  if ('code' in found && mayWait && isBeginning(fleet)) {
    return { kind: 'busy', cachedTokens: 0, boundWorker: undefined, falls: undefined }
  }
  return question.slicedBeside === undefined || 'code' in found ? found : beside(found, question.slicedBeside)
}

/** Leaves out the worker keys that compute a long prompt of the tenant in slices, if others are left. */
function beside(found: Eligible, taken: readonly string[]): Eligible {
  const isTaken = found.candidates.map(({ key }) => taken.includes(key.key))
  if (!isTaken.includes(true) || !isTaken.includes(false)) return found
  const { candidates, preferences } = found
  const reason = 'computes another long prompt of the tenant in slices'
  return {
    ...found,
    candidates: candidates.filter((_, i) => !isTaken[i]),
    preferences: preferences?.filter((_, i) => !isTaken[i]),
    excluded: [
      ...found.excluded,
      ...candidates.filter((_, i) => isTaken[i]).map(({ key }) => ({ worker: key.key, reason })),
    ],
  }
}

/**
 * Where the request goes, that it must wait, or why it cannot be placed. Throws CustomSelectionError when a
 * custom selection fails.
 */
export function place(
  situation: Situation,
  settings: PlacementSettings,
  means: PlacementMeans,
): Placed | Busy | ErrorRecord {
  const { request, roomRules, load, found, isWaiting, isChosen } = situation
  const all = filtered(situation, settings, means)
  if ('code' in all) return all
  // What is left of a stream was admitted with it.
  const isAdmitted = request.continues !== undefined || request.isAdmitted === true
  const known = isAdmitted ? all : notBusy(all, situation, settings)
  const busy = ({ overlaps, candidates }: Known): Busy => ({
    kind: 'busy',
    cachedTokens: bestCachedTokens(request, overlaps, candidates.length),
    boundWorker: found.boundWorker,
    falls: load.falls,
  })
  if ('code' in known) return isWaiting ? busy(all) : known
  if (roomRules !== undefined) {
    const cachedTokens = bestCachedTokens(request, known.overlaps, known.candidates.length)
    if (isBusy(roomRules, known, request.promptTokens - cachedTokens)) return busy(known)
  }
  const applied = settingsFor(settings, request)
  const fit = request.hedges === undefined ? known : fitForHedge(known, situation)
  if ('code' in fit) return fit
  return chosen(fit, situation, isChosen === true ? { ...applied, custom: undefined } : applied, means)
}

/** Leaves out the candidates that the filter of a custom selection rejects. */
function filtered(
  { request, found, workerSlots, overlaps, load, heldBlocks, isChosen }: Situation,
  { usual }: PlacementSettings,
  { selector }: PlacementMeans,
): Known | ErrorRecord {
  const known = byExperts({ ...found, workerSlots, overlaps, load }, request, isChosen === true)
  const { custom } = usual
  if (custom === undefined || isChosen === true) return known
  const isKept = selector.eligible(inputOf(known, request, heldBlocks), selectionRequestOf(request), usual)
  if (isKept === undefined) return known
  const reason = `the filter of the selection ${custom.name} left it out`
  const left = without(known, i => (isKept[i] === true ? undefined : reason))
  if (left !== undefined) return left
  const names = known.candidates.map(({ key }) => key.key)
  return toErrorRecord(new AllFilteredError(custom.name, names))
}

/**
 * Leaves out the candidates without blocks of the experts that the request insists on. Where no candidate has
 * any, all stay. What a worker has begun to compute stays there.
 */
function byExperts(known: Known, { moeQuery, slice, leg }: RoutingRequest, isChosen: boolean): Known {
  const moe = known.overlaps.labels?.moe
  if (moe === undefined || moeQuery?.fallbackToUnlabeled !== false || isChosen) return known
  if (slice !== undefined || leg?.kind === 'prefill') return known
  const reason = 'has no block of the experts that the request asks for (moe_query)'
  return without(known, i => (moe[i]! > 0 ? undefined : reason)) ?? known
}

/** Leaves out the candidates that are past a busy threshold of the model; AllBusyError if all are. */
function notBusy(
  known: Known,
  { fleet, request, workerSlots, load, otherLoads, isChosen }: Situation,
  { overloadStatus }: PlacementSettings,
): Known | ErrorRecord {
  const thresholds = thresholdsFor(fleet, request)
  // What a worker has begun to compute is not refused.
  if (thresholds === undefined || request.slice !== undefined || isChosen === true) return known
  const { candidates } = known
  const check = new BusyCheck(thresholds)
  check.add(workerSlots, load)
  if (otherLoads !== undefined) check.add(otherLoads.workerSlots, otherLoads.load)
  const left = without(known, i => check.reason(candidates[i]!))
  if (left !== undefined) return left
  const busy = candidates.map(one => `${one.key.key}: ${check.reason(one)}`)
  const isPinned = request.pinnedInstanceId !== undefined
  return toErrorRecord(new AllBusyError(busy, isPinned, overloadStatus))
}

/** Prompt tokens that a worker computes for a hedge beside other requests: more would cost those too much. */
const HEDGE_BUSY_TOKENS_MAX = 1024

/** Leaves out the candidates that would hold up their own requests with the prompt of a hedge. */
function fitForHedge(known: Known, { request, heldBlocks }: Situation): Known | ErrorRecord {
  const { activeRequests } = inputOf(known, request, heldBlocks)
  const { blocks, creditFactors } = known.overlaps
  const reason = `is busy, and would compute more than ${HEDGE_BUSY_TOKENS_MAX} tokens of the prompt for a hedge`
  const left = without(known, i => {
    const newTokens = tokensToCompute(request, blocks[i]!, creditFactors[i]!)
    return activeRequests[i]! > 0 && newTokens > HEDGE_BUSY_TOKENS_MAX ? reason : undefined
  })
  if (left !== undefined) return left
  const names = known.candidates.map(({ key }) => key.key)
  return toErrorRecord(new NoHedgeError(HEDGE_BUSY_TOKENS_MAX, names))
}

function chosen(
  known: Known,
  { request, heldBlocks, isReal }: Situation,
  settings: SelectionSettings,
  { selector, guard, random, turn }: PlacementMeans,
): Placed {
  const { candidates, overlaps } = known
  const input = inputOf(known, request, heldBlocks)
  const choice = selector.choose(input, selectionRequestOf(request), settings, random, turn)
  const guardReceipt =
    request.slice === undefined && request.leg === undefined && request.hedges === undefined
      ? guard?.consider(request, settings, input, choice, selector, isReal)
      : undefined
  const at = choice.winner
  const overlapBlocks = choice.terms.overlapBlocks[at]!
  return {
    request,
    mode: settings.mode,
    known,
    input,
    choice,
    guard: guardReceipt,
    winner: candidates[at]!,
    overlapBlocks,
    prefillTokens: tokensToCompute(request, overlapBlocks, overlaps.creditFactors[at]!),
    guessedBlocks: overlaps.guessedBlocks[at]!,
    pooledBlocks: overlaps.labels?.pooled[at] ?? 0,
    bestOverlapBlocks: largest(overlaps.blocks, candidates.length),
    nextTurn: choice.nextTurn,
  }
}

/** The tokens to compute; at least one, because an engine always computes the last token. */
export function tokensToCompute(
  { promptTokens, blockSizeTokens }: RoutingRequest,
  overlapBlocks: number,
  creditFactor: number,
): number {
  const creditedTokens = overlapBlocks * blockSizeTokens * creditFactor
  return Math.max(Math.min(1, promptTokens), Math.round(promptTokens - creditedTokens))
}

/** The largest of the first `count` values; 0 if there are none. */
function largest(values: ArrayLike<number>, count: number): number {
  let found = 0
  for (let i = 0; i < count; i++) if (values[i]! > found) found = values[i]!
  return found
}
