/**
 * Exchange steps: what one exchange is made of. Each part has its own state, which no other writes; they meet
 * in exchange.ts, exchange-turns.ts and exchange-end.ts.
 *
 *   request       what is placed and sent next, and how far it is
 *   placing       the placement, with legs (a prefill worker's) and slices (of a long prompt) before it
 *   calls         the calls to workers, a second worker's among them
 *   failures      workers that failed it
 *   continuation  what the client has of a stream, so that another worker can go on with it
 *   reply         what the client is told
 *   figures       when each thing happened
 */

import type { BodyHold } from '@homing/http'
import type { HttpExchange } from '@homing/transport'
import type { AccessNote } from './access-note.ts'
import { type CallsOwner, ExchangeCalls } from './exchange-calls.ts'
import { ExchangeFigures } from './exchange-figures.ts'
import { ExchangeLegs } from './exchange-legs.ts'
import type { CommonParts } from './exchange-parts.ts'
import { ExchangePlacing, type PlacingOwner } from './exchange-placing.ts'
import { ExchangeReply } from './exchange-reply.ts'
import { ExchangeRequest } from './exchange-request.ts'
import { ExchangeSlices } from './exchange-slices.ts'
import { StreamContinuation } from './stream-continuation.ts'
import { WorkerFailures } from './worker-failures.ts'

export interface ExchangeSteps {
  readonly request: ExchangeRequest
  readonly figures: ExchangeFigures
  readonly slices: ExchangeSlices
  readonly legs: ExchangeLegs
  readonly placing: ExchangePlacing
  readonly calls: ExchangeCalls
  readonly failures: WorkerFailures
  readonly continuation: StreamContinuation
  readonly reply: ExchangeReply
}

/** A client's request, as the door of the gateway hands it over. */
export interface ArrivedRequest {
  readonly http: HttpExchange
  /** A name of the route table. */
  readonly route: string
  /** Of its body. */
  readonly hold: BodyHold
  /** For the access log; undefined: this request gets no line. */
  readonly note: AccessNote | undefined
}

export function newSteps(
  parts: CommonParts,
  { http, route, hold, note }: ArrivedRequest,
  owner: PlacingOwner & CallsOwner,
): ExchangeSteps {
  const continuation = new StreamContinuation(parts.continuations, http, hold)
  const request = new ExchangeRequest(continuation, note?.spans)
  const figures = new ExchangeFigures(parts, note)
  const slices = new ExchangeSlices(parts)
  const legs = new ExchangeLegs(parts, hold)
  return {
    request,
    figures,
    slices,
    legs,
    placing: new ExchangePlacing(parts, { request, legs, slices, figures }, owner),
    calls: new ExchangeCalls(parts, hold, figures, owner),
    failures: new WorkerFailures(parts),
    continuation,
    reply: new ExchangeReply(parts, http, route, continuation),
  }
}
