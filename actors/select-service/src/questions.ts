/** Reads the questions of callers, which worker is to take a prompt, and makes routing requests of them. */

import { openName, openText, tryBits64, tryUnsigned64 } from '@homing/base'
import {
  bigintToHash,
  fullBlocks,
  type HashNamespace,
  hashBlocks,
  type MediaObject,
  mediaByBlock,
  mergedRanges,
  namespaceSeed,
} from '@homing/blocks'
import { type BodyFields, bodyFields, readMoeQuery } from '@homing/http'
import type { MoeQuery, RequestTracking, RoutingRequest } from '@homing/placement'
import { separatedPrompt } from '@homing/placement/separated-prompt'
import { ADAPTER, SALT } from '@homing/protocol'
import type { SelectionOverride } from '@homing/selection'
import { checkTaint, type Partition, partitionOf, selectionIdOf, TOKENS_MAX, textsOf } from './requests.ts'

/** A prompt, hashed by the block size of its partition. */
export type HashedPrompt = Pick<
  RoutingRequest,
  'promptTokens' | 'localHashes' | 'sequenceHashes' | 'separated'
>

export interface Question extends Partition {
  /** Undefined: it has none. */
  readonly selectionId: string | undefined
  /** For the block size of its partition. Throws BadBodyError. */
  readonly prompt: (blockSizeTokens: number) => HashedPrompt
  readonly override: SelectionOverride
  readonly moeQuery: MoeQuery | undefined
  readonly tracking: RequestTracking | undefined
  readonly expectedOutputTokens: number | undefined
  readonly sessionId: string | undefined
  readonly pinned: Pin | undefined
  /** Undefined: all. */
  readonly allowed: readonly bigint[] | undefined
  readonly requiredTaints: readonly string[]
  readonly preferredTaints: Readonly<Record<string, number>>
  /** The whole receipt is wanted in the answer. */
  readonly wantsReceipt: boolean
}

export interface Pin {
  readonly workerId: bigint
  /** Undefined: any of its ranks. */
  readonly dpRank: number | undefined
}

/** As a router takes them. */
const OVERRIDE_MAX = 1000
const WORKERS_MAX = 16_384
const MEDIA_MAX = 4096
/** How often objects may cover a prompt; a token stands for one of them, or for two that go together. */
const MEDIA_DEPTH_MAX = 16
const PREFERENCES_MAX = 64
const OVERRIDE_FIELDS = [
  'overlap_score_weight',
  'prefill_load_scale',
  'overlap_score_credit',
  'router_temperature',
  'assume_kv_reuse',
  'track_prefill_tokens',
  'moe_query',
  // Known to other routers; no effect here.
  'shared_cache_multiplier',
]

/** `action`: 'select a worker'. Throws BadBodyError and MistypedBodyError. */
export function readQuestion(action: string, body: Uint8Array): Question {
  const fields = bodyFields(action, body)
  const constraints = fields.object('routing_constraints')
  const expected = 'expected_output_tokens'
  const allowed = allowedOf(fields)
  const pinned = pinnedOf(fields)
  if (pinned !== undefined && allowed?.includes(pinned.workerId) === false)
    fields.refuse(`pinned_worker ${pinned.workerId} is not in allowed_worker_ids`)
  return {
    selectionId: fields.has('selection_id') ? selectionIdOf(fields) : undefined,
    ...partitionOf(fields),
    prompt: promptOf(fields),
    ...overridesOf(fields),
    expectedOutputTokens: fields.has(expected) ? fields.integer(expected, 0, TOKENS_MAX) : undefined,
    sessionId: fields.has('session_id') ? fields.name('session_id') : undefined,
    pinned,
    allowed,
    requiredTaints:
      textsOf(fields, 'routing_constraints.required_taints', constraints['required_taints']) ?? [],
    preferredTaints: preferencesOf(fields, constraints['preferred_taints']),
    wantsReceipt: fields.flag('explain', false),
  }
}

/** Only the prompt of a question, which some routes ask about. */
export function readPrompt(action: string, body: Uint8Array): Pick<Question, keyof Partition | 'prompt'> {
  const fields = bodyFields(action, body)
  return { ...partitionOf(fields), prompt: promptOf(fields) }
}

