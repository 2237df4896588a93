/**
 * Chunks: the tree in shared memory, its buckets, and which chunks are free. The reader is reader.ts. This
 * file knows blocks, local hashes and set words, not what a set means or how a block is named.
 *
 * A chunk that was just freed is still in the processor's cache, so it is given out again first; then the
 * lowest free chunk; a chunk that was never used only when none is free. So all used chunks lie at the
 * beginning.
 *
 * Invariants
 *   C1  A child is either the next slot of its parent's chunk or the first block of exactly one chunk.
 *   C2  A chunk in use is in the chain of the bucket of (PARENT, first local hash), and in no other.
 *   C3  The chunks below a chunk are a list: FIRST, then links, two words a chunk: next, previous. Those
 *       below the root are in none.
 *   C4  MASK bit s is set when a chunk hangs below slot s; it may stay set when none does any more.
 *   C5  The last used slot has a set other than 0 or its mask bit; `trim` restores this.
 *
 * Protocol, one writer; readers take no lock and write nothing. The order of the writer's steps:
 *   use      VER + 2 (even), PARENT = −1, fill, HNEXT, PARENT, bucket, MASK, NEXT
 *            A reader on a chunk that is used again sees VER change; a reader that comes while the chunk is
 *            filled sees PARENT = −1 and does not match.
 *   append   VER + 2 if slots that were used before are used again; hashes, sets; USED
 *   free     unhook from the chain, then the unlink counter + 2; the memory is used again only later.
 *            A reader that strays from the freed chunk has taken its counter before, so it sees the change.
 *   split    (a bucket, or two are joined) counter + 1 (odd), the chains, H_BUCKETS, counter + 1.
 *            A reader takes the counter, then H_BUCKETS. It says "no such child" only when the counter was
 *            even and is still the same: any overlap with a split is seen. A child that it finds is valid.
 *   move     chunk a to the free chunk b, while readers are in a, above it and below it:
 *            1  b: use, content of a; not in a chain yet
 *            2  VER of a odd. A reader that was in a before: its closing check fails. A reader that comes
 *               now: may read what a holds, but "no such child below a" does not count.
 *            3  each chunk below a: unhook, PARENT = b…, hook. A reader of that child goes on: its content
 *               is the same. A reader that looks for it below a, and misses it: step 2.
 *            4  PARENT of b; b in the place of a in its chain, counter + 2; NEXT of the chunk above.
 *               A reader that found a just before goes on in a, whose content is of that moment.
 *            5  USED of a = 0, a is free. A reader that sees 0 under an odd VER begins again. When a is used
 *               again, its VER is even and another one, so a reader that is still in a sees it.
 *   merge    chunk k, the only one below the last slot of p, to the tail of p:
 *            1  VER of p and of k odd
 *            2  hashes and sets behind the last slot of p
 *            3  children of k as in move
 *            4  unhook k, MASK, NEXT of p
 *            5  USED of p
 *            6  VER of p even
 *            A reader with the old USED finds k, or misses it below a p whose VER is odd or has changed; that
 *            MASK says "nothing below" counts as little. A reader in k: VER of k is odd.
 *   Chunks that are free have USED = 0.
 */

import {
  CHUNK_SLOTS, FIRST, H_BUCKETS, HASH_ARGUMENT, HNEXT, LOC, MASK, NEXT, OWN, PARENT, RECENT_MAX, S_BUCKETS_TOUCHED,
  S_CHUNKS_ALLOWED, S_FREE_COUNT, S_FREE_HINT, S_RECENT_COUNT, S_RECENT_END, S_SLOTS_USED, S_TOP, S_TOUCHED, SET,
  SLOTS_MASK, USED, VER,
} from '../../src/words'
import { keep } from './engine-table'
import {
  at, bucketBase, bucketsMax, bucketsMin, chunkAt, chunksMax, copyHashes, fillWords, freeBase, freeWordBase, linkBase,
  nameAt, publish, recentBase, setWord, unlinkBase, unlinkMask, word, write, write64,
} from './memory'

/** Chunks below one chunk that are looked through for those of one slot. */
const SIBLINGS_MAX = 32
/** The same where a chunk is freed: a slot may keep its mask bit without need. */
const SIBLINGS_LOOKED_AT = 4
const FILLING: u32 = 0xffffffff

