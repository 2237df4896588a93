/**
 * Worker sets: interned sets of holders; a block says who holds it with one word.
 *
 *   id 0         nobody
 *   id 1 … H     exactly holder id − 1; no memory
 *   id above H   a bitmap of ≥ 2 holders in shared memory, never changed while a block has the id
 *
 * Adding or removing a holder moves a block to another id. The steps (set, holder, ±) → set are remembered:
 * the last one of each sign, and a direct-mapped cache. A set that no block has is garbage until the next
 * sweep, which runs when ids run out; then the ids are given to other sets. Ids are dense: rows of the
 * bitmaps and of the private tables are used from the first on, and what is hashed over them doubles.
 *
 *   set blocks   blocks that have the id; −1 for an interned id that is free
 *   transitions  set, holder · 2 + sign + 1, result, -
 *
 * Protocol: a bitmap is rewritten between two increments of its version (odd meanwhile). A reader that
 * copied it under one even version, and found the id still at the block afterwards, has the set of the block.
 */

import {
  H_HOLDER_WORDS, NO_SET, S_INTERN_MASK, S_SET_SWEEPS, S_SETS_FREE, S_SETS_FRESH, S_SETS_GARBAGE, S_SETS_SOFT,
  S_SETS_TOUCHED, S_TRANSITION_MASK, TRANSITIONS_MIN,
} from '../../src/words'
import {
  freeSetBase, holdersMax, internBase, ownerBase, publish, scratchBase, setBitsBase, setBlocksBase, setBytes, setHashBase,
  setVersionBase, setWord, setsMax, transitionBase, transitionsMax, word, write,
} from './memory'

const FREE: u32 = 0xffffffff
const NONE: u32 = 0xffffffff
/** A sweep must be able to free this share of the ids, or it is not worth the scan: 1 of 8. */
const GARBAGE_SHIFT: u32 = 3

/** The last step of either sign. */
let joinSet: u32 = NONE
let joinHolder: u32 = 0
let joinResult: u32 = 0
let leaveSet: u32 = NONE
let leaveHolder: u32 = 0
let leaveResult: u32 = 0

@inline export function rowAt(set: u32): usize { return setBitsBase + <usize>(set - holdersMax - 1) * setBytes }
@inline function blocksAt(set: u32): usize { return setBlocksBase + (<usize>set << 2) }

@inline export function has(set: u32, holder: u32): bool {
  if (set <= holdersMax) return set == holder + 1
  return ((load<u32>(rowAt(set) + (<usize>(holder >> 5) << 2)) >> (holder & 31)) & 1) != 0
}

/** Whether every member of a set that is not empty belongs to nobody. */
export function isRetired(set: u32): bool {
  if (set <= holdersMax) return load<u32>(ownerBase + (<usize>(set - 1) << 2)) == 0
  const words = word(H_HOLDER_WORDS)
  for (let i: u32 = 0; i < words; i++) {
    let bits = load<u32>(rowAt(set) + (<usize>i << 2))
    while (bits != 0) {
      const holder = i * 32 + <u32>ctz(bits)
      if (load<u32>(ownerBase + (<usize>holder << 2)) != 0) return false
      bits &= bits - 1
    }
  }
  return true
}

/** Blocks went from one id to another. Must follow `join` and `leave` before their next call. */
export function moveBlocks(from: u32, to: u32, n: u32): void {
  const a = blocksAt(from)
  const b = blocksAt(to)
  const left = load<u32>(a) - n
  store<u32>(a, left)
  if (left == 0 && from > holdersMax) setWord(S_SETS_GARBAGE, word(S_SETS_GARBAGE) + 1)
  const had = load<u32>(b)
  store<u32>(b, had + n)
  if (had == 0 && to > holdersMax) setWord(S_SETS_GARBAGE, word(S_SETS_GARBAGE) - 1)
}

/** The set with `holder` added; the same id when it is in. NO_SET: no id is free. */
@inline export function join(set: u32, holder: u32): u32 {
  if (set == joinSet && holder == joinHolder) return joinResult
  const result = step(set, holder, 1)
  if (result != <u32>NO_SET) {
    joinSet = set
    joinHolder = holder
    joinResult = result
  }
  return result
}