function promptOf(fields: BodyFields): Question['prompt'] {
  const isEagle = fields.flag('is_eagle', false)
  if (!fields.has('token_ids')) return hashedOf(fields, isEagle)
  if (fields.has('block_hashes')) fields.refuse('give token_ids or block_hashes, not both')
  const tokens = fields.tokens('token_ids')
  if (tokens.length === 0) fields.refuse('token_ids must have at least one token')
  const namespace: HashNamespace = {
    loraName: fields.text('lora_name') || undefined,
    cacheSalt: fields.text('cache_salt') || undefined,
  }
  const objects = mediaOf(fields, tokens.length)
  const separators =
    (namespace.loraName === undefined ? 0 : ADAPTER) | (namespace.cacheSalt === undefined ? 0 : SALT)
  return blockSizeTokens => {
    const count = fullBlocks(tokens.length, blockSizeTokens, isEagle)
    const media = objects.length === 0 ? undefined : mediaByBlock(objects, blockSizeTokens, count)
    const { local, sequence } = hashBlocks(tokens, blockSizeTokens, namespaceSeed(namespace), {
      media,
      eagle: isEagle,
    })
    return {
      promptTokens: tokens.length,
      localHashes: local,
      sequenceHashes: sequence,
      separated: separatedPrompt(new Int32Array(tokens.buffer), blockSizeTokens, namespace, separators),
    }
  }
}

/** Its caller has hashed it. */
function hashedOf(fields: BodyFields, isEagle: boolean): Question['prompt'] {
  if (!fields.has('block_hashes'))
    fields.mistyped('token_ids is missing (or block_hashes, sequence_hashes and isl_tokens)')
  for (const name of ['lora_name', 'cache_salt', 'mm_routing_info'])
    if (fields.has(name) && fields.value(name) !== '')
      fields.refuse(`${name} is not accepted with block_hashes, which must have been made with it`)
  const localHashes = fields.hashes('block_hashes')
  const sequenceHashes = fields.hashes('sequence_hashes')
  const given = localHashes.length / 2
  if (localHashes.length !== sequenceHashes.length)
    fields.refuse(
      `block_hashes has ${given} hashes and sequence_hashes ${sequenceHashes.length / 2}: give one of each for every full block`,
    )
  const promptTokens = fields.integer('isl_tokens', 1, TOKENS_MAX)
  return blockSizeTokens => {
    const blocks = fullBlocks(promptTokens, blockSizeTokens, isEagle)
    if (given > blocks)
      fields.refuse(
        `isl_tokens ${promptTokens} are ${blocks} full blocks of ${blockSizeTokens} tokens, and there are ${given} hashes`,
      )
    return { promptTokens, localHashes, sequenceHashes, separated: undefined }
  }
}

/** `{mm_objects: [{mm_hash, offsets: [[start, end] …]} …]}`. */
function mediaOf(fields: BodyFields, tokenCount: number): readonly MediaObject[] {
  const name = 'mm_routing_info.mm_objects'
  const given = fields.object('mm_routing_info')['mm_objects'] ?? []
  if (!Array.isArray(given)) return fields.mistyped(`${name} must be a list`)
  if (given.length > MEDIA_MAX) fields.refuse(`${name} has more than ${MEDIA_MAX} objects`)
  let coveredTokens = 0
  return given.map((object: unknown, i) => {
    const { mm_hash: mmHash, offsets = [] } = (object ?? {}) as Readonly<Record<string, unknown>>
    const bits = tryBits64(mmHash) ?? fields.mistyped(`${name}[${i}].mm_hash must be a 64-bit whole number`)
    const isRange = (range: unknown): range is readonly [number, number] =>
      Array.isArray(range) && range.length === 2 && range.every(Number.isSafeInteger)
    if (!Array.isArray(offsets) || !offsets.every(isRange))
      return fields.mistyped(`${name}[${i}].offsets must be a list of pairs [start, end]`)
    for (const [start, end] of offsets)
      if (start < 0 || end > tokenCount || start > end)
        fields.refuse(`${name}[${i}].offsets must lie within the ${tokenCount} tokens of the prompt`)
    const ranges = mergedRanges(offsets)
    for (const [start, end] of ranges) coveredTokens += end - start
    // Each block is hashed with all objects that it overlaps, so these may be many only where each is short.
    if (coveredTokens > MEDIA_DEPTH_MAX * tokenCount)
      fields.refuse(
        `${name} lie on top of each other: together they cover the prompt more than ${MEDIA_DEPTH_MAX} times`,
      )
    return { hash: bigintToHash(bits), ranges }
  })
}

