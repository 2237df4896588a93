/** Bookings: what the tracker books for a placement. */

import type { Booking, GatewayLife } from '@homing/actors/tracker'
import { handoverOf } from '@homing/fleet'
import {
  type Candidate,
  type ChosenBefore,
  type Placed,
  prefillTokensOf,
  type RoutingRequest,
  tokensToHandOver,
} from '@homing/placement'

export interface BookingParts {
  readonly id: string
  readonly gateway: GatewayLife
  readonly placed: Placed
  /** What is sent now: the request, or its first slice. */
  readonly request: RoutingRequest
  readonly isSlice: boolean
  readonly session: string | undefined
  readonly waitedMs: number
  /** Undefined: the router has chosen. */
  readonly chosen: ChosenBefore | undefined
}

export function bookingOf({
  id,
  gateway,
  placed,
  request,
  isSlice,
  session,
  waitedMs,
  chosen,
}: BookingParts): Booking {
  const { winner } = placed
  const isPrefill = request.leg?.kind === 'prefill'
  const isDecode = request.leg?.kind === 'decode'
  return {
    decisionId: id,
    gateway,
    worker: winner.key.key,
    workerSlot: winner.key.workerSlot,
    sequenceHashes: request.sequenceHashes,
    promptTokens: request.promptTokens,
    // A prompt that comes from elsewhere does not tell how fast the worker computes.
    isUnknown: request.unknownPromptReason !== undefined || isDecode || placed.pooledBlocks > 0,
    handedTokens: handedTokensOf(placed, request),
    prefillTokens: chosen?.prefillTokens ?? (isDecode ? 0 : prefillTokensOf(placed, request)),
    blockSizeTokens: request.blockSizeTokens,
    expectedOutputTokens: request.expectedOutputTokens,
    outputTokensMax: outputTokensMaxOf(request, winner),
    tracking: request.tracking,
    session,
    // A slice is asked for as a stream, which tells when it is computed, as does the answer of one token.
    isStream:
      isSlice || (isPrefill && handoverOf(winner.worker) === 'kv_transfer') || request.isStream === true,
    waitedMs,
    stepTokens: winner.worker.maxBatchedTokens.value,
  }
}

/** Prompt tokens that come from elsewhere: from another worker, or out of pooled memory. Undefined: none. */
function handedTokensOf(placed: Placed, { leg, blockSizeTokens }: RoutingRequest): number | undefined {
  if (leg?.kind === 'decode' && leg.handover === 'kv_transfer') return tokensToHandOver(placed)
  return placed.pooledBlocks > 0 && leg === undefined ? placed.pooledBlocks * blockSizeTokens : undefined
}

/** The most tokens that the choices can have; undefined: not known, as of a request with several prompts. */
function outputTokensMaxOf(
  { model, promptTokens, counted, outputTokensMax = Infinity, choicesCount = 1 }: RoutingRequest,
  { worker: { models } }: Candidate,
): number | undefined {
  if (counted === undefined) return undefined
  const modelTokensMax = models.find(({ name }) => name === model)?.maxModelTokens
  const room = modelTokensMax === undefined ? Infinity : Math.max(1, modelTokensMax - promptTokens)
  return choicesCount * Math.min(outputTokensMax, room)
}
