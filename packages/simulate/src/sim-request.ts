/**
 * Sim request: one request on its way through a simulated fleet. The engine and the cell write it, each its
 * own fields.
 */

import type { RoutingRequest } from '@homing/placement'
import type { GuardedDecision } from '@homing/selection'
import type { TraceRequest } from '@homing/trace'

export interface SimRequest {
  readonly trace: TraceRequest
  /** Order of arrival, from 0. */
  readonly index: number
  readonly arrivalMs: number
  /** At least 1: an engine computes one token of any prompt. */
  readonly inputTokens: number
  /** At least 1: a prompt that is computed brings a token. */
  readonly outputTokens: number
  /** Ids of the full blocks of the prompt, in the engine's block size. */
  readonly blockIds: ArrayLike<number>
  readonly blocks: number
  /** Ids of the blocks that its answer fills behind them; empty where they are not known. */
  readonly answerIds: ArrayLike<number>
  readonly router: number
  /** What its client asks for beside its prompt; undefined: nothing, as in traces. */
  readonly hints?: Partial<RoutingRequest>
  /** The part of a request that this is, where prefill and decode are apart; undefined: all of it. */
  readonly leg?: 'prefill' | 'decode'
  /** Of a decode leg: prompt tokens that were cached where its prompt was computed. */
  readonly reusedBefore?: number
  /** What it takes up that another worker began, which died; undefined: nothing. */
  readonly recovers?: Recovers
  worker: number
  /** When it was sent to that worker. */
  placedMs: number
  /** How long it waited in the queue of its router. */
  waitedMs: number
  /** Overlap in tokens that the router predicted where it sent it. */
  predictedTokens: number
  /** Tokens that it was booked with there. */
  bookedTokens: number
  /** Tokens, output too, that it counts as outstanding with there. */
  bookedOutstanding: number
  /** For the guard of its router. */
  guarded: GuardedDecision | undefined
  /** Where its session was bound; undefined: it is of none. */
  session?: { readonly key: string; readonly worker: string; readonly joinedMs: number }
  /** Its router hears of its first token before there is one. */
  isToldAtOnce: boolean
  /** −1 until there. */
  firstTokenMs: number

  // Of the engine.
  /** Prompt tokens that were cached when it was admitted. */
  reusedTokens: number
  /** The same, and those that were read out of a pool or handed over. */
  skippedTokens: number
  computedTokens: number
  /** Tokens of the running step. */
  chunkTokens: number
  /** Cached blocks that it holds: places in the engine's table, in order of depth. */
  places: Int32Array
  placesHeld: number
  /** Blocks that it holds and that no other request can find. */
  privateBlocks: number
  /** Number of the step that brings its last token. */
  lastStep: number
}

/** What a request takes up that another worker began. */
export interface Recovers {
  readonly diedMs: number
  /** The first request, as it arrived and as its first worker served it. */
  readonly original: SimRequest
  /** Tokens of the answer that the client has, over all workers. */
  readonly delivered: number
  /** Leading tokens of its prompt that are in the pool. */
  readonly pooledTokens: number
}

export function newSimRequest(
  trace: TraceRequest,
  index: number,
  blockIds: ArrayLike<number>,
  blocks: number,
  router: number,
  answerIds: ArrayLike<number> = NO_PLACES,
): SimRequest {
  return {
    trace,
    index,
    arrivalMs: trace.timestampMs,
    inputTokens: Math.max(1, trace.inputTokens),
    outputTokens: Math.max(1, trace.outputTokens),
    blockIds,
    blocks,
    answerIds,
    router,
    worker: -1,
    placedMs: -1,
    waitedMs: 0,
    predictedTokens: 0,
    bookedTokens: 0,
    bookedOutstanding: 0,
    guarded: undefined,
    isToldAtOnce: false,
    firstTokenMs: -1,
    reusedTokens: 0,
    skippedTokens: 0,
    computedTokens: 0,
    chunkTokens: 0,
    places: NO_PLACES,
    placesHeld: 0,
    privateBlocks: 0,
    lastStep: 0,
  }
}

const NO_PLACES = new Int32Array(0)
