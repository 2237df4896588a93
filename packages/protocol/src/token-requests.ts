/**
 * Token requests: what a router asks a worker that takes token ids, and how that worker answers
 * (docs/worker.md).
 *
 *   POST /v1/tokens
 *   {"request_id": "r", "model": "m", "token_ids": [1, 2], "resumed_tokens": 0, "eos_token_ids": [9],
 *    "stop_conditions": {"max_tokens": 16, "min_tokens": null, "stop": [], "stop_token_ids": [],
 *                        "ignore_eos": false},
 *    "sampling_options": {"temperature": 0.7}}
 *
 *   200 application/x-ndjson; one object a line
 *   {"token_ids": [5]}
 *   {"token_ids": [6, 7], "finish_reason": "length", "cached_tokens": 1}
 *   {"error": "why"}                                       instead of the last one: the request has failed
 *
 * An answer that ends without a `finish_reason` is not whole. `resumed_tokens` of `token_ids`, the last ones,
 * are what another worker had generated; `max_tokens` counts what is still to come.
 */

import { parseJson } from '@homing/base'
import { MalformedTokenRequestError } from './errors.ts'

export const TOKENS_PATH = '/v1/tokens'
export const TOKENS_TYPE = 'application/x-ndjson'
/** Of one line: 100,000 ids in it are no output of an engine. */
export const TOKEN_LINE_BYTES_MAX = 1_048_576

export interface TokenStops {
  /** Undefined: as many as the model takes. */
  readonly maxTokens: number | undefined
  /** Fewer do not end the answer, but by `maxTokens`. */
  readonly minTokens: number | undefined
  /** The router looks for them itself, and ends the answer; a worker may, too. */
  readonly stop: readonly string[]
  readonly stopTokenIds: readonly number[]
  /** The end of an answer by the model does not count. */
  readonly ignoreEos: boolean
}

export interface TokenRequest {
  readonly requestId: string
  readonly model: string
  readonly tokenIds: readonly number[]
  /** Of `tokenIds`, the last ones: what another worker had generated of this answer. */
  readonly resumedTokens: number
  readonly eosTokenIds: readonly number[]
  readonly stopConditions: TokenStops
  /** Of the client, as it wrote them: `temperature`, `top_p`, `seed`, `response_format`, … */
  readonly samplingOptions: Readonly<Record<string, unknown>>
  /** Prompts with different ones share no blocks. */
  readonly cacheSalt: string | undefined
  /** Undefined: any. */
  readonly dpRank: number | undefined
}

export interface TokenOutput {
  readonly tokenIds: readonly number[]
  /** `stop`, `length`, or another word; undefined: the answer goes on. */
  readonly finishReason?: string | undefined
  /** Tokens of the prompt that were not computed, because they were cached. */
  readonly cachedTokens?: number | undefined
}

export type TokenLine = TokenOutput | { readonly error: string }

const TOKEN_ID_MAX = 0xffff_ffff
const WORD_CHARACTERS_MAX = 64
const ERROR_CHARACTERS_MAX = 1024

export function encodeTokenRequest(request: TokenRequest, promptIds: Int32Array): Uint8Array {
  const { stopConditions: stop } = request
  const ids = [...request.tokenIds].join(',')
  const prompt = unsigned(promptIds)
  const all = prompt === '' || ids === '' ? `${prompt}${ids}` : `${prompt},${ids}`
  const head = JSON.stringify({
    request_id: request.requestId,
    model: request.model,
    resumed_tokens: request.resumedTokens,
    eos_token_ids: request.eosTokenIds,
    stop_conditions: {
      max_tokens: stop.maxTokens ?? null,
      min_tokens: stop.minTokens ?? null,
      stop: stop.stop,
      stop_token_ids: stop.stopTokenIds,
      ignore_eos: stop.ignoreEos,
    },
    sampling_options: request.samplingOptions,
    ...(request.cacheSalt === undefined ? {} : { cache_salt: request.cacheSalt }),
    ...(request.dpRank === undefined ? {} : { dp_rank: request.dpRank }),
  })
  return Buffer.from(`${head.slice(0, -1)},"token_ids":[${all}]}`)
}

/** Throws MalformedTokenRequestError, which names the member. */
export function readTokenRequest(body: Uint8Array): TokenRequest {
  let value: unknown
  try {
    value = parseJson(Buffer.from(body.buffer, body.byteOffset, body.length).toString())
  } catch {
    throw new MalformedTokenRequestError('the body', 'JSON')
  }
  const members = objectOf('the body', value)
  const stop = objectOf('stop_conditions', members['stop_conditions'] ?? {})
  const tokenIds = idsOf('token_ids', members['token_ids'])
  const resumedTokens = countOf('resumed_tokens', members['resumed_tokens']) ?? 0
  if (resumedTokens > tokenIds.length)
    throw new MalformedTokenRequestError('resumed_tokens', `at most the ${tokenIds.length} of token_ids`)
  return {
    requestId: textOf('request_id', members['request_id'] ?? ''),
    model: textOf('model', members['model'] ?? ''),
    tokenIds,
    resumedTokens,
    eosTokenIds: idsOf('eos_token_ids', members['eos_token_ids'] ?? []),
    stopConditions: {
      maxTokens: countOf('stop_conditions.max_tokens', stop['max_tokens']),
      minTokens: countOf('stop_conditions.min_tokens', stop['min_tokens']),
      stop: textsOf('stop_conditions.stop', stop['stop'] ?? []),
      stopTokenIds: idsOf('stop_conditions.stop_token_ids', stop['stop_token_ids'] ?? []),
      ignoreEos: stop['ignore_eos'] === true,
    },
    samplingOptions: objectOf('sampling_options', members['sampling_options'] ?? {}),
    cacheSalt: members['cache_salt'] == null ? undefined : textOf('cache_salt', members['cache_salt']),
    dpRank: countOf('dp_rank', members['dp_rank']),
  }
}

