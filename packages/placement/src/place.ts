/**
 * Place: which worker key a request goes to, by all that is known of the fleet.
 *
 *   candidatesFor   fleet ─▶ eligible ─▶ its session
 *   (the caller gathers overlaps and loads of these)
 *   place           a filter of one's own ─▶ busy thresholds ─▶ room ─▶ selector ─▶ guard
 *   (the caller writes the receipt, and books)
 *
 * Both are functions of what they are given, and wait for nothing. `place` writes only the scratch memory of
 * the selector and of the guard, and draws from the random numbers that it is given; turn, guard and sessions
 * change when the caller says that it was placed.
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
import { type Eligible, eligible } from './eligible.ts'
import { AllBusyError, AllFilteredError, WorkerNotNamedError } from './errors.ts'
import { inputOf, type Known, selectionRequestOf, without } from './known-candidates.ts'
import type { Overlaps } from './overlaps.ts'
import type { GuardReceipt } from './receipt.ts'
import { bestCachedTokens, isBusy } from './room.ts'
import type { RoutingGuard } from './routing-guard.ts'
import type { RoutingRequest } from './routing-request.ts'

/** Of so many decisions, one looks at workers on trial, too. */
const TRIAL_EVERY = 20

/** It is to wait. */
export type Busy = Extract<DecideResult, { readonly kind: 'busy' }>

/** What is asked before anything is known of overlaps and loads. */
export interface CandidatesQuestion {
  readonly fleet: Fleet
  readonly request: RoutingRequest
  readonly settings: PlacementSettings
  /** Requests for which there were candidates before: one of TRIAL_EVERY looks at workers on trial, too. */
  readonly questions: number
  /** Undefined: sessions are bound to no worker. */
  readonly affinity: ConversationAffinity | undefined
  readonly nowMs: number
  /** It may wait while no worker has been probed yet. */
  readonly mayWait: boolean
}

/** All that a caller has gathered about a request. */
export interface Situation {
  readonly fleet: Fleet
  readonly request: RoutingRequest
  readonly found: Eligible
  /** Of the candidates that were found, in their order. */
  readonly workerSlots: Int32Array
  readonly overlaps: Overlaps
  readonly load: CandidateLoads
  /** Blocks that the device of a candidate holds, as its events say, or −1. Undefined: not known of any. */
  readonly heldBlocks: ((candidate: Candidate) => number) | undefined
  /** Of `otherRanks` of the candidates; undefined: there are none, or no busy threshold. */
  readonly otherLoads: { readonly workerSlots: Int32Array; readonly load: CandidateLoads } | undefined
  /** By ascending `uncachedTokensMin`; undefined: it is placed, however busy all are. */
  readonly roomRules: readonly RoomRule[] | undefined
  /** It waits already: while all are past a busy threshold, it waits on. */
  readonly isWaiting: boolean
  /** The decision will be made; else nobody experiments with it. */
  readonly isReal: boolean
}

/** What a caller owns and `place` works with. */
export interface PlacementMeans {
  readonly selector: Selector
  /** Undefined: there is none. */
  readonly guard: RoutingGuard | undefined
  readonly random: Random
  /** Of round-robin. */
  readonly turn: number
}

export interface PlacementSettings {
  readonly usual: SelectionSettings
  /** For prompts that are not known. */
  readonly byLoad: SelectionSettings
  /** For requests with a weight of their own, where auto is the policy. */
  readonly linear: SelectionSettings
  /** HTTP status of requests for which all workers are busy; undefined: that of the error. */
  readonly overloadStatus: number | undefined
}

/** What a receipt does not say of the choice. */
export interface PlacedFigures {
  readonly winner: Candidate
  /** The guessed part of the winner's overlap. */
  readonly guessedBlocks: number
  /** The largest overlap of a candidate. */
  readonly bestOverlapBlocks: number
}

