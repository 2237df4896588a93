/** Token ids straight from JSON bytes: a prompt of 100,000 ids becomes no 100,000 numbers on the way. */

import { excerpt, InvalidRequestError } from './errors.ts'
import type { ByteRange } from './types.ts'

const ID_MAX = 0xffff_ffff
const EXPECTED = `token ids, whole numbers from 0 to ${ID_MAX}, in an array`

/**
 * The ids of a JSON array, as bit patterns of u32. `range` must be a value of a scanned body, so that it is
 * valid JSON. Throws InvalidRequestError naming `param` and the element unless all are whole numbers of 32
 * bits, written as digits.
 */
export function parseTokenIds(bytes: Uint8Array, range: ByteRange, param: string): Int32Array {
  const { start, end } = range
  if (bytes[start] !== 0x5b) throw new InvalidRequestError(param, excerpt(bytes, range), EXPECTED)
  // At least one digit and a comma each.
  const ids = new Int32Array(((end - start) >> 1) + 1)
  let count = 0
  let at = start + 1
  while (at < end - 1) {
    const byte = bytes[at]!
    if (byte === 0x2c || byte <= 0x20) {
      at++
      continue
    }
    const elementStart = at
    let id = 0
    for (let digit = byte - 0x30; digit >= 0 && digit <= 9; digit = bytes[at]! - 0x30) {
      id = id * 10 + digit
      at++
    }
    const next = bytes[at]!
    const hasEnded = next === 0x2c || next === 0x5d || next <= 0x20
    if (at === elementStart || !hasEnded || id > ID_MAX) {
      const element = excerpt(bytes, { start: elementStart, end }).split(/[,\]\s]/, 1)[0]!
      throw new InvalidRequestError(`${param}[${count}]`, element, EXPECTED)
    }
    ids[count++] = id | 0
  }
  return ids.slice(0, count)
}
