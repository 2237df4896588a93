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

import {
  byBlock,
  type KvExpert,
  type KvLabels,
  type KvPoolPlace,
  type LabelsOf,
  readExperts,
  readPlaces,
  readState,
  readU32,
  readWorkers,
} from './block-labels.ts'
import { MalformedKvBatchError } from './errors.ts'
import {
  adapterId,
  KV_CLEARED,
  KV_WITHDRAWN,
  type KvBatch,
  type KvEvent,
  type KvMedia,
  type KvRemoved,
  type KvStored,
  type KvTier,
  type KvTransition,
} from './kv-event.ts'
import { BrokenMessageError, MessagePackReader, WrongTypeError } from './message-pack-reader.ts'
import type { PoolState } from './pool-states.ts'
import { ADAPTER, ALL_SEPARATORS, SALT } from './separators.ts'

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

/** What an event says, whatever its form and order. */
interface Fields {
  hashes: Int32Array | undefined
  parent: Int32Array | undefined
  tokens: Int32Array | undefined
  blockSizeTokens: number
  loraId: number | undefined
  loraName: string | undefined
  tier: KvTier
  /** Undefined: the worker's own. */
  locality: string | undefined
  cacheSalt: string | undefined
  sessionId: string | undefined
  group: number | undefined
  attention: string | undefined
  extraKeys: ExtraKeys | undefined
  /** Separators with a place of their own, that something or nil stands in. */
  tells: number
  hasMediaInfos: boolean
  isWithdrawn: boolean
  experts: LabelsOf<KvExpert> | undefined
  places: LabelsOf<KvPoolPlace> | undefined
  state: PoolState | undefined
  poolId: number | undefined
  workers: Int32Array | undefined
  localHashes: Int32Array | undefined
  /** What the event itself says that it tells. */
  told: number | undefined
}

