/** What programs give to `KvRouter`, and the bodies that the router reads. */

import type { ProgramPrompt } from '@homing/actors/console'
import { shownValue } from '@homing/base'
import { BadOptionError } from './kv-router-errors.ts'

/** Token ids, each a whole number 0 … 2^32 − 1. */
export type TokenIds = readonly number[] | Int32Array | Uint32Array

/** When an answer ends. What is left out is the engine's default. */
export interface StopConditions {
  /** Most tokens of the answer; vLLM's default for token prompts is 16. */
  readonly maxTokens?: number | undefined
  /** Least tokens of the answer. */
  readonly minTokens?: number | undefined
  /** Goes on past the token that ends a text: an answer has exactly `maxTokens`. */
  readonly ignoreEos?: boolean | undefined
  readonly stop?: string | readonly string[] | undefined
  readonly stopTokenIds?: readonly number[] | undefined
}

/** How the engine draws tokens. What is left out is the engine's default. */
export interface SamplingOptions {
  readonly temperature?: number | undefined
  readonly topP?: number | undefined
  readonly topK?: number | undefined
  readonly minP?: number | undefined
  readonly seed?: number | undefined
  readonly frequencyPenalty?: number | undefined
  readonly presencePenalty?: number | undefined
  readonly repetitionPenalty?: number | undefined
}

/** Which experts of an MoE model a request wants, where engines say which blocks belong to which. */
export interface MoeQueryOptions {
  readonly layerId: number
  /** Default: any of the layer. */
  readonly expertIds?: readonly number[] | undefined
  readonly expertGroup?: number | undefined
  /** False: only workers with matching blocks may take it, if there are any. Default true. */
  readonly fallbackToUnlabeled?: boolean | undefined
}

/** Settings of the router for one call. What is left out is as set for the router. */
export interface RouterConfigOverride {
  /** Weight of cached blocks against load, 0 … 1000; the linear rule decides. */
  readonly overlapScoreWeight?: number | undefined
  /** Another name of `overlapScoreWeight`, which counts if both are given. */
  readonly prefillLoadScale?: number | undefined
  /** What a cached block counts for, 0 … 1000. */
  readonly overlapScoreCredit?: number | undefined
  /** 0: the best worker; above: random, the more the higher; 0 … 1000. The linear rule decides. */
  readonly routerTemperature?: number | undefined
  /** False: no other request shares its blocks. */
  readonly assumeKvReuse?: boolean | undefined
  /** False: its prompt is not counted as prefill. */
  readonly trackPrefillTokens?: boolean | undefined
  readonly moeQuery?: MoeQueryOptions | undefined
}

/** What every question about a prompt may say. */
export interface PromptOptions {
  /** Default: that of the router, else the only model of its workers. */
  readonly model?: string | undefined
  readonly override?: RouterConfigOverride | undefined
}

export interface BestWorkerOptions extends PromptOptions {
  /** 1 … 256 characters. Books the request under it until `free`; undefined: nothing changes. */
  readonly requestId?: string | undefined
  /** Only this worker may be chosen. */
  readonly workerId?: number | undefined
  readonly dpRank?: number | undefined
}

export interface GenerateRequest {
  readonly tokenIds: TokenIds
  /** Default: that of the router, else the only model of its workers. */
  readonly model?: string | undefined
  readonly stopConditions?: StopConditions | undefined
  readonly samplingOptions?: SamplingOptions | undefined
  readonly routerConfigOverride?: RouterConfigOverride | undefined
  /** Forces this worker, with its load counted all the same; undefined: the router chooses. */
  readonly workerId?: number | undefined
  readonly dpRank?: number | undefined
  /** Aborts the request, at its engine too; the iteration then throws the signal's reason. */
  readonly signal?: AbortSignal | undefined
}

/** Members of the program's objects: how they are called in a body, and what they must be. */
type Names<T> = Readonly<Record<keyof T, readonly [name: string, kind: Kind]>>

type Kind = keyof typeof KINDS

/** Ranges are for the router and the engine to check: they know them. */
const KINDS = {
  text: ['a text', isText],
  number: ['a number', value => typeof value === 'number'],
  whole: ['a whole number from 0', isWhole],
  flag: ['true or false', value => typeof value === 'boolean'],
  texts: ['a text, or a list of texts', value => isText(value) || isListOf(value, isText)],
  wholes: ['a list of whole numbers from 0', value => isListOf(value, isWhole)],
  object: ['an object', isObject],
  signal: ['an AbortSignal', value => value instanceof AbortSignal],
  /** Something else checks it. */
  any: ['', () => true],
} as const satisfies Record<string, readonly [what: string, fits: (value: unknown) => boolean]>

