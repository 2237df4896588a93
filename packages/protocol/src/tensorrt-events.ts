/**
 * KV events of TensorRT-LLM, as its `POST /kv_cache_events` answers them: a JSON array, which drains the
 * server's queue.
 *
 *   created             a life begins: a clear
 *   stored              the full blocks, in runs of one tier; partial ones are skipped
 *   removed             from the device, and from the host if it ever stored; partial ones are skipped
 *   updated, new level  a placeholder on the new tier, then a removal from the old one
 *   updated, priority   nothing
 *
 * Rules
 *   R1  Only events of the largest window are about whole prefixes. A window larger than those before starts
 *       over: with a clear if `created` announced it, otherwise with a withdrawal.
 *   R2  Consecutive ids of a rank are a history. A hole is reported as `missedEvents`. An id that goes back
 *       is another life: reported as a clear if it is 0, else as missed events, the first of that life.
 *   R3  An event that cannot be understood is counted and skipped. Only an answer that is not a JSON array is
 *       an error.
 *
 * Only one reader may ask a server, because each event is returned once. Hashes are beyond 2^53: numbers are
 * read from their text. One instance per server; ranks and windows are remembered from answer to answer.
 *
 * Source   TensorRT-LLM 1.x, `KVCacheEventSerializer`.
 */

import { parseJson } from '@homing/base'
import { MalformedKvBatchError } from './errors.ts'
import {
  adapterId,
  KV_CLEARED,
  KV_WITHDRAWN,
  type KvEvent,
  type KvTier,
  kvRemoved,
  kvStored,
} from './kv-event.ts'
import { ADAPTER, SALT } from './separators.ts'

/** Events of one rank, in order. */
export interface TensorRtBatch {
  /** Undefined: the server has one rank. */
  readonly rank: number | undefined
  /**
   * Events that were lost in front of these: the server's queue overflowed, or somebody else asked it. What
   * went before is void.
   */
  readonly missedEvents: number
  readonly events: readonly KvEvent[]
}

export interface TensorRtAnswer {
  readonly batches: readonly TensorRtBatch[]
  readonly skipped: {
    /** Types of newer versions. */
    readonly unknownTag: number
    /** Known types whose content cannot be understood: the index of this worker may now be incomplete. */
    readonly malformed: number
  }
}

/** Partial blocks that are remembered per rank; a server has one per running sequence. */
const PARTIALS_MAX = 65_536
/** Ranks that are remembered: a hostile answer could name any number. */
const RANKS_MAX = 1024

interface Rank {
  nextEventId: number
  /** The largest seen in this life; −1: none yet. */
  window: number
  readonly partials: Set<bigint>
  hasHost: boolean
}

export class TensorRtEvents {
  readonly #blockSizeTokens: number
  readonly #ranks = new Map<number | undefined, Rank>()

  /** `blockSizeTokens`: the server's `tokens_per_block`, which no event says. */
  constructor({ blockSizeTokens }: { readonly blockSizeTokens: number }) {
    this.#blockSizeTokens = blockSizeTokens
  }

  /**
   * Reads the body of an answer. Throws MalformedKvBatchError when it is not JSON array; then nothing has
   * changed.
   */
  read(body: Uint8Array): TensorRtAnswer {
    const batches: { rank: number | undefined; missedEvents: number; events: KvEvent[] }[] = []
    let unknownTag = 0
    let malformed = 0
    for (const element of parseArray(body)) {
      let header: Header
      let rank: Rank
      try {
        header = readHeader(element)
        rank = this.#rank(header.rank)
      } catch (error) {
        if (!(error instanceof NotUnderstood)) throw error
        malformed++
        continue
      }
      const isNewLife = header.eventId < rank.nextEventId
      if (isNewLife) {
        beginAnew(rank)
        rank.window = -1
        rank.nextEventId = 0
      }
      const missedEvents = header.eventId - rank.nextEventId
      let batch = batches.at(-1)
      if (batch === undefined || batch.rank !== header.rank || missedEvents > 0) {
        batch = { rank: header.rank, missedEvents, events: [] }
        batches.push(batch)
      }
      // A clear alone may be of the life before.
      if (isNewLife && missedEvents === 0) batch.events.push(KV_WITHDRAWN, KV_CLEARED)
      rank.nextEventId = header.eventId + 1
      try {
        const events = this.#events(rank, header)
        if (events === undefined) unknownTag++
        else batch.events.push(...events)
      } catch (error) {
        if (!(error instanceof NotUnderstood)) throw error
        malformed++
      }
    }
    return { batches, skipped: { unknownTag, malformed } }
  }