function overridesOf(fields: BodyFields): Pick<Question, 'override' | 'moeQuery' | 'tracking'> {
  const given = fields.object('router_config_override')
  for (const name of Object.keys(given))
    if (!OVERRIDE_FIELDS.includes(name))
      fields.refuse(`router_config_override has no member ${openName(name)}`)
  const number = (name: string, max: number): number | undefined => {
    const value = given[name] ?? undefined
    if (value === undefined) return undefined
    const sentence = `router_config_override.${name} must be a number from 0 to ${max}`
    if (typeof value !== 'number') return fields.mistyped(sentence)
    return value >= 0 && value <= max ? value : fields.refuse(sentence)
  }
  const flag = (name: string): boolean | undefined => {
    const value = given[name] ?? undefined
    if (value === undefined || typeof value === 'boolean') return value
    return fields.mistyped(`router_config_override.${name} must be true or false`)
  }
  const assumesReuse = flag('assume_kv_reuse')
  const prefillTokens = flag('track_prefill_tokens')
  return {
    override: {
      overlapWeight:
        number('overlap_score_weight', OVERRIDE_MAX) ?? number('prefill_load_scale', OVERRIDE_MAX),
      overlapCredit: number('overlap_score_credit', OVERRIDE_MAX),
      temperature: number('router_temperature', OVERRIDE_MAX),
    },
    moeQuery: readMoeQuery(fields, 'router_config_override.moe_query', given['moe_query']),
    tracking:
      assumesReuse === undefined && prefillTokens === undefined ? undefined : { assumesReuse, prefillTokens },
  }
}

/** A number, or an object with `worker_id` and maybe `dp_rank`. */
function pinnedOf(fields: BodyFields): Pin | undefined {
  if (!fields.has('pinned_worker')) return undefined
  const value = fields.value('pinned_worker')
  const isObject = typeof value === 'object' && !Array.isArray(value)
  const { worker_id: id, dp_rank: dpRank = undefined } = (
    isObject ? value : { worker_id: value }
  ) as Readonly<Record<string, unknown>>
  const workerId =
    tryUnsigned64(id) ??
    fields.mistyped('pinned_worker must be the number of a worker, or an object with its worker_id')
  if (dpRank === undefined || dpRank === null) return { workerId, dpRank: undefined }
  if (typeof dpRank !== 'number' || !Number.isSafeInteger(dpRank) || dpRank < 0)
    return fields.mistyped('pinned_worker.dp_rank must be a whole number from 0')
  return { workerId, dpRank }
}

function allowedOf(fields: BodyFields): readonly bigint[] | undefined {
  const name = 'allowed_worker_ids'
  if (!fields.has(name)) return undefined
  const list = fields.list(name)
  if (list.length > WORKERS_MAX) fields.refuse(`${name} has more than ${WORKERS_MAX} ids`)
  return list.map(
    (value, i) => tryUnsigned64(value) ?? fields.mistyped(`${name}[${i}] must be the number of a worker`),
  )
}

function preferencesOf(fields: BodyFields, value: unknown): Readonly<Record<string, number>> {
  const name = 'routing_constraints.preferred_taints'
  const given = value ?? {}
  if (typeof given !== 'object' || Array.isArray(given))
    return fields.mistyped(`${name} must be an object of weights by taint`)
  const entries = Object.entries(given)
  if (entries.length > PREFERENCES_MAX) fields.refuse(`${name} has more than ${PREFERENCES_MAX} taints`)
  for (const [taint, weight] of entries) {
    checkTaint(fields, name, taint)
    if (typeof weight !== 'number')
      return fields.mistyped(`${name}[${JSON.stringify(openText(taint))}] must be a number`)
    if (Math.abs(weight) > OVERRIDE_MAX)
      fields.refuse(
        `${name}[${JSON.stringify(openText(taint))}] must be from -${OVERRIDE_MAX} to ${OVERRIDE_MAX}`,
      )
  }
  return Object.fromEntries(entries) as Record<string, number>
}