@inline export function childHash(parent: u32, hash: u64): u32 {
  let h = hash ^ (<u64>parent * 0x9e3779b97f4a7c15)
  h ^= h >> 32
  h *= 0xd6e8feb86659fd93
  return <u32>(h >> 32)
}

/**
 * The bucket of a hash among `buckets`, at least 2: linear hashing. The low bits of the number of a bucket do
 * not change when there are more buckets, so neither does its unlink counter.
 */
@inline export function bucketOf(hash: u32, buckets: u32): u32 {
  const mask = <u32>0xffffffff >> <u32>clz<u32>(buckets - 1)
  const bucket = hash & mask
  return bucket < buckets ? bucket : bucket & (mask >> 1)
}
@inline export function bucketAt(bucket: u32): usize { return bucketBase + (<usize>bucket << 2) }
@inline export function unlinksAt(hash: u32): usize { return unlinkBase + (<usize>(hash & unlinkMask) << 2) }
@inline function nextAt(chunk: u32): usize { return linkBase + (<usize>chunk << 3) }
@inline function previousAt(chunk: u32): usize { return linkBase + (<usize>chunk << 3) + 4 }
@inline export function local(chunk: usize, slot: u32): usize { return chunk + (LOC << 2) + (<usize>slot << 3) }
@inline export function setOf(chunk: usize, slot: u32): usize { return chunk + (SET << 2) + (<usize>slot << 2) }
@inline function count(): u32 { return word(S_TOUCHED) - word(S_FREE_COUNT) }

/** The chunk below `above` that begins with a hash; 0: none. */
@inline export function seek(above: u32, hint: u32, hash: u64): u32 {
  if (hint != 0) {
    const b = chunkAt(hint)
    if (load<u32>(at(b, PARENT)) == above && load<u64>(local(b, 0)) == hash) return hint
  }
  let chunk = load<u32>(bucketAt(bucketOf(childHash(above, hash), word(H_BUCKETS))))
  while (chunk != 0) {
    const b = chunkAt(chunk)
    if (load<u32>(at(b, PARENT)) == above && load<u64>(local(b, 0)) == hash) return chunk
    chunk = load<u32>(at(b, HNEXT))
  }
  return 0
}

/** The child of `above` with this local hash; 0: none. */
@inline export function child(above: u32, hash: u64): u32 {
  let hint: u32 = 0
  if (above != 0) {
    const b = chunkAt(above >> 4)
    const slot = above & 15
    if (slot + 1 < load<u32>(at(b, USED)) && load<u64>(local(b, slot + 1)) == hash) return above + 1
    if (((load<u32>(at(b, MASK)) >> slot) & 1) == 0) return 0
    if (slot == 15) hint = load<u32>(at(b, NEXT))
  }
  return seek(above, hint, hash) << 4
}

export function childOf(above: u32, low: u32, high: u32): u32 { return child(above, (<u64>high << 32) | low) }

/** Whether the child of `above` would be the next slot of its chunk. */
@inline export function canAppend(above: u32): bool {
  const slot = above & 15
  return above != 0 && slot < 15 && load<u32>(at(chunkAt(above >> 4), USED)) == slot + 1
}

/** n blocks of one set behind `above`, the last of its chunk. */
@inline export function append(above: u32, locals: usize, n: u32, set: u32): void {
  const b = chunkAt(above >> 4)
  const start = (above & 15) + 1
  const own = load<u32>(at(b, OWN))
  if (start < (own & SLOTS_MASK)) publish(at(b, VER), load<u32>(at(b, VER)) + 2)
  store<u32>(at(b, OWN), (own & ~SLOTS_MASK) | (start + n))
  copyHashes(local(b, start), locals, n)
  fillWords(setOf(b, start), set, n)
  // An exchange, where the words are plain too: the stores before it are out of the way of the loads to come.
  publish(at(b, USED), start + n)
  setWord(S_SLOTS_USED, word(S_SLOTS_USED) + n)
}

