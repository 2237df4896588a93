/**
 * Reader: the walk of a lookup through shared memory that another thread writes. ../../src/index-reader.ts
 * argues which results can be believed; chunks.ts has the order of the writer's steps.
 *
 * A reader has a scratch of its own behind the shard, which nobody else touches:
 *
 *   fixed | active, copy, owned: a bitmap each | owners, by holder | answers | layers | hashes of the prompt
 *
 * Hashes of the prompt come as they are needed: the host copies the first ones, and more when it is asked to.
 */

import {
  H_BUCKETS, H_HOLDER_WORDS, H_LIFE, HNEXT, LOC, MASK, NEXT, PARENT, R_FIXED, R_LIFE, R_RETRIES, SET, USED, VER,
} from '../../src/words'
import { bucketAt, bucketOf, childHash, unlinksAt } from './chunks'
import { keep } from './engine-table'
import {
  at, chunkAt, holderBase, holdersMax, matchShared, ownerBase, read, read64, runLength, setBytes, setVersionBase,
  setWords, slotsMax, version,
} from './memory'
import { rowAt } from './worker-sets'

// @ts-ignore: a declaration of the host
@external('env', 'more')
declare function more(need: u32): u32

/** A walk is begun again this often before the shard counts as a miss. */
const ATTEMPTS_MAX: u32 = 64
/** Loads of a word that one more attempt waits. */
const PAUSE_LOADS: u32 = 32
/** Longer chains do not occur; a reader that strays through freed chunks may meet one. */
const CHAIN_STEPS_MAX = 4096
/** A set id that changes again and again under the reader. */
const SET_READS_MAX = 64
/** No worker set has been met yet, or the current one must be read again. */
const NO_SET_YET: u32 = 0xffffffff
const REREAD: u32 = 0xfffffffe
/** In the place of the only active holder: several, none. */
const MANY: i32 = -1
const NOBODY: i32 = -2
/** In the place of a chunk: the walk begins again. */
const AGAIN: u32 = 0xffffffff

let scratch: usize = 0
/** Holders that hold everything so far, when they are more than one. */
let active: usize = 0
let copied: usize = 0
/** By holder, as of the life in the scratch: its worker slot; a bit that says that it has one. */
let owned: usize = 0
let owners: usize = 0
let answers: usize = 0
let answerCount: u32 = 0
/** Of a walk in layers: worker slots as they are given; holder of each; what each is credited with. */
let keyCount: u32 = 0
let layersMax: u32 = 0
let layerSlots: usize = 0
let layerHolders: usize = 0
let layerBlocks: usize = 0
/** Keys that have gone on so far; and by key the layer that holds the current set's blocks. */
let alive: usize = 0
let layerOf: usize = 0
let aliveCount: u32 = 0
let isLayered: bool = false
let hashes: usize = 0
let there: u32 = 0
let soughtVersion: u32 = 0

/** Words of a scratch but for the hashes of the prompt. */
export function scratchWords(keys: u32, layers: u32): u32 {
  return R_FIXED + 3 * setWords + 3 * holdersMax + keys * (3 * layers + 2) + 4
}

/**
 * Begins to use a scratch, for lookups of so many keys of so many layers. Where hashes of the prompt go, in
 * bytes.
 */
export function useScratch(from: usize, keys: u32, layers: u32): usize {
  scratch = from
  keyCount = keys
  layersMax = layers
  active = from + (R_FIXED << 2)
  copied = active + setBytes
  owned = copied + setBytes
  owners = owned + setBytes
  answers = owners + (<usize>holdersMax << 2)
  layerSlots = answers + (<usize>holdersMax << 3)
  const layersBytes = <usize>(keys * layers) << 2
  layerBlocks = layerSlots + layersBytes
  layerHolders = layerBlocks + layersBytes
  alive = layerHolders + layersBytes
  layerOf = alive + (<usize>keys << 2)
  hashes = (layerOf + (<usize>keys << 2) + 15) & ~15
  return hashes
}

/** Where the answers of `overlap` are: worker slot, blocks, …; in bytes. */
export function answersAt(): usize { return answers }
/** Where worker slots by key and layer are expected; blocks by key and layer follow them. In bytes. */
export function layersAt(): usize { return layerSlots }

