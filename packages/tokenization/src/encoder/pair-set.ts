/**
 * Pair set: pairs of UTF-16 units in one array, to be asked millions of times.
 *
 *   | first << 16 | second | …     open addressing, at most half full, 0: free
 */

/** The array of a set; the pair 0, 0 cannot be in it. */
export function buildPairSet(pairs: ReadonlySet<number>): Int32Array {
  let slots = 16
  while (slots < pairs.size * 2) slots *= 2
  const array = new Int32Array(slots)
  for (const pair of pairs) {
    let slot = slotOf(pair) & (slots - 1)
    while (array[slot] !== 0) slot = (slot + 1) & (slots - 1)
    array[slot] = pair
  }
  return array
}

/** The number that stands for a pair. */
export function pairOf(first: number, second: number): number {
  return (first << 16) | second
}

export function hasPair(array: Int32Array, first: number, second: number): boolean {
  const mask = array.length - 1
  const pair = pairOf(first, second)
  let slot = slotOf(pair) & mask
  for (;;) {
    const found = array[slot]!
    if (found === pair) return true
    if (found === 0) return false
    slot = (slot + 1) & mask
  }
}

function slotOf(pair: number): number {
  const mixed = Math.imul(pair, 0x9e3779b1)
  return mixed ^ (mixed >>> 15)
}
