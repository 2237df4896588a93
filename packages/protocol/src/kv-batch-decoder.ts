/**
 * Decodes the payload of a KV event message, of every version of vLLM and SGLang and of relays.
 *
 *   batch   [timestamp, [event …], rank?]
 *   event   {"type": tag, field: value, …}          keys in any order, unknown keys ignored
 *           [tag, value, …]                         by position, missing slots are nil, more are ignored
 *
 *   slot    1       2       3       4           5        6       7            8           9      10
 *   stored  hashes  parent  tokens  block size  lora id  medium  lora name,   extra keys  group  kind
 *                                                                or a map of
 *                                                                metadata (SGLang)
 *   removed hashes  medium  group
 *   cleared         (`withdrawn` in maps only)
 *   transition
 *           hashes  state   pool    workers      block-labels.ts, which also has the labels of stores
 *
 * Relays in Dynamo's form may put a list of media in front of the group, and leave the group out: after slot
 * 8, a list contains media, and a string is the kind.
 *
 * The form is decided per event, never by version: fleets are mixed during upgrades. An event that
 * cannot be understood is counted and skipped; only a broken message is an error. One pass, no
 * object per token or hash: 64-bit hashes go straight into words, because a BigInt each would
 * cost more than all the rest.
 */

import { MalformedKvBatchError } from './errors.ts'
import type { KvBatch, KvEvent } from './kv-event.ts'
import { type KvEventFields, noFields, readField } from './kv-event-fields.ts'
import { toEvent } from './kv-event-of-fields.ts'
import { BrokenMessageError, MessagePackReader, WrongTypeError } from './message-pack-reader.ts'

/** Throws MalformedKvBatchError when `payload` is not a batch. The result does not refer to `payload`. */
export function decodeKvBatch(payload: Uint8Array): KvBatch {
  return decoded(payload, FIELDS_OF)
}

/** The same, of a part of a snapshot: its stores may have local hashes instead of tokens. */
export function decodeSnapshotBatch(payload: Uint8Array): KvBatch {
  return decoded(payload, SNAPSHOT_FIELDS_OF)
}

/** By tag, the fields of maps that count. */
type FieldsOf = ReadonlyMap<string, ReadonlySet<string>>

function decoded(payload: Uint8Array, fieldsOf: FieldsOf): KvBatch {
  const reader = new MessagePackReader(payload)
  try {
    return readBatch(reader, fieldsOf)
  } catch (cause) {
    if (!(cause instanceof BrokenMessageError) && !(cause instanceof WrongTypeError)) throw cause
    throw new MalformedKvBatchError(`${cause.message}, at byte ${reader.at}`, payload.length, { cause })
  }
}

function readBatch(reader: MessagePackReader, fieldsOf: FieldsOf): KvBatch {
  const slotCount = reader.arrayCount()
  if (slotCount < 2) throw new WrongTypeError(`${slotCount} slots where a timestamp and events are expected`)
  const timestampSeconds = reader.number()
  if (!Number.isFinite(timestampSeconds)) throw new WrongTypeError('the timestamp is not finite')

  const events: KvEvent[] = []
  let unknownTag = 0
  let malformed = 0
  const eventCount = reader.arrayCount()
  for (let i = 0; i < eventCount; i++) {
    const start = reader.at
    try {
      const event = readEvent(reader, fieldsOf)
      if (event === undefined) unknownTag++
      else events.push(event)
    } catch (error) {
      if (!(error instanceof WrongTypeError)) throw error
      malformed++
      reader.at = start
      reader.skip()
    }
  }

  let rank: number | undefined
  if (slotCount > 2 && !reader.takeNil()) {
    if (reader.peek() === 'integer') rank = reader.integer()
    else reader.skip()
    if (rank !== undefined && rank < 0) rank = undefined
  }
  for (let slot = 3; slot < slotCount; slot++) reader.skip()
  if (!reader.isAtEnd) throw new BrokenMessageError('bytes follow the batch')
  return { timestampSeconds, rank, events, skipped: { unknownTag, malformed } }
}

/** The next event; undefined when its tag is unknown. */
function readEvent(reader: MessagePackReader, fieldsOf: FieldsOf): KvEvent | undefined {
  return reader.peek() === 'map' ? readMapEvent(reader, fieldsOf) : readArrayEvent(reader)
}