/** Leading blocks by worker slot: how many answers. −1: nobody could say. */
export function overlap(count: u32, available: u32): i32 {
  isLayered = false
  there = available
  answerCount = 0
  for (let attempt: u32 = 1; !walk(count); attempt++) {
    if (attempt >= ATTEMPTS_MAX) return -1
    answerCount = 0
    beginAgain(attempt)
  }
  return answerCount
}

/** What each layer of each key adds. False: nobody could say. */
export function extend(count: u32, available: u32): bool {
  isLayered = true
  there = available
  for (let attempt: u32 = 1; !walk(count); attempt++) {
    if (attempt >= ATTEMPTS_MAX) return false
    beginAgain(attempt)
  }
  return true
}

/**
 * Waits a little longer every time, some 30 µs in all: an attempt that fails at its first word takes less
 * than the page fault of a writer that is within a change.
 */
function beginAgain(attempt: u32): void {
  store<u32>(scratch + (R_RETRIES << 2), load<u32>(scratch + (R_RETRIES << 2)) + 1)
  let sum: u64 = 0
  for (let i: u32 = 0; i < attempt * PAUSE_LOADS; i++) sum += atomic.load<u32>(H_LIFE << 2)
  keep(sum)
}

@inline function bitOf(bits: usize, holder: u32): u32 {
  return (load<u32>(bits + (<usize>(holder >> 5) << 2)) >> (holder & 31)) & 1
}

