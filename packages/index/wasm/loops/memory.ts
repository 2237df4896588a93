/**
 * Memory of a shard as the loops see it: where its regions begin, and how its words are read and written.
 *
 * AssemblyScript; see index.ts. ATOMIC and HOOKED are constants of the compiler: every word that another
 * thread may read or write is accessed atomically where processors reorder plain accesses; a hook before each
 * such access is for tests that put something between any two of them.
 */

import {
  H_BUCKET_BASE, H_BUCKETS_MAX, H_BUCKETS_MIN, H_CHUNK_BASE, H_CHUNKS_MAX, H_EVENT_BASE, H_FREE_BASE, H_FREE_SET_BASE,
  H_FREE_WORD_BASE, H_HELD_BASE, H_HOLDER_BASE, H_HOLDERS, H_INTERN_BASE, H_LINK_BASE, H_NAME_BASE, H_OWNER_BASE,
  H_REBUILD_BASE, H_RECENT_BASE, H_SCRATCH_BASE, H_SEGMENT_BASE, H_SEGMENT_BITS, H_SEGMENT_GROUPS, H_SEGMENT_INFO_BASE,
  H_SET_BITS_BASE, H_SET_BLOCKS_BASE, H_SET_HASH_BASE, H_SET_VERSION_BASE, H_SET_WORDS, H_SETS_MAX, H_SLOTS,
  H_TOUCH_BASE, H_TRANSITION_BASE, H_TRANSITIONS_MAX, H_UNLINK_BASE, H_UNLINK_MASK, CHUNK_WORDS, SET,
} from '../../src/words'

// @ts-ignore: a declaration of the host
@external('env', 'hook')
declare function hook(): void

export let chunkBase: usize = 0
export let chunksMax: u32 = 0
export let nameBase: usize = 0
export let linkBase: usize = 0
export let freeBase: usize = 0
export let freeWordBase: usize = 0
export let recentBase: usize = 0
export let bucketBase: usize = 0
export let bucketsMin: u32 = 0
export let bucketsMax: u32 = 0
export let unlinkBase: usize = 0
export let unlinkMask: u32 = 0
export let ownerBase: usize = 0
export let holderBase: usize = 0
export let heldBase: usize = 0
export let holdersMax: u32 = 0
export let slotsMax: u32 = 0
export let setVersionBase: usize = 0
export let setBitsBase: usize = 0
export let setWords: u32 = 0
export let setBytes: usize = 0
export let setsMax: u32 = 0
export let setBlocksBase: usize = 0
export let setHashBase: usize = 0
export let freeSetBase: usize = 0
export let internBase: usize = 0
export let transitionBase: usize = 0
export let transitionsMax: u32 = 0
export let scratchBase: usize = 0
export let segmentBits: u32 = 0
export let segmentGroups: u32 = 0
export let segmentBytes: usize = 0
export let segmentInfoBase: usize = 0
export let segmentBase: usize = 0
export let eventBase: usize = 0
export let touchBase: usize = 0
export let rebuildBase: usize = 0

/** Takes over where the regions of the memory are; once, before anything else. */
export function attach(): void {
  chunkBase = baseOf(H_CHUNK_BASE)
  chunksMax = word(H_CHUNKS_MAX)
  nameBase = baseOf(H_NAME_BASE)
  linkBase = baseOf(H_LINK_BASE)
  freeBase = baseOf(H_FREE_BASE)
  freeWordBase = baseOf(H_FREE_WORD_BASE)
  recentBase = baseOf(H_RECENT_BASE)
  bucketBase = baseOf(H_BUCKET_BASE)
  bucketsMin = word(H_BUCKETS_MIN)
  bucketsMax = word(H_BUCKETS_MAX)
  unlinkBase = baseOf(H_UNLINK_BASE)
  unlinkMask = word(H_UNLINK_MASK)
  ownerBase = baseOf(H_OWNER_BASE)
  holderBase = baseOf(H_HOLDER_BASE)
  heldBase = baseOf(H_HELD_BASE)
  holdersMax = word(H_HOLDERS)
  slotsMax = word(H_SLOTS)
  setVersionBase = baseOf(H_SET_VERSION_BASE)
  setBitsBase = baseOf(H_SET_BITS_BASE)
  setWords = word(H_SET_WORDS)
  setBytes = <usize>setWords << 2
  setsMax = word(H_SETS_MAX)
  setBlocksBase = baseOf(H_SET_BLOCKS_BASE)
  setHashBase = baseOf(H_SET_HASH_BASE)
  freeSetBase = baseOf(H_FREE_SET_BASE)
  internBase = baseOf(H_INTERN_BASE)
  transitionBase = baseOf(H_TRANSITION_BASE)
  transitionsMax = word(H_TRANSITIONS_MAX)
  scratchBase = baseOf(H_SCRATCH_BASE)
  segmentBits = word(H_SEGMENT_BITS)
  segmentGroups = word(H_SEGMENT_GROUPS)
  segmentBytes = <usize>segmentGroups << 6
  segmentInfoBase = baseOf(H_SEGMENT_INFO_BASE)
  segmentBase = baseOf(H_SEGMENT_BASE)
  eventBase = baseOf(H_EVENT_BASE)
  touchBase = baseOf(H_TOUCH_BASE)
  rebuildBase = baseOf(H_REBUILD_BASE)
}