const STOP: Names<StopConditions> = {
  maxTokens: ['max_tokens', 'number'],
  minTokens: ['min_tokens', 'number'],
  ignoreEos: ['ignore_eos', 'flag'],
  stop: ['stop', 'texts'],
  stopTokenIds: ['stop_token_ids', 'wholes'],
}
const SAMPLING: Names<SamplingOptions> = {
  temperature: ['temperature', 'number'],
  topP: ['top_p', 'number'],
  topK: ['top_k', 'number'],
  minP: ['min_p', 'number'],
  seed: ['seed', 'number'],
  frequencyPenalty: ['frequency_penalty', 'number'],
  presencePenalty: ['presence_penalty', 'number'],
  repetitionPenalty: ['repetition_penalty', 'number'],
}
const OVERRIDE: Names<RouterConfigOverride> = {
  overlapScoreWeight: ['overlap_score_weight', 'number'],
  prefillLoadScale: ['prefill_load_scale', 'number'],
  overlapScoreCredit: ['overlap_score_credit', 'number'],
  routerTemperature: ['router_temperature', 'number'],
  assumeKvReuse: ['assume_kv_reuse', 'flag'],
  trackPrefillTokens: ['track_prefill_tokens', 'flag'],
  moeQuery: ['moe_query', 'object'],
}
const MOE_QUERY: Names<MoeQueryOptions> = {
  layerId: ['layer_id', 'whole'],
  expertIds: ['expert_ids', 'wholes'],
  expertGroup: ['expert_group', 'whole'],
  fallbackToUnlabeled: ['fallback_to_unlabeled', 'flag'],
}
const BEST_WORKER: Names<BestWorkerOptions> = {
  model: ['model', 'text'],
  override: ['override', 'object'],
  requestId: ['requestId', 'any'],
  workerId: ['workerId', 'whole'],
  dpRank: ['dpRank', 'whole'],
}
const PROMPT: Names<PromptOptions> = { model: ['model', 'text'], override: ['override', 'object'] }
const GENERATE: Names<GenerateRequest> = {
  tokenIds: ['tokenIds', 'any'],
  model: ['model', 'text'],
  stopConditions: ['stopConditions', 'object'],
  samplingOptions: ['samplingOptions', 'object'],
  routerConfigOverride: ['routerConfigOverride', 'object'],
  workerId: ['workerId', 'whole'],
  dpRank: ['dpRank', 'whole'],
  signal: ['signal', 'signal'],
}
const TOKEN_ID_MAX = 2 ** 32 - 1

const utf8 = new TextEncoder()

/** A question about a prompt: a body without it, and a copy of its ids. Throws BadOptionError. */
export function promptOf(
  act: string,
  tokens: TokenIds,
  options: BestWorkerOptions,
  books: boolean,
): ProgramPrompt {
  renamed<PromptOptions>(act, '', options, books ? BEST_WORKER : PROMPT)
  const { model, workerId, dpRank, override } = options
  const members = { model, nvext: nvextOf(act, workerId, dpRank, 'override', override) }
  return { body: utf8.encode(JSON.stringify(members)), ids: idsOf(act, tokens) }
}

/** The body of a completion that is streamed with its token ids. Throws BadOptionError. */
export function generateBody(request: GenerateRequest, modelDefault: string | undefined): Uint8Array {
  const act = 'generate'
  assertObject(act, 'request', request)
  renamed(act, '', request, GENERATE)
  const { tokenIds, model = modelDefault, stopConditions, samplingOptions } = request
  const { workerId, dpRank, routerConfigOverride } = request
  return bodyOf(act, 'prompt', tokenIds, {
    model,
    ...renamed(act, 'samplingOptions', samplingOptions, SAMPLING),
    ...renamed(act, 'stopConditions', stopConditions, STOP),
    stream: true,
    stream_options: { include_usage: true },
    return_token_ids: true,
    nvext: nvextOf(act, workerId, dpRank, 'routerConfigOverride', routerConfigOverride),
  })
}

function nvextOf(
  act: string,
  workerId: number | undefined,
  dpRank: number | undefined,
  name: string,
  override: RouterConfigOverride | undefined,
): object | undefined {
  if (workerId === undefined && dpRank === undefined && override === undefined) return undefined
  const members = renamed(act, name, override, OVERRIDE)
  const query = renamed(act, `${name}.moeQuery`, override?.moeQuery, MOE_QUERY)
  return {
    backend_instance_id: workerId,
    dp_rank: dpRank,
    router_config_override: {
      ...members,
      ...(query === undefined ? {} : { moe_query: query }),
    },
  }
}

/** The members that are given, as a body has them. Throws BadOptionError for one that does not exist. */
function renamed<T extends object>(
  act: string,
  of: string,
  given: T | undefined,
  names: Names<T>,
): Readonly<Record<string, unknown>> | undefined {
  if (given === undefined) return undefined
  const members: Record<string, unknown> = {}
  for (const [key, value] of Object.entries(given)) {
    const option = of === '' ? key : `${of}.${key}`
    if (!Object.hasOwn(names, key)) {
      const known = Object.keys(names).join(', ')
      throw new BadOptionError(act, option, `there is no such member; known: ${known}`)
    }
    assertWritten(act, option, value)
    const [name, kind] = names[key as keyof T]
    assertKind(act, option, value, kind)
    members[name] = value
  }
  return members
}

