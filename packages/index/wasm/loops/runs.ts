/**
 * Runs: a stored and a removed event, block by block, as long as every block is plain. What is not (a name
 * that another block has, a worker that disagrees on a name, a further copy, no id for a set, no free chunk,
 * no room for a name) ends a run before that block with SLOW; nothing of it has been done. The caller does
 * it, and begins again behind it.
 *
 * The caller sees to it that the holder has no side names and no orphans, which would have to be looked at
 * for every block, and that the hashes of the event are where EVENT_BLOCKS says.
 *
 * Memory is far away, so what a batch of blocks will need is read before it is needed, in passes of loads
 * that do not wait for each other: groups of the engine table; then the names and set words of the blocks
 * found there.
 */

import {
  CHUNK_SLOTS, DONE, EVENT_BLOCKS, MARK_SHIFT, MASK, NEXT, NO_SET, OUT_AGAIN, OUT_BLOCK, OUT_DISTINCT,
  OUT_INDEX, OUT_MEMBERSHIPS, OWN, PARENT, S_DUPLICATES, S_LEFT_SINCE_MERGE, S_RETIRED, SLOW, TOUCH_MAX, UNKNOWN_PARENT,
  USED, H_BUCKETS,
} from '../../src/words'
import {
  append, begin, bucketAt, bucketOf, canAppend, childHash, local, release, seek, setOf, take, trim,
} from './chunks'
import {
  blockAt, deleteEntry, entryAt, findEntry, groupOf, hasOther, insertNew, keep, mix, tagMask, tagOf,
} from './engine-table'
import {
  at, chunkAt, eventBase, fillWords, hashOf, heldBase, holdersMax, matchLength, nameAt, runLength, setAt,
  setWord, touchBase, word, write,
} from './memory'
import { has, isRetired, join, leave, moveBlocks } from './worker-sets'

@inline function engineAt(i: u32): usize { return eventBase + (<usize>i << 3) }
@inline function localAt(i: u32): usize { return eventBase + (EVENT_BLOCKS << 3) + (<usize>i << 3) }
@inline function touchAt(i: u32): usize { return touchBase + (<usize>i << 4) }
@inline function setIs(block: u32): u32 { return load<u32>(setAt(block)) }

/** The entry of the block that a holder holds under a hash by the block's name; 0: none. */
function findHeld(holder: u32, hash: u64, h: u64): usize {
  for (let entry = findEntry(hash, h, 0); entry != 0; entry = findEntry(hash, h, entry)) {
    if (has(setIs(blockAt(entry)), holder)) return entry
    if (word(S_DUPLICATES) == 0) return 0
  }
  return 0
}

/** Reads ahead the groups of engine hashes `from` …: of each its mixed hash and its group. */
@inline function touchGroups(from: u32, n: u32): void {
  for (let i: u32 = 0; i < n; i++) {
    const h = mix(load<u64>(engineAt(from + i)))
    store<u64>(touchAt(i), h)
    store<u32>(touchAt(i), <u32>groupOf(h), 8)
  }
  let sum: u64 = 0
  for (let i: u32 = 0; i < n; i++) sum ^= load<u64>(<usize>load<u32>(touchAt(i), 8))
  keep(sum)
}

/**
 * Blocks `from` … of a run: below `above`, or below the block that the holder holds under the parent's hash.
 * With `isSet` a repeated report says nothing new.
 */