/** A chunk that `take` gave, with n blocks of one set below `above`. */
@inline export function begin(chunk: u32, above: u32, locals: usize, n: u32, set: u32): void {
  const b = chunkAt(chunk)
  publish(at(b, VER), (load<u32>(at(b, VER)) | 1) + 1)
  publish(at(b, PARENT), FILLING)
  write(at(b, MASK), 0)
  write(at(b, NEXT), 0)
  store<u32>(at(b, FIRST), 0)
  store<u32>(at(b, OWN), n)
  copyHashes(local(b, 0), locals, n)
  fillWords(setOf(b, 0), set, n)
  write(at(b, USED), n)
  hook(chunk, b, above)
  touchNext(chunk)
  if (above != 0) {
    const slot = above & 15
    const a = chunkAt(above >> 4)
    enlist(chunk, a)
    write(at(a, MASK), load<u32>(at(a, MASK)) | (<u32>1 << slot))
    if (slot == 15 && load<u32>(at(a, NEXT)) == 0) write(at(a, NEXT), chunk)
  }
  setWord(S_SLOTS_USED, word(S_SLOTS_USED) + n)
  splitWhereDue()
}

/** A block below `above`, which has no such child. 0: no chunk is free, and none may be touched. */
export function create(above: u32, low: u32, high: u32, set: u32): u32 {
  store<u32>(HASH_ARGUMENT << 2, low)
  store<u32>((HASH_ARGUMENT << 2) + 4, high)
  if (canAppend(above)) {
    append(above, HASH_ARGUMENT << 2, 1, set)
    return above + 1
  }
  const chunk = take(above >> 4)
  if (chunk == 0) return 0
  begin(chunk, above, HASH_ARGUMENT << 2, 1, set)
  return chunk << 4
}

/** Reads the lines of the free chunk that may be taken after this one: they are written soon. */
@inline function touchNext(chunk: u32): void {
  if (word(S_FREE_COUNT) == 0) return
  const next = isFree(chunk + 1)
    ? chunk + 1
    : load<u32>(recentBase + (<usize>((word(S_RECENT_END) - 1) & (RECENT_MAX - 1)) << 2))
  const b = chunkAt(next)
  const names = nameAt(next << 4)
  keep(load<u64>(b) ^ load<u64>(b, 64) ^ load<u64>(b, 128) ^ load<u64>(b, 192) ^ load<u64>(names) ^ load<u64>(names, 64))
}

@inline function isFree(chunk: u32): bool {
  return ((load<u32>(freeBase + (<usize>(chunk >> 5) << 2)) >> (chunk & 31)) & 1) == 1
}

/**
 * A chunk that is free, or the next one that was never used; where it can be the one behind `near`, so that a
 * path lies in a row. 0: there is none.
 */
@inline export function take(near: u32): u32 {
  if (word(S_FREE_COUNT) == 0) {
    const chunk = word(S_TOUCHED) + 1
    if (chunk > chunksMax || chunk > word(S_CHUNKS_ALLOWED)) return 0
    setWord(S_TOUCHED, chunk)
    setWord(S_TOP, chunk)
    return chunk
  }
  return takeFree(near)
}

function takeFree(near: u32): u32 {
  if (near < word(S_TOUCHED) && isFree(near + 1)) return occupy(near + 1)
  let recent = word(S_RECENT_COUNT)
  while (recent > 0) {
    recent--
    const end = (word(S_RECENT_END) - 1) & (RECENT_MAX - 1)
    setWord(S_RECENT_END, end)
    setWord(S_RECENT_COUNT, recent)
    const chunk = load<u32>(recentBase + (<usize>end << 2))
    if (isFree(chunk)) return occupy(chunk)
  }
  return occupy(lowestFree())
}

function occupy(chunk: u32): u32 {
  const bits = freeBase + (<usize>(chunk >> 5) << 2)
  const left = load<u32>(bits) & ~(<u32>1 << (chunk & 31))
  store<u32>(bits, left)
  if (left == 0) {
    const summary = freeWordBase + (<usize>(chunk >> 10) << 2)
    store<u32>(summary, load<u32>(summary) & ~(<u32>1 << ((chunk >> 5) & 31)))
  }
  setWord(S_FREE_COUNT, word(S_FREE_COUNT) - 1)
  if (chunk > word(S_TOP)) setWord(S_TOP, chunk)
  return chunk
}

