/**
 * A seeded generator for tests, simulations and benches: xoshiro128** (Blackman and Vigna, 2018),
 * its state filled by splitmix32. Equal seeds give equal sequences on every machine.
 */

import type { Random } from './clock.ts'

/** A generator of its own sequence; `seed` is any integer, taken modulo 2^32. */
export function seededRandom(seed: number): Random {
  let mix = seed >>> 0
  const splitmix = (): number => {
    mix = (mix + 0x9e3779b9) >>> 0
    let z = mix
    z = Math.imul(z ^ (z >>> 16), 0x85ebca6b)
    z = Math.imul(z ^ (z >>> 13), 0xc2b2ae35)
    return (z ^ (z >>> 16)) >>> 0
  }
  let a = splitmix()
  let b = splitmix()
  let c = splitmix()
  let d = splitmix()

  const word = (): number => {
    const product = Math.imul(b, 5)
    const result = Math.imul((product << 7) | (product >>> 25), 9) >>> 0
    const shifted = b << 9
    c ^= a
    d ^= b
    b ^= c
    a ^= d
    c ^= shifted
    d = (d << 11) | (d >>> 21)
    return result
  }
  const next = (): number => (word() >>> 5) * 2 ** -27 + (word() >>> 6) * 2 ** -53

  return {
    next,
    below: bound => Math.floor(next() * bound),
    bytes(count) {
      const bytes = new Uint8Array(count)
      for (let i = 0; i < count; i++) bytes[i] = word() & 0xff
      return bytes
    },
  }
}