/** One attempt. False: memory was used again under it; what it has written is of no use. */
function walk(count: u32): bool {
  const life = version(H_LIFE << 2)
  if ((life & 1) == 1) return false
  if (isLayered) {
    beginLayers()
    if (aliveCount == 0) return version(H_LIFE << 2) == life
  } else if (life != load<u32>(scratch + (R_LIFE << 2))) readOwners(life)
  const words = read(H_HOLDER_WORDS << 2)
  let above: u32 = 0
  let aboveAt: usize = 0
  let aboveVersion: u32 = 0
  let hint: u32 = 0
  let depth: u32 = 0
  let set = NO_SET_YET
  let setVersion: u32 = 0
  let setFrom: u32 = 0
  let setReads = 0
  /** The only active holder, or MANY: see `active`. */
  let only = MANY
  for (;;) {
    if (depth + 16 > there && there < count) there = more(depth + 16)
    const hash = load<u64>(hashes + (<usize>depth << 3))
    let chunk = hint
    let found = false
    if (chunk != 0) {
      const b = chunkAt(chunk)
      soughtVersion = version(at(b, VER))
      found = read(at(b, PARENT)) == above && read64(at(b, LOC)) == hash
    }
    if (!found) {
      chunk = seekShared(above, aboveAt, aboveVersion, hash)
      if (chunk == AGAIN) return false
      if (chunk == 0) break
    }
    const b = chunkAt(chunk)
    const ver = soughtVersion
    if (aboveAt != 0 && version(at(aboveAt, VER)) != aboveVersion) return false
    const used = version(at(b, USED))
    if (used == 0) {
      if (isMoved(b, ver)) return false
      break // just emptied
    }
    const matched = matchShared(at(b, LOC), hashes + (<usize>depth << 3), min(used, count - depth))
    // Used again since its head was compared: the closing check would see it.
    if (matched == 0) return false

    let slot: u32 = 0
    while (slot < matched && (!isLayered || aliveCount > 0)) {
      if (set != NO_SET_YET && set != REREAD) {
        slot += runLength(at(b, SET) + (<usize>slot << 2), set, matched - slot)
        if (slot >= matched) break
      }
      const idAt = at(b, SET) + (<usize>slot << 2)
      const id = version(idAt)
      if (id == set) {
        slot++
        continue
      }
      if (isInterned(set) && versionOf(set) != setVersion) return false
      const isFirst = set == NO_SET_YET
      if (id > holdersMax) {
        const row = rowAt(id)
        setVersion = versionOf(id)
        for (let i: u32 = 0; i < words; i++) {
          store<u32>(copied + (<usize>i << 2), read(row + (<usize>i << 2)))
        }
        if ((setVersion & 1) == 1 || versionOf(id) != setVersion || version(idAt) != id) {
          // The block has changed sets: look again. What was read before stays true.
          if (++setReads > SET_READS_MAX) return false
          if (isLayered) {
            creditLayers(depth + slot - setFrom)
            setFrom = depth + slot
          }
          if (!isFirst) set = REREAD
          continue
        }
      } else if (id != 0 && (id - 1) >> 5 >= words) return false // a holder that is newer than this walk
      if (isLayered) {
        if (id <= holdersMax) {
          memory.fill(copied, 0, <usize>words << 2)
          if (id != 0) store<u32>(copied + (<usize>((id - 1) >> 5) << 2), <u32>1 << ((id - 1) & 31))
        }
        creditLayers(depth + slot - setFrom)
        setFrom = depth + slot
        chooseLayers()
        set = id
        slot++
        continue
      }
      let isNobodyLeft = false
      if (id == 0) isNobodyLeft = true
      else if (id <= holdersMax) {
        const holder = id - 1
        if (isFirst) {
          only = <i32>holder
          isNobodyLeft = bitOf(owned, holder) == 0
        } else if (only != MANY) isNobodyLeft = only != <i32>holder
        else if (bitOf(active, holder) == 0) isNobodyLeft = true
        else {
          const bits = active + (<usize>(holder >> 5) << 2)
          store<u32>(bits, load<u32>(bits) & ~(<u32>1 << (holder & 31)))
          emitActive(words, depth + slot)
          only = <i32>holder
        }
      } else if (isFirst) {
        for (let i: u32 = 0; i < words; i++) {
          const offset = <usize>i << 2
          store<u32>(active + offset, load<u32>(copied + offset) & load<u32>(owned + offset))
        }
      } else if (only != MANY) isNobodyLeft = bitOf(copied, <u32>only) == 0
      else {
        only = intersect(words, depth + slot)
        if (only == NOBODY) {
          only = MANY
          isNobodyLeft = true
        }
      }
      if (isNobodyLeft) {
        if (version(at(b, VER)) != ver) return false
        if (!isFirst) emitRest(only, words, depth + slot)
        return version(H_LIFE << 2) == life
      }
      set = id
      slot++
    }

    const last = matched - 1
    const hasBranch = ((read(at(b, MASK)) >> last) & 1) == 1
    hint = last == 15 ? read(at(b, NEXT)) : 0
    if (isInterned(set) && versionOf(set) != setVersion) return false
    if (version(at(b, VER)) != ver) return false
    if (isLayered && aliveCount == 0) return version(H_LIFE << 2) == life
    depth += matched
    if (depth >= count) break
    if (!hasBranch) {
      if ((ver & 1) == 1) return false
      break
    }
    above = (chunk << 4) | last
    aboveAt = b
    aboveVersion = ver
  }
  if (isLayered) creditLayers(depth - setFrom)
  else if (depth > 0) emitRest(only, words, depth)
  return version(H_LIFE << 2) == life
}

@inline function isInterned(set: u32): bool { return set > holdersMax && set < REREAD }
@inline function versionOf(set: u32): u32 { return version(setVersionBase + (<usize>(set - holdersMax - 1) << 2)) }

/**
 * Whether a chunk is, or was since, moved or used again: what is not found in or below it may be elsewhere.
 */
@inline function isMoved(b: usize, ver: u32): bool { return (ver & 1) == 1 || version(at(b, VER)) != ver }

/**
 * The chunk below `above` that begins with a hash; soughtVersion is its. 0: there is none. AGAIN: nobody can
 * say.
 */
@inline function seekShared(above: u32, aboveAt: usize, aboveVersion: u32, hash: u64): u32 {
  const mixed = childHash(above, hash)
  const unlinks = version(unlinksAt(mixed))
  let chunk = read(bucketAt(bucketOf(mixed, version(H_BUCKETS << 2))))
  for (let steps = 0; chunk != 0; steps++) {
    const b = chunkAt(chunk)
    soughtVersion = version(at(b, VER))
    if (read(at(b, PARENT)) == above && read64(at(b, LOC)) == hash) return chunk
    if (steps >= CHAIN_STEPS_MAX) return AGAIN
    chunk = read(at(b, HNEXT))
  }
  if ((unlinks & 1) == 1 || version(unlinksAt(mixed)) != unlinks) return AGAIN
  return aboveAt != 0 && isMoved(aboveAt, aboveVersion) ? AGAIN : 0
}