  /** Undefined: a type that is not known. */
  #events(rank: Rank, { type, data, window, group }: Header): readonly KvEvent[] | undefined {
    if (!['created', 'stored', 'removed', 'updated'].includes(type)) return undefined
    if (window < rank.window) return []
    const before: KvEvent[] = []
    if (window > rank.window) {
      // What was told of a smaller window was not of whole prefixes, and what went before in this one was not
      // told.
      if (rank.window >= 0 && type !== 'created') before.push(KV_WITHDRAWN)
      beginAnew(rank)
      rank.window = window
    }
    switch (type) {
      case 'created':
        beginAnew(rank)
        rank.window = window
        return [KV_CLEARED]
      case 'stored':
        return [...before, ...this.#stored(rank, data, group)]
      case 'removed':
        return [...before, ...removed(rank, list(data['block_hashes']).map(hash), group)]
      default:
        return [...before, ...updated(rank, data, group)]
    }
  }

  #stored(rank: Rank, data: Fields, group: number | undefined): readonly KvEvent[] {
    // All is read before anything is remembered: an event is taken whole or not at all.
    const blocks = list(data['blocks']).map(readBlock)
    const size = this.#blockSizeTokens
    const partialAt = blocks.findIndex(({ tokens }) => tokens.length !== size)
    if (partialAt >= 0 && (partialAt < blocks.length - 1 || blocks[partialAt]!.tokens.length > size)) {
      throw new NotUnderstood()
    }
    let parent = isNil(data['parent_hash']) ? undefined : hash(data['parent_hash'])
    const partial = partialAt < 0 ? undefined : blocks.pop()
    if (partial !== undefined) remember(rank, partial.hash)
    const events: KvEvent[] = []
    for (let from = 0; from < blocks.length; ) {
      const first = blocks[from]!
      let to = from + 1
      while (to < blocks.length && isAlike(blocks[to]!, first)) to++
      const run = blocks.slice(from, to)
      if (first.tier === 'host') rank.hasHost = true
      // What was partial and is full now was stored anew, under another hash or the same.
      for (const block of run) rank.partials.delete(block.hash)
      events.push(
        kvStored({
          hashes: wordsOf(run.map(block => block.hash)),
          parent: parent === undefined ? undefined : wordsOf([parent]),
          tokens: Int32Array.from(run.flatMap(({ tokens }) => tokens)),
          blockSizeTokens: size,
          tier: first.tier,
          loraId: first.loraId,
          cacheSalt: first.cacheSalt,
          hasUnknownExtraKeys: first.hasUnknownKeys,
          tells: first.tells,
          group,
        }),
      )
      parent = run.at(-1)!.hash
      from = to
    }
    return events
  }

  #rank(number: number | undefined): Rank {
    let rank = this.#ranks.get(number)
    if (rank === undefined) {
      if (this.#ranks.size >= RANKS_MAX) throw new NotUnderstood()
      rank = { nextEventId: 0, window: -1, partials: new Set(), hasHost: false }
      this.#ranks.set(number, rank)
    }
    return rank
  }
}

/** A value is not what it must be. */
class NotUnderstood extends Error {}

type Fields = Readonly<Record<string, unknown>>

interface Header {
  readonly eventId: number
  readonly rank: number | undefined
  readonly window: number
  readonly group: number | undefined
  readonly type: string
  readonly data: Fields
}

interface Block {
  readonly hash: bigint
  readonly tokens: readonly number[]
  readonly tier: KvTier
  readonly loraId: number | undefined
  readonly cacheSalt: string | undefined
  readonly hasUnknownKeys: boolean
  readonly tells: number
}

/** The elements, with integers beyond 2^53 as BigInt. */
function parseArray(body: Uint8Array): readonly unknown[] {
  let value: unknown
  try {
    value = parseJson(new TextDecoder('utf-8', { fatal: true }).decode(body), keepIntegers)
  } catch (cause) {
    // Too deep a nesting is a RangeError, bytes that are no text a TypeError.
    if (!(cause instanceof SyntaxError || cause instanceof RangeError || cause instanceof TypeError))
      throw cause
    throw new MalformedKvBatchError('it is not JSON', body.length, { cause })
  }
  if (!Array.isArray(value)) throw new MalformedKvBatchError('a JSON array is expected', body.length)
  return value
}

function keepIntegers(_: string, value: unknown, context?: { readonly source?: string }): unknown {
  if (typeof value !== 'number' || Number.isSafeInteger(value)) return value
  const source = context?.source
  return source !== undefined && /^-?\d{1,20}$/.test(source) ? BigInt(source) : value
}

function readHeader(element: unknown): Header {
  const event = fields(element)
  const data = fields(event['data'])
  if (typeof data['type'] !== 'string') throw new NotUnderstood()
  return {
    eventId: count(event['event_id']),
    rank: optionalCount(event['attention_dp_rank']),
    window: optionalCount(event['window_size']) ?? 0,
    group: optionalCount(event['layer_group_id']),
    type: data['type'],
    data,
  }
}

