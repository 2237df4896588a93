/**
 * Memory of a tokenizer: what lies once for all threads, what each thread adds, and whether what threads keep
 * of texts stays within its settings while all text is new.
 *
 *   load   vocabulary and merges in shared memory ──▶ threads, each with the reader that
 *          the router has on its threads
 *   run    for `minutes` each thread reads new chat requests: conversations of six turns,
 *          their words drawn from syllables, names in four languages, numbers, code and hostile texts
 *
 * What a thread holds is heap and buffers of its own after a full collection, less those of a thread without
 * a tokenizer; beside it stands what its gauges say.
 */

import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { loadTokenizer } from '@homing/tokenization'
import { type Measures, Skip, say } from '../harness.ts'
import type { MemoryGauge, MemoryThreadData } from './memory-thread.ts'

export interface MemorySettings {
  readonly minutes: number
  readonly threads: number
  readonly wordTableBytes: number
  /** For each thread. */
  readonly promptCacheBytes: number
  readonly seed: number
}

const GAUGES = 30
const MB = 1e6

/** Fails when a gauge is above its setting. */
export async function measureMemory(
  vocabulary: string,
  directory: string,
  settings: MemorySettings,
): Promise<Measures | Skip> {
  const { minutes, threads: count, wordTableBytes, promptCacheBytes } = settings
  const loaded = await loadTokenizer(directory)
  if (loaded.tables === undefined) return new Skip(`the own encoder refuses it: ${loaded.refusal}`)
  const once = loaded.tables.memory.byteLength
  const start = (number: number, uses: boolean): GaugedThread =>
    new GaugedThread({
      loaded: uses ? loaded : undefined,
      wordTableBytes,
      promptCacheBytes,
      seed: settings.seed * 1000 + number,
    })
  // What the collector finds in a thread that has no tokenizer, and in one that has read one request with it.
  const held: number[] = []
  for (const uses of [false, true]) {
    const thread = start(0, uses)
    await thread.started
    held.push(thread.gauge.heldBytes)
    await thread.end()
  }
  const [bare, attached] = held as [number, number]

  const threads = Array.from({ length: count }, (_, i) => start(i, true))
  const most = { words: 0, prompts: 0, resident: 0 }
  const startedAt = performance.now()
  const gauge = (): string => {
    const read = threads.map(thread => thread.gauge)
    const tokens = read.reduce((sum, { tokens }) => sum + tokens, 0)
    const texts = read.reduce((sum, { requests }) => sum + requests, 0)
    most.words = Math.max(most.words, ...read.map(({ wordTableBytesMost }) => wordTableBytesMost))
    most.prompts = Math.max(most.prompts, ...read.map(({ promptCacheBytesMost }) => promptCacheBytesMost))
    most.resident = Math.max(most.resident, residentBytes())
    const minute = ((performance.now() - startedAt) / 60_000).toFixed(1)
    const each = (bytes: (gauge: MemoryGauge) => number): string =>
      read.map(gauge => (bytes(gauge) / MB).toFixed(2)).join(' and ')
    return `  ${vocabulary}, minute ${minute}: ${texts} requests, ${tokens} tokens; words ${each(g => g.wordTableBytes)} MB, remembered ${each(g => g.promptCacheBytes)} MB, vocabulary ${(once / MB).toFixed(1)} MB once, a thread holds ${each(g => g.heldBytes - bare)} MB, resident ${(residentBytes() / MB).toFixed(0)} MB`
  }
  for (let i = 1; i <= GAUGES; i++) {
    const until = startedAt + (minutes * 60_000 * i) / GAUGES
    await Promise.all(threads.map(thread => thread.runUntil(until)))
    say(gauge())
  }
  const tokens = threads.reduce((sum, { gauge }) => sum + gauge.tokens, 0)
  const gauged = (of: MemoryGauge): number => of.wordTableBytes + of.promptCacheBytes
  const last = threads.map(({ gauge }) => ({ gauged: gauged(gauge), held: gauge.heldBytes - bare }))
  for (const thread of threads) await thread.end()
  if (most.words > wordTableBytes || most.prompts > promptCacheBytes)
    throw new Error(
      `a gauge is above its setting: words ${most.words} of ${wordTableBytes} bytes, remembered ${most.prompts} of ${promptCacheBytes}`,
    )
  return {
    [`${vocabulary} memory once`]: { value: once / MB, unit: 'MB' },
    [`${vocabulary} memory of a thread, no text yet`]: { value: (attached - bare) / MB, unit: 'MB' },
    [`${vocabulary} memory new text`]: { value: tokens, unit: 'tokens' },
    [`${vocabulary} memory words, most`]: {
      value: most.words / MB,
      unit: 'MB',
      raw: { setting: wordTableBytes / MB },
    },
    [`${vocabulary} memory remembered, most`]: {
      value: most.prompts / MB,
      unit: 'MB',
      raw: { setting: promptCacheBytes / MB },
    },
    [`${vocabulary} memory of a thread, full`]: {
      value: Math.max(...last.map(({ held }) => held)) / MB,
      unit: 'MB',
      raw: { gauges: Math.max(...last.map(({ gauged }) => gauged)) / MB },
    },
    [`${vocabulary} memory resident, most`]: { value: most.resident / MB, unit: 'MB' },
  }
}

/** A thread, and its gauges as of its last word. */
class GaugedThread {
  readonly started: Promise<void>
  gauge!: MemoryGauge
  readonly #worker: Worker
  #answered = Promise.withResolvers<void>()

  constructor(workerData: MemoryThreadData) {
    this.#worker = new Worker(fileURLToPath(new URL('./memory-thread.ts', import.meta.url)), { workerData })
    this.#worker.on('error', error => this.#answered.reject(error))
    this.#worker.on('message', (gauge: MemoryGauge) => {
      this.gauge = gauge
      this.#answered.resolve()
    })
    this.started = this.#answered.promise
  }

  /** Reads requests until this time of `performance.now()`. */
  async runUntil(until: number): Promise<void> {
    await this.started
    this.#answered = Promise.withResolvers()
    this.#worker.postMessage(until - performance.now())
    await this.#answered.promise
  }

  async end(): Promise<void> {
    await this.#worker.terminate()
  }
}

function residentBytes(): number {
  return process.memoryUsage.rss()
}
