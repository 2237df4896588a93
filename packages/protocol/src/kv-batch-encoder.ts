/**
 * Encodes batches of KV events the way engines do: for simulated engines, sidecars and tests.
 *
 *   vllm-array   as vLLM 0.21 to 0.23: every slot written, 12 in a store, 4 in a removal
 *   vllm-array-8 as vLLM 0.13 to 0.15: the first 8 slots of a store and 3 of a removal, without extra keys
 *                and groups
 *   vllm-map     as vLLM 0.24 and later: optional fields that are nil are left out
 *   sglang-array as SGLang until September 2026: 7 slots, metadata of a store in a map behind them
 *   sglang-map   as SGLang since
 *
 * A field that a form has no place for is not written: SGLang has no groups, media or removals by group, and
 * only vllm-map can say that a block is held elsewhere, or that a clear is a withdrawal. Labels of stores
 * are in the forms that have maps. Stores with local hashes are written in vllm-map only, for
 * `decodeSnapshotBatch`; no engine writes any.
 */

import { labelFields, workerList } from './block-labels.ts'
import type { KvBatch, KvEvent, KvRemoved, KvStored, KvTier, KvTransition } from './kv-event.ts'
import { MessagePackWriter, type Packed } from './message-pack-writer.ts'
import { ADAPTER, ALL_SEPARATORS, SALT } from './separators.ts'

export type KvBatchForm = 'vllm-array' | 'vllm-array-8' | 'vllm-map' | 'sglang-array' | 'sglang-map'

/** `int`: unsigned for vLLM, signed for SGLang. `bytes`: digests of 32 bytes that end in the hash (vLLM). */
export type KvHashForm = 'int' | 'bytes'

export interface WrittenBatch extends Pick<KvBatch, 'timestampSeconds' | 'rank' | 'events'> {
  /**
   * Events of kinds that have no name here, behind the others: readers learn that there were some. Default 0.
   */
  readonly unknownEvents?: number
}

/** The payload of one message. Linear in its tokens: a quarter of a microsecond for a block of 16. */
export function encodeKvBatch(
  batch: WrittenBatch,
  form: KvBatchForm,
  options: { readonly hashes?: KvHashForm } = {},
): Uint8Array {
  const isSglang = form === 'sglang-array' || form === 'sglang-map'
  const hash = options.hashes === 'bytes' ? writeDigest : isSglang ? writeSigned : writeUnsigned
  const isMap = form === 'vllm-map' || form === 'sglang-map'
  const events = batch.events.map(event => {
    const { tag, required, optional } = isSglang ? sglangFields(event, hash) : vllmFields(event, hash, isMap)
    if (isMap) return toMap(tag, required, optional)
    if (isSglang) return toSglangArray(tag, required, optional)
    return toArray(tag, required, form === 'vllm-array-8' ? {} : optional)
  })
  for (let i = 0; i < (batch.unknownEvents ?? 0); i++) events.push(isMap ? { type: UNKNOWN } : [UNKNOWN])
  // A whole timestamp is written as an integer, which readers of floats accept.
  return writer.encode([batch.timestampSeconds, events, batch.rank])
}

const writer = new MessagePackWriter()
const UNKNOWN = 'Unknown'
const DIGEST_BYTES = 32

type HashWriter = (to: MessagePackWriter, hashes: Int32Array, index: number) => void
type WireFields = Readonly<Record<string, unknown>>

/** `required` is always written; `optional` is left out of maps when it is undefined. Both in wire order. */
interface WireEvent {
  readonly tag: string
  readonly required: WireFields
  readonly optional: WireFields
}

const MEDIA: Readonly<Record<'vllm' | 'sglang', Readonly<Record<KvTier, string>>>> = {
  vllm: { device: 'GPU', host: 'CPU', disk: 'STORAGE', external: 'EXTERNAL', unknown: 'UNKNOWN' },
  sglang: { device: 'GPU', host: 'CPU_PINNED', disk: 'DISK', external: 'EXTERNAL', unknown: 'UNKNOWN' },
}