function noFields(): Fields {
  return {
    hashes: undefined,
    parent: undefined,
    tokens: undefined,
    blockSizeTokens: 0,
    loraId: undefined,
    loraName: undefined,
    tier: 'device',
    locality: undefined,
    cacheSalt: undefined,
    sessionId: undefined,
    group: undefined,
    attention: undefined,
    extraKeys: undefined,
    tells: 0,
    hasMediaInfos: false,
    isWithdrawn: false,
    experts: undefined,
    places: undefined,
    state: undefined,
    poolId: undefined,
    workers: undefined,
    localHashes: undefined,
    told: undefined,
  }
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
  const names = SLOTS_OF.get(tag) ?? NOTHING
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
function readMetadata(reader: MessagePackReader, fields: Fields): void {
  const pairCount = reader.mapCount()
  for (let i = 0; i < pairCount; i++) {
    const key = readKey(reader)
    if (key !== undefined && METADATA_KEYS.has(key)) readField(reader, key, fields)
    else reader.skip()
  }
}

const METADATA_KEYS: ReadonlySet<string> = new Set(['cache_salt', 'session_id', 'lora_name', ...LABEL_FIELDS])

function readField(reader: MessagePackReader, name: string, fields: Fields): void {
  switch (name) {
    case 'block_hashes':
      fields.hashes = reader.takeNil() ? undefined : reader.hashes()
      break
    case 'hash_words':
      fields.hashes = reader.longWords()
      break
    case 'local_words':
      fields.localHashes = reader.longWords()
      break
    case 'tells':
      fields.told = (readCount(reader) ?? 0) & ALL_SEPARATORS
      break
    case 'parent_block_hash':
      fields.parent = readParent(reader)
      break
    case 'token_ids':
      fields.tokens = reader.takeNil() ? undefined : reader.tokens()
      break
    case 'block_size':
      fields.blockSizeTokens = readCount(reader) ?? 0
      break
    case 'lora_id':
      fields.loraId = reader.takeNil() ? undefined : reader.integer()
      break
    case 'lora_name':
      fields.loraName = readText(reader)
      fields.tells |= ADAPTER
      break
    case 'medium':
      fields.tier = readTier(reader)
      break
    case 'locality':
      fields.locality = readText(reader)?.toUpperCase()
      break
    case 'cache_salt':
      fields.cacheSalt = readText(reader)
      fields.tells |= SALT
      break
    case 'session_id':
      fields.sessionId = readText(reader)
      break
    case 'group_idx':
      fields.group = readCount(reader)
      break
    case 'kv_cache_spec_kind':
      fields.attention = readText(reader)
      break
    case 'block_mm_infos':
      fields.hasMediaInfos = readHasInfos(reader)
      break
    case 'extra_keys':
      fields.extraKeys = reader.takeNil() ? undefined : readExtraKeys(reader)
      break
    case 'moe_metadata':
      fields.experts = readExperts(reader)
      break
    case 'cxl_metadata':
      fields.places = readPlaces(reader)
      break
    case 'new_state':
      fields.state = readState(reader)
      break
    case 'pool_id':
      fields.poolId = readU32(reader)
      break
    case 'accessible_workers':
      fields.workers = readWorkers(reader)
      break
    case 'withdrawn':
      fields.isWithdrawn = reader.takeTrue()
      if (!fields.isWithdrawn) reader.skip()
      break
    default:
      reader.skip()
  }
}

function readParent(reader: MessagePackReader): Int32Array | undefined {
  if (reader.takeNil()) return undefined
  const parent = new Int32Array(2)
  reader.hash(parent, 0)
  return parent
}

/** True when a list of what blocks have beside their tokens says something of any of them. */
function readHasInfos(reader: MessagePackReader): boolean {
  if (reader.takeNil()) return false
  if (reader.peek() !== 'array') {
    reader.skip()
    return true
  }
  let hasAny = false
  const blockCount = reader.arrayCount()
  for (let block = 0; block < blockCount; block++) {
    if (reader.takeNil()) continue
    reader.skip()
    hasAny = true
  }
  return hasAny
}

/** Counts and group numbers fit into 31 bits. */
const COUNT_MAX = 0x7fff_ffff

function readCount(reader: MessagePackReader): number | undefined {
  if (reader.takeNil()) return undefined
  const count = reader.integer()
  if (count < 0 || count > COUNT_MAX) throw new WrongTypeError(`count ${count}`)
  return count
}

function readText(reader: MessagePackReader): string | undefined {
  return reader.takeNil() ? undefined : reader.string()
}

const TIERS: ReadonlyMap<string, KvTier> = new Map([
  ['GPU', 'device'],
  ['CPU', 'host'],
  ['CPU_PINNED', 'host'],
  ['CPU_TIER1', 'host'],
  ['CPU_TIER2', 'disk'],
  ['DISK', 'disk'],
  ['STORAGE', 'disk'],
  ['FS', 'disk'],
  ['OBJ', 'disk'],
  ['EXTERNAL', 'external'],
  // As Dynamo's relays name them.
  ['DEVICE', 'device'],
  ['NVME', 'disk'],
  ['NETWORK', 'external'],
  ['REMOTE', 'external'],
  ['SHARED', 'external'],
])

function readTier(reader: MessagePackReader): KvTier {
  const medium = readText(reader)
  if (medium === undefined) return 'device'
  // LMCache has written its media in lower case.
  return TIERS.get(medium) ?? TIERS.get(medium.toUpperCase()) ?? 'unknown'
}

/**
 * What went into the hashes beside tokens. The wire has adapter, media, salt and embeddings in one
 * list per block, without names: strings are adapter or salt, pairs of id and offset are media.
 */
interface ExtraKeys {
  /** Strings of every block, in order. */
  readonly texts: readonly (readonly string[])[]
  readonly media: readonly (readonly KvMedia[])[] | undefined
  readonly hasOthers: boolean
}

const NOTHING: readonly never[] = []
const PLAIN_KEYS: ExtraKeys = { texts: NOTHING, media: undefined, hasOthers: false }

/** Undefined: of no block. */
function readExtraKeys(reader: MessagePackReader): ExtraKeys | undefined {
  const blockCount = reader.arrayCount()
  if (blockCount === 0) return undefined
  let block = 0
  while (block < blockCount && reader.takeNil()) block++
  if (block === blockCount) return PLAIN_KEYS

  const texts: (readonly string[])[] = new Array<readonly string[]>(block).fill(NOTHING)
  const media: (readonly KvMedia[])[] = new Array<readonly KvMedia[]>(block).fill(NOTHING)
  let hasMedia = false
  let hasOthers = false
  for (; block < blockCount; block++) {
    const textsOfBlock: string[] = []
    const mediaOfBlock: KvMedia[] = []
    const keyCount = reader.takeNil() ? 0 : reader.arrayCount()
    for (let i = 0; i < keyCount; i++) {
      const type = reader.peek()
      if (type === 'string') {
        textsOfBlock.push(reader.string())
        continue
      }
      const item = type === 'array' ? readMedia(reader) : undefined
      if (item !== undefined) {
        mediaOfBlock.push(item)
        hasMedia = true
        continue
      }
      if (type !== 'array') reader.skip()
      hasOthers = true
    }
    texts.push(textsOfBlock)
    media.push(mediaOfBlock)
  }
  return { texts, media: hasMedia ? media : undefined, hasOthers }
}

/** An `[id, offset]` pair; undefined, and the array is consumed, for any other array. */
function readMedia(reader: MessagePackReader): KvMedia | undefined {
  const start = reader.at
  if (reader.arrayCount() === 2 && reader.peek() === 'string') {
    const id = reader.string()
    if (reader.peek() === 'integer') return { id, offsetTokens: reader.integer() }
  }
  reader.at = start
  reader.skip()
  return undefined
}

function toEvent(tag: string, fields: Fields): KvEvent | undefined {
  switch (tag) {
    case 'BlockStored':
      return toStored(fields)
    case 'BlockRemoved':
      return toRemoved(fields)
    case 'AllBlocksCleared':
      return fields.isWithdrawn ? KV_WITHDRAWN : KV_CLEARED
    case 'CxlStateTransition':
      return toTransition(fields)
    default:
      return undefined
  }
}

/** In front of the salt where Dynamo passes it on to an engine. */
const SALT_PREFIX = 'dynamo-cache-salt:'

function saltOf(text: string | undefined): string | undefined {
  return text?.startsWith(SALT_PREFIX) === true ? text.slice(SALT_PREFIX.length) : text
}

const NO_WORDS = new Int32Array(0)

function toStored(fields: Fields): KvStored {
  if (fields.hashes === undefined) throw new WrongTypeError('no block hashes')
  if (fields.localHashes !== undefined) requireHashesAlone(fields)
  const extraKeys = fields.extraKeys
  let cacheSalt = fields.cacheSalt
  let hasUnknownExtraKeys = fields.hasMediaInfos
  if (extraKeys !== undefined && extraKeys !== PLAIN_KEYS) {
    hasUnknownExtraKeys ||= extraKeys.hasOthers
    for (let block = 0; block < extraKeys.texts.length; block++) {
      const texts = extraKeys.texts[block]!
      // The adapter stands first, in every block; the salt stands in the first block only.
      let i = 0
      if (i < texts.length && texts[i] === fields.loraName) i++
      if (i < texts.length && block === 0) cacheSalt ??= saltOf(texts[i])
      if (i < texts.length && saltOf(texts[i]) === cacheSalt) i++
      if (i < texts.length) hasUnknownExtraKeys = true
    }
  }
  return {
    kind: 'stored',
    hashes: fields.hashes,
    parent: fields.parent,
    tokens: fields.tokens ?? NO_WORDS,
    blockSizeTokens: fields.blockSizeTokens,
    tier: fields.tier,
    isLocal: (fields.locality ?? 'LOCAL') === 'LOCAL',
    loraName: fields.loraName,
    loraId: adapterId(fields.loraId),
    cacheSalt,
    mediaHashes: extraKeys?.media,
    hasUnknownExtraKeys,
    group: fields.group,
    attention: fields.attention,
    sessionId: fields.sessionId,
    // Extra keys are all that went into the hashes beside tokens.
    tells: fields.told ?? toldBy(fields),
    labels: toLabels(fields, fields.hashes.length / 2),
    localHashes: fields.localHashes,
  }
}

/**
 * Local hashes say all that a block holds, and nothing of a salt: a store that says more of it contradicts
 * them, or is of a chain that other prompts must not find.
 */
function requireHashesAlone({ tokens, cacheSalt, extraKeys, hasMediaInfos }: Fields): void {
  const beside =
    tokens !== undefined
      ? 'token_ids'
      : cacheSalt !== undefined
        ? 'cache_salt'
        : extraKeys !== undefined
          ? 'extra_keys'
          : hasMediaInfos
            ? 'block_mm_infos'
            : undefined
  if (beside !== undefined) throw new WrongTypeError(`local_words beside ${beside}`)
}

function toldBy({ extraKeys, loraId, tells }: Fields): number {
  return extraKeys !== undefined ? ALL_SEPARATORS : tells | (loraId === undefined ? 0 : ADAPTER)
}

function toLabels({ experts, places }: Fields, blocks: number): KvLabels | undefined {
  if (experts === undefined && places === undefined) return undefined
  const labels = { experts: byBlock(experts, blocks), places: byBlock(places, blocks) }
  return labels.experts.length === 0 && labels.places.length === 0 ? undefined : labels
}

function toTransition({ hashes, state, poolId, workers }: Fields): KvTransition {
  if (hashes === undefined) throw new WrongTypeError('no block hashes')
  if (state === undefined) throw new WrongTypeError('no new state')
  return { kind: 'transition', hashes, state, poolId, accessibleWorkers: workers ?? NO_WORDS }
}

function toRemoved(fields: Fields): KvRemoved {
  if (fields.hashes === undefined) throw new WrongTypeError('no block hashes')
  return {
    kind: 'removed',
    hashes: fields.hashes,
    tier: fields.tier,
    // A store at an unknown place is not the worker's; a removal may be.
    isLocal: fields.locality !== 'REMOTE',
    group: fields.group,
  }
}
