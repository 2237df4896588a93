/**
 * Word loop: pieces of a text one after the other, each cut off by the split pattern and looked up in the
 * word table. What the table lacks is noted for the host. AssemblyScript: compiled by test/build-wasm.ts into
 * ../src/encoder/word-loop-wasm.ts, never loaded by Node as it stands. ../src/encoder/word-loop.ts lays out
 * the memory and says what comes back.
 *
 * The cuts are those of ../src/encoder/scan-words.ts, the table is that of ../src/encoder/word-table.ts; both
 * are explained there, and a property test compares. Here are only characters below U+10000: at a surrogate
 * the host goes on.
 *
 * A unit is two bytes, and places in the text are addresses. `NOWHERE` is what a cut answers that is not
 * certain in this window.
 */

/** Flags of characters, as in scan-words.ts. */
const LETTER: u32 = 7
const NUMBER: u32 = 16
const SPACE: u32 = 128

const LF: u32 = 0x0a
const CR: u32 = 0x0d
const BLANK: u32 = 0x20
const APOSTROPHE: u32 = 0x27
const SLASH: u32 = 0x2f
const LONG_S: u32 = 0x17f

/** Ways to write contractions; ../src/encoder/word-loop.ts has the same. */
const EXACT: i32 = 0
const ANY_CASE: i32 = 1

const NOWHERE: usize = 0
/** Bytes behind a cut that a scanner may look at without going on: a contraction. */
const LOOK_AHEAD: usize = 8

const SHORT_UNITS: usize = 8
const LONG_UNITS_MAX: usize = 256
const PROBES_MAX: i32 = 16
const SLOT_SIZE: usize = 32

// The pattern.
let isGpt2: bool = false
let letters: u32 = 0
let digitsMax: i32 = 0
let takesSlash: bool = false
let contractions: i32 = 0
// The memory.
let classes: usize = 0
let masks: usize = 0
let answer: usize = 0
let windowStart: usize = 0
let outStart: usize = 0
let outEnd: usize = 0
let missesStart: usize = 0
let missesEnd: usize = 0
// The table.
let slots: usize = 0
let slotsMask: usize = 0
let spilled: usize = 0
/** Whether the text ends with the window. */
let isWhole: bool = false

export function setPattern(gpt2: bool, ofWords: u32, digits: i32, slash: bool, how: i32): void {
  isGpt2 = gpt2
  letters = ofWords
  digitsMax = digits
  takesSlash = slash
  contractions = how
}

export function setMemory(
  classTable: usize,
  maskTable: usize,
  answerAt: usize,
  window: usize,
  out: usize,
  outBytes: usize,
  misses: usize,
  missesBytes: usize,
): void {
  classes = classTable
  masks = maskTable
  answer = answerAt
  windowStart = window
  outStart = out
  outEnd = out + outBytes
  missesStart = misses
  missesEnd = misses + missesBytes
}

/** `count` slots, a power of two. */
export function setTable(at: usize, count: usize, spilledAt: usize): void {
  slots = at
  slotsMask = count - 1
  spilled = spilledAt
}

/**
 * The `size` units of the window, writing ids and what the table lacks from the begin of what is for them.
 * `ends`: the text ends there. The last piece that ends before unit `certain` is noted. Stops where there is
 * no room for more, the window ends within a piece, or a surrogate is in the way. What there is to tell is
 * written as words, which ../src/encoder/word-loop.ts names.
 */
export function run(size: usize, ends: bool, certain: usize): void {
  isWhole = ends
  const end = windowStart + (size << 1)
  const settledBefore = windowStart + (certain << 1)
  let at = windowStart
  let out = outStart
  let miss = missesStart
  let found = 0
  let settledAt = at
  let settledOut = out
  let settledMiss = miss
  while (at < end) {
    const stop = isGpt2 ? nextOfGpt2(at, end) : nextOfCl100k(at, end)
    if (stop === NOWHERE || (!ends && stop + LOOK_AHEAD > end)) break
    const pieceSize = stop - at
    const slot = pieceSize <= SHORT_UNITS * 2 ? findShort(at, pieceSize) : findLong(at, pieceSize)
    if (slot === 0) {
      if (miss === missesEnd) break
      store<u32>(miss, (at - windowStart) >> 1)
      store<u32>(miss, (stop - windowStart) >> 1, 4)
      store<u32>(miss, (out - outStart) >> 2, 8)
      miss += 12
    } else {
      const count: usize = load<u32>(slot) & 0xffff
      if (out + (count << 2) + 8 > outEnd) break
      if (pieceSize > SHORT_UNITS * 2) {
        const idsAt = <usize>load<u32>(slot, 4) + ((pieceSize + 2) >> 2)
        memory.copy(out, spilled + (idsAt << 2), count << 2)
      } else if (count <= 2) store<u64>(out, load<u64>(slot, 20))
      else memory.copy(out, spilled + ((<usize>load<u32>(slot, 24)) << 2), count << 2)
      out += count << 2
    }
    found++
    at = stop
    if (at < settledBefore) {
      settledAt = at
      settledOut = out
      settledMiss = miss
    }
  }
  store<u32>(answer, (at - windowStart) >> 1)
  store<u32>(answer, (out - outStart) >> 2, 4)
  store<u32>(answer, (miss - missesStart) / 12, 8)
  store<u32>(answer, found, 12)
  store<u32>(answer, (settledAt - windowStart) >> 1, 16)
  store<u32>(answer, (settledOut - outStart) >> 2, 20)
  store<u32>(answer, (settledMiss - missesStart) / 12, 24)
}