function vllmFields(event: KvEvent, hash: HashWriter, isMap: boolean): WireEvent {
  switch (event.kind) {
    case 'stored':
      if (isMap && event.localHashes !== undefined) return hashedFields(event, event.localHashes, hash)
      return {
        tag: 'BlockStored',
        required: {
          ...storedFields(event, hash),
          medium: MEDIA.vllm[event.tier],
          ...(isMap && !namesAdapter(event) ? {} : { lora_name: event.loraName }),
        },
        optional: {
          ...separatorFields(event, isMap),
          group_idx: event.group,
          kv_cache_spec_kind: event.attention,
          kv_cache_spec_sliding_window: undefined,
          locality: locality(event),
          session_id: event.sessionId,
          ...labelFields(event.labels),
        },
      }
    case 'removed':
      return {
        tag: 'BlockRemoved',
        required: { block_hashes: list(event.hashes, hash), medium: MEDIA.vllm[event.tier] },
        optional: { group_idx: event.group, locality: locality(event) },
      }
    case 'cleared':
      return event.isWithdrawal ? WITHDRAWN : CLEARED
    case 'transition':
      return transitionFields(event, hash)
  }
}

function sglangFields(event: KvEvent, hash: HashWriter): WireEvent {
  switch (event.kind) {
    case 'stored':
      return {
        tag: 'BlockStored',
        required: storedFields(event, hash),
        optional: {
          medium: MEDIA.sglang[event.tier],
          cache_salt: event.cacheSalt,
          session_id: event.sessionId,
          lora_name: event.loraName,
          ...labelFields(event.labels),
        },
      }
    case 'removed':
      return {
        tag: 'BlockRemoved',
        required: { block_hashes: list(event.hashes, hash) },
        optional: { medium: MEDIA.sglang[event.tier] },
      }
    case 'cleared':
      return CLEARED
    case 'transition':
      return transitionFields(event, hash)
  }
}

function transitionFields(event: KvTransition, hash: HashWriter): WireEvent {
  return {
    tag: 'CxlStateTransition',
    required: {
      block_hashes: list(event.hashes, hash),
      new_state: event.state,
      pool_id: event.poolId,
      accessible_workers: workerList(event.accessibleWorkers),
    },
    optional: {},
  }
}

const CLEARED: WireEvent = { tag: 'AllBlocksCleared', required: {}, optional: {} }
const WITHDRAWN: WireEvent = { ...CLEARED, optional: { withdrawn: true } }

function storedFields(event: KvStored, hash: HashWriter): WireFields {
  return {
    block_hashes: list(event.hashes, hash),
    parent_block_hash: event.parent === undefined ? undefined : one(event.parent, hash),
    token_ids: unsigned(event.tokens),
    block_size: event.blockSizeTokens,
    lora_id: event.loraId,
  }
}

/** Hashes as bytes, and all that the blocks have beside them in their local hashes. */
function hashedFields(event: KvStored, localHashes: Int32Array, hash: HashWriter): WireEvent {
  return {
    tag: 'BlockStored',
    required: { hash_words: bytesOf(event.hashes), local_words: bytesOf(localHashes), tells: event.tells },
    optional: {
      parent_block_hash: event.parent === undefined ? undefined : one(event.parent, hash),
      block_size: event.blockSizeTokens,
      medium: MEDIA.vllm[event.tier],
      lora_id: event.loraId,
      lora_name: event.loraName,
      group_idx: event.group,
      kv_cache_spec_kind: event.attention,
      session_id: event.sessionId,
      ...labelFields(event.labels),
    },
  }
}

/** As they lie in memory: Node's machines are little-endian. */
function bytesOf(words: Int32Array): Uint8Array {
  return new Uint8Array(words.buffer, words.byteOffset, words.byteLength)
}

function toMap(tag: string, required: WireFields, optional: WireFields): WireFields {
  const map: Record<string, unknown> = { type: tag }
  for (const [name, value] of Object.entries(required)) map[name] = value ?? null
  for (const [name, value] of Object.entries(optional)) if (value !== undefined) map[name] = value
  return map
}

