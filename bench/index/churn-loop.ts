/**
 * Loop churn: a sliding window. Workers store runs at a fixed rate, and every run is removed 10 s later, for
 * `minutes`: after the first minute memory must not grow any more.
 *
 * A prompt is one of 64 trunks of 16 blocks and a tail of its own. A trunk is stored when its worker lacks
 * it, and removed 10 s later like everything else: tails outlive it, so holes come and are filled again.
 * Hashes are made again from the number of a run when it goes: the window keeps two numbers a run and no
 * hash.
 *
 * Samples: resident bytes after a collection, what the index counts, memberships. churnOut=NAME writes
 * NAME.csv and NAME.svg.
 */

import { writeFileSync } from 'node:fs'
import { chainSequence } from '@homing/blocks'
import { type BlockIndex, type IndexMemory, IndexReader, OverlapCounts } from '@homing/index'
import { pause } from '../actors/loads.ts'
import type { Measures } from '../harness.ts'
import { slope } from '../statistics.ts'
import { type CurvePoint, churnCsv, churnSvg } from './churn-curve.ts'
import { collect, createIndex } from './drive.ts'
import { churnBlocksPerS, churnMinutes, churnOut } from './parameters.ts'
import { mixInto, SplitMix } from './splitmix.ts'

const WORKERS = 32
const TRUNKS = 64
const TRUNK_BLOCKS = 16
const TAIL_BLOCKS_MIN = 16
const TAIL_BLOCKS_MAX = 128
const WINDOW_S = 10
const TICK_MS = 10
/** Of each tick, for what the index has to tidy up. */
const MAINTAIN_MS = 1
const SAMPLES = 360
const CHECK_EVERY = 97
const SETTLED_S = 60
const BYTES_PER_MEMBERSHIP = 60
const SEED = 11
/** First number of the local hashes of trunks. */
const TRUNKS_AT = 2 ** 44
const NOT_HELD = 0
const HELD = 1

interface Chain {
  readonly worker: number
  readonly locals: Int32Array
  readonly sequences: Int32Array
  readonly parent: Int32Array | undefined
}

export async function churnLoop(): Promise<Measures> {
  const totalS = churnMinutes * 60
  const windowS = Math.min(WINDOW_S, totalS / 3)
  const memberships = churnBlocksPerS * windowS + WORKERS * TRUNKS * TRUNK_BLOCKS
  const index = createIndex(WORKERS, Math.ceil(8 + (memberships * BYTES_PER_MEMBERSHIP) / 2 ** 20))
  const window = new Window(Math.ceil((churnBlocksPerS * windowS) / TAIL_BLOCKS_MIN) + WORKERS * TRUNKS)
  const prompts = new Prompts()
  const checker = new Checker(index)
  const points: CurvePoint[] = []
  const cpuFrom = process.cpuUsage()
  const from = performance.now()
  let blocks = 0
  let run = 0
  let sampleAtS = 0
  for (let nowS = 0; nowS < totalS; nowS = (performance.now() - from) / 1000) {
    for (; window.oldestS <= nowS - windowS; window.drop()) prompts.remove(index, window.oldest)
    for (; blocks < nowS * churnBlocksPerS; run++) {
      const { worker, trunk } = prompts.of(run)
      if (prompts.isHeld[worker * TRUNKS + trunk] === NOT_HELD) {
        const name = -1 - (worker * TRUNKS + trunk)
        blocks += prompts.store(index, name)
        window.push(name, nowS)
      }
      blocks += prompts.store(index, run)
      window.push(run, nowS)
      if (run % CHECK_EVERY === 0) checker.require(prompts.whole(run), worker)
    }
    for (const untilMs = performance.now() + MAINTAIN_MS; index.maintain() && performance.now() < untilMs; );
    if (nowS >= sampleAtS) {
      points.push(sample(index, nowS))
      sampleAtS += totalS / SAMPLES
    }
    await pause(TICK_MS)
  }
  const { user, system } = process.cpuUsage(cpuFrom)
  points.push(sample(index, totalS))
  for (; window.count > 0; window.drop()) prompts.remove(index, window.oldest)
  while (index.maintain());
  const { memberships: left } = index.stats()
  if (left !== 0) throw new Error(`${left} memberships are left of what was removed`)
  const emptied = sample(index, totalS)

  if (churnOut !== '') {
    writeFileSync(`${churnOut}.csv`, churnCsv(points))
    writeFileSync(`${churnOut}.svg`, churnSvg(points))
  }
  const settled = points.filter(({ atS }) => atS >= Math.min(SETTLED_S, totalS / 2))
  const last = points.at(-1)!
  return {
    churnBlocks: { value: (2 * blocks) / totalS, unit: 'block/s' },
    churnCpu: { value: (user + system) / 1e6 / totalS, unit: 'cores' },
    churnMemberships: { value: last.memberships, unit: 'memberships in the window' },
    churnRssSlope: {
      value: slopePerHour(settled, ({ rssBytes }) => rssBytes / 2 ** 20),
      unit: 'MiB per hour',
    },
    churnArraysSlope: {
      value: slopePerHour(settled, ({ arrayBytes }) => arrayBytes / 2 ** 20),
      unit: 'MiB per hour',
    },
    churnRss: { value: last.rssBytes / 2 ** 20, unit: 'MiB' },
    churnArrays: { value: last.arrayBytes / 2 ** 20, unit: 'MiB' },
    churnRssEmptied: { value: emptied.rssBytes / 2 ** 20, unit: 'MiB' },
    churnChecked: { value: checker.checked, unit: 'lookups' },
  }
}

