/**
 * Corpus of the index bench: the lookups and KV events of a fleet that serves a trace, as flat arrays.
 *
 * Every request goes to a worker drawn at random (the heaviest stream a fleet could produce, whatever the
 * policy), whose LRU cache of `cacheBlocks` blocks then stores what it lacks and removes the oldest. The
 * lookup of a request comes before its events. A stored run has at most 128 blocks; one sweep of evictions
 * is one removed event, leaves before roots.
 *
 * Ids of the trace are prefix ids of 512 tokens, `hash_ids`; each becomes 512 / blockTokens blocks, or
 * `stretch` blocks when that is given. The expected answer of every `sampleEvery`-th lookup, and what every
 * worker holds at the end, are taken from the caches: the reference of the run.
 */

import { readFileSync } from 'node:fs'
import { gunzipSync } from 'node:zlib'
import { seededRandom } from '@homing/clock'

export const LOOKUP = 0
export const STORED = 1
export const REMOVED = 2

const STORED_BLOCKS_MAX = 128
const TRACE_BLOCK_TOKENS = 512
const ARRIVAL_BIN_MS = 3000
const COPY_SHIFT_MS = 370

export interface CorpusOptions {
  readonly workers: number
  readonly blockTokens: number
  /** Blocks of every worker's cache. */
  readonly cacheBlocks: number
  /** Copies of the trace with trees of their own. */
  readonly copies: number
  /** Blocks per id of the trace, the partial last one too; 0: as blockTokens and the length say. */
  readonly stretch: number
  readonly seed: number
  readonly sampleEvery: number
}

/** One request of a trace. */
export interface TraceRequest {
  readonly timestampMs: number
  readonly inputTokens: number
  readonly ids: readonly number[]
}

export interface Operation {
  readonly kind: number
  readonly worker: number
  readonly count: number
  /** Local hashes of a lookup or a stored run; empty for a removed one. */
  readonly locals: Int32Array
  /** Engine hashes of a stored or removed run; empty for a lookup. */
  readonly engines: Int32Array
  readonly parent: Int32Array | undefined
}

export interface Corpus {
  readonly operations: readonly Operation[]
  readonly lookupBlocks: number
  readonly storedBlocks: number
  readonly removedBlocks: number
  /** Index of a lookup in `operations` → worker → overlap in blocks. */
  readonly expected: ReadonlyMap<number, ReadonlyMap<number, number>>
  /** Per worker: the blocks that it holds at the end; `engineHash` gives their hashes. */
  readonly held: readonly ReadonlySet<number>[]
}

/** Reads a trace in the form of Mooncake: one JSON object a line, gzip or plain. Arrivals are spread. */
export function readTrace(path: string): TraceRequest[] {
  const bytes = readFileSync(path)
  const text = (path.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString('utf8')
  const requests = text
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line) as { timestamp: number; input_length: number; hash_ids: number[] })
  const perBin = new Map<number, number>()
  for (const { timestamp } of requests) perBin.set(timestamp, (perBin.get(timestamp) ?? 0) + 1)
  const seen = new Map<number, number>()
  return requests.map(({ timestamp, input_length, hash_ids }) => {
    const j = seen.get(timestamp) ?? 0
    seen.set(timestamp, j + 1)
    const timestampMs = timestamp + (ARRIVAL_BIN_MS * j) / perBin.get(timestamp)!
    return { timestampMs, inputTokens: input_length, ids: hash_ids }
  })
}

/** Multi-turn sessions that share system prompts, where there is no trace. */
export function generateSessions(requestCount: number, seed: number): TraceRequest[] {
  const random = seededRandom(seed)
  const next = () => random.next()
  const requests: TraceRequest[] = []
  let fresh = 1000
  const systems = Array.from({ length: 50 }, () => {
    const first = fresh
    fresh += 2 + Math.floor(next() * 14)
    return Array.from({ length: fresh - first }, (_, i) => first + i)
  })
  const sessions: { ids: number[]; turns: number }[] = []
  for (let i = 0; i < requestCount; i++) {
    let session = sessions[Math.floor(next() * sessions.length)]
    if (session === undefined || session.turns === 0 || sessions.length < 40) {
      const system = systems[Math.floor(50 ** next()) - 1]! // about Zipf(1)
      session = { ids: [...system], turns: 1 + Math.floor(-6 * Math.log(1 - next())) }
      if (sessions.length < 40) sessions.push(session)
      else sessions[Math.floor(next() * sessions.length)] = session
    }
    session.turns--
    const added = 1 + Math.floor(-3 * Math.log(1 - next()))
    for (let k = 0; k < added; k++) session.ids.push(fresh++)
    requests.push({
      timestampMs: i * 300,
      inputTokens: session.ids.length * TRACE_BLOCK_TOKENS,
      ids: [...session.ids],
    })
  }
  return requests
}

