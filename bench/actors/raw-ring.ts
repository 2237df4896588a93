/**
 * The barest ring between two threads: records of 16 words in a SharedArrayBuffer, one writer, one reader,
 * both spinning. No sizes, no types, no wake-up: what shared memory itself allows, to hold ours against.
 *
 *   word 0    tail: records published        word 16   head: records taken
 *   word 32   the records; every one of the 16 words is written and read
 */

const TAIL = 0
const HEAD = 16
const DATA = 32
const RECORD_WORDS = 16
const RECORDS = 4096
const MASK = RECORDS - 1
/** Records between two publications. */
const PUBLISH_EVERY = 32

export function createRawRing(): SharedArrayBuffer {
  return new SharedArrayBuffer((DATA + RECORDS * RECORD_WORDS) * Int32Array.BYTES_PER_ELEMENT)
}

/** Writes the records 1 … `count`. */
export function writeRecords(words: Int32Array, count: number): void {
  let head = Atomics.load(words, HEAD)
  let tail = Atomics.load(words, TAIL)
  for (let n = 1; n <= count; n++) {
    while (((tail - head) | 0) >= RECORDS) head = Atomics.load(words, HEAD)
    const at = DATA + (tail & MASK) * RECORD_WORDS
    for (let i = 0; i < RECORD_WORDS; i++) words[at + i] = n + i
    tail = (tail + 1) | 0
    if ((n & (PUBLISH_EVERY - 1)) === 0) Atomics.store(words, TAIL, tail)
  }
  Atomics.store(words, TAIL, tail)
}

/** Reads `count` records; returns how many were not the next one, whole. */
export function readRecords(words: Int32Array, count: number): number {
  let violations = 0
  let head = Atomics.load(words, HEAD)
  let tail = head
  for (let n = 1; n <= count; n++) {
    while (head === tail) tail = Atomics.load(words, TAIL)
    const at = DATA + (head & MASK) * RECORD_WORDS
    let sum = 0
    for (let i = 0; i < RECORD_WORDS; i++) sum += words[at + i]! - i
    if (sum !== n * RECORD_WORDS) violations++
    head = (head + 1) | 0
    if ((n & (PUBLISH_EVERY - 1)) === 0) Atomics.store(words, HEAD, head)
  }
  Atomics.store(words, HEAD, head)
  return violations
}

/** Sends every record back, plus one in its first word, until `count` are through. */
export function echoRecords(inbound: Int32Array, outbound: Int32Array, count: number): void {
  let head = Atomics.load(inbound, HEAD)
  for (let done = 0; done < count; ) {
    const tail = Atomics.load(inbound, TAIL)
    while (head !== tail) {
      const from = DATA + (head & MASK) * RECORD_WORDS
      outbound[from] = inbound[from]! + 1
      for (let i = 1; i < RECORD_WORDS; i++) outbound[from + i] = inbound[from + i]!
      head = (head + 1) | 0
      done++
    }
    Atomics.store(inbound, HEAD, head)
    Atomics.store(outbound, TAIL, head)
  }
}

/** Keeps `width` (below the capacity) records on their way there and back; returns wrong answers. */
export function askRecords(outbound: Int32Array, inbound: Int32Array, width: number, count: number): number {
  let violations = 0
  let asked = Atomics.load(outbound, TAIL)
  let answered = asked
  const end = (asked + count) | 0
  while (answered !== end) {
    const tail = Atomics.load(inbound, TAIL)
    while (answered !== tail) {
      const at = DATA + (answered & MASK) * RECORD_WORDS
      if (inbound[at] !== ((answered + 1) | 0)) violations++
      answered = (answered + 1) | 0
    }
    const before = asked
    while (asked !== end && ((asked - answered) | 0) < width) {
      const at = DATA + (asked & MASK) * RECORD_WORDS
      for (let i = 0; i < RECORD_WORDS; i++) outbound[at + i] = asked
      asked = (asked + 1) | 0
    }
    if (asked !== before) Atomics.store(outbound, TAIL, asked)
  }
  return violations
}