function lowestFree(): u32 {
  let hint = word(S_FREE_HINT)
  while (load<u32>(freeWordBase + (<usize>hint << 2)) == 0) hint++
  setWord(S_FREE_HINT, hint)
  const index = hint * 32 + <u32>ctz(load<u32>(freeWordBase + (<usize>hint << 2)))
  return index * 32 + <u32>ctz(load<u32>(freeBase + (<usize>index << 2)))
}

export function release(chunk: u32): void {
  const bits = freeBase + (<usize>(chunk >> 5) << 2)
  store<u32>(bits, load<u32>(bits) | (<u32>1 << (chunk & 31)))
  const summary = freeWordBase + (<usize>(chunk >> 10) << 2)
  store<u32>(summary, load<u32>(summary) | (<u32>1 << ((chunk >> 5) & 31)))
  const free = word(S_FREE_COUNT)
  if (chunk >> 10 < word(S_FREE_HINT) || free == 0) setWord(S_FREE_HINT, chunk >> 10)
  setWord(S_FREE_COUNT, free + 1)
  const end = word(S_RECENT_END)
  store<u32>(recentBase + (<usize>end << 2), chunk)
  setWord(S_RECENT_END, (end + 1) & (RECENT_MAX - 1))
  if (word(S_RECENT_COUNT) < <u32>RECENT_MAX) setWord(S_RECENT_COUNT, word(S_RECENT_COUNT) + 1)
  let top = word(S_TOP)
  while (top > 0 && isFree(top)) top--
  setWord(S_TOP, top)
}

/** Pops what C5 does not allow at the end of a chunk; frees it when empty, and looks at its parent. */
export function trim(chunk: u32): void {
  while (chunk != 0) {
    const b = chunkAt(chunk)
    const before = load<u32>(at(b, USED))
    const mask = load<u32>(at(b, MASK))
    let used = before
    while (used > 0 && load<u32>(setOf(b, used - 1)) == 0 && ((mask >> (used - 1)) & 1) == 0) used--
    if (used == before) return
    write(at(b, USED), used)
    setWord(S_SLOTS_USED, word(S_SLOTS_USED) - (before - used))
    if (used > 0) return
    const above = load<u32>(at(b, PARENT))
    unhook(chunk, b)
    release(chunk)
    if (above == 0) return
    delist(chunk, above)
    chunk = above >> 4
  }
}

/** Puts a chunk into the chain of its place, and gives it its parent: from here it is found. */
@inline function hook(chunk: u32, b: usize, above: u32): void {
  const bucket = bucketAt(bucketOf(childHash(above, load<u64>(local(b, 0))), word(H_BUCKETS)))
  write(at(b, HNEXT), load<u32>(bucket))
  publish(at(b, PARENT), above)
  publish(bucket, chunk)
}

@inline function unlinked(hash: u32, by: u32): void {
  const unlinks = unlinksAt(hash)
  publish(unlinks, load<u32>(unlinks) + by)
}

function unhook(chunk: u32, b: usize): void {
  const hash = childHash(load<u32>(at(b, PARENT)), load<u64>(local(b, 0)))
  publish(linkTo(chunk, hash), load<u32>(at(b, HNEXT)))
  unlinked(hash, 2)
}

/** The word that points to a chunk of a chain. */
function linkTo(chunk: u32, hash: u32): usize {
  let link = bucketAt(bucketOf(hash, word(H_BUCKETS)))
  while (load<u32>(link) != chunk) link = at(chunkAt(load<u32>(link)), HNEXT)
  return link
}

function enlist(chunk: u32, a: usize): void {
  const first = load<u32>(at(a, FIRST))
  store<u32>(nextAt(chunk), first)
  store<u32>(previousAt(chunk), 0)
  if (first != 0) store<u32>(previousAt(first), chunk)
  store<u32>(at(a, FIRST), chunk)
}