/** Throws TypeError for what a handler must not give. */
export function encodeTokenLine(line: TokenLine): string {
  if ('error' in line) return `${JSON.stringify({ error: line.error.slice(0, ERROR_CHARACTERS_MAX) })}\n`
  const { tokenIds, finishReason, cachedTokens } = line
  const bad = tokenIds.find(id => !isTokenId(id))
  if (bad !== undefined)
    throw new TypeError(`token id ${String(bad)} is no whole number from 0 to ${TOKEN_ID_MAX}`)
  return `${JSON.stringify({
    token_ids: tokenIds,
    ...(finishReason === undefined ? {} : { finish_reason: finishReason }),
    ...(cachedTokens === undefined ? {} : { cached_tokens: cachedTokens }),
  })}\n`
}

/** One line of an answer; undefined: it is none. */
export function readTokenLine(text: string): TokenLine | undefined {
  let value: unknown
  try {
    value = parseJson(text)
  } catch {
    return undefined
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined
  const {
    token_ids: ids = [],
    finish_reason: reason,
    cached_tokens: cached,
    error,
  } = value as Readonly<Record<string, unknown>>
  if (error !== undefined && error !== null) {
    const { message = error } = error as { readonly message?: unknown }
    const said = typeof message === 'string' ? message : JSON.stringify(message)
    return { error: said.slice(0, ERROR_CHARACTERS_MAX) }
  }
  if (!Array.isArray(ids) || !ids.every(isTokenId)) return undefined
  const isReason = reason == null || (typeof reason === 'string' && reason.length <= WORD_CHARACTERS_MAX)
  if (!isReason) return undefined
  const isCached = Number.isSafeInteger(cached) && (cached as number) >= 0
  return {
    tokenIds: ids,
    finishReason: reason ?? undefined,
    cachedTokens: isCached ? (cached as number) : undefined,
  }
}

/** Bytes to lines; a line that is longer than TOKEN_LINE_BYTES_MAX is none. */
export class TokenLines {
  #rest: Uint8Array[] = []
  #restBytes = 0

  /** The whole lines that are in it; undefined in place of one that cannot be read. */
  push(bytes: Uint8Array): readonly (TokenLine | undefined)[] {
    const lines: (TokenLine | undefined)[] = []
    let start = 0
    for (let end = bytes.indexOf(LINE_FEED); end >= 0; end = bytes.indexOf(LINE_FEED, start)) {
      const line = Buffer.concat([...this.#rest, bytes.subarray(start, end)])
      this.#rest = []
      this.#restBytes = 0
      start = end + 1
      if (line.length > TOKEN_LINE_BYTES_MAX) lines.push(undefined)
      else if (line.some(byte => byte > SPACE)) lines.push(readTokenLine(line.toString()))
    }
    if (start === bytes.length) return lines
    this.#rest.push(bytes.subarray(start))
    this.#restBytes += bytes.length - start
    if (this.#restBytes > TOKEN_LINE_BYTES_MAX) lines.push(undefined)
    return lines
  }
}

const LINE_FEED = 0x0a
const SPACE = 0x20

function isTokenId(id: unknown): id is number {
  return Number.isSafeInteger(id) && (id as number) >= 0 && (id as number) <= TOKEN_ID_MAX
}

/** Ids lie in bit patterns of 32 bits. */
function unsigned(ids: Int32Array): string {
  return new Uint32Array(ids.buffer, ids.byteOffset, ids.length).join(',')
}

function objectOf(name: string, value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value))
    return value as Readonly<Record<string, unknown>>
  throw new MalformedTokenRequestError(name, 'a JSON object')
}

function textOf(name: string, value: unknown): string {
  if (typeof value === 'string') return value
  throw new MalformedTokenRequestError(name, 'a text')
}

function textsOf(name: string, value: unknown): readonly string[] {
  if (Array.isArray(value) && value.every(text => typeof text === 'string')) return value
  throw new MalformedTokenRequestError(name, 'a list of texts')
}

function idsOf(name: string, value: unknown): readonly number[] {
  if (Array.isArray(value) && value.every(isTokenId)) return value
  throw new MalformedTokenRequestError(name, `a list of whole numbers from 0 to ${TOKEN_ID_MAX}`)
}

/** Undefined where it is null, or not there. */
function countOf(name: string, value: unknown): number | undefined {
  if (value === null || value === undefined) return undefined
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number
  throw new MalformedTokenRequestError(name, 'a whole number from 0')
}
