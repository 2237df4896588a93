/**
 * Key dumps: the blocks of a worker key, in slices, each of which is asked for by a message of its own.
 *
 *   dump (no number) ─▶ a dump is opened, its first slice ─▶ dump (its number) ─▶ the next one … ─▶ isLast
 *
 * So events are applied between two slices, and the asker decides how fast they come. What a dump says of an
 * index that changes meanwhile: packages/index/src/dump.ts.
 *
 * Behind the blocks come the labels of blocks in pools that the worker key does not hold itself.
 *
 * Bounds  a slice: DUMP_CHUNKS chunks of blocks, or a look at SLICE_STEPS × DUMP_CHUNKS chunks; where blocks
 *         have labels, fewer, by the ids of workers in these (slice-ids.ts). One dump is open at a time:
 *         another one ends it. A dump that is not asked for its next slice within
 *         DUMP_IDLE_MS is ended, because no memory is given back while it is open.
 */

import { CodedError } from '@homing/base'
import { formatHash } from '@homing/blocks'
import type { BlockIndex } from '@homing/index'
import { type DumpedLabel, type DumpedLabels, isInPool, transitionOf } from './dumped-labels.ts'
import { SliceIds } from './slice-ids.ts'

/** A dump cannot go on: it was not asked for its next slice in time, or another one was begun. */
export class DumpEndedError extends CodedError {
  readonly code = 'HOMING_FLEET_DUMP_ENDED'

  constructor(workerSlot: number) {
    super(
      'cannot go on with the dump: its next part was not asked for in time, another dump was begun, or the index was reset',
      { workerSlot },
    )
  }
}

/** A block and what a dump says of it, in words: flags, engine hash, parent's engine hash, local hash. */
const DUMP_WORDS = 7
const HAS_PARENT = 1
const IS_REACHABLE = 2

/** 16 blocks each: a slice is 1,024 blocks, which takes about a millisecond. */
const DUMP_CHUNKS = 64
const SLICE_STEPS = 64
const DUMP_IDLE_MS = 30_000
const NO_WORDS = new Int32Array(0)

/** One block that a worker key holds, as hex words; enough to compare with an engine's cache. */
export interface IndexedBlock {
  readonly engineHash: string
  /** Undefined: it begins a prompt, or its parent is not held. */
  readonly parentEngineHash: string | undefined
  readonly localHash: string
  /** The worker key holds all blocks above it. */
  readonly isReachable: boolean
  /** What its worker says of it beside that; undefined: nothing. */
  readonly label?: DumpedLabel
}

export interface DumpSlice {
  /** Names the dump when the next slice is asked for. */
  readonly dump: number
  /** DUMP_WORDS per block, parents first. */
  readonly words: Int32Array
  /** Of some of these blocks, by their position in the slice. */
  readonly labels?: ReadonlyMap<number, DumpedLabel>
  /** Of blocks in pools that no dump of held blocks names. */
  readonly apart?: readonly DumpedLabel[]
  readonly isLast: boolean
}

export interface KeyDumpsOptions {
  readonly index: BlockIndex
  /** Default: blocks have none. */
  readonly labels?: DumpedLabels
  /** Called when a dump is over: there may be work that it held up. */
  readonly ended: () => void
  /** Calls `endIdle` with the number after a time. */
  readonly idleAfter: (delayMs: number, dump: number) => { cancel(): void }
}

export class KeyDumps {
  readonly #options: KeyDumpsOptions
  #dump: ReturnType<BlockIndex['openDump']> | undefined
  #number = 0
  #workerSlot = 0
  #isLabelled = true
  /** Where the next part of the labels of blocks in pools begins; undefined: it has not been their turn. */
  #apartFrom: number | undefined
  #timer: { cancel(): void } | undefined

  constructor(options: KeyDumpsOptions) {
    this.#options = options
  }