/** Takes a chunk that hung below `above` out of its list; the slot may lose its mask bit. */
function delist(chunk: u32, above: u32): void {
  const a = chunkAt(above >> 4)
  const next = load<u32>(nextAt(chunk))
  const previous = load<u32>(previousAt(chunk))
  if (next != 0) store<u32>(previousAt(next), previous)
  if (previous != 0) store<u32>(nextAt(previous), next)
  else store<u32>(at(a, FIRST), next)
  let sibling = load<u32>(at(a, FIRST))
  for (let looked = 0; sibling != 0 && looked < SIBLINGS_LOOKED_AT; looked++) {
    if (load<u32>(at(chunkAt(sibling), PARENT)) == above) break
    sibling = load<u32>(nextAt(sibling))
  }
  if (load<u32>(at(a, NEXT)) == chunk) {
    const isBelowLast = sibling != 0 && load<u32>(at(chunkAt(sibling), PARENT)) == above
    write(at(a, NEXT), isBelowLast ? sibling : 0)
  }
  if (sibling != 0) return
  const mask = load<u32>(at(a, FIRST)) == 0 ? 0 : load<u32>(at(a, MASK)) & ~(<u32>1 << (above & 15))
  write(at(a, MASK), mask)
}

/** Hangs all chunks below the chunk at `b` below `to`, `shift` slots further on. */
function adoptChildren(b: usize, to: u32, shift: u32): void {
  const target = chunkAt(to)
  let each = load<u32>(at(b, FIRST))
  while (each != 0) {
    const next = load<u32>(nextAt(each))
    const c = chunkAt(each)
    const slot = load<u32>(at(c, PARENT)) & 15
    unhook(each, c)
    hook(each, c, (to << 4) | (slot + shift))
    enlist(each, target)
    each = next
  }
  store<u32>(at(b, FIRST), 0)
}

/**
 * Moves the highest chunk to the lowest free one, which must be lower: its number. The content of the old
 * stays.
 */
export function moveTop(): u32 {
  const from = word(S_TOP)
  const to = occupy(lowestFree())
  const b = chunkAt(from)
  const target = chunkAt(to)
  const used = load<u32>(at(b, USED))
  const above = load<u32>(at(b, PARENT))
  publish(at(target, VER), (load<u32>(at(target, VER)) | 1) + 1)
  publish(at(target, PARENT), FILLING)
  write(at(target, USED), used)
  write(at(target, MASK), load<u32>(at(b, MASK)))
  write(at(target, NEXT), load<u32>(at(b, NEXT)))
  store<u32>(at(target, OWN), used)
  store<u32>(at(target, FIRST), 0)
  for (let i: u32 = 0; i < used; i++) write(setOf(target, i), load<u32>(setOf(b, i)))
  for (let i: u32 = 0; i < used; i++) write64(local(target, i), load<u64>(local(b, i)))

  publish(at(b, VER), load<u32>(at(b, VER)) | 1)
  adoptChildren(b, to, 0)

  const hash = childHash(above, load<u64>(local(b, 0)))
  const link = linkTo(from, hash)
  write(at(target, HNEXT), load<u32>(at(b, HNEXT)))
  publish(at(target, PARENT), above)
  publish(link, to)
  unlinked(hash, 2)
  if (above != 0) {
    const a = chunkAt(above >> 4)
    if (load<u32>(at(a, NEXT)) == from) write(at(a, NEXT), to)
    const next = load<u32>(nextAt(from))
    const previous = load<u32>(previousAt(from))
    store<u32>(nextAt(to), next)
    store<u32>(previousAt(to), previous)
    if (next != 0) store<u32>(previousAt(next), to)
    if (previous != 0) store<u32>(nextAt(previous), to)
    else store<u32>(at(a, FIRST), to)
  }
  write(at(b, USED), 0)
  release(from)
  return to
}

/**
 * The chunk that may be merged into this one: the only one below its last slot, when both fit into one; 0:
 * none.
 */
export function mergeable(chunk: u32): u32 {
  const b = chunkAt(chunk)
  const used = load<u32>(at(b, USED))
  if (used == 0 || used == CHUNK_SLOTS || ((load<u32>(at(b, MASK)) >> (used - 1)) & 1) == 0) return 0
  const last = (chunk << 4) | (used - 1)
  let found: u32 = 0
  let looked = 0
  for (let each = load<u32>(at(b, FIRST)); each != 0; each = load<u32>(nextAt(each))) {
    if (++looked > SIBLINGS_MAX) return 0
    if (load<u32>(at(chunkAt(each), PARENT)) != last) continue
    if (found != 0) return 0
    found = each
  }
  return found != 0 && used + load<u32>(at(chunkAt(found), USED)) <= <u32>CHUNK_SLOTS ? found : 0
}