@inline function baseOf(header: i32): usize { return <usize>word(header) << 2 }

/** A word of the header or of the writer's state that only this thread writes. */
@inline export function word(index: i32): u32 { return load<u32>(<usize>index << 2) }
@inline export function setWord(index: i32, value: u32): void { store<u32>(<usize>index << 2, value) }

/** Words by which threads agree: versions, counters, links. Always atomic. */
@inline export function version(at: usize): u32 {
  if (HOOKED) hook()
  return atomic.load<u32>(at)
}
@inline export function publish(at: usize, value: u32): void {
  if (HOOKED) hook()
  atomic.store<u32>(at, value)
}
/** Data words. */
@inline export function read(at: usize): u32 {
  if (HOOKED) hook()
  return ATOMIC ? atomic.load<u32>(at) : load<u32>(at)
}
@inline export function read64(at: usize): u64 {
  if (HOOKED) hook()
  return ATOMIC ? atomic.load<u64>(at) : load<u64>(at)
}
@inline export function write(at: usize, value: u32): void {
  if (HOOKED) hook()
  if (ATOMIC) atomic.store<u32>(at, value)
  else store<u32>(at, value)
}
@inline export function write64(at: usize, value: u64): void {
  if (HOOKED) hook()
  if (ATOMIC) atomic.store<u64>(at, value)
  else store<u64>(at, value)
}

/** A word of the chunk at `chunk`. */
@inline export function at(chunk: usize, index: i32): usize { return chunk + (<usize>index << 2) }
@inline export function chunkAt(chunk: u32): usize { return chunkBase + <usize>chunk * (CHUNK_WORDS << 2) }
@inline export function setAt(block: u32): usize {
  return chunkAt(block >> 4) + (SET << 2) + (<usize>(block & 15) << 2)
}
@inline export function nameAt(block: u32): usize { return nameBase + (<usize>block << 3) }
@inline export function hashOf(low: u32, high: u32): u64 { return ((<u64>high) << 32) | low }

/** How many of n hashes at a, of a chunk, are those at b, from the first on. */
@inline export function matchShared(a: usize, b: usize, n: u32): u32 {
  if (!ATOMIC) return matchLength(a, b, n)
  let k: u32 = 0
  while (k < n && read64(a + (<usize>k << 3)) == load<u64>(b + (<usize>k << 3))) k++
  return k
}
/** The same for memory that only this thread writes. */
@inline export function matchLength(a: usize, b: usize, n: u32): u32 {
  let k: u32 = 0
  while (k + 4 <= n) {
    const from = <usize>k << 3
    const x = v128.xor(v128.load(a + from), v128.load(b + from))
    const y = v128.xor(v128.load(a + from, 16), v128.load(b + from, 16))
    if (v128.any_true(v128.or(x, y))) break
    k += 4
  }
  while (k < n && load<u64>(a + (<usize>k << 3)) == load<u64>(b + (<usize>k << 3))) k++
  return k
}
/** How many of n words at `from`, of a chunk, are `value`, from the first on. */
@inline export function runLength(from: usize, value: u32, n: u32): u32 {
  let k: u32 = 0
  if (!ATOMIC) {
    const all = i32x4.splat(value)
    while (k + 4 <= n) {
      if (v128.any_true(v128.xor(v128.load(from + (<usize>k << 2)), all))) break
      k += 4
    }
  }
  while (k < n && read(from + (<usize>k << 2)) == value) k++
  return k
}
@inline export function fillWords(from: usize, value: u32, n: u32): void {
  let k: u32 = 0
  if (!ATOMIC) {
    const all = i32x4.splat(value)
    while (k + 4 <= n) {
      v128.store(from + (<usize>k << 2), all)
      k += 4
    }
  }
  while (k < n) {
    write(from + (<usize>k << 2), value)
    k++
  }
}
@inline export function copyHashes(to: usize, from: usize, n: u32): void {
  let k: u32 = 0
  if (!ATOMIC) {
    while (k + 2 <= n) {
      v128.store(to + (<usize>k << 3), v128.load(from + (<usize>k << 3)))
      k += 2
    }
  }
  while (k < n) {
    write64(to + (<usize>k << 3), load<u64>(from + (<usize>k << 3)))
    k++
  }
}