/** Makes the corpus; not timed. */
export function makeCorpus(trace: readonly TraceRequest[], options: CorpusOptions): Corpus {
  const { copies, stretch, blockTokens, cacheBlocks } = options
  const perId = stretch > 0 ? stretch : TRACE_BLOCK_TOKENS / blockTokens
  let idMax = 0
  for (const { ids } of trace) for (const id of ids) if (id > idMax) idMax = id
  const order: { at: number; request: TraceRequest; copy: number }[] = []
  for (let copy = 0; copy < copies; copy++) {
    for (const request of trace) order.push({ at: request.timestampMs + copy * COPY_SHIFT_MS, request, copy })
  }
  order.sort((a, b) => a.at - b.at)

  const random = seededRandom(options.seed)
  const caches = Array.from({ length: options.workers }, () => new Set<number>())
  const operations: Operation[] = []
  const expected = new Map<number, Map<number, number>>()
  let lookups = 0
  let lookupBlocks = 0
  let storedBlocks = 0
  let removedBlocks = 0
  for (const { request, copy } of order) {
    const count = stretch > 0 ? request.ids.length * stretch : Math.floor(request.inputTokens / blockTokens)
    const blocks = new Array<number>(count)
    for (let i = 0; i < count; i++) {
      blocks[i] = (request.ids[Math.floor(i / perId)]! + copy * (idMax + 1)) * perId + (i % perId)
    }
    const worker = Math.floor(random.next() * options.workers)
    const cache = caches[worker]!
    const locals = hashesOf(blocks, LOCAL_SALT)
    if (lookups++ % options.sampleEvery === 0) expected.set(operations.length, overlaps(caches, blocks))
    operations.push({ kind: LOOKUP, worker, count, locals, engines: NO_HASHES, parent: undefined })
    lookupBlocks += count

    let reused = 0
    while (reused < count && cache.has(blocks[reused]!)) reused++
    for (const block of blocks) cache.delete(block)
    const removed: number[] = []
    for (const block of cache) {
      if (cache.size + count - removed.length <= cacheBlocks) break
      removed.push(block)
    }
    if (removed.length > 0) {
      for (const block of removed) cache.delete(block)
      const engines = hashesOf(removed, ENGINE_SALT)
      operations.push({
        kind: REMOVED,
        worker,
        count: removed.length,
        locals: NO_HASHES,
        engines,
        parent: undefined,
      })
      removedBlocks += removed.length
    }
    for (let i = count - 1; i >= 0; i--) cache.add(blocks[i]!) // the root is the youngest
    const engines = hashesOf(blocks, ENGINE_SALT)
    for (let from = reused; from < count; from += STORED_BLOCKS_MAX) {
      const to = Math.min(count, from + STORED_BLOCKS_MAX)
      operations.push({
        kind: STORED,
        worker,
        count: to - from,
        locals: locals.subarray(2 * from, 2 * to),
        engines: engines.subarray(2 * from, 2 * to),
        parent: from === 0 ? undefined : engines.subarray(2 * from - 2, 2 * from),
      })
      storedBlocks += to - from
    }
  }
  return { operations, lookupBlocks, storedBlocks, removedBlocks, expected, held: caches }
}

/** The engine hash of a block, as the index is told it. */
export function engineHash(block: number): [low: number, high: number] {
  const hashes = hashesOf([block], ENGINE_SALT)
  return [hashes[0]!, hashes[1]!]
}

const NO_HASHES = new Int32Array(0)
const LOCAL_SALT = 0x1234567
const ENGINE_SALT = 0x7654321

function hashesOf(blocks: readonly number[], salt: number): Int32Array {
  const hashes = new Int32Array(blocks.length * 2)
  for (let i = 0; i < blocks.length; i++) {
    hashes[2 * i] = mix(blocks[i]! ^ salt)
    hashes[2 * i + 1] = mix(Math.imul(blocks[i]!, 0x9e3779b1) + salt)
  }
  return hashes
}

function mix(value: number): number {
  let h = Math.imul(value ^ (value >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return h ^ (h >>> 16)
}

function overlaps(caches: readonly ReadonlySet<number>[], blocks: readonly number[]): Map<number, number> {
  const result = new Map<number, number>()
  caches.forEach((cache, worker) => {
    let held = 0
    while (held < blocks.length && cache.has(blocks[held]!)) held++
    if (held > 0) result.set(worker, held)
  })
  return result
}
