/**
 * The few fields of a request that routing needs, read from a scanned body and its headers.
 *
 * Everything else stays bytes: the engine judges it. Fields that are read are checked; an error names the
 * wrong value and what would be right. null counts as absent everywhere, as in engines.
 *
 * Headers win over the body. For the cache salt: header, then nvext, then the top level.
 *
 * Source: OpenAI's chat completions and completions, and Dynamo's `nvext` extension with its headers.
 */

import { EmptyPromptError, excerpt, InvalidRequestError } from './errors.ts'
import { scanRequest } from './scan.ts'
import type {
  ByteRange,
  CacheUse,
  Member,
  MoeQueryHint,
  PriorityHints,
  PromptShape,
  RequestFields,
  RequestHeaders,
  RequestScan,
  RoutingConstraints,
  RoutingHints,
  RoutingOverride,
  TrackingHints,
} from './types.ts'

/** Top-level members that are meant for the router and would confuse an engine. */
export const ROUTER_MEMBERS: readonly string[] = ['nvext', 'router_config_override']

export interface ReadOptions {
  /** False: nvext and its headers have no effect. Default true. */
  readonly readsHints?: boolean
  /**
   * True, of a request for a response: `prompt` is no prompt here, but a field that the engine judges.
   * Default false.
   */
  readonly hasOtherInput?: boolean
  /** The member that the route cannot do without; absent: InvalidRequestError. Default: none. */
  readonly requires?: 'messages' | 'prompt'
  /** Members whose text names the session; the first one that has any counts. Default: none. */
  readonly affinityFields?: readonly string[]
}

/**
 * Reads a scanned body. Throws InvalidRequestError for a value of the wrong kind, and EmptyPromptError for an
 * empty prompt, one of nothing but empty texts or lists, or an empty list of messages. `headers` have names
 * in lower case.
 */
export function readRequest(
  bytes: Uint8Array,
  scan: RequestScan,
  headers: RequestHeaders = {},
  options: ReadOptions = {},
): RequestFields {
  const top = new Fields(bytes, scan, '')
  const readsHints = options.readsHints ?? true
  const nvext = readsHints ? top.object('nvext') : undefined
  const messages = top.range('messages')
  const prompt = options.hasOtherInput === true ? undefined : (top.range('prompt') ?? top.range('token_ids'))
  const promptParam = top.range('prompt') === undefined ? 'token_ids' : 'prompt'
  if (options.requires === 'messages' && messages === undefined) {
    throw new InvalidRequestError('messages', '(missing)', 'a list of messages')
  }
  if (options.requires === 'prompt' && prompt === undefined && top.range('prompt_embeds') === undefined) {
    throw new InvalidRequestError('prompt', '(missing)', 'a text, texts, token ids or lists of token ids')
  }
  const tenant = readsHints ? headerText(headers, 'x-tenant-id') : undefined

  return {
    model: modelOf(top),
    isStream: top.flag('stream') ?? false,
    choicesCount: top.whole('n', 1, I32_MAX) ?? 1,
    outputTokensMax: top.whole('max_completion_tokens', 0, U32_MAX) ?? top.whole('max_tokens', 0, U32_MAX),
    includesUsage: top.object('stream_options')?.flag('include_usage') ?? false,
    previousResponseId: options.hasOtherInput === true ? top.text('previous_response_id') : undefined,
    session: options.affinityFields?.map(name => top.textIfAny(name)).find(text => text),
    cacheSalt: tenant || nvext?.text('cache_salt') || top.text('cache_salt') || undefined,
    cacheUse: cacheUseOf(top),
    hasExtraKey: top.range('extra_key') !== undefined,
    hasLoraPath: top.range('lora_path') !== undefined,
    promptShape: promptShape(bytes, messages, prompt, promptParam),
    prompt,
    messages,
    hints: readHints(top, nvext, readsHints ? headers : {}, readsHints),
    hasNvext: ROUTER_MEMBERS.some(name => scan.byName.has(name)),
  }
}

/** The model that a body names; undefined: none. Throws InvalidRequestError. */
export function readModel(bytes: Uint8Array, scan: RequestScan): string | undefined {
  return modelOf(new Fields(bytes, scan, ''))
}