function beginAnew(rank: Rank): void {
  rank.partials.clear()
  rank.hasHost = false
}

function remember({ partials }: Rank, partial: bigint): void {
  partials.add(partial)
  if (partials.size <= PARTIALS_MAX) return
  // The oldest: its removal will be of an unknown block, which does no harm.
  for (const oldest of partials) {
    partials.delete(oldest)
    return
  }
}

function removed(rank: Rank, hashes: readonly bigint[], group: number | undefined): readonly KvEvent[] {
  const full = hashes.filter(key => !rank.partials.delete(key))
  if (full.length === 0) return []
  const words = wordsOf(full)
  const events = [kvRemoved({ hashes: words, group })]
  // The event does not say where the block was last.
  if (rank.hasHost) events.push(kvRemoved({ hashes: words.slice(), tier: 'host', group }))
  return events
}

function updated(rank: Rank, data: Fields, group: number | undefined): readonly KvEvent[] {
  const key = hash(data['block_hash'])
  if (isNil(data['cache_level']) || rank.partials.has(key)) return []
  const change = fields(data['cache_level'])
  const from = tierOf(count(change['old_value']))
  const to = tierOf(count(change['new_value']))
  if (from === to) return []
  if (to === 'host') rank.hasHost = true
  const hashes = wordsOf([key])
  return [
    kvStored({ hashes, tokens: new Int32Array(0), blockSizeTokens: 0, tier: to, group }),
    kvRemoved({ hashes: hashes.slice(), tier: from, group }),
  ]
}

function readBlock(value: unknown): Block {
  const block = fields(value)
  let hasUnknownKeys = optionalList(block['mm_keys']).length > 0
  const tokens = list(block['tokens']).map(element => {
    const unique = fields(element)
    // Prompt tuning and media: the token alone does not say what the block holds.
    if (!isNil(unique['token_extra_id']) && integer(unique['token_extra_id']) !== 0) hasUnknownKeys = true
    const token = count(unique['token_id'])
    return token | 0
  })
  if (tokens.length === 0) throw new NotUnderstood()
  const salt = block['cache_salt']
  if (!isNil(salt) && typeof salt !== 'string') throw new NotUnderstood()
  return {
    hash: hash(block['block_hash']),
    tokens,
    tier: tierOf(optionalCount(block['cache_level']) ?? 0),
    loraId: isNil(block['lora_id']) ? undefined : adapterId(integer(block['lora_id'])),
    cacheSalt: isNil(salt) ? undefined : salt,
    hasUnknownKeys,
    // Versions that write neither have salts and adapters all the same.
    tells: ('cache_salt' in block ? SALT : 0) | ('lora_id' in block ? ADAPTER : 0),
  }
}

function isAlike(a: Block, b: Block): boolean {
  return (
    a.tier === b.tier &&
    a.loraId === b.loraId &&
    a.cacheSalt === b.cacheSalt &&
    a.hasUnknownKeys === b.hasUnknownKeys &&
    a.tells === b.tells
  )
}

/** Level 0 is the GPU's memory, 1 the host's. */
function tierOf(level: number): KvTier {
  return level === 0 ? 'device' : level === 1 ? 'host' : 'unknown'
}

function hash(value: unknown): bigint {
  if (typeof value !== 'bigint' && !Number.isSafeInteger(value)) throw new NotUnderstood()
  const bits = BigInt(value as bigint | number)
  if (bits < -(2n ** 63n) || bits >= 2n ** 64n) throw new NotUnderstood()
  return BigInt.asUintN(64, bits)
}

function wordsOf(hashes: readonly bigint[]): Int32Array {
  return Int32Array.from(
    hashes.flatMap(bits => [Number(BigInt.asIntN(32, bits)), Number(BigInt.asIntN(32, bits >> 32n))]),
  )
}

function fields(value: unknown): Fields {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new NotUnderstood()
  return value as Fields
}

function list(value: unknown): readonly unknown[] {
  if (!Array.isArray(value)) throw new NotUnderstood()
  return value
}

function optionalList(value: unknown): readonly unknown[] {
  return isNil(value) ? [] : list(value)
}

function integer(value: unknown): number {
  if (!Number.isSafeInteger(value)) throw new NotUnderstood()
  return value as number
}

function count(value: unknown): number {
  const number = integer(value)
  if (number < 0) throw new NotUnderstood()
  return number
}

function optionalCount(value: unknown): number | undefined {
  return isNil(value) ? undefined : count(value)
}

function isNil(value: unknown): value is null | undefined {
  return value === null || value === undefined
}
