/**
 * Own request: one short completion, to see whether the engine publishes what it computes, and whether its
 * tokens are the router's.
 *
 * The prompt is long enough for two blocks and like no other: random numbers, each of which is one token or
 * more. It costs the engine that prefill and one token.
 */

import type { Clock, Random } from '@homing/base'
import type { WorkerModel } from '@homing/fleet'
import type { KvStored } from '@homing/protocol'
import type { EventWatch } from './event-watch.ts'
import { type AskedHttp, jsonOf, type RecordedHttp } from './recorded-http.ts'

const COMPLETIONS = '/v1/completions'
const TOKENIZE = '/tokenize'
const OWN_ANSWER_BYTES_MAX = 1024 * 1024
/** Where the block size is not known yet. */
const BLOCK_SIZE_GUESS = 64
const BLOCKS = 2
/** Tokens that a number and its space may take. */
const TOKENS_PER_NUMBER_MAX = 4

export interface OwnRequestOptions {
  readonly http: RecordedHttp
  readonly clock: Clock
  readonly random: Random
  readonly origin: string
  readonly model: WorkerModel
  readonly blockSizeTokens: number | undefined
  /** Subscriptions that are connected. */
  readonly watches: readonly EventWatch[]
  /** The router's own tokenizer; undefined: it has none. */
  readonly encode: ((text: string) => Int32Array) | undefined
  /** It is to hand the prompt over, as to a decode worker. */
  readonly isOffer: boolean
  readonly timeoutMs: number
}

/** Leading tokens of the prompt that two parties agree on, of so many that can be compared. */
export interface TokenAgreement {
  readonly equal: number
  readonly compared: number
}

export interface OwnRequest {
  readonly answer: AskedHttp
  /** From the usage of the answer; undefined: not there. */
  readonly promptTokens: number | undefined
  readonly saysCachedTokens: boolean
  /** Whether the answer hands the prompt over; undefined: that was not asked for, or there is none. */
  readonly handsOver: boolean | undefined
  /** From the answer until blocks of the prompt were told to be stored; undefined: they were not. */
  readonly storedAfterMs: number | undefined
  /** Blocks in it. */
  readonly storedBlocks: number
  /** Stores of other prompts that came meanwhile. */
  readonly otherStores: number
  /**
   * Compares the tokens of the events with those of the router's tokenizer; undefined: one is not known.
   */
  readonly agreement: TokenAgreement | undefined
}

/** Takes three timeouts at most. */
export async function sendOwnRequest(options: OwnRequestOptions): Promise<OwnRequest> {
  const { http, clock, random, origin, watches, encode, isOffer, timeoutMs } = options
  const model = options.model.name
  const prompt = promptOf(options, random)
  const before = watches.map(({ seen }) => seen.stored.length)
  const engineTokens = readTokens(jsonOf(await post(http, origin, TOKENIZE, { model, prompt }, timeoutMs)))
  const offer = isOffer ? { kv_transfer_params: OFFER } : {}
  const body = { model, prompt, max_tokens: 1, temperature: 0, stream: false, ...offer }
  const answer = await post(http, origin, COMPLETIONS, body, timeoutMs)
  const answeredMs = clock.nowMs()
  const usage = usageOf(jsonOf(answer))
  const own = encode?.(prompt)
  const expected = engineTokens ?? own
  const stores = (): readonly KvStored[] => watches.flatMap(({ seen }, i) => seen.stored.slice(before[i]))
  const ofPrompt = (): readonly KvStored[] => ownStores(stores(), expected)
  if (answer.reply?.status === 200 && watches.length > 0) {
    await Promise.race(watches.map(watch => watch.seenEnough(() => ofPrompt().length > 0, timeoutMs)))
  }
  const found = ofPrompt()
  const tokens = tokensOf(found)
  return {
    answer,
    promptTokens: usage.promptTokens,
    saysCachedTokens: usage.saysCachedTokens,
    handsOver: isOffer && answer.reply?.status === 200 ? handsOver(jsonOf(answer)) : undefined,
    storedAfterMs: found.length === 0 ? undefined : Math.max(0, clock.nowMs() - answeredMs),
    storedBlocks: found.reduce((sum, { hashes }) => sum + hashes.length / 2, 0),
    otherStores: stores().length - found.length,
    agreement: own === undefined || found.length === 0 ? undefined : agreementOf(own, tokens),
  }
}