/** Throws InvalidRequestError for a name that no worker can have: names are kept in receipts and logs. */
function modelOf(top: Fields): string | undefined {
  const model = top.text('model')
  if (model === undefined || model.length <= ASKED_MODEL_CHARACTERS_MAX) return model
  throw new InvalidRequestError(
    'model',
    JSON.stringify(model),
    `at most ${ASKED_MODEL_CHARACTERS_MAX} characters`,
  )
}

/**
 * What is read of a request whose prompt is not read: the model, the hints of nvext and headers, and the
 * separators of its cache.
 */
export interface RelayedRequest
  extends Pick<
    RequestFields,
    'model' | 'previousResponseId' | 'cacheSalt' | 'hasExtraKey' | 'hasLoraPath' | 'hints' | 'hasNvext'
  > {
  /** The body has a `cache_salt`. */
  readonly hasCacheSalt: boolean
}

/**
 * Throws InvalidRequestError for a value of the wrong kind, as `readRequest` does. `headers` have names in
 * lower case.
 */
export function readRelayedRequest(
  bytes: Uint8Array,
  scan: RequestScan,
  headers: RequestHeaders,
): RelayedRequest {
  const top = new Fields(bytes, scan, '')
  const nvext = top.object('nvext')
  return {
    model: modelOf(top),
    previousResponseId: top.textIfAny('previous_response_id'),
    cacheSalt: headerText(headers, 'x-tenant-id') || nvext?.text('cache_salt') || undefined,
    hasCacheSalt: top.range('cache_salt') !== undefined,
    hasExtraKey: top.range('extra_key') !== undefined,
    hasLoraPath: top.range('lora_path') !== undefined,
    hints: readHints(top, nvext, headers, true),
    hasNvext: ROUTER_MEMBERS.some(name => scan.byName.has(name)),
  }
}

/**
 * vLLM: log probabilities of the prompt, 0 of them included, need every token computed
 * (`skip_reading_prefix_cache`). `echo` asks for as many as `logprobs` says, and of a chat always, since its
 * `top_logprobs` is 0 by default. Beam search makes an answer of its own without the count of cached tokens.
 * SGLang: `echo` with `logprobs`. llama.cpp: `cache_prompt`.
 */
function cacheUseOf(top: Fields): CacheUse | undefined {
  const echoes = top.isOn('echo') && (top.isOn('logprobs') || top.range('messages') !== undefined)
  if (echoes || top.range('prompt_logprobs') !== undefined || top.isOff('cache_prompt')) return 'unread'
  return top.isOn('use_beam_search') ? 'unreported' : undefined
}

/** The longest name of a model that a request may have. */
const ASKED_MODEL_CHARACTERS_MAX = 1024
const I32_MAX = 2 ** 31 - 1
const U32_MAX = 2 ** 32 - 1
const U64_MAX = 2n ** 64n - 1n
/** As the settings of the router; far above, costs leave the range of numbers and cannot be compared. */
const REQUEST_WEIGHT_MAX = 1000
const TEMPERATURE_MAX = 1000
/** Ids of nvext.allowed_worker_ids; taints in each of the two lists. */
const ALLOWED_IDS_MAX = 16_384
const TAINTS_MAX = 64
/** Longer names of unknown members are cut. */
const NAME_CHARACTERS_MAX = 64

/** Members of `router_config_override`; other routers know the last one, which has no effect here. */
const OVERRIDES = [
  'overlap_score_weight',
  'prefill_load_scale',
  'overlap_score_credit',
  'router_temperature',
  'assume_kv_reuse',
  'track_prefill_tokens',
  'moe_query',
  'shared_cache_multiplier',
] as const
const MOE_QUERY = ['layer_id', 'expert_ids', 'expert_group', 'fallback_to_unlabeled'] as const
/** Experts that one query may name. */
const EXPERT_IDS_MAX = 4096
const CONSTRAINTS = ['required_taints', 'preferred_taints'] as const