function readMapEvent(reader: MessagePackReader, fieldsOf: FieldsOf): KvEvent | undefined {
  const tag = findType(reader)
  const known = fieldsOf.get(tag)
  if (known === undefined) {
    reader.skip()
    return undefined
  }
  const fields = noFields()
  const pairCount = reader.mapCount()
  for (let i = 0; i < pairCount; i++) {
    const key = readKey(reader)
    if (key !== undefined && known.has(key)) readField(reader, key, fields)
    else reader.skip()
  }
  return toEvent(tag, fields)
}

/** The type of the map that follows, which is not consumed. Engines write it first; any place is legal. */
function findType(reader: MessagePackReader): string {
  const start = reader.at
  const pairCount = reader.mapCount()
  for (let i = 0; i < pairCount; i++) {
    if (readKey(reader) === 'type') {
      const tag = reader.string()
      reader.at = start
      return tag
    }
    reader.skip()
  }
  throw new WrongTypeError('no type')
}

/** The next key; undefined, and it is consumed, when it is not a string. */
function readKey(reader: MessagePackReader): string | undefined {
  if (reader.peek() === 'string') return reader.string()
  reader.skip()
  return undefined
}

const STORED_SLOTS = [
  'block_hashes',
  'parent_block_hash',
  'token_ids',
  'block_size',
  'lora_id',
  'medium',
  'lora_name',
  'extra_keys',
  'group_idx',
  'kv_cache_spec_kind',
] as const

/** Where the group stands, unless something else does. */
const GROUP_SLOT = STORED_SLOTS.indexOf('group_idx') + 1

const REMOVED_SLOTS = ['block_hashes', 'medium', 'group_idx'] as const

const TRANSITION_SLOTS = ['block_hashes', 'new_state', 'pool_id', 'accessible_workers'] as const

/** By tag, in events that are arrays. */
const SLOTS_OF: ReadonlyMap<string, readonly string[]> = new Map<string, readonly string[]>([
  ['BlockStored', STORED_SLOTS],
  ['BlockRemoved', REMOVED_SLOTS],
  ['CxlStateTransition', TRANSITION_SLOTS],
])

const NO_NAMES: readonly string[] = []

const LABEL_FIELDS = ['moe_metadata', 'cxl_metadata'] as const

const FIELDS_OF: FieldsOf = new Map<string, ReadonlySet<string>>([
  [
    'BlockStored',
    new Set([...STORED_SLOTS, ...LABEL_FIELDS, 'block_mm_infos', 'locality', 'cache_salt', 'session_id']),
  ],
  ['BlockRemoved', new Set([...REMOVED_SLOTS, 'locality'])],
  ['AllBlocksCleared', new Set(['withdrawn'])],
  ['CxlStateTransition', new Set(TRANSITION_SLOTS)],
])

const SNAPSHOT_FIELDS_OF: FieldsOf = new Map([
  ...FIELDS_OF,
  ['BlockStored', new Set([...FIELDS_OF.get('BlockStored')!, 'hash_words', 'local_words', 'tells'])],
])

function readArrayEvent(reader: MessagePackReader): KvEvent | undefined {
  const slotCount = reader.arrayCount()
  if (slotCount === 0) throw new WrongTypeError('no tag')
  const tag = reader.string()
  const names = SLOTS_OF.get(tag) ?? NO_NAMES
  const fields = noFields()
  let shift = 1
  for (let slot = 1; slot < slotCount; slot++) {
    if (slot === GROUP_SLOT && names === STORED_SLOTS) {
      const type = reader.peek()
      if (type === 'array' || type === 'map') {
        readField(reader, 'block_mm_infos', fields)
        shift = 2
        continue
      }
      if (type === 'string') shift = 0
    }
    const name = names[slot - shift]
    if (name === undefined) reader.skip()
    else if (name === 'lora_name' && reader.peek() === 'map') readMetadata(reader, fields)
    else readField(reader, name, fields)
  }
  return toEvent(tag, fields)
}

/** SGLang's map in the slot where vLLM has the adapter. */
function readMetadata(reader: MessagePackReader, fields: KvEventFields): void {
  const pairCount = reader.mapCount()
  for (let i = 0; i < pairCount; i++) {
    const key = readKey(reader)
    if (key !== undefined && METADATA_KEYS.has(key)) readField(reader, key, fields)
    else reader.skip()
  }
}

const METADATA_KEYS: ReadonlySet<string> = new Set(['cache_salt', 'session_id', 'lora_name', ...LABEL_FIELDS])
