/**
 * A line of a trace file, in the form of the Mooncake traces: one JSON object
 *
 *   {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 48, …]}
 *
 *   timestamp      milliseconds from the start, ≥ 0
 *   input_length   prompt tokens; output_length: generated tokens; whole numbers from 0 to TRACE_TOKENS_MAX
 *   hash_ids       one prefix id per block of the prompt; the partial last block may have one or not
 *   session_id, model, tenant   texts, optional
 *
 * Other fields are skipped.
 */

import { CodedError, parseJson } from '@homing/base'
import type { TraceRequest } from './trace-request.ts'

/** Longest prompt and longest answer. */
export const TRACE_TOKENS_MAX = 100_000_000

/** A line of a trace is not of its form. */
export class MalformedTraceError extends CodedError {
  readonly code = 'HOMING_TRACE_MALFORMED'

  constructor(path: string, line: number, reason: string) {
    super(`cannot read trace ${path}: line ${line}: ${reason}`, { path, line, reason })
  }
}

/** The request of a line. `path` and `line` (from 1) are for the error. Throws MalformedTraceError. */
export function parseTraceLine(path: string, line: number, text: string, blockTokens: number): TraceRequest {
  let value: Record<string, unknown>
  try {
    value = parseJson(text) as Record<string, unknown>
  } catch {
    throw new MalformedTraceError(path, line, 'it is not JSON')
  }
  if (typeof value !== 'object' || value === null) {
    throw new MalformedTraceError(path, line, 'it is not a JSON object')
  }
  const { timestamp, hash_ids: hashIds, session_id: sessionId, model, tenant } = value
  if (typeof timestamp !== 'number' || !(timestamp >= 0)) {
    throw new MalformedTraceError(path, line, 'timestamp must be a number ≥ 0, in milliseconds')
  }
  const inputTokens = tokensOf(value, 'input_length', path, line)
  const outputTokens = tokensOf(value, 'output_length', path, line)
  if (!Array.isArray(hashIds) || !hashIds.every(isId)) {
    throw new MalformedTraceError(path, line, 'hash_ids must be a list of whole numbers from 0 to 2^53 − 1')
  }
  const blocks = inputTokens / blockTokens
  if (hashIds.length !== Math.ceil(blocks) && hashIds.length !== Math.floor(blocks)) {
    throw new MalformedTraceError(
      path,
      line,
      `${hashIds.length} hash_ids for ${inputTokens} tokens; with blocks of ${blockTokens} tokens there must be ${Math.ceil(blocks)}`,
    )
  }
  return {
    timestampMs: timestamp,
    inputTokens,
    outputTokens,
    hashIds,
    ...(sessionId !== undefined && { sessionId: textOf(sessionId, 'session_id', path, line) }),
    ...(model !== undefined && { model: textOf(model, 'model', path, line) }),
    ...(tenant !== undefined && { tenant: textOf(tenant, 'tenant', path, line) }),
  }
}

/** Lines of a trace file. */
export function traceText(requests: Iterable<TraceRequest>): string {
  let text = ''
  for (const { timestampMs, inputTokens, outputTokens, hashIds, sessionId, model, tenant } of requests) {
    const line = {
      timestamp: timestampMs,
      input_length: inputTokens,
      output_length: outputTokens,
      hash_ids: Array.from(hashIds),
      ...(sessionId !== undefined && { session_id: sessionId }),
      ...(model !== undefined && { model }),
      ...(tenant !== undefined && { tenant }),
    }
    text += `${JSON.stringify(line)}\n`
  }
  return text
}

function tokensOf(value: Record<string, unknown>, field: string, path: string, line: number): number {
  const tokens = value[field]
  if (!Number.isInteger(tokens) || (tokens as number) < 0 || (tokens as number) > TRACE_TOKENS_MAX) {
    const reason = `${field} must be a whole number from 0 to ${TRACE_TOKENS_MAX}`
    throw new MalformedTraceError(path, line, reason)
  }
  return tokens as number
}

function textOf(value: unknown, field: string, path: string, line: number): string {
  if (typeof value !== 'string') throw new MalformedTraceError(path, line, `${field} must be a text`)
  return value
}

function isId(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 0
}