function promptShape(
  bytes: Uint8Array,
  messages: ByteRange | undefined,
  prompt: ByteRange | undefined,
  promptParam: string,
): PromptShape {
  if (messages !== undefined) {
    if (bytes[messages.start] !== OPEN_BRACKET) {
      throw new InvalidRequestError('messages', excerpt(bytes, messages), 'a list of messages')
    }
    if (firstOf(bytes, messages) === CLOSE_BRACKET) throw new EmptyPromptError('messages')
    return 'messages'
  }
  if (prompt === undefined) return 'none'
  if (promptParam === 'token_ids') {
    const isIds = bytes[prompt.start] === OPEN_BRACKET && isDigitOrEnd(firstOf(bytes, prompt))
    if (!isIds) throw new InvalidRequestError('token_ids', excerpt(bytes, prompt), 'a list of token ids')
  }
  if (bytes[prompt.start] === QUOTE) {
    if (prompt.end - prompt.start === 2) throw new EmptyPromptError(promptParam)
    return 'text'
  }
  const expected = 'a text, texts, token ids or lists of token ids'
  if (bytes[prompt.start] !== OPEN_BRACKET) {
    throw new InvalidRequestError(promptParam, excerpt(bytes, prompt), expected)
  }
  const first = firstOf(bytes, prompt)
  if (hasEmptyElementsOnly(bytes, prompt)) throw new EmptyPromptError(promptParam)
  if (first === QUOTE) return 'texts'
  if (first === OPEN_BRACKET) return 'token-lists'
  if (first >= 0x30 && first <= 0x39) return 'tokens'
  throw new InvalidRequestError(promptParam, excerpt(bytes, prompt), expected)
}

const QUOTE = 0x22
const OPEN_BRACE = 0x7b
const OPEN_BRACKET = 0x5b
const CLOSE_BRACKET = 0x5d
const COMMA = 0x2c

function isDigitOrEnd(byte: number): boolean {
  return byte === CLOSE_BRACKET || (byte >= 0x30 && byte <= 0x39)
}

/** The first byte in a list that is not white space. */
function firstOf(bytes: Uint8Array, range: ByteRange): number {
  let at = range.start + 1
  while (bytes[at]! <= 0x20) at++
  return bytes[at]!
}

/** True for `[]`, `[""]`, `[[], []]`: the list contains nothing to continue. */
function hasEmptyElementsOnly(bytes: Uint8Array, range: ByteRange): boolean {
  let at = range.start + 1
  while (at < range.end - 1) {
    const byte = bytes[at]!
    if (byte <= 0x20 || byte === COMMA) at++
    else if (byte === QUOTE && bytes[at + 1] === QUOTE) at += 2
    else if (byte === OPEN_BRACKET && firstOf(bytes, { start: at, end: range.end }) === CLOSE_BRACKET) {
      at = bytes.indexOf(CLOSE_BRACKET, at) + 1
    } else return false
  }
  return true
}

/** Names of each header, the preferred one first; `readHints` defines their meaning. */
const HEADERS = {
  workerId: ['x-dynamo-worker-instance-id', 'x-worker-instance-id'],
  prefillWorkerId: ['x-dynamo-prefill-instance-id', 'x-prefill-instance-id'],
  dpRank: ['x-dynamo-dp-rank', 'x-dp-rank', 'x-data-parallel-rank'],
  prefillDpRank: ['x-dynamo-prefill-dp-rank', 'x-prefill-dp-rank'],
  priority: ['x-dynamo-request-priority'],
  strictPriority: ['x-dynamo-request-strict-priority'],
} as const

function readHints(
  top: Fields,
  nvext: Fields | undefined,
  headers: RequestHeaders,
  readsHints: boolean,
): RoutingHints {
  const agent = nvext?.object('agent_hints')
  const override = readsHints
    ? (nvext?.object('router_config_override') ?? top.object('router_config_override'))
    : undefined
  const workerHeader = headerU64(headers, HEADERS.workerId)
  const tokenData = nvext?.range('token_data')
  if (tokenData !== undefined && nvext?.isEmptyList(tokenData) === true) {
    throw new EmptyPromptError('nvext.token_data')
  }
  agent?.flag('speculative_prefill')
  // Checked, too, where another one counts.
  const hinted = readMoeQuery(agent)
  const decodeWorkerId = workerHeader === undefined ? nvext?.u64('decode_worker_id') : undefined
  const backendId = workerHeader === undefined ? nvext?.u64('backend_instance_id') : undefined
  const prefillWorkerId = headerU64(headers, HEADERS.prefillWorkerId) ?? nvext?.u64('prefill_worker_id')
  const prefillDpRank =
    headerWhole(headers, HEADERS.prefillDpRank, 0, U32_MAX) ?? nvext?.whole('prefill_dp_rank', 0, U32_MAX)

  return {
    // Where one worker has all of a request, the pin of either name is the pin.
    workerId: workerHeader ?? backendId ?? decodeWorkerId,
    ...(backendId !== undefined && decodeWorkerId === undefined ? { isWholePin: true } : {}),
    ...(prefillWorkerId === undefined ? {} : { prefillWorkerId }),
    ...(prefillDpRank === undefined ? {} : { prefillDpRank }),
    dpRank: headerWhole(headers, HEADERS.dpRank, 0, U32_MAX) ?? nvext?.whole('dp_rank', 0, U32_MAX),
    tokenData,
    annotations: nvext?.texts('annotations') ?? [],
    extraFields: nvext?.texts('extra_fields') ?? [],
    override: readOverride(override, agent),
    constraints: readConstraints(nvext),
    priority: readPriority(agent, headers),
    expectedOutputTokens: agent?.whole('osl', 0, U32_MAX),
    moeQuery: readMoeQuery(override) ?? hinted,
    tracking: readTracking(override),
  }
}

