/**
 * The decoder as one would write it first: a MessagePack library makes objects, then they are read.
 * Slow and simple; `decodeKvBatch` must agree with it.
 */

import { Decoder } from '@msgpack/msgpack'
import {
  ADAPTER,
  ALL_SEPARATORS,
  KV_CLEARED,
  KV_WITHDRAWN,
  type KvBatch,
  type KvEvent,
  type KvTier,
  kvRemoved,
  kvStored,
  SALT,
} from '../src/index.ts'

/** A float, told apart from the integer of the same value. */
class Float {
  readonly value: number
  constructor(value: number) {
    this.value = value
  }
}

interface FloatMethods {
  readF32(): unknown
  readF64(): unknown
}

/** A decoder that keeps floats apart, for which the library has no option: its readers are replaced. */
function floatKeepingDecoder(): Decoder {
  const decoder = new Decoder({
    useBigInt64: true,
    mapKeyConverter: key => (typeof key === 'string' ? key : '\0'),
    extensionCodec: { tryToEncode: () => null, decode: () => new Extension() } as never,
  })
  const methods = decoder as unknown as FloatMethods
  const { readF32, readF64 } = methods
  methods.readF32 = () => new Float(readF32.call(decoder) as number)
  methods.readF64 = () => new Float(readF64.call(decoder) as number)
  return decoder
}

/** A value that is none of ours. */
class Extension {}

class NotUnderstood extends Error {}

/** Undefined when the payload is no batch. */
export function naiveDecode(payload: Uint8Array): KvBatch | undefined {
  let batch: unknown
  try {
    batch = floatKeepingDecoder().decode(payload)
  } catch {
    return undefined
  }
  if (!Array.isArray(batch) || batch.length < 2 || !Array.isArray(batch[1])) return undefined
  const timestamp = batch[0] instanceof Float ? batch[0].value : integerOrUndefined(batch[0])
  if (timestamp === undefined || !Number.isFinite(timestamp)) return undefined
  const rankSlot: unknown = batch[2]
  if (typeof rankSlot === 'bigint' && integerOrUndefined(rankSlot) === undefined) return undefined
  const rank = integerOrUndefined(rankSlot)

  const events: KvEvent[] = []
  let unknownTag = 0
  let malformed = 0
  for (const raw of batch[1] as unknown[]) {
    try {
      const event = toEvent(raw)
      if (event === undefined) unknownTag++
      else events.push(event)
    } catch (error) {
      if (!(error instanceof NotUnderstood)) throw error
      malformed++
    }
  }
  return {
    timestampSeconds: timestamp,
    rank: rank === undefined || rank < 0 ? undefined : rank,
    events,
    skipped: { unknownTag, malformed },
  }
}

const SLOTS: Record<string, string[]> = {
  BlockStored:
    'type block_hashes parent_block_hash token_ids block_size lora_id medium lora_name extra_keys group_idx kv_cache_spec_kind'.split(
      ' ',
    ),
  BlockRemoved: 'type block_hashes medium group_idx'.split(' '),
  AllBlocksCleared: ['type'],
}

const GROUP_SLOT = 9

function toEvent(raw: unknown): KvEvent | undefined {
  let fields: Record<string, unknown>
  if (Array.isArray(raw)) {
    if (typeof raw[0] !== 'string') throw new NotUnderstood()
    const slots = SLOTS[raw[0]]
    if (slots === undefined) return undefined
    const names = [...slots]
    const atGroup: unknown = raw[0] === 'BlockStored' ? raw[GROUP_SLOT] : undefined
    if (Array.isArray(atGroup) || isMap(atGroup)) names.splice(GROUP_SLOT, 0, 'block_mm_infos')
    if (typeof atGroup === 'string') names.splice(GROUP_SLOT, 1)
    fields = Object.fromEntries(raw.slice(0, names.length).map((value, slot) => [names[slot], value]))
    if (isMap(fields['lora_name'])) {
      const { cache_salt, session_id, lora_name } = fields['lora_name']
      fields = { ...fields, lora_name, cache_salt, session_id }
    }
  } else if (isMap(raw)) {
    fields = raw
  } else throw new NotUnderstood()
  const tag = fields['type']
  if (typeof tag !== 'string') throw new NotUnderstood()
  if (tag === 'AllBlocksCleared') return fields['withdrawn'] === true ? KV_WITHDRAWN : KV_CLEARED
  if (tag !== 'BlockStored' && tag !== 'BlockRemoved') return undefined

  const locality = text(fields['locality'])?.toUpperCase() ?? 'LOCAL'
  const place = {
    tier: toTier(text(fields['medium'])),
    isLocal: tag === 'BlockRemoved' ? locality !== 'REMOTE' : locality === 'LOCAL',
    group: count(fields['group_idx']),
  }
  const hashes = words(fields['block_hashes'])
  if (tag === 'BlockRemoved') return kvRemoved({ hashes, ...place })

  const parent = fields['parent_block_hash']
  const loraId = fields['lora_id']
  const loraName = text(fields['lora_name'])
  let cacheSalt = text(fields['cache_salt'])
  const infos = fields['block_mm_infos']
  let hasUnknownExtraKeys = !isNil(infos) && !(Array.isArray(infos) && infos.every(isNil))
  const media: { id: string; offsetTokens: number }[][] = []
  optionalList(fields['extra_keys']).forEach((keys, block) => {
    const texts: string[] = []
    media[block] = []
    for (const key of optionalList(keys)) {
      if (typeof key === 'string') texts.push(key)
      else if (isMedia(key)) media[block]!.push({ id: key[0], offsetTokens: integer(key[1]) })
      else hasUnknownExtraKeys = true
    }
    if (texts[0] === loraName) texts.shift()
    const unprefixed = texts[0]?.replace(/^dynamo-cache-salt:/, '')
    if (block === 0) cacheSalt ??= unprefixed
    if (unprefixed === cacheSalt) texts.shift()
    if (texts.length > 0) hasUnknownExtraKeys = true
  })
  return kvStored({
    hashes,
    parent: isNil(parent) ? undefined : words([parent]),
    tokens: Int32Array.from(optionalList(fields['token_ids']), token),
    blockSizeTokens: count(fields['block_size']) ?? 0,
    ...place,
    loraName,
    loraId: isNil(loraId) || integer(loraId) === 0 ? undefined : integer(loraId),
    cacheSalt,
    mediaHashes: media.some(items => items.length > 0) ? media : undefined,
    hasUnknownExtraKeys,
    attention: text(fields['kv_cache_spec_kind']),
    sessionId: text(fields['session_id']),
    tells: tells(fields),
  })
}

