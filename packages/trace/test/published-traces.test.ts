/**
 * The published traces, read and replayed against one LRU cache: sizes and hit rates that are known of them.
 * They check the reader.
 *
 * The cache is told here, as plainly as it was for those figures: it holds the partial last block of a
 * prompt, too.
 */

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import t from 'tap'
import { openTrace, scanTrace, type TraceRequest } from '../src/index.ts'

const ROOT = join(import.meta.dirname, '..', '..', '..')
const TRACES = process.env['HOMING_TRACES'] ?? join(ROOT, '..', 'shared', 'traces')
const CAPACITIES = [1000, 10_000, Number.POSITIVE_INFINITY]

interface Published {
  readonly file: string
  readonly requests: number
  readonly spanMs: number
  readonly inputTokens: number
  readonly outputTokens: number
  readonly uniqueBlocks: number
  /** In percent, for each of CAPACITIES. */
  readonly hitRates: readonly number[]
}

const PUBLISHED: readonly Published[] = [
  {
    file: 'mooncake_conversation_trace.jsonl.gz',
    requests: 12_031,
    spanMs: 3_537_000,
    inputTokens: 144_793_823,
    outputTokens: 4_122_048,
    uniqueBlocks: 182_790,
    hitRates: [4.5, 21.6, 37.4],
  },
  {
    file: 'mooncake_synthetic_trace.jsonl.gz',
    requests: 3993,
    spanMs: 1_022_000,
    inputTokens: 61_194_628,
    outputTokens: 595_432,
    uniqueBlocks: 43_924,
    hitRates: [8.6, 43.2, 65.1],
  },
  {
    file: 'toolagent_like_trace.jsonl.gz',
    requests: 23_608,
    spanMs: 3_539_100,
    inputTokens: 204_017_142,
    outputTokens: 3_950_020,
    uniqueBlocks: 187_006,
    hitRates: [35.1, 46.2, 56.3],
  },
]

for (const published of PUBLISHED) {
  const path = join(TRACES, published.file)
  const skip = existsSync(path) ? false : `${path} is not there; set HOMING_TRACES`

  t.test(`${published.file} has the sizes and hit rates that are known of it`, { skip }, async t => {
    const trace = openTrace(path)
    const scan = await scanTrace(trace)
    t.equal(scan.requests, published.requests)
    t.ok(Math.abs(scan.lastMs - published.spanMs) < 100, `it ends at ${scan.lastMs} ms`)
    t.equal(scan.idMax, published.uniqueBlocks - 1, 'ids are numbered without gaps')
    const caches = CAPACITIES.map(capacity => new NaiveCache(capacity))
    let inputTokens = 0
    let outputTokens = 0
    for await (const request of trace) {
      inputTokens += request.inputTokens
      outputTokens += request.outputTokens
      for (const cache of caches) cache.serve(request)
    }
    t.equal(inputTokens, published.inputTokens)
    t.equal(outputTokens, published.outputTokens)
    for (const [i, cache] of caches.entries()) {
      const hitRate = (100 * cache.hitTokens) / inputTokens
      const known = published.hitRates[i]!
      t.ok(
        Math.abs(hitRate - known) < 0.06,
        `${CAPACITIES[i]} blocks: ${hitRate.toFixed(2)} against ${known} %`,
      )
    }
  })
}

/**
 * Least recently used blocks go first; the blocks of a request become the most recent, its first one last.
 */
class NaiveCache {
  readonly #capacity: number
  readonly #blocks = new Set<number>()
  hitTokens = 0

  constructor(capacity: number) {
    this.#capacity = capacity
  }

  serve({ hashIds, inputTokens }: TraceRequest): void {
    const blocks = this.#blocks
    let run = 0
    while (run < hashIds.length && blocks.has(hashIds[run]!)) run++
    this.hitTokens += Math.min(run * 512, inputTokens)
    if (this.#capacity === Number.POSITIVE_INFINITY) {
      for (let i = run; i < hashIds.length; i++) blocks.add(hashIds[i]!)
      return
    }
    for (let i = hashIds.length - 1; i >= 0; i--) {
      blocks.delete(hashIds[i]!)
      blocks.add(hashIds[i]!)
    }
    for (const oldest of blocks) {
      if (blocks.size <= this.#capacity) break
      blocks.delete(oldest)
    }
  }
}
