/**
 * The routes of the programmatic router, for programs in other languages: the worker for a prompt, loads with
 * it, and the ends of what is booked. They are the calls of `KvRouter` (packages/homing), over HTTP.
 *
 * A prompt is given as `token_ids` (or `tokens`), so no engine is asked to tokenize it. What is booked is
 * held by the first gateway: reservations are apart there, and one that begins anew holds none.
 */

import type { ActorRef } from '@homing/actor'
import type { DirectoryMessage } from '@homing/actors/directory'
import type { ErrorRecord } from '@homing/base'
import { fleetEvents } from '@homing/fleet'
import { type HttpAnswer, jsonAnswer, queryOf, RefusedError } from '@homing/http'
import { editBody, InvalidRequestError, type RequestScan, scanRequest, spliceMember } from '@homing/openai'
import type { PotentialKeyLoad } from '@homing/placement'
import type { ConsoleArgs } from './console-args.ts'
import type { OperatorAnswer, OperatorRequest } from './messages.ts'
import type { ChosenWorker, ProgramMessage } from './program-messages.ts'

export interface ProgramParts {
  /** At least one. */
  readonly gateways: () => Promise<readonly ActorRef<ProgramMessage>[]>
  /** Longest wait for the gateway, which reads the body and has the router choose. */
  readonly askMsMax: number
  /** Throws if the caller may not. */
  readonly assertMayChange: (request: OperatorRequest) => void
}

/** What a dump of the fleet's index asks. */
export interface DumpedParts extends Pick<ConsoleArgs, 'indexers' | 'askMsMax'> {
  readonly directory: ActorRef<Extract<DirectoryMessage, { readonly type: 'describe' }>>
}

const NOTHING = new Uint8Array(0)
const DONE = { success: true }
const utf8 = new TextEncoder()

/** With a `request_id` the request is booked; without one nothing changes. */
export async function bestWorker(request: OperatorRequest, parts: ProgramParts): Promise<OperatorAnswer> {
  parts.assertMayChange(request)
  const { body, id } = readPrompt(request)
  const gateway = await gatewayOf(parts)
  const best = await gateway.ask({ type: 'bestWorker', prompt: { body }, id }, { timeout: parts.askMsMax })
  if ('code' in best) throw new RefusedError(best, undefined)
  const answer = jsonAnswer(200, { ...rankView(best), url: best.origin })
  return id === undefined ? answer : { ...answer, booked: id }
}

/** Undefined: it is free; or why not. */
export async function freeBooked(id: string, parts: ProgramParts): Promise<ErrorRecord | undefined> {
  const gateway = await gatewayOf(parts)
  return gateway.ask({ type: 'freeReserved', id }, { timeout: parts.askMsMax })
}

export async function potentialLoads(request: OperatorRequest, parts: ProgramParts): Promise<HttpAnswer> {
  const rows = await loadsOf(request, parts)
  return jsonAnswer(
    200,
    rows.map(row => ({
      ...rankView(row),
      potential_prefill_tokens: row.potentialPrefillTokens,
      potential_decode_blocks: row.potentialDecodeBlocks,
      active_requests: row.activeRequests,
    })),
  )
}

/** The ranks that hold a beginning of the prompt, the longest first. */
export async function findMatches(request: OperatorRequest, parts: ProgramParts): Promise<HttpAnswer> {
  const rows = await loadsOf(request, parts)
  return jsonAnswer(
    200,
    rows
      .filter(({ overlapBlocks }) => overlapBlocks > 0)
      .sort((a, b) => b.overlapBlocks - a.overlapBlocks)
      .map(row => ({
        ...rankView(row),
        moe_score: row.moeScore,
        cxl_accessible_score: row.cxlAccessibleScore,
      })),
  )
}

function rankView({
  instanceId,
  dpRank,
  overlapBlocks,
  worker,
}: Pick<ChosenWorker, 'instanceId' | 'dpRank' | 'overlapBlocks' | 'worker'>) {
  return { worker_id: instanceId, dp_rank: dpRank, overlap_blocks: overlapBlocks, worker }
}

