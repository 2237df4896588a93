/** SplitMix64: a bijection of 64-bit words, as pairs of int32 words; and the generator made of it. */

const GOLDEN = 0x9e3779b97f4a7c15n
const MASK = 0xffff_ffff_ffff_ffffn

/** Writes the finaliser of `value`, an integer below 2^53, to target[at] (low) and target[at + 1] (high). */
export function mixInto(value: number, target: Int32Array, at: number): void {
  const sum = (value >>> 0) + 0x7f4a7c15
  let low = sum | 0
  let high = (Math.floor(value / 2 ** 32) + 0x9e3779b9 + (sum > 0xffff_ffff ? 1 : 0)) | 0

  // z ^ (z >>> 30), times 0xbf58476d1ce4e5b9
  let l = low ^ ((low >>> 30) | (high << 2))
  let h = high ^ (high >>> 30)
  low = Math.imul(l, 0x1ce4e5b9)
  high = (highOf(l, 0x1ce4e5b9) + Math.imul(l, 0xbf58476d) + Math.imul(h, 0x1ce4e5b9)) | 0

  // z ^ (z >>> 27), times 0x94d049bb133111eb
  l = low ^ ((low >>> 27) | (high << 5))
  h = high ^ (high >>> 27)
  low = Math.imul(l, 0x133111eb)
  high = (highOf(l, 0x133111eb) + Math.imul(l, 0x94d049bb) + Math.imul(h, 0x133111eb)) | 0

  // z ^ (z >>> 31)
  target[at] = low ^ ((low >>> 31) | (high << 1))
  target[at + 1] = high ^ (high >>> 31)
}

/** High word of the product of two unsigned words. */
function highOf(a: number, b: number): number {
  const aLow = a & 0xffff
  const aHigh = a >>> 16
  const bLow = b & 0xffff
  const bHigh = b >>> 16
  const middle = aHigh * bLow + ((aLow * bLow) >>> 16)
  const cross = aLow * bHigh + (middle & 0xffff)
  return (aHigh * bHigh + Math.floor(middle / 0x10000) + Math.floor(cross / 0x10000)) | 0
}

/** Draws integers evenly. */
export class SplitMix {
  #state: bigint

  constructor(seed: number) {
    this.#state = BigInt(seed)
  }

  /** 0 … bound − 1: the high part of 64 random bits times `bound`. */
  below(bound: number): number {
    const output = mix(this.#state)
    this.#state = (this.#state + GOLDEN) & MASK
    return Number((output * BigInt(bound)) >> 64n)
  }
}

function mix(value: bigint): bigint {
  let z = (value + GOLDEN) & MASK
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK
  return z ^ (z >> 31n)
}