export function storeRun(
  holder: u32, hasParent: u32, parentLow: u32, parentHigh: u32, above: u32, from: u32, count: u32, isSet: u32,
): i32 {
  if (hasParent != 0) {
    const hash = hashOf(parentLow, parentHigh)
    const entry = findHeld(holder, hash, mix(hash))
    if (entry == 0) return UNKNOWN_PARENT
    above = blockAt(entry)
  }
  const single = holder + 1
  const retired = word(S_RETIRED)
  let i = from
  let joined: u32 = 0
  let refilled: u32 = 0
  let again: u32 = 0
  let code = DONE
  // Blocks that are there already.
  while (i < count) {
    let chunk: u32, start: u32, b: usize
    const hash = load<u64>(localAt(i))
    if (above == 0) {
      chunk = seek(0, 0, hash)
      if (chunk == 0) break
      b = chunkAt(chunk)
      start = 0
    } else {
      chunk = above >> 4
      b = chunkAt(chunk)
      start = (above & 15) + 1
      if (!(start < load<u32>(at(b, USED)) && load<u64>(local(b, start)) == hash)) {
        if (((load<u32>(at(b, MASK)) >> (start - 1)) & 1) == 0) break
        chunk = seek(above, start == 16 ? load<u32>(at(b, NEXT)) : 0, hash)
        if (chunk == 0) break
        b = chunkAt(chunk)
        start = 0
      }
    }
    const matched = matchLength(local(b, start), localAt(i), min(load<u32>(at(b, USED)) - start, count - i))
    const marks = load<u32>(at(b, OWN)) >> MARK_SHIFT
    const first = (chunk << 4) | start
    let k: u32 = 0
    while (k < matched) {
      const words = setOf(b, start + k)
      const set = load<u32>(words)
      const block = first + k
      if (set == 0) {
        const name = load<u64>(engineAt(i + k))
        if (!insertNew(block, name, mix(name))) {
          code = SLOW
          break
        }
        write(words, single)
        moveBlocks(0, single, 1)
        refilled++
        k++
        continue
      }
      if (retired != 0 && isRetired(set)) {
        code = SLOW
        break
      }
      const next = join(set, holder)
      if (next == <u32>NO_SET) {
        code = SLOW
        break
      }
      let named = matchLength(nameAt(block), engineAt(i + k), runLength(words, set, matched - k))
      const marksHere = marks >> (start + k)
      if (marksHere != 0) named = min(named, <u32>ctz(marksHere))
      if (named == 0) {
        code = SLOW
        break
      }
      if (next == set) {
        if (isSet == 0) {
          code = SLOW
          break
        }
        again += named
      } else {
        if (word(S_DUPLICATES) != 0) {
          const name = load<u64>(engineAt(i + k))
          if (hasOther(name, mix(name), block)) {
            code = SLOW
            break
          }
          named = 1
        }
        fillWords(words, next, named)
        moveBlocks(set, next, named)
        joined += named
      }
      k += named
    }
    i += k
    if (k > 0) above = first + k - 1
    if (code != DONE) break
  }
  // The rest is new: below a new block there is nothing.
  let created: u32 = 0
  let touchedFrom = i
  let touched = i
  while (code == DONE && i < count) {
    const rest = count - i
    const isBehind = canAppend(above)
    const first = isBehind ? above + 1 : take(above >> 4) << 4
    if (first == 0) {
      code = SLOW
      break
    }
    let n = min(rest, CHUNK_SLOTS - (first & 15))
    for (let k: u32 = 0; k < n; k++) {
      if (i + k >= touched) {
        touchedFrom = i + k
        touched = touchedFrom + min<u32>(count - touchedFrom, TOUCH_MAX)
        touchGroups(touchedFrom, touched - touchedFrom)
      }
      if (insertNew(first + k, load<u64>(engineAt(i + k)), load<u64>(touchAt(i + k - touchedFrom)))) continue
      code = SLOW
      n = k
    }
    if (n == 0) {
      if (!isBehind) release(first >> 4)
      break
    }
    if (isBehind) append(above, localAt(i), n, single)
    else begin(first >> 4, above, localAt(i), n, single)
    created += n
    i += n
    above = first + n - 1
  }
  if (created != 0) moveBlocks(0, single, created)
  const all = joined + refilled + created
  const held = heldBase + (<usize>holder << 2)
  store<u32>(held, load<u32>(held) + all)
  setWord(OUT_INDEX, i)
  setWord(OUT_BLOCK, above)
  setWord(OUT_MEMBERSHIPS, all)
  setWord(OUT_DISTINCT, refilled + created)
  setWord(OUT_AGAIN, again)
  return code
}