async function loadsOf(request: OperatorRequest, parts: ProgramParts): Promise<readonly PotentialKeyLoad[]> {
  parts.assertMayChange(request)
  const { body } = readPrompt(request)
  const gateway = await gatewayOf(parts)
  const rows = await gateway.ask({ type: 'potentialLoads', prompt: { body } }, { timeout: parts.askMsMax })
  if ('code' in rows) throw new RefusedError(rows, undefined)
  return rows
}

export async function prefillComplete(request: OperatorRequest, parts: ProgramParts): Promise<HttpAnswer> {
  return ended(request, parts, 'reservedPrefilled')
}

export async function freeRequest(request: OperatorRequest, parts: ProgramParts): Promise<HttpAnswer> {
  return ended(request, parts, 'freeReserved')
}

/** The index as a JSON list of router events, in pieces; see `KvRouter.dumpEvents`. */
export async function* eventPieces({
  directory,
  indexers,
  askMsMax,
}: DumpedParts): AsyncGenerator<Uint8Array, void, undefined> {
  const { fleet } = await directory.ask({ type: 'describe' }, { timeout: askMsMax })
  for await (const text of fleetEvents(fleet, indexers, askMsMax)) yield utf8.encode(text)
}

async function ended(
  request: OperatorRequest,
  parts: ProgramParts,
  type: 'reservedPrefilled' | 'freeReserved',
): Promise<HttpAnswer> {
  parts.assertMayChange(request)
  queryOf(request)
  const { body = NOTHING } = request
  const id = requestIdOf(body, scanRequest(body))
  if (id === undefined) throw new InvalidRequestError('request_id', 'which is missing', 'the id of a request')
  const gateway = await gatewayOf(parts)
  const error = await gateway.ask({ type, id }, { timeout: parts.askMsMax })
  if (error !== undefined) throw new RefusedError(error, undefined)
  return jsonAnswer(200, DONE)
}

async function gatewayOf({ gateways }: ProgramParts): Promise<ActorRef<ProgramMessage>> {
  const [first] = await gateways()
  return first!
}

/** The body as the gateway reads it: with `token_ids`, and pins in `nvext`. */
function readPrompt(request: OperatorRequest): {
  readonly body: Uint8Array
  readonly id: string | undefined
} {
  queryOf(request)
  const { body: given = NOTHING } = request
  let body = given
  let scan = scanRequest(body)
  const id = requestIdOf(body, scan)
  const tokens = scan.byName.get('tokens')
  if (!scan.byName.has('token_ids')) {
    if (tokens === undefined)
      throw new InvalidRequestError('token_ids', 'which is missing', 'the token ids of the prompt')
    body = editBody(body, { start: tokens.member.start, end: tokens.value.start, text: '"token_ids":' })
    scan = scanRequest(body)
  }
  const pins = {
    backend_instance_id: jsonOf(body, scan, 'worker_id'),
    dp_rank: jsonOf(body, scan, 'dp_rank'),
  }
  if (pins.backend_instance_id === undefined && pins.dp_rank === undefined) return { body, id }
  if (scan.byName.has('nvext'))
    throw new InvalidRequestError('worker_id', 'beside nvext', 'one of them, or backend_instance_id in nvext')
  return { body: spliceMember(body, scan, 'nvext', JSON.stringify(pins)), id }
}

/** Undefined: there is none. */
function requestIdOf(body: Uint8Array, scan: RequestScan): string | undefined {
  const id = jsonOf(body, scan, 'request_id')
  if (id === undefined || typeof id === 'string') return id
  throw new InvalidRequestError('request_id', JSON.stringify(id), 'a text')
}

/** Undefined: it is not there, or null. */
function jsonOf(body: Uint8Array, scan: RequestScan, name: string): unknown {
  const value = scan.byName.get(name)?.value
  if (value === undefined) return undefined
  if (value.end - value.start > VALUE_BYTES_MAX)
    throw new InvalidRequestError(name, 'which is long', `a value of at most ${VALUE_BYTES_MAX} bytes`)
  return JSON.parse(new TextDecoder().decode(body.subarray(value.start, value.end))) ?? undefined
}

/** An id of 256 characters takes no more, however it is written. */
const VALUE_BYTES_MAX = 4096