function readPriority(agent: Fields | undefined, headers: RequestHeaders): PriorityHints | undefined {
  const sensitivity = agent?.number('latency_sensitivity', -Number.MAX_VALUE, Number.MAX_VALUE)
  // A header wins over the body, whose field is not read then.
  const jump =
    headerWhole(headers, HEADERS.priority, -I32_MAX - 1, I32_MAX) ??
    agent?.whole('priority', -I32_MAX - 1, I32_MAX) ??
    sensitivity
  const strict =
    headerWhole(headers, HEADERS.strictPriority, 0, U32_MAX) ?? agent?.whole('strict_priority', 0, U32_MAX)
  return jump === undefined && strict === undefined
    ? undefined
    : { jumpSeconds: jump ?? 0, strict: strict ?? 0 }
}

/** All are checked, also those that another one takes precedence over. */
function readOverride(override: Fields | undefined, agent: Fields | undefined): RoutingOverride {
  override?.only(OVERRIDES)
  const weight = override?.number('overlap_score_weight', 0, REQUEST_WEIGHT_MAX)
  const loadScale = override?.number('prefill_load_scale', 0, REQUEST_WEIGHT_MAX)
  const hint = agent?.number('kv_overlap_score_weight', 0, REQUEST_WEIGHT_MAX)
  return {
    overlapWeight: weight ?? loadScale ?? hint,
    overlapCredit: override?.number('overlap_score_credit', 0, REQUEST_WEIGHT_MAX),
    temperature: override?.number('router_temperature', 0, TEMPERATURE_MAX),
  }
}

function readMoeQuery(holder: Fields | undefined): MoeQueryHint | undefined {
  const query = holder?.object('moe_query')
  if (query === undefined) return undefined
  query.only(MOE_QUERY)
  return {
    layerId:
      query.whole('layer_id', 0, U32_MAX) ?? query.missing('layer_id', `a whole number from 0 to ${U32_MAX}`),
    expertIds: query.wholes('expert_ids', EXPERT_IDS_MAX, U32_MAX) ?? [],
    expertGroup: query.whole('expert_group', 0, U32_MAX),
    fallbackToUnlabeled: query.flag('fallback_to_unlabeled') ?? true,
  }
}

function readTracking(override: Fields | undefined): TrackingHints | undefined {
  const assumesReuse = override?.flag('assume_kv_reuse')
  const prefillTokens = override?.flag('track_prefill_tokens')
  return assumesReuse === undefined && prefillTokens === undefined
    ? undefined
    : { assumesReuse, prefillTokens }
}

function readConstraints(nvext: Fields | undefined): RoutingConstraints | undefined {
  const taints = nvext?.object('routing_constraints')
  taints?.only(CONSTRAINTS)
  const allowedInstanceIds = nvext?.ids('allowed_worker_ids', ALLOWED_IDS_MAX)
  const requiredTaints = taints?.texts('required_taints', TAINTS_MAX) ?? []
  const preferredTaints = taints?.weights('preferred_taints', TAINTS_MAX, REQUEST_WEIGHT_MAX) ?? {}
  const hasTaints = requiredTaints.length > 0 || Object.keys(preferredTaints).length > 0
  if (allowedInstanceIds === undefined && !hasTaints) return undefined
  return { allowedInstanceIds, requiredTaints, preferredTaints }
}

/**
 * The members of one object of the body; every reader answers undefined for an absent member and for null.
 */