/** Gives one copy of engine hashes `from` … back. */
export function removeRun(holder: u32, from: u32, count: u32): i32 {
  let i = from
  let left: u32 = 0
  let died: u32 = 0
  let code = DONE
  /** A chunk to trim when blocks of it are done. */
  let pending: u32 = 0
  /** Blocks whose step from set to set is not counted yet. */
  let stepFrom: u32 = 0
  let stepTo: u32 = 0
  let stepCount: u32 = 0
  while (i < count && code == DONE) {
    const n = min<u32>(count - i, TOUCH_MAX)
    touchGroups(i, n)
    touchBlocks(n)
    let k: u32 = 0
    for (; k < n; k++) {
      const hash = load<u64>(engineAt(i + k))
      const h = load<u64>(touchAt(k))
      let entry = <usize>load<u32>(touchAt(k), 8)
      let block = load<u32>(touchAt(k), 12)
      // The first entry with the tag is nearly always the one. Who is in no set has no entry any more.
      if (entry == 0 || load<u64>(nameAt(block)) != hash || !has(setIs(block), holder)) {
        entry = findHeld(holder, hash, h)
        if (entry == 0) {
          code = SLOW
          break
        }
        block = blockAt(entry)
      }
      const words = setAt(block)
      const set = load<u32>(words)
      let next: u32 = 0
      if (set > holdersMax) {
        // A sweep of sets counts blocks, so what is not counted yet must be first.
        if (stepCount != 0 && set != stepFrom) {
          moveBlocks(stepFrom, stepTo, stepCount)
          stepCount = 0
        }
        next = leave(set, holder)
        if (next == <u32>NO_SET) {
          code = SLOW
          break
        }
      }
      write(words, next)
      if (stepCount != 0 && set == stepFrom && next == stepTo) stepCount++
      else {
        if (stepCount != 0) moveBlocks(stepFrom, stepTo, stepCount)
        stepFrom = set
        stepTo = next
        stepCount = 1
      }
      left++
      const chunk = block >> 4
      if (chunk != pending) {
        if (pending != 0) trim(pending)
        pending = 0
      }
      if (next == 0) {
        died++
        deleteEntry(entry, hash, h)
        pending = chunk
      }
    }
    i += k
  }
  if (pending != 0) trim(pending)
  if (stepCount != 0) moveBlocks(stepFrom, stepTo, stepCount)
  const held = heldBase + (<usize>holder << 2)
  store<u32>(held, load<u32>(held) - left)
  setWord(S_LEFT_SINCE_MERGE, word(S_LEFT_SINCE_MERGE) + left)
  setWord(OUT_INDEX, i)
  setWord(OUT_MEMBERSHIPS, left)
  setWord(OUT_DISTINCT, died)
  return code
}

/** After `touchGroups`: the first entry with the tag of each hash, its block, and the lines of that. */
@inline function touchBlocks(n: u32): void {
  for (let k: u32 = 0; k < n; k++) {
    const group = <usize>load<u32>(touchAt(k), 8)
    const mask = tagMask(group, tagOf(load<u64>(touchAt(k))))
    const entry = mask != 0 ? entryAt(group, <u32>ctz(mask)) : 0
    store<u32>(touchAt(k), <u32>entry, 8)
    store<u32>(touchAt(k), mask != 0 ? blockAt(entry) : 0, 12)
  }
  let sum: u64 = 0
  for (let k: u32 = 0; k < n; k++) {
    const block = load<u32>(touchAt(k), 12)
    sum ^= load<u64>(nameAt(block)) ^ <u64>setIs(block) ^ <u64>load<u32>(at(chunkAt(block >> 4), USED))
  }
  // A head is taken out of the chain of its bucket when it goes.
  for (let k: u32 = 0; k < n; k++) {
    const block = load<u32>(touchAt(k), 12)
    if ((block & 15) != 0) continue
    const b = chunkAt(block >> 4)
    const hash = childHash(load<u32>(at(b, PARENT)), load<u64>(local(b, 0)))
    sum ^= load<u32>(bucketAt(bucketOf(hash, word(H_BUCKETS))))
  }
  keep(sum)
}