// ── The table ──────────────────────────────────────────────────────────────────────────────────

function findShort(at: usize, size: usize): usize {
  const key = v128.and(v128.load(at), v128.load(masks + (size << 3)))
  const hash = hashOfShort(
    i32x4.extract_lane(key, 0),
    i32x4.extract_lane(key, 1),
    i32x4.extract_lane(key, 2),
    i32x4.extract_lane(key, 3),
  )
  let slot = <usize>hash & slotsMask
  for (let probes = 0; probes < PROBES_MAX; probes++) {
    const address = slots + slot * SLOT_SIZE
    const head = load<u32>(address)
    if (head === 0) return 0
    if (head >> 16 === <u32>(size >> 1) && !v128.any_true(v128.xor(v128.load(address, 4), key)))
      return address
    slot = (slot + 1) & slotsMask
  }
  return 0
}

function findLong(at: usize, size: usize): usize {
  const length = size >> 1
  if (length > LONG_UNITS_MAX) return 0
  let hash = <i32>length
  for (let i: usize = 0; i < size; i += 2) hash = (hash ^ <i32>load<u16>(at + i)) * 0x01000193
  hash = (hash ^ (hash >>> 15)) * 0x2c1b3c6d
  hash = hash ^ (hash >>> 13)
  let slot = <usize>hash & slotsMask
  for (let probes = 0; probes < PROBES_MAX; probes++) {
    const address = slots + slot * SLOT_SIZE
    const head = load<u32>(address)
    if (head === 0) return 0
    if (
      load<i32>(address, 28) === hash &&
      head >> 16 === <u32>length &&
      isEqual(spilled + ((<usize>load<u32>(address, 4)) << 2), at, size)
    )
      return address
    slot = (slot + 1) & slotsMask
  }
  return 0
}

/** At least eight units. */
function isEqual(a: usize, b: usize, size: usize): bool {
  const last = size - 16
  for (let i: usize = 0; i < last; i += 16)
    if (v128.any_true(v128.xor(v128.load(a + i), v128.load(b + i)))) return false
  return !v128.any_true(v128.xor(v128.load(a + last), v128.load(b + last)))
}

function hashOfShort(a: i32, b: i32, c: i32, d: i32): i32 {
  const first = (a * 0x9e3779b1) ^ (c * 0x85ebca6b)
  const second = (b * 0xc2b2ae35) ^ (d * 0x27d4eb2f)
  const hash = (first ^ (first >>> 15) ^ rotl<i32>(second, 11)) * 0x2c1b3c6d
  return hash ^ (hash >>> 15)
}

// ── The patterns ───────────────────────────────────────────────────────────────────────────────

function nextOfGpt2(at: usize, end: usize): usize {
  const unit: u32 = load<u16>(at)
  if (unit === APOSTROPHE) {
    const size = contraction(at, end)
    if (size > 0) return at + size
  }
  const start = unit === BLANK ? at + 2 : at
  if (start < end) {
    const next: u32 = load<u16>(start)
    if (isSurrogate(next)) return NOWHERE
    const flags = flagsOf(next)
    if ((flags & LETTER) !== 0) return endOfLetters(start, end, LETTER)
    if ((flags & NUMBER) !== 0) return endOfRun(start, end, NUMBER)
    if ((flags & SPACE) === 0) return endOfOthers(start, end, SPACE | LETTER | NUMBER)
  }
  return endOfSpace(at, end, false)
}