/** The set with `holder` taken out; the same id when it is not in. NO_SET: no id is free. */
@inline export function leave(set: u32, holder: u32): u32 {
  if (set <= holdersMax) return set == holder + 1 ? 0 : set
  if (set == leaveSet && holder == leaveHolder) return leaveResult
  const result = step(set, holder, 0)
  if (result != <u32>NO_SET) {
    leaveSet = set
    leaveHolder = holder
    leaveResult = result
  }
  return result
}

export function withHolder(set: u32, holder: u32): u32 { return set == 0 ? holder + 1 : join(set, holder) }
export function withoutHolder(set: u32, holder: u32): u32 { return leave(set, holder) }

@inline function transitionAt(set: u32, holder: u32, sign: u32): usize {
  const mixed = (set ^ (holder * 0x85ebca6b)) * 0x9e3779b1
  return transitionBase + (<usize>((mixed ^ (mixed >> 15) ^ sign) & word(S_TRANSITION_MASK)) << 4)
}

function step(set: u32, holder: u32, sign: u32): u32 {
  const at = transitionAt(set, holder, sign)
  const key = (<u64>(holder * 2 + sign + 1) << 32) | set
  if (load<u64>(at) == key) return load<u32>(at, 8)
  let result: u32
  if (has(set, holder) == (sign == 1)) result = set
  else {
    const words = word(H_HOLDER_WORDS)
    if (set <= holdersMax) {
      memory.fill(scratchBase, 0, setBytes)
      store<u32>(scratchBase + (<usize>((set - 1) >> 5) << 2), <u32>1 << ((set - 1) & 31))
    } else memory.copy(scratchBase, rowAt(set), <usize>words << 2)
    const at = scratchBase + (<usize>(holder >> 5) << 2)
    const bit = <u32>1 << (holder & 31)
    store<u32>(at, sign == 1 ? load<u32>(at) | bit : load<u32>(at) & ~bit)
    result = internScratch()
    if (result == <u32>NO_SET) return result
  }
  // Interning may have made another cache.
  const to = transitionAt(set, holder, sign)
  store<u64>(to, key)
  store<u32>(to, result, 8)
  return result
}

/** The set whose bitmap is in the scratch, of as many words as holders need. NO_SET: no id is free. */
export function internScratch(): u32 {
  const words = word(H_HOLDER_WORDS)
  let only: u32 = 0
  let members: u32 = 0
  let hash: u32 = 0
  // Words that are 0 do not count, so that the hash stays when bitmaps get longer.
  for (let i: u32 = 0; i < words; i++) {
    const bits = load<u32>(scratchBase + (<usize>i << 2))
    if (bits == 0) continue
    members += <u32>popcnt(bits)
    only = i * 32 + <u32>ctz(bits)
    hash = ((hash ^ bits ^ (i << 24)) * 0x9e3779b1) ^ (hash >> 15)
  }
  if (members == 0) return 0
  if (members == 1) return only + 1
  hash ^= hash >> 16
  hash = (hash * 0x85ebca6b) ^ (hash >> 13)
  const mask = word(S_INTERN_MASK)
  for (let at = hash & mask; ; at = (at + 1) & mask) {
    const id = load<u32>(internBase + (<usize>at << 2))
    if (id == 0) break
    if (load<u32>(setHashBase + (<usize>(id - 1) << 2)) == hash && isScratch(id - 1, words)) return holdersMax + id
  }
  const id = allocate()
  if (id == <u32>NO_SET) return id
  const row = setBitsBase + <usize>id * setBytes
  const version = setVersionBase + (<usize>id << 2)
  publish(version, load<u32>(version) + 1)
  for (let i: u32 = 0; i < words; i++) {
    const offset = <usize>i << 2
    write(row + offset, load<u32>(scratchBase + offset))
  }
  publish(version, load<u32>(version) + 1)
  store<u32>(setHashBase + (<usize>id << 2), hash)
  insert(id)
  return holdersMax + 1 + id
}