function tells(fields: Record<string, unknown>): number {
  if (optionalList(fields['extra_keys']).length > 0) return ALL_SEPARATORS
  const namesAdapter = fields['lora_name'] !== undefined || !isNil(fields['lora_id'])
  return (namesAdapter ? ADAPTER : 0) | (fields['cache_salt'] === undefined ? 0 : SALT)
}

function toTier(medium: string | undefined): KvTier {
  if (medium === undefined) return 'device'
  const upper = medium.toUpperCase()
  if (['GPU', 'DEVICE'].includes(upper)) return 'device'
  if (['CPU', 'CPU_PINNED', 'CPU_TIER1'].includes(upper)) return 'host'
  if (['CPU_TIER2', 'DISK', 'STORAGE', 'FS', 'OBJ', 'NVME'].includes(upper)) return 'disk'
  return ['EXTERNAL', 'NETWORK', 'REMOTE', 'SHARED'].includes(upper) ? 'external' : 'unknown'
}

function words(value: unknown): Int32Array {
  if (!Array.isArray(value)) throw new NotUnderstood()
  const pairs: number[] = []
  for (const hash of value as unknown[]) {
    let bits: bigint
    if (hash instanceof Uint8Array) {
      if (hash.length < 8) throw new NotUnderstood()
      bits = BigInt(`0x${Buffer.from(hash).toString('hex')}`)
    } else if (typeof hash === 'bigint' || typeof hash === 'number') bits = BigInt(hash)
    else throw new NotUnderstood()
    pairs.push(Number(BigInt.asIntN(32, bits)), Number(BigInt.asIntN(32, bits >> 32n)))
  }
  return Int32Array.from(pairs)
}

function token(value: unknown): number {
  if (!Array.isArray(value)) return tokenId(value)
  if (value.length !== 2) throw new NotUnderstood()
  tokenId(value[1])
  return tokenId(value[0])
}

function tokenId(value: unknown): number {
  const id = integer(value)
  if (id < 0 || id > 0xffffffff) throw new NotUnderstood()
  return id
}

function count(value: unknown): number | undefined {
  if (isNil(value)) return undefined
  const number = integer(value)
  if (number < 0 || number > 0x7fffffff) throw new NotUnderstood()
  return number
}

function integer(value: unknown): number {
  const number = integerOrUndefined(value)
  if (number === undefined) throw new NotUnderstood()
  return number
}

function integerOrUndefined(value: unknown): number | undefined {
  if (typeof value !== 'number' && typeof value !== 'bigint') return undefined
  const number = Number(value)
  return Number.isSafeInteger(number) ? number : undefined
}

function text(value: unknown): string | undefined {
  if (isNil(value)) return undefined
  if (typeof value !== 'string') throw new NotUnderstood()
  return value
}

function optionalList(value: unknown): unknown[] {
  if (isNil(value)) return []
  if (!Array.isArray(value)) throw new NotUnderstood()
  return value
}

function isMedia(value: unknown): value is [string, unknown] {
  return (
    Array.isArray(value) &&
    value.length === 2 &&
    typeof value[0] === 'string' &&
    (typeof value[1] === 'number' || typeof value[1] === 'bigint')
  )
}

function isMap(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype
}

function isNil(value: unknown): value is null | undefined {
  return value === null || value === undefined
}
