/**
 * Engine table: engine hash → blocks that carry it as their name. Private to the writer.
 *
 *   names     8 bytes of every block slot, written when the block is named
 *   segments  groups by the first bits of the hash: each reserved for the capacity and used from its
 *             beginning. The number of groups grows by half when a segment is 0.62 full. The sizes are out of
 *             step on purpose: all segments never grow at once. A step rebuilds one segment, about 0.3 ms at
 *             most.
 *
 *   group, one line of a processor's cache
 *   ┌ 12 tags of 8 bits, 0: empty ┬ 1 over ┬ 3 spare ┬ 12 block ids ┐
 *     over: entries that went past this group; at 255 it stays
 *
 * Invariants
 *   T1  An entry is in the group of its hash, or behind it with no group of `over` 0 between; groups are a
 *       ring.
 *   T2  The duplicates are Σ over distinct hashes of (entries of that hash − 1): while there are none, an
 *       entry with the right hash is the only one.
 *
 * One hash may name several blocks: workers need not agree. Deletion is one store; an entry moves only in a
 * rebuild.
 */

import {
  GROUP_SLOTS, INFO_ENTRIES, INFO_GROUPS, INFO_ROOM, INFO_TOUCHED, S_DUPLICATES, S_GROUPS_TOUCHED, S_REBUILT_MAX,
  SEGMENT_LOAD_MAX, SEGMENT_LOAD_MIN,
} from '../../src/words'
import {
  nameAt, hashOf, rebuildBase, segmentBase, segmentBits, segmentBytes, segmentGroups, segmentInfoBase, setWord, word,
} from './memory'

const OVER: usize = 12
const IDS: usize = 16
const ALL: u32 = (1 << GROUP_SLOTS) - 1
const OVER_MAX: u32 = 255
const GROUPS_MIN: u32 = 3
/** Segments smaller than this get sizes that differ from each other. */
const GROUPS_SPREAD: u32 = 64

/** Keeps what is read ahead from being optimised away. */
export let sink: u64 = 0
export function keep(value: u64): void { sink ^= value }

@inline export function mix(x: u64): u64 {
  x ^= x >> 32
  x *= 0x9e3779b97f4a7c15
  return x ^ (x >> 29)
}
@inline function segmentOf(h: u64): u32 { return <u32>(h >> (64 - segmentBits)) }
@inline function infoAt(segment: u32): usize { return segmentInfoBase + (<usize>segment << 4) }
@inline function info(at: usize, index: i32): u32 { return load<u32>(at + (<usize>index << 2)) }
@inline function setInfo(at: usize, index: i32, value: u32): void { store<u32>(at + (<usize>index << 2), value) }

/** The group of a mixed hash; its segment may have none yet: then it is empty all the same. */
@inline export function groupOf(h: u64): usize {
  const segment = segmentOf(h)
  const groups = info(infoAt(segment), INFO_GROUPS)
  const within = <u32>(((<u64><u32>((h << segmentBits) >> 32)) * groups) >> 32)
  return segmentBase + <usize>segment * segmentBytes + (<usize>within << 6)
}
@inline function nextGroup(group: usize, h: u64): usize {
  const segment = segmentOf(h)
  const first = segmentBase + <usize>segment * segmentBytes
  group += 64
  return group < first + (<usize>info(infoAt(segment), INFO_GROUPS) << 6) ? group : first
}
@inline export function tagOf(h: u64): u32 {
  const tag = <u32>h & 0xff
  return tag + <u32>(tag == 0)
}
@inline export function tagMask(group: usize, tag: u32): u32 {
  return <u32>i8x16.bitmask(i8x16.eq(v128.load(group), i8x16.splat(<i8>tag))) & ALL
}
@inline function emptyMask(group: usize): u32 {
  return <u32>i8x16.bitmask(i8x16.eq(v128.load(group), i8x16.splat(0))) & ALL
}
@inline export function entryAt(group: usize, slot: u32): usize { return group + IDS + (<usize>slot << 2) }
@inline export function blockAt(entry: usize): u32 { return load<u32>(entry) }