/** As the router asks for a hand-over (vLLM). The engine lets go what no decode worker takes. */
const OFFER = {
  do_remote_decode: true,
  do_remote_prefill: false,
  remote_engine_id: null,
  remote_block_ids: null,
  remote_host: null,
  remote_port: null,
}

function handsOver(body: unknown): boolean {
  const params = (body as { readonly kv_transfer_params?: unknown } | undefined)?.kv_transfer_params
  return typeof params === 'object' && params !== null
}

function promptOf({ blockSizeTokens, model }: OwnRequestOptions, random: Random): string {
  const { maxModelTokens } = model
  const wanted = BLOCKS * (blockSizeTokens ?? BLOCK_SIZE_GUESS) + 1
  const room = Math.floor(((maxModelTokens ?? Number.POSITIVE_INFINITY) - 2) / TOKENS_PER_NUMBER_MAX)
  const numbers = Array.from({ length: Math.max(1, Math.min(wanted, room)) }, () => 100 + random.below(900))
  return numbers.join(' ')
}

async function post(
  http: RecordedHttp,
  origin: string,
  path: string,
  body: object,
  timeoutMs: number,
): Promise<AskedHttp> {
  const request = {
    origin,
    method: 'POST',
    path,
    headers: { 'content-type': 'application/json' },
    body: new TextEncoder().encode(JSON.stringify(body)),
  }
  // The record has the error.
  await http.fetch(request, { timeoutMs, maxBytes: OWN_ANSWER_BYTES_MAX }).catch(() => undefined)
  return http.of(path)!
}

/**
 * The stores that begin the prompt, and those behind them; without expected tokens, every store that begins a
 * sequence.
 */
function ownStores(stores: readonly KvStored[], expected: Int32Array | undefined): readonly KvStored[] {
  const found: KvStored[] = []
  let tokenCount = 0
  for (const store of stores) {
    if (store.tokens.length === 0) continue
    if (found.length === 0 ? store.parent === undefined : true) {
      if (expected !== undefined && !continues(expected, tokenCount, store.tokens)) continue
      found.push(store)
      tokenCount += store.tokens.length
    }
  }
  return found
}

/** The tokens of the answer may follow after the end of the prompt. */
function continues(expected: Int32Array, from: number, tokens: Int32Array): boolean {
  if (from >= expected.length) return false
  for (let i = 0; i < tokens.length && from + i < expected.length; i++) {
    if (tokens[i] !== expected[from + i]) return false
  }
  return true
}

function tokensOf(stores: readonly KvStored[]): Int32Array {
  return Int32Array.from(stores.flatMap(({ tokens }) => [...tokens]))
}

function agreementOf(own: Int32Array, told: Int32Array): TokenAgreement {
  const compared = Math.min(own.length, told.length)
  let equal = 0
  while (equal < compared && own[equal] === told[equal]) equal++
  return { equal, compared }
}

/** The ids of an answer of `/tokenize`; undefined: there are none. */
export function readTokens(body: unknown): Int32Array | undefined {
  const tokens = (body as { readonly tokens?: unknown } | undefined)?.tokens
  // Number throws for an object with a member `toString`.
  const isId = (id: unknown): boolean => typeof id === 'number'
  return Array.isArray(tokens) && tokens.every(isId) ? Int32Array.from(tokens) : undefined
}

function usageOf(body: unknown): {
  readonly promptTokens: number | undefined
  readonly saysCachedTokens: boolean
} {
  const usage = (body as { readonly usage?: unknown } | undefined)?.usage as
    | {
        readonly prompt_tokens?: unknown
        readonly prompt_tokens_details?: { readonly cached_tokens?: unknown } | null
      }
    | null
    | undefined
  const promptTokens = usage?.prompt_tokens
  return {
    promptTokens: typeof promptTokens === 'number' ? promptTokens : undefined,
    saysCachedTokens: typeof usage?.prompt_tokens_details?.cached_tokens === 'number',
  }
}
