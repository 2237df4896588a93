/**
 * The public types of the prefix index: options, outcomes, figures, dump entries.
 *
 * Hashes are 64 bits as two int32 words `[low, high]`; arrays of hashes are Int32Arrays of length 2n,
 * hash i at 2i and 2i + 1. Every value, 0 and 2^64 − 1 included, is a valid hash. The index never keeps
 * an array that it is given.
 *
 * A *worker slot* is a dense number, 0 … workerSlotsMax − 1, that the directory gives to a worker key.
 */

/** One 64-bit hash: low word, high word, both int32. */
export type HashPair = readonly [low: number, high: number]

/**
 * `count`: engines keep a block once per physical copy, so stored, stored, removed is still held.
 * `set`: a repeated report says the same thing again (snapshots, replays).
 */
export type Copies = 'count' | 'set'

/** Called with a removed hash that had more than one copy, and the number of its further copies. */
export type LeftCopies = (low: number, high: number, copies: number) => void

/**
 * How data words of the shared memory are read and written. `plain` relies on the memory order of
 * x86-64; `atomic` is right everywhere and slower. Readers take it from the memory.
 */
export type WordAccess = 'plain' | 'atomic'

/** Memory of a shard: a WebAssembly.Memory, shared. */
export interface IndexMemory {
  readonly buffer: SharedArrayBuffer
  grow(pages: number): number
}

/** The memory of a shard, or its door, by which readers know whether their memory is still its writer's. */
export type ShardMemory = IndexMemory | SharedArrayBuffer

/** What a shard may use. */
export interface IndexOptions {
  /** Hard limit of this shard in bytes, tables private to the writer included. 64 KiB … 3.75 GiB. */
  readonly capacityBytes: number
  /** Worker slots are 0 … workerSlotsMax − 1. 1 … 81,920. */
  readonly workerSlotsMax: number
  /**
   * Worker slots that hold something at one time; the caller sees to it that there are no more. 1 … 32,768.
   * Default: workerSlotsMax. Numbers of slots may be sparse: a slot that holds nothing costs a word.
   */
  readonly holdersMax?: number
  /** Part of capacityBytes that parked orphans may take; default a 32nd of it. */
  readonly orphanBytesMax?: number
  /** Default for every `store`; default `count`. */
  readonly copies?: Copies
  /** Default: `plain` on x64, `atomic` elsewhere. */
  readonly access?: WordAccess
  /**
   * Memory made by `createIndexMemory` with the same options, which no other index writes any more: it is
   * emptied in place, and readers that hold it keep it. Or a door made by `createIndexDoor`: the index has
   * its own memory, and readers with the door ignore earlier memories. Default: new memory.
   */
  readonly memory?: ShardMemory
  /** Least bytes of chunks that are given back at once; below, memory stays. Default 1 MiB. */
  readonly swapBytesMin?: number
  /** Called when the index has moved to new memory, within `maintain`. */
  readonly onMemory?: (memory: IndexMemory) => void
}

/**
 * What became of a stored run.
 *
 * - `stored`: every block is held.
 * - `parked`: the parent of some block is unknown; those wait as orphans and are adopted when it comes.
 * - `full`: no space, even after eviction; the first blocks may be held, the rest of the run is forgotten.
 * - `overflow`: the bound on orphans is exceeded; the rest of the run is forgotten: resync the worker.
 */
export type StoreOutcome = 'stored' | 'parked' | 'full' | 'overflow'

/** What became of the blocks of a removed event. */
export interface RemoveOutcome {
  /** Copies given back, of held blocks and of orphans. */
  readonly removed: number
  /** Hashes that the worker slot does not hold: ignored. */
  readonly unknown: number
}

/** Figures of one shard. Counters grow from creation; the rest is the present. */
export interface IndexStats {
  /**
   * Bytes of everything, shared and private to the writer: of arrays that are reserved for the capacity, what
   * was ever written since the index came to its memory; of the others, all. Pages round each of about twenty
   * up.
   */
  readonly bytesUsed: number
  readonly bytesLimit: number
  /** How often the capacity was halved at creation, because the system would not reserve so much memory. */
  readonly capacityHalvings: number
  /** Blocks held by at least one worker slot, or by one that was cleared and is not yet swept. */
  readonly blocksDistinct: number
  /** Pairs of worker slot and block. */
  readonly memberships: number
  /** Parked blocks. */
  readonly orphanBlocks: number
  readonly orphanBytes: number
  /** Chunks of 16 blocks in use, the most that fit, and those that were ever used in this memory. */
  readonly chunks: number
  readonly chunksMax: number
  readonly chunksTouched: number
  /** Distinct groups of worker slots that hold something together. */
  readonly workerSets: number
  /** Worker slots that were cleared and are not yet swept. */
  readonly retiredHolders: number
  /** Holdings that need a record of their own: copies, and engine hashes on which workers disagree. */
  readonly sideNames: number
  /** Counter: moves to new memory. */
  readonly memorySwaps: number
  /** Counter: memberships dropped to make space. Above 0 the index under-reports. */
  readonly evictedForSpace: number
  /** Counter: blocks of stores that ended `full` or `overflow`. Above 0 the index under-reports. */
  readonly refusedBlocks: number
  /** Counter: removed hashes that were not held. */
  readonly unknownRemoves: number
  /** Counter: stores of a block that its worker slot held already. */
  readonly duplicateStores: number
  /** Counter: engine hashes that came back with another content; the old place was given up. */
  readonly movedHashes: number
  /** Counter: orphans whose parent arrived. */
  readonly adoptedOrphans: number
}

/** Where a block lies in the tree. */
export interface BlockPlace {
  /** 0: the root. */
  readonly parentBlock: number
  readonly localHash: HashPair
}

/** A worker slot that holds a block, under this engine hash and maybe others. */
export interface BlockHolder {
  readonly workerSlot: number
  readonly engineHash: HashPair
}

/** A parked block. */
export interface OrphanEntry {
  readonly engineHash: HashPair
  readonly parentEngineHash: HashPair
  readonly localHash: HashPair
  readonly copies: number
}

/** One engine hash that a worker slot holds. Parents come before children. */
export interface DumpEntry {
  /** Number of the block, the same for every worker slot until the index changes. */
  readonly block: number
  /** 0: the root. May be a hole, which no worker slot holds; `placeOf` gives its place. */
  readonly parentBlock: number
  readonly engineHash: HashPair
  /** A name of the parent at this worker slot; undefined at the root, and where the parent is not held. */
  readonly parentEngineHash: HashPair | undefined
  readonly localHash: HashPair
  /** Position in its prompts, from 0. */
  readonly position: number
  /** False when the worker slot lacks some block before this one: it counts in no overlap. */
  readonly isReachable: boolean
  /** Physical copies, at least 1. */
  readonly copies: number
}

/** Figures of a reader since its construction. */
export interface ReaderStats {
  readonly lookups: number
  /** Walks begun again because the writer recycled memory under them. */
  readonly retries: number
  /** Shards given up after all attempts: reported as a miss. */
  readonly misses: number
  /**
   * Lookups in the old memory of a shard whose writer has moved: answered from the state at the move, or not
   * at all.
   */
  readonly staleLookups: number
}