class Fields {
  readonly #bytes: Uint8Array
  readonly #byName: ReadonlyMap<string, Member>
  /** Where byte 0 of the scan is in the body. */
  readonly #offset: number
  readonly #path: string

  constructor(bytes: Uint8Array, scan: RequestScan, path: string, offset = 0) {
    this.#bytes = bytes
    this.#byName = scan.byName
    this.#offset = offset
    this.#path = path
  }

  /** The value's range in the body. */
  range(name: string): ByteRange | undefined {
    const member = this.#byName.get(name)
    if (member === undefined) return undefined
    const start = member.value.start + this.#offset
    // The only value of the body that begins with n is null.
    return this.#bytes[start] === 0x6e ? undefined : { start, end: member.value.end + this.#offset }
  }

  /** Refuses other members: a typing error would change what the request asks for without a word. */
  only(names: readonly string[]): void {
    for (const [name, { value }] of this.#byName) {
      if (names.includes(name)) continue
      const range = { start: value.start + this.#offset, end: value.end + this.#offset }
      this.#refuse(name.slice(0, NAME_CHARACTERS_MAX), range, `one of its members: ${names.join(', ')}`)
    }
  }

  object(name: string): Fields | undefined {
    const range = this.range(name)
    if (range === undefined) return undefined
    if (this.#bytes[range.start] !== OPEN_BRACE) this.#refuse(name, range, 'an object')
    const scan = scanRequest(this.#bytes.subarray(range.start, range.end))
    return new Fields(this.#bytes, scan, `${this.#path}${name}.`, range.start)
  }

  text(name: string): string | undefined {
    const range = this.range(name)
    if (range === undefined) return undefined
    if (this.#bytes[range.start] !== QUOTE) this.#refuse(name, range, 'a text')
    return JSON.parse(textOf(this.#bytes, range)) as string
  }

  /** Undefined, too, for a value that is no text. */
  textIfAny(name: string): string | undefined {
    const range = this.range(name)
    return range !== undefined && this.#bytes[range.start] === QUOTE ? this.text(name) : undefined
  }

  texts(name: string, countMax = Number.MAX_SAFE_INTEGER): readonly string[] | undefined {
    const range = this.range(name)
    if (range === undefined) return undefined
    const value = this.#list(range)
    if (value?.every(element => typeof element === 'string') !== true) {
      return this.#refuse(name, range, 'a list of texts')
    }
    if (value.length > countMax) this.#refuse(name, range, `a list of at most ${countMax} texts`)
    return value as string[]
  }

  /** Numbers of workers, at least one; as texts, too. They need not be exact past 2^53. */
  ids(name: string, countMax: number): readonly number[] | undefined {
    const range = this.range(name)
    if (range === undefined) return undefined
    const ids = this.#list(range)?.map(id => (typeof id === 'string' && id.trim() !== '' ? Number(id) : id))
    const isFit = ids?.every(id => typeof id === 'number' && Number.isInteger(id) && id >= 0)
    if (isFit === true && ids!.length > 0 && ids!.length <= countMax) return ids as number[]
    return this.#refuse(name, range, `a list of 1 to ${countMax} whole numbers ≥ 0`)
  }

  wholes(name: string, countMax: number, max: number): readonly number[] | undefined {
    const range = this.range(name)
    if (range === undefined) return undefined
    const values = this.#list(range)
    const isFit = values?.every(
      value => Number.isInteger(value) && (value as number) >= 0 && (value as number) <= max,
    )
    if (isFit === true && values!.length <= countMax) return values as number[]
    return this.#refuse(name, range, `a list of at most ${countMax} whole numbers from 0 to ${max}`)
  }

  /** Refuses the object for want of a member. */
  missing(name: string, expected: string): never {
    throw new InvalidRequestError(`${this.#path}${name}`, 'nothing', expected)
  }

  /** Numbers of either sign by name. */
  weights(name: string, countMax: number, max: number): Readonly<Record<string, number>> | undefined {
    const range = this.range(name)
    if (range === undefined) return undefined
    const value: unknown = this.#bytes[range.start] === OPEN_BRACE ? this.#parse(range) : undefined
    const weights = Object.values(value ?? { wrong: '' })
    const isFit = weights.every(weight => typeof weight === 'number' && Math.abs(weight) <= max)
    if (isFit && weights.length <= countMax) return value as Record<string, number>
    return this.#refuse(name, range, `an object of at most ${countMax} numbers from ${-max} to ${max}`)
  }

  flag(name: string): boolean | undefined {
    const range = this.range(name)
    if (range === undefined) return undefined
    const text = textOf(this.#bytes, range)
    if (text !== 'true' && text !== 'false') this.#refuse(name, range, 'true or false')
    return text === 'true'
  }

  /** Of a member that the engine judges: it is there, and not false. */
  isOn(name: string): boolean {
    return this.range(name) !== undefined && !this.isOff(name)
  }

  isOff(name: string): boolean {
    const range = this.range(name)
    return range !== undefined && textOf(this.#bytes, range) === 'false'
  }

  whole(name: string, min: number, max: number): number | undefined {
    const range = this.range(name)
    if (range === undefined) return undefined
    const value = this.#numberAt(range)
    if (value === undefined || !Number.isInteger(value) || value < min || value > max) {
      return this.#refuse(name, range, `a whole number from ${min} to ${max}`)
    }
    return value
  }

  number(name: string, min: number, max: number): number | undefined {
    const range = this.range(name)
    if (range === undefined) return undefined
    const value = this.#numberAt(range)
    if (value === undefined || !(value >= min && value <= max)) {
      return this.#refuse(name, range, max < Number.MAX_VALUE ? `a number from ${min} to ${max}` : 'a number')
    }
    return value
  }

  /** A u64 as decimal text, since it may not fit a number; given as a number or as text. */
  u64(name: string): string | undefined {
    const range = this.range(name)
    if (range === undefined) return undefined
    const text = textOf(this.#bytes, range)
    const digits = text.startsWith('"') ? text.slice(1, -1) : text
    return tryU64(digits) ?? this.#refuse(name, range, U64_EXPECTED)
  }

  isEmptyList(range: ByteRange): boolean {
    return this.#bytes[range.start] === OPEN_BRACKET && firstOf(this.#bytes, range) === CLOSE_BRACKET
  }

  #numberAt(range: ByteRange): number | undefined {
    const first = this.#bytes[range.start]!
    return first === 0x2d || (first >= 0x30 && first <= 0x39) ? Number(textOf(this.#bytes, range)) : undefined
  }

  #list(range: ByteRange): unknown[] | undefined {
    return this.#bytes[range.start] === OPEN_BRACKET ? (this.#parse(range) as unknown[]) : undefined
  }

  #parse(range: ByteRange): unknown {
    return JSON.parse(textOf(this.#bytes, range))
  }

  #refuse(name: string, range: ByteRange, expected: string): never {
    throw new InvalidRequestError(`${this.#path}${name}`, excerpt(this.#bytes, range), expected)
  }
}

const U64_EXPECTED = 'a whole number from 0 to 18446744073709551615'

function tryU64(digits: string): string | undefined {
  if (!/^(?:0|[1-9][0-9]{0,19})$/.test(digits)) return undefined
  return BigInt(digits) <= U64_MAX ? digits : undefined
}

function headerU64(headers: RequestHeaders, names: readonly string[]): string | undefined {
  const header = firstHeader(headers, names)
  if (header === undefined) return undefined
  const value = tryU64(header.text)
  if (value === undefined) throw new InvalidRequestError(header.name, header.text, U64_EXPECTED)
  return value
}

function headerWhole(
  headers: RequestHeaders,
  names: readonly string[],
  min: number,
  max: number,
): number | undefined {
  const header = firstHeader(headers, names)
  if (header === undefined) return undefined
  const value = /^-?[0-9]{1,10}$/.test(header.text) ? Number(header.text) : Number.NaN
  if (!(value >= min && value <= max)) {
    throw new InvalidRequestError(header.name, header.text, `a whole number from ${min} to ${max}`)
  }
  return value
}

function firstHeader(
  headers: RequestHeaders,
  names: readonly string[],
): { readonly name: string; readonly text: string } | undefined {
  for (const name of names) {
    const text = headerText(headers, name)
    if (text !== undefined) return { name, text }
  }
  return undefined
}

/** Empty counts as absent; of a repeated header the first value. */
function headerText(headers: RequestHeaders, name: string): string | undefined {
  const value = headers[name]
  const text = (typeof value === 'string' ? value : value?.[0])?.trim()
  return text === '' ? undefined : text
}

function textOf(bytes: Uint8Array, { start, end }: ByteRange): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset + start, end - start).toString()
}