/** Who owns which holder, kept until H_LIFE changes; a walk that saw it change does not count. */
function readOwners(life: u32): void {
  memory.fill(owned, 0, setBytes)
  for (let holder: u32 = 0; holder < holdersMax; holder++) {
    const owner = read(ownerBase + (<usize>holder << 2))
    if (owner == 0) continue
    store<u32>(owners + (<usize>holder << 2), owner - 1)
    const bits = owned + (<usize>(holder >> 5) << 2)
    store<u32>(bits, load<u32>(bits) | (<u32>1 << (holder & 31)))
  }
  store<u32>(scratch + (R_LIFE << 2), life)
}

@inline function emit(holder: u32, blocks: u32): void {
  const to = answers + (<usize>answerCount << 3)
  store<u32>(to, load<u32>(owners + (<usize>holder << 2)))
  store<u32>(to, blocks, 4)
  answerCount++
}
function emitWord(bits: u32, i: u32, blocks: u32): void {
  while (bits != 0) {
    emit(i * 32 + <u32>ctz(bits), blocks)
    bits &= bits - 1
  }
}
function emitActive(words: u32, blocks: u32): void {
  for (let i: u32 = 0; i < words; i++) emitWord(load<u32>(active + (<usize>i << 2)), i, blocks)
}
@inline function emitRest(only: i32, words: u32, blocks: u32): void {
  if (only == MANY) emitActive(words, blocks)
  else emit(<u32>only, blocks)
}

/** Keeps in `active` what was copied, emits what drops out. The one left, MANY, or NOBODY. */
function intersect(words: u32, blocks: u32): i32 {
  let left = NOBODY
  for (let i: u32 = 0; i < words; i++) {
    const bits = active + (<usize>i << 2)
    const before = load<u32>(bits)
    if (before == 0) continue
    const kept = before & load<u32>(copied + (<usize>i << 2))
    if (kept != before) emitWord(before & ~kept, i, blocks)
    store<u32>(bits, kept)
    if (kept == 0) continue
    left = left == NOBODY && (kept & (kept - 1)) == 0 ? <i32>(i * 32 + <u32>ctz(kept)) : MANY
  }
  return left
}

/** Keys of this shard: those with a layer that has a holder here. */
function beginLayers(): void {
  aliveCount = 0
  memory.fill(layerBlocks, 0, <usize>(keyCount * layersMax) << 2)
  for (let key: u32 = 0; key < keyCount; key++) {
    let isHere = false
    for (let i = key * layersMax; i < (key + 1) * layersMax; i++) {
      const slot = load<u32>(layerSlots + (<usize>i << 2))
      // A layer that is not there has the slot −1.
      const holder = slot < slotsMax ? read(holderBase + (<usize>slot << 2)) : 0
      store<u32>(layerHolders + (<usize>i << 2), holder)
      if (holder != 0) isHere = true
    }
    if (!isHere) continue
    store<u32>(layerOf + (<usize>key << 2), 0)
    store<u32>(alive + (<usize>aliveCount << 2), key)
    aliveCount++
  }
}

/** The first layer of each key that was copied; keys without one end here. */
function chooseLayers(): void {
  let left: u32 = 0
  for (let i: u32 = 0; i < aliveCount; i++) {
    const key = load<u32>(alive + (<usize>i << 2))
    for (let layer: u32 = 0; layer < layersMax; layer++) {
      const holder = load<u32>(layerHolders + (<usize>(key * layersMax + layer) << 2))
      if (holder == 0 || bitOf(copied, holder - 1) == 0) continue
      store<u32>(layerOf + (<usize>key << 2), layer)
      store<u32>(alive + (<usize>left << 2), key)
      left++
      break
    }
  }
  aliveCount = left
}

function creditLayers(blocks: u32): void {
  if (blocks == 0) return
  for (let i: u32 = 0; i < aliveCount; i++) {
    const key = load<u32>(alive + (<usize>i << 2))
    const layer = load<u32>(layerOf + (<usize>key << 2))
    const to = layerBlocks + (<usize>(key * layersMax + layer) << 2)
    store<u32>(to, load<u32>(to) + blocks)
  }
}