function isScratch(id: u32, words: u32): bool {
  const row = setBitsBase + <usize>id * setBytes
  for (let i: u32 = 0; i < words; i++) {
    const offset = <usize>i << 2
    if (load<u32>(row + offset) != load<u32>(scratchBase + offset)) return false
  }
  return true
}

function insert(id: u32): void {
  const mask = word(S_INTERN_MASK)
  let at = load<u32>(setHashBase + (<usize>id << 2)) & mask
  while (load<u32>(internBase + (<usize>at << 2)) != 0) at = (at + 1) & mask
  store<u32>(internBase + (<usize>at << 2), id + 1)
}

function allocate(): u32 {
  if (word(S_SETS_FREE) == 0 && word(S_SETS_FRESH) >= word(S_SETS_SOFT)) {
    const garbage = word(S_SETS_GARBAGE)
    if (garbage > 0 && garbage >= word(S_SETS_FRESH) >> GARBAGE_SHIFT) sweep()
    const soft = word(S_SETS_SOFT)
    if (word(S_SETS_FREE) * 2 < soft && soft < setsMax) {
      setWord(S_SETS_SOFT, min(soft * 2, setsMax))
      sizeTables()
    }
  }
  let id: u32
  const free = word(S_SETS_FREE)
  if (free > 0) {
    setWord(S_SETS_FREE, free - 1)
    id = load<u32>(freeSetBase + (<usize>(free - 1) << 2))
  } else {
    id = word(S_SETS_FRESH)
    if (id >= word(S_SETS_SOFT)) return <u32>NO_SET
    setWord(S_SETS_FRESH, id + 1)
  }
  if (id >= word(S_SETS_TOUCHED)) setWord(S_SETS_TOUCHED, id + 1)
  store<u32>(blocksAt(holdersMax + 1 + id), 0)
  setWord(S_SETS_GARBAGE, word(S_SETS_GARBAGE) + 1) // until a block has it
  return id
}

/** Makes the intern table and the cache fit S_SETS_SOFT ids. Also where there are none yet. */
export function sizeTables(): void {
  const soft = word(S_SETS_SOFT)
  memory.fill(internBase, 0, <usize>(word(S_INTERN_MASK) + 1) << 2)
  let size: u32 = 2
  while (size * 2 < soft * 3) size *= 2
  setWord(S_INTERN_MASK, size - 1)
  memory.fill(internBase, 0, <usize>size << 2)
  size = TRANSITIONS_MIN
  while (size < soft * 4 && size * 2 <= transitionsMax) size *= 2
  setWord(S_TRANSITION_MASK, size - 1)
  memory.fill(transitionBase, 0, <usize>size << 4)
  forgetLast()
  for (let id: u32 = 0; id < word(S_SETS_FRESH); id++) {
    if (load<u32>(blocksAt(holdersMax + 1 + id)) != FREE) insert(id)
  }
}

/** Frees the ids that no block has. Every remembered step may name one: all are forgotten. */
function sweep(): void {
  memory.fill(internBase, 0, <usize>(word(S_INTERN_MASK) + 1) << 2)
  memory.fill(transitionBase, 0, <usize>(word(S_TRANSITION_MASK) + 1) << 4)
  forgetLast()
  let free = word(S_SETS_FREE)
  for (let id: u32 = 0; id < word(S_SETS_FRESH); id++) {
    const at = blocksAt(holdersMax + 1 + id)
    const blocks = load<u32>(at)
    if (blocks == FREE) continue
    if (blocks != 0) {
      insert(id)
      continue
    }
    store<u32>(at, FREE)
    store<u32>(freeSetBase + (<usize>free << 2), id)
    free++
  }
  setWord(S_SETS_FREE, free)
  setWord(S_SETS_GARBAGE, 0)
  setWord(S_SET_SWEEPS, word(S_SET_SWEEPS) + 1)
}

function forgetLast(): void {
  joinSet = NONE
  leaveSet = NONE
}