/** Merges `from`, which `mergeable` named, into `chunk`. The content of the old stays. */
export function merge(chunk: u32, from: u32): void {
  const b = chunkAt(chunk)
  const c = chunkAt(from)
  const used = load<u32>(at(b, USED))
  const added = load<u32>(at(c, USED))
  const last = (chunk << 4) | (used - 1)
  publish(at(b, VER), load<u32>(at(b, VER)) | 1)
  publish(at(c, VER), load<u32>(at(c, VER)) | 1)
  for (let i: u32 = 0; i < added; i++) write(setOf(b, used + i), load<u32>(setOf(c, i)))
  for (let i: u32 = 0; i < added; i++) write64(local(b, used + i), load<u64>(local(c, i)))
  unhook(from, c)
  delist(from, last)
  const mask = load<u32>(at(c, MASK)) << used
  adoptChildren(c, chunk, used)
  if (used + added == CHUNK_SLOTS) {
    let next: u32 = 0
    let looked = 0
    for (let each = load<u32>(at(b, FIRST)); each != 0 && next == 0 && looked++ < SIBLINGS_MAX; ) {
      if ((load<u32>(at(chunkAt(each), PARENT)) & 15) == 15) next = each
      each = load<u32>(nextAt(each))
    }
    write(at(b, NEXT), next)
  }
  write(at(b, MASK), (load<u32>(at(b, MASK)) & ~(<u32>1 << (used - 1))) | mask)
  store<u32>(at(b, OWN), (load<u32>(at(b, OWN)) & ~SLOTS_MASK) | (used + added))
  write(at(b, USED), used + added)
  publish(at(b, VER), load<u32>(at(b, VER)) + 1)
  write(at(c, USED), 0)
  release(from)
}

@inline function splitWhereDue(): void {
  for (let i = 0; i < 2; i++) {
    const buckets = word(H_BUCKETS)
    if (buckets >= bucketsMax || buckets >= count() + (count() >> 1)) return
    split()
  }
}

function split(): void {
  const added = word(H_BUCKETS)
  const from = added - (<u32>1 << (31 - <u32>clz<u32>(added)))
  unlinked(from, 1)
  let stays = bucketAt(from)
  let goes = bucketAt(added)
  let chunk = load<u32>(stays)
  while (chunk != 0) {
    const b = chunkAt(chunk)
    const hash = childHash(load<u32>(at(b, PARENT)), load<u64>(local(b, 0)))
    const next = load<u32>(at(b, HNEXT))
    if (bucketOf(hash, added + 1) == from) {
      write(stays, chunk)
      stays = at(b, HNEXT)
    } else {
      write(goes, chunk)
      goes = at(b, HNEXT)
    }
    chunk = next
  }
  write(stays, 0)
  write(goes, 0)
  write(H_BUCKETS << 2, added + 1)
  if (added + 1 > word(S_BUCKETS_TOUCHED)) setWord(S_BUCKETS_TOUCHED, added + 1)
  unlinked(from, 1)
}

/** Joins buckets that are too many for the chunks, at most `budget`. Whether some are left to join. */
export function joinBuckets(budget: u32): bool {
  for (let i: u32 = 0; i < budget; i++) {
    const buckets = word(H_BUCKETS)
    if (buckets <= bucketsMin || buckets <= count() * 3) return false
    const last = buckets - 1
    const into = last - (<u32>1 << (31 - <u32>clz<u32>(last)))
    unlinked(into, 1)
    let end = bucketAt(into)
    while (load<u32>(end) != 0) end = at(chunkAt(load<u32>(end)), HNEXT)
    write(end, load<u32>(bucketAt(last)))
    write(bucketAt(last), 0)
    write(H_BUCKETS << 2, last)
    unlinked(into, 1)
  }
  return true
}

/** The bucket of the chunk that begins with a hash below `above`. */
export function bucketOfHead(above: u32, low: u32, high: u32): u32 {
  return bucketOf(childHash(above, (<u64>high << 32) | low), word(H_BUCKETS))
}