function nextOfCl100k(at: usize, end: usize): usize {
  const unit: u32 = load<u16>(at)
  if (unit === APOSTROPHE) {
    const size = contraction(at, end)
    if (size > 0) return at + size
  }
  if (isSurrogate(unit)) return NOWHERE
  const flags = flagsOf(unit)
  if ((flags & letters) !== 0) return endOfLetters(at, end, letters)
  if ((flags & NUMBER) !== 0) return endOfDigits(at, end)
  const next = at + 2
  let nextFlags = SPACE
  if (next < end) {
    const after: u32 = load<u16>(next)
    if (isSurrogate(after)) return NOWHERE
    nextFlags = flagsOf(after)
  }
  if ((nextFlags & letters) !== 0 && unit !== CR && unit !== LF) return endOfLetters(next, end, letters)
  const stops = SPACE | letters | NUMBER
  if ((flags & SPACE) === 0) return endOfPunctuation(at, end, stops)
  if (unit === BLANK && (nextFlags & stops) === 0) return endOfPunctuation(next, end, stops)
  return endOfSpace(at, end, true)
}

/**
 * Where a run of characters of these classes ends; NOWHERE where a surrogate does so. ASCII letters are of
 * every class of letters.
 */
function endOfLetters(at: usize, end: usize, mask: u32): usize {
  let i = at
  while (i < end) {
    const lower = v128.or(v128.load(i), i16x8.splat(0x20))
    const isLetter = i16x8.lt_u(i16x8.sub(lower, i16x8.splat(0x61)), i16x8.splat(26))
    const others = ~i16x8.bitmask(isLetter) & 0xff
    if (others === 0) {
      i += 16
      continue
    }
    i += (<usize>ctz(others)) << 1
    break
  }
  // What lies behind the end may look like letters.
  if (i >= end) return end
  return <u32>load<u16>(i) < 0x80 ? i : endOfRun(i, end, mask)
}

function endOfRun(at: usize, end: usize, mask: u32): usize {
  let i = at
  while (i < end) {
    const unit: u32 = load<u16>(i)
    if ((flagsOf(unit) & mask) === 0) return isSurrogate(unit) ? NOWHERE : i
    i += 2
  }
  return i
}

/** Where a run ends of characters that are of none of these classes. */
function endOfOthers(at: usize, end: usize, mask: u32): usize {
  let i = at
  while (i < end) {
    const unit: u32 = load<u16>(i)
    if ((flagsOf(unit) & mask) !== 0) return i
    if (isSurrogate(unit)) return NOWHERE
    i += 2
  }
  return i
}

function endOfDigits(at: usize, end: usize): usize {
  let i = at
  for (let count = 0; count < digitsMax && i < end; count++) {
    const unit: u32 = load<u16>(i)
    if ((flagsOf(unit) & NUMBER) === 0) return isSurrogate(unit) ? NOWHERE : i
    i += 2
  }
  return i
}

function endOfPunctuation(at: usize, end: usize, stops: u32): usize {
  let i = endOfOthers(at, end, stops)
  if (i === NOWHERE) return NOWHERE
  while (i < end) {
    const unit: u32 = load<u16>(i)
    if (unit !== LF && unit !== CR && !(takesSlash && unit === SLASH)) break
    i += 2
  }
  return i
}

function endOfSpace(at: usize, end: usize, breaksLines: bool): usize {
  let i = at
  let afterBreak = at
  while (i < end) {
    const unit: u32 = load<u16>(i)
    if ((flagsOf(unit) & SPACE) === 0) break
    i += 2
    if (unit === LF || unit === CR) afterBreak = i
  }
  // What follows the window may be space that ends with a line break.
  if (i === end && !isWhole) return NOWHERE
  if (breaksLines && afterBreak > at) return afterBreak
  return i < end && i > at + 2 ? i - 2 : i
}

/** The bytes of the contraction that begins at the apostrophe at `at`, or 0. */
function contraction(at: usize, end: usize): usize {
  if (at + 2 >= end) return 0
  const first: u32 = load<u16>(at, 2)
  if (first === LONG_S) return contractions === ANY_CASE ? 4 : 0
  if (first >= 0x80 || (contractions === EXACT && first < 0x60)) return 0
  switch (first | 0x20) {
    case 0x73: // s
    case 0x74: // t
    case 0x6d: // m
    case 0x64: // d
      return 4
    case 0x72: // re
    case 0x76: // ve
      return hasLetter(at + 4, end, 0x65) ? 6 : 0
    case 0x6c: // ll
      return hasLetter(at + 4, end, 0x6c) ? 6 : 0
    default:
      return 0
  }
}

function hasLetter(at: usize, end: usize, lower: u32): bool {
  if (at >= end) return false
  const unit: u32 = load<u16>(at)
  return unit === lower || (contractions !== EXACT && unit === lower - 0x20)
}

function flagsOf(unit: u32): u32 {
  return load<u8>(classes + <usize>unit)
}

function isSurrogate(unit: u32): bool {
  return (unit & 0xf800) === 0xd800
}