  /** `hasSlot`: the worker slot is in use. `isLabelled` counts with the first slice. */
  next(
    workerSlot: number,
    number: number | undefined,
    hasSlot: boolean,
    isLabelled = true,
  ): DumpSlice | 'ended' {
    const { index, idleAfter } = this.#options
    if (number === undefined) {
      this.end(this.#number)
      this.#number++
      this.#workerSlot = workerSlot
      this.#isLabelled = isLabelled
      this.#apartFrom = undefined
      this.#dump = index.openDump(workerSlot)
    } else if (number !== this.#number || this.#dump === undefined) {
      return 'ended'
    }
    this.#timer?.cancel()
    const part = hasSlot ? (this.#held() ?? this.#apart()) : undefined
    if (part === undefined) {
      this.end(this.#number)
      return { dump: this.#number, words: NO_WORDS, isLast: true }
    }
    this.#timer = idleAfter(DUMP_IDLE_MS, this.#number)
    return { dump: this.#number, ...part, isLast: false }
  }

  /** Also if it is not open any more. */
  end(number: number): void {
    if (number !== this.#number || this.#dump === undefined) return
    this.#timer?.cancel()
    this.#options.index.closeDump(this.#dump)
    this.#dump = undefined
    this.#options.ended()
  }

  /** Undefined: there are no more. */
  #held(): Pick<DumpSlice, 'words' | 'labels' | 'apart'> | undefined {
    if (this.#apartFrom !== undefined) return undefined
    const labels = this.#labels
    // One by one where the ids of workers may be too many for the next one.
    const atOnce = labels === undefined ? DUMP_CHUNKS : 1
    const slice = new HeldSlice(this.#workerSlot, labels)
    let filled = 0
    for (let chunks = 0; chunks < SLICE_STEPS * DUMP_CHUNKS && filled < DUMP_CHUNKS; chunks += atOnce) {
      const entries = this.#dump!.next(atOnce)
      if (entries === undefined) return filled === 0 ? undefined : slice.whole()
      if (entries.length === 0) continue
      filled += atOnce
      if (!slice.add(entries)) break
    }
    return slice.whole()
  }

  /** Undefined: the dump is without labels, or there are none of its worker slot. */
  get #labels(): DumpedLabels | undefined {
    const { labels } = this.#options
    return this.#isLabelled && labels?.has(this.#workerSlot) === true ? labels : undefined
  }

  /** Undefined: there are no more. */
  #apart(): Pick<DumpSlice, 'words' | 'apart'> | undefined {
    const labels = this.#labels
    if (labels === undefined || this.#apartFrom === Number.POSITIVE_INFINITY) return undefined
    const ids = new SliceIds()
    const { labels: apart, next } = labels.apart(this.#workerSlot, this.#apartFrom ?? 0, label =>
      ids.add(label, transitionOf(label)),
    )
    this.#apartFrom = next ?? Number.POSITIVE_INFINITY
    return { words: NO_WORDS, apart }
  }
}

type Entries = NonNullable<ReturnType<ReturnType<BlockIndex['openDump']>['next']>>

/** A slice of held blocks, while it is filled. */
class HeldSlice {
  readonly #workerSlot: number
  readonly #source: DumpedLabels | undefined
  readonly #entries: Entries[number][] = []
  readonly #found = new Map<number, DumpedLabel>()
  readonly #apart: DumpedLabel[] = []
  readonly #idsBySet = new Map<number, Int32Array>()
  readonly #ids = new SliceIds()
  /** Counts runs of blocks of which each is the parent of the next: these share an event. */
  #run = 0

  constructor(workerSlot: number, labels: DumpedLabels | undefined) {
    this.#workerSlot = workerSlot
    this.#source = labels
  }

  /** False: it is full. */
  add(entries: Entries): boolean {
    let hasRoom = true
    for (const entry of entries) {
      const { engineHash, isReachable } = entry
      if (!isSameHash(this.#entries.at(-1)?.engineHash, entry.parentEngineHash)) this.#run++
      this.#entries.push(entry)
      const label = this.#source?.of(this.#workerSlot, ...engineHash, this.#idsBySet)
      if (label === undefined) continue
      if (isReachable) {
        this.#found.set(this.#entries.length - 1, label)
        hasRoom = this.#ids.add(label, this.#run) && hasRoom
      } else if (isInPool(label)) {
        this.#apart.push(label)
        hasRoom = this.#ids.add(label, transitionOf(label)) && hasRoom
      }
    }
    return hasRoom
  }

  whole(): Pick<DumpSlice, 'words' | 'labels' | 'apart'> {
    const words = new Int32Array(this.#entries.length * DUMP_WORDS)
    for (const [i, { engineHash, parentEngineHash, localHash, isReachable }] of this.#entries.entries()) {
      const at = i * DUMP_WORDS
      words[at] = (parentEngineHash === undefined ? 0 : HAS_PARENT) | (isReachable ? IS_REACHABLE : 0)
      words.set(engineHash, at + 1)
      if (parentEngineHash !== undefined) words.set(parentEngineHash, at + 3)
      words.set(localHash, at + 5)
    }
    const [labels, apart] = [this.#found, this.#apart]
    return { words, ...(labels.size > 0 && { labels }), ...(apart.length > 0 && { apart }) }
  }
}

type Hash = readonly [low: number, high: number]

function isSameHash(one: Hash | undefined, other: Hash | undefined): boolean {
  return one !== undefined && one[0] === other?.[0] && one[1] === other[1]
}

/** The actor that holds the index. */
interface DumpedActor {
  ask(
    message: {
      readonly type: 'dump'
      readonly workerSlot: number
      readonly dump: number | undefined
      readonly isLabelled?: boolean
    },
    options: { readonly timeout: number },
  ): Promise<DumpSlice | 'ended'>
  tell(message: { readonly type: 'endDump'; readonly dump: number }): unknown
}

/** The blocks of a worker slot without their labels, slice by slice. Rejects as `dumpSlices` does. */
export async function* dumpKey(
  actor: DumpedActor,
  workerSlot: number,
  timeoutMs: number,
): AsyncGenerator<readonly IndexedBlock[], void, undefined> {
  for await (const { blocks } of dumpSlices(actor, workerSlot, timeoutMs, false))
    if (blocks.length > 0) yield blocks
}

/** A part of what is known of a worker slot. */
export interface KeyPart {
  readonly blocks: readonly IndexedBlock[]
  /** Of blocks in pools that are not among all these, or are not reachable there. */
  readonly apart: readonly DumpedLabel[]
}

/**
 * The blocks of a worker slot with their labels, slice by slice: the next one is asked for when the one
 * before was taken. Rejects with DumpEndedError, and as `ask` does.
 */
export async function* dumpSlices(
  actor: DumpedActor,
  workerSlot: number,
  timeoutMs: number,
  isLabelled = true,
): AsyncGenerator<KeyPart, void, undefined> {
  let dump: number | undefined
  let isLast = false
  try {
    while (!isLast) {
      const message = { type: 'dump', workerSlot, dump, isLabelled } as const
      const slice = await actor.ask(message, { timeout: timeoutMs })
      if (slice === 'ended') throw new DumpEndedError(workerSlot)
      dump = slice.dump
      isLast = slice.isLast
      const { words, labels, apart = [] } = slice
      if (words.length + apart.length > 0) yield { blocks: readBlocks(words, labels), apart }
    }
  } finally {
    if (dump !== undefined && !isLast) actor.tell({ type: 'endDump', dump })
  }
}

function readBlocks(words: Int32Array, labels: DumpSlice['labels']): readonly IndexedBlock[] {
  const blocks: IndexedBlock[] = []
  const hash = (at: number): string => formatHash(words[at]!, words[at + 1]!)
  for (let at = 0; at < words.length; at += DUMP_WORDS) {
    const flags = words[at]!
    const label = labels?.get(at / DUMP_WORDS)
    blocks.push({
      engineHash: hash(at + 1),
      parentEngineHash: (flags & HAS_PARENT) === 0 ? undefined : hash(at + 3),
      localHash: hash(at + 5),
      isReachable: (flags & IS_REACHABLE) !== 0,
      ...(label && { label }),
    })
  }
  return blocks
}