/** Where a request goes. */
export interface Placed extends PlacedFigures {
  readonly request: RoutingRequest
  readonly mode: RouterMode
  readonly known: Known
  readonly input: Candidates
  /** Overwritten when its selector chooses again. */
  readonly choice: Choice
  /** Undefined: the guard had nothing to do with it. */
  readonly guard: GuardReceipt | undefined
  /** Blocks that count as held by the winner: full blocks of the prompt. */
  readonly overlapBlocks: number
  /** Tokens that the winner must compute, as predicted. */
  readonly prefillTokens: number
  /** Turn of round-robin, once this place is taken. */
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
 * What chooses for a request. A prompt that is not known has no cost: every worker would be as cheap. It goes
 * to the worker with the fewest requests, whose number is known of all. A selection of one's own is told. A
 * request that brings a weight or a temperature means the linear rule: auto has none.
 */
export function settingsFor(
  { usual, byLoad, linear }: PlacementSettings,
  { unknownPromptReason, override }: RoutingRequest,
): SelectionSettings {
  if (usual.mode !== 'kv' || usual.custom !== undefined) return usual
  if (unknownPromptReason !== undefined) return byLoad
  const isWeighed = override.overlapWeight !== undefined || override.temperature !== undefined
  return isWeighed && usual.policy === 'auto' ? linear : usual
}

/** No worker has been probed yet, as far as it is known. */
export function isBeginning({ version, workers }: Fleet): boolean {
  return version === 0 || (workers.length > 0 && workers.every(({ state }) => state === 'probing'))
}

/** The worker keys that may take a request, as its session leaves them; or why there are none. */
export function eligibleByAffinity({
  fleet,
  request,
  questions,
  affinity,
  nowMs,
}: Omit<CandidatesQuestion, 'settings' | 'mayWait'>): Eligible | ErrorRecord {
  const found = eligible(fleet, request, questions % TRIAL_EVERY === 0)
  const session = affinity?.keyOf(request)
  if ('code' in found || session === undefined) return found
  return affinity!.applied(found, session, nowMs)
}

/** The candidates for a request that is to be placed. */
export function candidatesFor(question: CandidatesQuestion): Eligible | Busy | ErrorRecord {
  const { fleet, request, settings, mayWait } = question
  if (settings.usual.mode === 'direct' && request.pinnedInstanceId === undefined) {
    return toErrorRecord(new WorkerNotNamedError())
  }
  const found = eligibleByAffinity(question)
  // This life of the router, or of the directory, has just begun: what may wait is not lost by that.
  if ('code' in found && mayWait && isBeginning(fleet)) {
    return { kind: 'busy', cachedTokens: 0, boundWorker: undefined, falls: undefined }
  }
  return found
}

/**
 * Where the request goes; or that it is to wait, or why it cannot be placed. CustomSelectionError when a
 * selection of one's own fails.
 */
export function place(
  situation: Situation,
  settings: PlacementSettings,
  means: PlacementMeans,
): Placed | Busy | ErrorRecord {
  const { request, roomRules, load, found, isWaiting } = situation
  const all = filtered(situation, settings, means)
  if ('code' in all) return all
  const known = notBusy(all, situation, settings)
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
  return chosen(known, situation, settingsFor(settings, request), means)
}

/** Without the candidates that the filter of a selection of one's own leaves out. */
function filtered(
  { request, found, workerSlots, overlaps, load, heldBlocks }: Situation,
  { usual }: PlacementSettings,
  { selector }: PlacementMeans,
): Known | ErrorRecord {
  const known: Known = { ...found, workerSlots, overlaps, load }
  const { custom } = usual
  if (custom === undefined) return known
  const isKept = selector.eligible(inputOf(known, heldBlocks), selectionRequestOf(request), usual)
  if (isKept === undefined) return known
  const reason = `the filter of the selection ${custom.name} left it out`
  const left = without(known, i => (isKept[i] === true ? undefined : reason))
  if (left !== undefined) return left
  const names = known.candidates.map(({ key }) => key.key)
  return toErrorRecord(new AllFilteredError(custom.name, names))
}

/** Without the candidates that are past a busy threshold of the model; AllBusyError where all are. */
function notBusy(
  known: Known,
  { fleet, request, workerSlots, load, otherLoads }: Situation,
  { overloadStatus }: PlacementSettings,
): Known | ErrorRecord {
  const thresholds = thresholdsFor(fleet, request)
  if (thresholds === undefined) return known
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

function chosen(
  known: Known,
  { request, heldBlocks, isReal }: Situation,
  settings: SelectionSettings,
  { selector, guard, random, turn }: PlacementMeans,
): Placed {
  const { candidates, overlaps } = known
  const input = inputOf(known, heldBlocks)
  const choice = selector.choose(input, selectionRequestOf(request), settings, random, turn)
  const guardReceipt = guard?.consider(request, settings, input, choice, selector, isReal)
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
    prefillTokens: prefillTokensOf(request, overlapBlocks, overlaps.creditFactors[at]!),
    guessedBlocks: overlaps.guessedBlocks[at]!,
    bestOverlapBlocks: largest(overlaps.blocks, candidates.length),
    nextTurn: choice.nextTurn,
  }
}

/** An engine always computes the last token itself. */
function prefillTokensOf(
  { promptTokens, blockSizeTokens }: RoutingRequest,
  overlapBlocks: number,
  creditFactor: number,
): number {
  const creditedTokens = overlapBlocks * blockSizeTokens * creditFactor
  return Math.max(Math.min(1, promptTokens), Math.round(promptTokens - creditedTokens))
}

/** Of the first `count`; 0 if there are none. */
function largest(values: ArrayLike<number>, count: number): number {
  let found = 0
  for (let i = 0; i < count; i++) if (values[i]! > found) found = values[i]!
  return found
}