/** The first entry of a hash, or the next one after entry `after`; 0: none. */
export function findEntry(hash: u64, h: u64, after: usize): usize {
  const tag = tagOf(h)
  let group = groupOf(h)
  let mask: u32
  if (after == 0) mask = tagMask(group, tag)
  else {
    group = after & ~63
    mask = tagMask(group, tag) & ~((<u32>2 << <u32>((after - group - IDS) >> 2)) - 1)
  }
  for (let groups: u32 = 0; groups <= segmentGroups; groups++) {
    while (mask != 0) {
      const entry = entryAt(group, <u32>ctz(mask))
      if (load<u64>(nameAt(blockAt(entry))) == hash) return entry
      mask &= mask - 1
    }
    if (load<u8>(group, OVER) == 0) return 0
    group = nextGroup(group, h)
    mask = tagMask(group, tag)
  }
  return 0
}

/** Whether another block than `block` has this name. */
export function hasOther(hash: u64, h: u64, block: u32): bool {
  for (let entry = findEntry(hash, h, 0); entry != 0; entry = findEntry(hash, h, entry)) {
    if (blockAt(entry) != block) return true
  }
  return false
}

/** Room for one more in the segment of a hash, growing it where it is due. */
function reserve(h: u64): bool {
  const segment = segmentOf(h)
  const at = infoAt(segment)
  if (<i32>info(at, INFO_ROOM) > 0) return true
  const before = info(at, INFO_GROUPS)
  if (before < segmentGroups) {
    let groups = before == 0 ? GROUPS_MIN + (segment & 1) : before + max(1, before / 3)
    if (before < GROUPS_SPREAD) groups += segment & 7
    rebuild(segment, min(groups, segmentGroups))
    return true
  }
  const all = before * GROUP_SLOTS
  return info(at, INFO_ENTRIES) < all - max<u32>(1, all >> 4)
}

/** Names a block for which there is room. */
@inline function put(block: u32, h: u64): void {
  const at = infoAt(segmentOf(h))
  setInfo(at, INFO_ENTRIES, info(at, INFO_ENTRIES) + 1)
  setInfo(at, INFO_ROOM, info(at, INFO_ROOM) - 1)
  place(block, h)
}

/** Puts an entry into the first group with room. */
@inline function place(block: u32, h: u64): void {
  let group = groupOf(h)
  for (;;) {
    const mask = emptyMask(group)
    if (mask != 0) {
      const slot = <u32>ctz(mask)
      store<u8>(group + <usize>slot, tagOf(h))
      store<u32>(entryAt(group, slot), block)
      return
    }
    const over = load<u8>(group, OVER)
    if (over < OVER_MAX) store<u8>(group, over + 1, OVER)
    group = nextGroup(group, h)
  }
}

/**
 * Names a block by a hash that no block has. False, and nothing has changed: one has it, or there is no room.
 */
@inline export function insertNew(block: u32, hash: u64, h: u64): bool {
  if (!reserve(h)) return false
  const group = groupOf(h)
  let mask = tagMask(group, tagOf(h))
  while (mask != 0) {
    if (load<u64>(nameAt(blockAt(entryAt(group, <u32>ctz(mask))))) == hash) return false
    mask &= mask - 1
  }
  if (load<u8>(group, OVER) != 0 && findEntry(hash, h, 0) != 0) return false
  store<u64>(nameAt(block), hash)
  put(block, h)
  return true
}

/** Names a block. 1: another block carries the same hash. −1: no room. */
export function insertName(block: u32, low: u32, high: u32): i32 {
  const hash = hashOf(low, high)
  const h = mix(hash)
  if (!reserve(h)) return -1
  const again: i32 = findEntry(hash, h, 0) != 0 ? 1 : 0
  store<u64>(nameAt(block), hash)
  put(block, h)
  setWord(S_DUPLICATES, word(S_DUPLICATES) + again)
  return again
}

/** Takes the entry of a block that is named away. */
export function deleteEntry(entry: usize, hash: u64, h: u64): void {
  if (word(S_DUPLICATES) != 0 && hasOther(hash, h, blockAt(entry))) setWord(S_DUPLICATES, word(S_DUPLICATES) - 1)
  const group = entry & ~63
  store<u8>(group + ((entry - group - IDS) >> 2), 0)
  const at = infoAt(segmentOf(h))
  setInfo(at, INFO_ENTRIES, info(at, INFO_ENTRIES) - 1)
  setInfo(at, INFO_ROOM, info(at, INFO_ROOM) + 1)
  for (let each = groupOf(h); each != group; each = nextGroup(each, h)) {
    const over = load<u8>(each, OVER)
    if (over < OVER_MAX) store<u8>(each, over - 1, OVER)
  }
}