/** JSON would make null of it, which is the same as not given. */
function assertWritten(act: string, option: string, value: unknown): void {
  if (value === null) throw new BadOptionError(act, option, 'null is no value; leave it out')
  if (typeof value === 'bigint' || (typeof value === 'number' && !Number.isFinite(value)))
    throw new BadOptionError(act, option, `${String(value)} is no number that can be sent`)
}

function assertKind(act: string, option: string, value: unknown, kind: Kind): void {
  const [what, fits] = KINDS[kind]
  if (value !== undefined && !fits(value)) throw notA(act, option, value, what)
}

/** Of `KvRouter.start`: what is none of the router's settings. Throws BadOptionError. */
export function assertStart(given: { readonly model?: unknown }): void {
  assertObject('start', 'settings', given)
  assertKind('start', 'model', given.model, 'text')
}

/** Checks that an argument of the program is an object, before its members are checked. */
export function assertObject(act: string, option: string, value: unknown): void {
  if (!isObject(value)) throw notA(act, option, value, 'an object')
}

function notA(act: string, option: string, value: unknown, what: string): BadOptionError {
  return new BadOptionError(act, option, `${shownValue(value)} is not ${what}`)
}

function isText(value: unknown): boolean {
  return typeof value === 'string'
}

function isWhole(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

function isObject(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isTokenList(value: unknown): boolean {
  return Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView))
}

function isListOf(value: unknown, fits: (value: unknown) => boolean): boolean {
  return Array.isArray(value) && value.every(fits)
}

/** The ids as bit patterns of u32, in memory of their own. */
function idsOf(act: string, tokens: TokenIds): Int32Array {
  assertSome(act, tokens)
  // All elements of a Uint32Array are ids; those past 2^31 − 1 wrap.
  if (tokens instanceof Uint32Array) return new Int32Array(tokens)
  // One by one: `Int32Array.from` of a list takes ten times as long.
  const ids = new Int32Array(tokens.length)
  for (let i = 0; i < tokens.length; i++) {
    const id = tokens[i]!
    if (typeof id !== 'number' || id >>> 0 !== id) throw noId(act, i, id)
    ids[i] = id
  }
  return ids
}

/**
 * Ids are written by themselves, as digits: as texts they would cost more than the choice of a worker.
 */
function bodyOf(act: string, name: string, ids: TokenIds, members: object): Uint8Array {
  assertSome(act, ids)
  const text = JSON.stringify(members)
  const head = utf8.encode(`{"${name}":[`)
  const tail = utf8.encode(`]${text === '{}' ? '' : `,${text.slice(1, -1)}`}}`)
  // Its buffer is its own: a pooled one would be shared with others, and copied whole to another thread.
  const bytes = new Uint8Array(head.length + ids.length * ID_BYTES_MAX + tail.length)
  bytes.set(head)
  let at = head.length
  for (let i = 0; i < ids.length; i++) {
    const id = ids[i]!
    // True of whole numbers of 32 bits alone.
    if (typeof id !== 'number' || id >>> 0 !== id) throw noId(act, i, id)
    if (i > 0) bytes[at++] = COMMA
    at = writeDigits(bytes, at, id)
  }
  bytes.set(tail, at)
  return bytes.slice(0, at + tail.length)
}

function assertSome(act: string, tokens: TokenIds): void {
  if (!isTokenList(tokens)) throw notA(act, 'tokens', tokens, 'a list of token ids')
  if (tokens.length === 0) throw new BadOptionError(act, 'tokens', 'there are none; give at least one id')
}

function noId(act: string, position: number, id: unknown): BadOptionError {
  const shown = typeof id === 'number' ? String(id) : shownValue(id)
  const why = `${shown} is no token id: give a whole number 0 … ${TOKEN_ID_MAX}`
  return new BadOptionError(act, `tokens[${position}]`, why)
}

/** Where they end. `id`: of 32 bits. */
function writeDigits(bytes: Uint8Array, at: number, id: number): number {
  const end = at + digitsOf(id)
  let rest = id
  for (let i = end - 1; i >= at; i--) {
    // A division of whole numbers: `Math.floor` would cost ten times as much.
    const next = (rest / 10) >>> 0
    bytes[i] = ZERO + rest - next * 10
    rest = next
  }
  return end
}

function digitsOf(id: number): number {
  if (id < 100_000) return id < 100 ? (id < 10 ? 1 : 2) : id < 1000 ? 3 : id < 10_000 ? 4 : 5
  if (id < 10_000_000) return id < 1_000_000 ? 6 : 7
  return id < 100_000_000 ? 8 : id < 1_000_000_000 ? 9 : 10
}

/** Ten digits and a comma. */
const ID_BYTES_MAX = 11
const COMMA = 0x2c
const ZERO = 0x30
