/**
 * Fields of a KV event: what an event says, whatever its form and order, read one at a time by its name.
 *
 * Owns   nothing: the decoder has one record of fields for each event, which is filled here, and of which
 *        kv-event-of-fields.ts makes the event. A field of nil has no value, but counts in `tells`.
 */

import {
  type KvExpert,
  type KvPoolPlace,
  type LabelsOf,
  readExperts,
  readPlaces,
  readState,
  readU32,
  readWorkers,
} from './block-labels.ts'
import type { KvMedia, KvTier } from './kv-event.ts'
import { type MessagePackReader, WrongTypeError } from './message-pack-reader.ts'
import type { PoolState } from './pool-states.ts'
import { ADAPTER, ALL_SEPARATORS, SALT } from './separators.ts'

/** What an event says, whatever its form and order. */
export interface KvEventFields {
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
  /** Labels whose unknown members were left out. */
  membersLeftOut: number
  state: PoolState | undefined
  poolId: number | undefined
  workers: Int32Array | undefined
  localHashes: Int32Array | undefined
  /** What the event itself says that it tells. */
  told: number | undefined
}

/** Of an event of which nothing was read yet. */
export function noFields(): KvEventFields {
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
    membersLeftOut: 0,
    state: undefined,
    poolId: undefined,
    workers: undefined,
    localHashes: undefined,
    told: undefined,
  }
}

/** Throws WrongTypeError. */
export function readField(reader: MessagePackReader, name: string, fields: KvEventFields): void {
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
      fields.experts = readExperts(reader, () => fields.membersLeftOut++)
      break
    case 'cxl_metadata':
      fields.places = readPlaces(reader, () => fields.membersLeftOut++)
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
export interface ExtraKeys {
  /** Strings of every block, in order. */
  readonly texts: readonly (readonly string[])[]
  readonly media: readonly (readonly KvMedia[])[] | undefined
  readonly hasOthers: boolean
}

const NOTHING: readonly never[] = []
/** Of blocks that have none. */
export const PLAIN_KEYS: ExtraKeys = { texts: NOTHING, media: undefined, hasOthers: false }

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