/** Makes runs from their numbers. A negative number is a trunk of a worker. */
class Prompts {
  /** By worker and trunk. */
  readonly isHeld = new Uint8Array(WORKERS * TRUNKS)
  readonly #trunks = Array.from({ length: TRUNKS }, (_, trunk) => {
    const locals = localsAt(TRUNKS_AT + trunk * TRUNK_BLOCKS, TRUNK_BLOCKS)
    return { locals, sequences: chainSequence(locals, TRUNK_BLOCKS) }
  })

  of(run: number): { readonly worker: number; readonly trunk: number; readonly count: number } {
    const random = new SplitMix(SEED + run)
    return {
      worker: random.below(WORKERS),
      trunk: random.below(TRUNKS),
      count: TAIL_BLOCKS_MIN + random.below(TAIL_BLOCKS_MAX - TAIL_BLOCKS_MIN + 1),
    }
  }

  /** Stores it; how many blocks that were. */
  store(index: BlockIndex, name: number): number {
    const { worker, locals, sequences, parent } = this.#chain(name)
    const count = locals.length / 2
    const outcome = index.store(worker, parent, sequences, locals, count)
    if (outcome !== 'stored') throw new Error(`a run of ${count} blocks was not stored: ${outcome}`)
    if (name < 0) this.isHeld[-1 - name] = HELD
    return count
  }

  remove(index: BlockIndex, name: number): void {
    const { worker, sequences } = this.#chain(name)
    const { unknown } = index.remove(worker, sequences, sequences.length / 2)
    if (unknown > 0) throw new Error(`${unknown} blocks were not held any more`)
    if (name < 0) this.isHeld[-1 - name] = NOT_HELD
  }

  /** Local hashes of trunk and tail. */
  whole(run: number): Int32Array {
    const trunk = this.#trunks[this.of(run).trunk]!
    const tail = this.#chain(run).locals
    const locals = new Int32Array(trunk.locals.length + tail.length)
    locals.set(trunk.locals)
    locals.set(tail, trunk.locals.length)
    return locals
  }

  #chain(name: number): Chain {
    if (name < 0) {
      const { locals, sequences } = this.#trunks[(-1 - name) % TRUNKS]!
      return { worker: Math.floor((-1 - name) / TRUNKS), locals, sequences, parent: undefined }
    }
    const { worker, trunk, count } = this.of(name)
    const parent = this.#trunks[trunk]!.sequences.subarray(2 * TRUNK_BLOCKS - 2)
    const locals = localsAt(name * TAIL_BLOCKS_MAX, count)
    const sequences = chainSequence(locals, count, { lo: parent[0]!, hi: parent[1]! })
    return { worker, locals, sequences, parent }
  }
}

/** What was stored just now is found, whole. */
class Checker {
  checked = 0
  readonly #index: BlockIndex
  readonly #reader: IndexReader
  readonly #scores = new OverlapCounts(WORKERS)
  #memory: IndexMemory

  constructor(index: BlockIndex) {
    this.#index = index
    this.#memory = index.memory
    this.#reader = new IndexReader([index.memory])
  }

  require(locals: Int32Array, worker: number): void {
    const count = locals.length / 2
    if (this.#memory !== this.#index.memory) {
      this.#memory = this.#index.memory
      this.#reader.replaceShard(0, this.#memory)
    }
    this.#reader.overlap(locals, count, this.#scores)
    const found = this.#scores.blocksOf(worker)
    if (found !== count) throw new Error(`worker ${worker} holds ${found} blocks of a prompt, not ${count}`)
    this.checked++
  }
}

/** What was stored, in order, with the time: a queue of bounded size. */
class Window {
  count = 0
  readonly #names: Float64Array
  readonly #timesS: Float64Array
  #head = 0

  constructor(capacity: number) {
    this.#names = new Float64Array(2 * capacity)
    this.#timesS = new Float64Array(2 * capacity)
  }

  get oldest(): number {
    return this.#names[this.#head]!
  }

  /** Infinity when there is nothing. */
  get oldestS(): number {
    return this.count === 0 ? Number.POSITIVE_INFINITY : this.#timesS[this.#head]!
  }

  push(name: number, atS: number): void {
    if (this.count === this.#names.length) throw new Error('the window has more runs than its rate allows')
    const at = (this.#head + this.count++) % this.#names.length
    this.#names[at] = name
    this.#timesS[at] = atS
  }

  drop(): void {
    this.#head = (this.#head + 1) % this.#names.length
    this.count--
  }
}

function localsAt(first: number, count: number): Int32Array {
  const locals = new Int32Array(2 * count)
  for (let i = 0; i < count; i++) mixInto(first + i, locals, 2 * i)
  return locals
}

function sample(index: BlockIndex, atS: number): CurvePoint {
  collect()
  const { bytesUsed, memberships } = index.stats()
  return { atS, rssBytes: process.memoryUsage.rss(), arrayBytes: bytesUsed, memberships }
}

function slopePerHour(points: readonly CurvePoint[], of: (point: CurvePoint) => number): number {
  return slope(points.map(point => [point.atS, of(point)])) * 3600
}