/** vLLM's array versions end before locality and session; no engine withdraws anything. */
const ARRAY_FIELDS_END: ReadonlySet<string> = new Set([
  'locality',
  'session_id',
  'withdrawn',
  'moe_metadata',
  'cxl_metadata',
])

function toArray(tag: string, required: WireFields, optional: WireFields): readonly unknown[] {
  const array: unknown[] = [tag]
  for (const value of Object.values(required)) array.push(value ?? null)
  for (const [name, value] of Object.entries(optional)) {
    if (!ARRAY_FIELDS_END.has(name)) array.push(value ?? null)
  }
  return array
}

function toSglangArray(tag: string, required: WireFields, optional: WireFields): readonly unknown[] {
  const { medium, ...metadata } = optional
  const array: unknown[] = [tag]
  for (const value of Object.values(required)) array.push(value ?? null)
  if (medium !== undefined) array.push(medium)
  const given = Object.entries(metadata).filter(([, value]) => value !== undefined)
  if (given.length > 0) array.push(Object.fromEntries(given))
  return array
}

/**
 * What says that there is no separator, too. A store that was read in a form without extra keys is written
 * without them: they would say that it has none.
 */
function separatorFields(event: KvStored, isMap: boolean): WireFields {
  const hasOthers = event.mediaHashes !== undefined || event.hasUnknownExtraKeys
  if (!isMap || event.tells === ALL_SEPARATORS || hasOthers) return { extra_keys: extraKeys(event) }
  const namesSalt = event.cacheSalt !== undefined || (event.tells & SALT) !== 0
  return namesSalt ? { cache_salt: event.cacheSalt ?? null } : {}
}

function namesAdapter({ loraName, tells }: KvStored): boolean {
  return loraName !== undefined || (tells & ADAPTER) !== 0
}

/** One list per block: adapter, media, and on the first block the salt. */
function extraKeys(event: KvStored): readonly unknown[] | undefined {
  const blockCount = event.hashes.length / 2
  if (blockCount === 0) return undefined
  return Array.from({ length: blockCount }, (_, block) => {
    const keys: unknown[] = []
    if (event.loraName !== undefined) keys.push(event.loraName)
    for (const { id, offsetTokens } of event.mediaHashes?.[block] ?? []) keys.push([id, offsetTokens])
    if (block === 0 && event.cacheSalt !== undefined) keys.push(event.cacheSalt)
    if (block === 0 && event.hasUnknownExtraKeys) keys.push(new Uint8Array(32))
    return keys.length === 0 ? null : keys
  })
}

function locality(event: KvStored | KvRemoved): string | undefined {
  return event.isLocal ? undefined : 'REMOTE'
}

function unsigned(words: Int32Array): Packed {
  return { writeTo: to => to.unsignedWords(words) }
}

function one(hashes: Int32Array, hash: HashWriter): Packed {
  return { writeTo: to => hash(to, hashes, 0) }
}

function list(hashes: Int32Array, hash: HashWriter): Packed {
  return {
    writeTo(to) {
      const count = hashes.length / 2
      to.arrayHead(count)
      for (let i = 0; i < count; i++) hash(to, hashes, i)
    },
  }
}

function writeUnsigned(to: MessagePackWriter, hashes: Int32Array, index: number): void {
  to.longWord(hashes[index * 2]!, hashes[index * 2 + 1]!, false)
}

function writeSigned(to: MessagePackWriter, hashes: Int32Array, index: number): void {
  to.longWord(hashes[index * 2]!, hashes[index * 2 + 1]!, true)
}

function writeDigest(to: MessagePackWriter, hashes: Int32Array, index: number): void {
  const digest = new Uint8Array(DIGEST_BYTES)
  const view = new DataView(digest.buffer)
  view.setInt32(DIGEST_BYTES - 8, hashes[index * 2 + 1]!)
  view.setInt32(DIGEST_BYTES - 4, hashes[index * 2]!)
  to.binary(digest)
}