/** The entry of a block that is named. */
function entryOf(block: u32, hash: u64, h: u64): usize {
  let entry = findEntry(hash, h, 0)
  while (entry != 0 && blockAt(entry) != block) entry = findEntry(hash, h, entry)
  if (entry == 0) unreachable()
  return entry
}

/** Takes the name of a block away. */
export function deleteName(block: u32): void {
  const hash = load<u64>(nameAt(block))
  const h = mix(hash)
  deleteEntry(entryOf(block, hash, h), hash, h)
}

/** A named block goes by another id from now on. */
export function relocateName(from: u32, to: u32): void {
  const hash = load<u64>(nameAt(from))
  store<u32>(entryOf(from, hash, mix(hash)), to)
  store<u64>(nameAt(to), hash)
}

/** Takes the entry that `findName` gave away. */
export function deleteEntryAt(entry: usize): void {
  const hash = load<u64>(nameAt(blockAt(entry)))
  deleteEntry(entry, hash, mix(hash))
}

/**
 * Address of the first entry of a hash, or of the next one after entry `after`; 0: none. Its word is the
 * block.
 */
export function findName(low: u32, high: u32, after: usize): usize {
  const hash = hashOf(low, high)
  return findEntry(hash, mix(hash), after)
}

/** Reads ahead what `deleteName` of the blocks `first` … needs. */
export function touchNames(first: u32, count: u32): void {
  let sum: u64 = 0
  for (let i: u32 = 0; i < count; i++) sum ^= load<u64>(groupOf(mix(load<u64>(nameAt(first + i)))))
  keep(sum)
}

/** Makes one segment as small as it may be. */
export function shrinkSegment(segment: u32): void {
  const at = infoAt(segment)
  const groups = info(at, INFO_GROUPS)
  const entries = info(at, INFO_ENTRIES)
  if (groups == 0 || entries * 1000 > groups * GROUP_SLOTS * SEGMENT_LOAD_MIN) return
  const least = <u32>(<u64>entries * 1000 / (SEGMENT_LOAD_MAX * GROUP_SLOTS)) + 1
  const wanted = entries == 0 ? <u32>0 : max(GROUPS_MIN, least + (least >> 1))
  if (wanted < groups) rebuild(segment, wanted)
}

function rebuild(segment: u32, groups: u32): void {
  const at = infoAt(segment)
  const before = info(at, INFO_GROUPS)
  const first = segmentBase + <usize>segment * segmentBytes
  let count: u32 = 0
  for (let group = first, end = first + (<usize>before << 6); group < end; group += 64) {
    let mask = ~emptyMask(group) & ALL
    while (mask != 0) {
      store<u32>(rebuildBase + (<usize>count << 4), blockAt(entryAt(group, <u32>ctz(mask))))
      count++
      mask &= mask - 1
    }
  }
  // Names lie anywhere: a pass of loads that do not wait for each other.
  for (let i: u32 = 0; i < count; i++) {
    const entry = rebuildBase + (<usize>i << 4)
    store<u64>(entry, mix(load<u64>(nameAt(load<u32>(entry)))), 8)
  }
  memory.fill(first, 0, <usize>max(before, groups) << 6)
  setInfo(at, INFO_GROUPS, groups)
  setInfo(at, INFO_ROOM, groups * GROUP_SLOTS * SEGMENT_LOAD_MAX / 1000 - count)
  if (groups > info(at, INFO_TOUCHED)) {
    setWord(S_GROUPS_TOUCHED, word(S_GROUPS_TOUCHED) + groups - info(at, INFO_TOUCHED))
    setInfo(at, INFO_TOUCHED, groups)
  }
  if (count > word(S_REBUILT_MAX)) setWord(S_REBUILT_MAX, count)
  for (let i: u32 = 0; i < count; i++) {
    const entry = rebuildBase + (<usize>i << 4)
    place(load<u32>(entry), load<u64>(entry, 8))
  }
}
