// biome-ignore-all lint/correctness/noPrecisionLoss: AssemblyScript has 64-bit integers, which these are

/**
 * XXH3-64 with a seed, over blocks of tokens. AssemblyScript: compiled by build.ts into
 * ../src/xxh3-wasm.ts, never loaded by Node as it stands.
 *
 * The caller writes bytes from `scratch()` upward, calls, and reads the result back; nothing here
 * allocates. Integers are little-endian in WebAssembly, as the hash demands.
 *
 *   input length   0   1..3   4..8   9..16   17..128   129..240   over 240
 *   way            one mix of at most two words | pairs of 16 bytes | 8 lanes over stripes of 64 bytes
 *
 * A block of 16 tokens is 64 bytes (pairs), one of 64 tokens is 256 bytes (stripes); a step of the
 * chain of sequence hashes is 16 bytes. Products of 64 by 64 bits are put together from 32-bit halves.
 *
 * Source: the XXH3 section of the xxHash specification, version 0.8, by Yann Collet.
 */

const PRIME32_1: u64 = 0x9e3779b1
const PRIME32_2: u64 = 0x85ebca77
const PRIME32_3: u64 = 0xc2b2ae3d
const PRIME64_1: u64 = 0x9e3779b185ebca87
const PRIME64_2: u64 = 0xc2b2ae3d27d4eb4f
const PRIME64_3: u64 = 0x165667b19e3779f9
const PRIME64_4: u64 = 0x85ebca77c2b2ae63
const PRIME64_5: u64 = 0x27d4eb2f165667c5
const PRIME_MX1: u64 = 0x165667919e3779f9
const PRIME_MX2: u64 = 0x9fb21c651e98df25

const SECRET_SIZE: usize = 192
/** The default secret of the specification. */
const SECRET = memory.data<u64>(
  [
    0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072, 0x78e5c0cc4ee679cb,
    0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0, 0xcb00c391bb52283c, 0xa32e531b8b65d088,
    0x4ef90da297486471, 0xd8acdea946ef1938, 0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a,
    0x647378d9c97e9fc8, 0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,
    0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af,
  ],
  16,
)

/** The secret that long inputs use; it depends on the seed. */
const SEEDED_SECRET = memory.data(192, 16)
/** The eight lanes of a long input. */
const LANES = memory.data(64, 16)

const STRIPE_SIZE: usize = 64
const STRIPES_PER_ROUND: usize = 16
const ROUND_SIZE: usize = STRIPE_SIZE * STRIPES_PER_ROUND

/** The seed of the chain of sequence hashes. */
const CHAIN_SEED: u64 = 1337

/** The seed for which SEEDED_SECRET was made. */
let seededFor: u64 = 0
let isSeeded: bool = false

/** Where the caller's bytes may begin. */
export function scratch(): usize {
  return (__heap_base + 15) & ~15
}

/** Hashes `size` bytes at `input` and writes the hash at `target`. */
export function hashBytes(input: usize, size: usize, seedLow: u32, seedHigh: u32, target: usize): void {
  store<u64>(target, xxh3(input, size, word(seedLow, seedHigh)))
}

/** Hashes `count` windows of `windowSize` bytes, `strideSize` apart, and writes the hashes from `target`. */
export function hashWindows(
  input: usize,
  count: usize,
  strideSize: usize,
  windowSize: usize,
  seedLow: u32,
  seedHigh: u32,
  target: usize,
): void {
  const seed = word(seedLow, seedHigh)
  for (let i: usize = 0; i < count; i++) {
    store<u64>(target + (i << 3), xxh3(input + i * strideSize, windowSize, seed))
  }
}

/**
 * Writes `count` sequence hashes from `target`, out of the local hashes from `locals`. Without a
 * parent the first sequence hash is the first local hash.
 */
export function chain(
  locals: usize,
  count: usize,
  hasParent: bool,
  parentLow: u32,
  parentHigh: u32,
  target: usize,
): void {
  let sequence = word(parentLow, parentHigh)
  const flip1 = (secretWord(24) ^ secretWord(32)) + CHAIN_SEED
  const flip2 = (secretWord(40) ^ secretWord(48)) - CHAIN_SEED
  for (let i: usize = 0; i < count; i++) {
    const local = load<u64>(locals + (i << 3))
    sequence = i === 0 && !hasParent ? local : mixTwoWords(sequence ^ flip1, local ^ flip2, 16)
    store<u64>(target + (i << 3), sequence)
  }
}

function xxh3(input: usize, size: usize, seed: u64): u64 {
  if (size <= 16) return hashShort(input, size, seed)
  if (size <= 128) return hashPairs(input, size, seed)
  if (size <= 240) return hashManyPairs(input, size, seed)
  return hashStripes(input, size, seed)
}

/** 0 to 16 bytes. */
function hashShort(input: usize, size: usize, seed: u64): u64 {
  if (size > 8) {
    const flip1 = (secretWord(24) ^ secretWord(32)) + seed
    const flip2 = (secretWord(40) ^ secretWord(48)) - seed
    return mixTwoWords(load<u64>(input) ^ flip1, load<u64>(input + size - 8) ^ flip2, size)
  }
  if (size >= 4) {
    const mixedSeed = seed ^ ((<u64>bswap<u32>(<u32>seed)) << 32)
    const flip = (secretWord(8) ^ secretWord(16)) - mixedSeed
    const both = <u64>load<u32>(input + size - 4) + ((<u64>load<u32>(input)) << 32)
    let hash = both ^ flip
    hash ^= rotl<u64>(hash, 49) ^ rotl<u64>(hash, 24)
    hash *= PRIME_MX2
    hash ^= (hash >> 35) + <u64>size
    hash *= PRIME_MX2
    return hash ^ (hash >> 28)
  }
  if (size > 0) {
    const first = <u32>load<u8>(input)
    const middle = <u32>load<u8>(input + (size >> 1))
    const last = <u32>load<u8>(input + size - 1)
    const all = (first << 16) | (middle << 24) | last | ((<u32>size) << 8)
    const flip = <u64>(load<u32>(SECRET) ^ load<u32>(SECRET + 4)) + seed
    return avalancheShort(<u64>all ^ flip)
  }
  return avalancheShort(seed ^ secretWord(56) ^ secretWord(64))
}

/** 17 to 128 bytes: pairs of 16 bytes, from both ends to the middle. */
function hashPairs(input: usize, size: usize, seed: u64): u64 {
  let sum = <u64>size * PRIME64_1
  if (size > 32) {
    if (size > 64) {
      if (size > 96) {
        sum += mix16(input + 48, SECRET + 96, seed)
        sum += mix16(input + size - 64, SECRET + 112, seed)
      }
      sum += mix16(input + 32, SECRET + 64, seed)
      sum += mix16(input + size - 48, SECRET + 80, seed)
    }
    sum += mix16(input + 16, SECRET + 32, seed)
    sum += mix16(input + size - 32, SECRET + 48, seed)
  }
  sum += mix16(input, SECRET, seed)
  sum += mix16(input + size - 16, SECRET + 16, seed)
  return avalanche(sum)
}

/** 129 to 240 bytes: from the front, the secret starting anew at the ninth step. */
function hashManyPairs(input: usize, size: usize, seed: u64): u64 {
  let sum = <u64>size * PRIME64_1
  const steps = size >> 4
  for (let i: usize = 0; i < 8; i++) sum += mix16(input + (i << 4), SECRET + (i << 4), seed)
  sum = avalanche(sum)
  for (let i: usize = 8; i < steps; i++) sum += mix16(input + (i << 4), SECRET + ((i - 8) << 4) + 3, seed)
  sum += mix16(input + size - 16, SECRET + 136 - 17, seed)
  return avalanche(sum)
}

/** Over 240 bytes: eight lanes over stripes of 64 bytes, stirred after every 16 stripes. */
function hashStripes(input: usize, size: usize, seed: u64): u64 {
  seedSecret(seed)
  store<u64>(LANES, PRIME32_3, 0)
  store<u64>(LANES, PRIME64_1, 8)
  store<u64>(LANES, PRIME64_2, 16)
  store<u64>(LANES, PRIME64_3, 24)
  store<u64>(LANES, PRIME64_4, 32)
  store<u64>(LANES, PRIME32_2, 40)
  store<u64>(LANES, PRIME64_5, 48)
  store<u64>(LANES, PRIME32_1, 56)

  const rounds = (size - 1) / ROUND_SIZE
  for (let round: usize = 0; round < rounds; round++) {
    accumulate(input + round * ROUND_SIZE, STRIPES_PER_ROUND)
    stir()
  }
  const rest = rounds * ROUND_SIZE
  accumulate(input + rest, (size - 1 - rest) / STRIPE_SIZE)
  addStripe(input + size - STRIPE_SIZE, SEEDED_SECRET + SECRET_SIZE - STRIPE_SIZE - 7)

  let sum = <u64>size * PRIME64_1
  for (let i: usize = 0; i < 64; i += 16) {
    const key = SEEDED_SECRET + 11 + i
    sum += foldProduct(load<u64>(LANES + i) ^ load<u64>(key), load<u64>(LANES + i + 8) ^ load<u64>(key + 8))
  }
  return avalanche(sum)
}

function seedSecret(seed: u64): void {
  if (isSeeded && seededFor === seed) return
  for (let i: usize = 0; i < SECRET_SIZE; i += 16) {
    store<u64>(SEEDED_SECRET + i, load<u64>(SECRET + i) + seed)
    store<u64>(SEEDED_SECRET + i + 8, load<u64>(SECRET + i + 8) - seed)
  }
  seededFor = seed
  isSeeded = true
}

function accumulate(input: usize, stripes: usize): void {
  for (let i: usize = 0; i < stripes; i++) addStripe(input + (i << 6), SEEDED_SECRET + (i << 3))
}

/** Two lanes at a time: each gains the product of its keyed halves and the plain word of its neighbor. */
function addStripe(input: usize, secret: usize): void {
  for (let i: usize = 0; i < STRIPE_SIZE; i += 16) {
    const data = v128.load(input + i)
    const keyed = v128.xor(data, v128.load(secret + i))
    const low = v128.and(keyed, i64x2.splat(0xffffffff))
    const high = i64x2.shr_u(keyed, 32)
    const product = i64x2.mul(low, high)
    const neighbor = v128.shuffle<u64>(data, data, 1, 0)
    v128.store(LANES + i, i64x2.add(v128.load(LANES + i), i64x2.add(product, neighbor)))
  }
}

function stir(): void {
  const secret = SEEDED_SECRET + SECRET_SIZE - STRIPE_SIZE
  for (let i: usize = 0; i < 64; i += 8) {
    let lane = load<u64>(LANES + i)
    lane ^= lane >> 47
    lane ^= load<u64>(secret + i)
    store<u64>(LANES + i, lane * PRIME32_1)
  }
}

function mix16(input: usize, secret: usize, seed: u64): u64 {
  return foldProduct(
    load<u64>(input) ^ (load<u64>(secret) + seed),
    load<u64>(input, 8) ^ (load<u64>(secret, 8) - seed),
  )
}

function mixTwoWords(low: u64, high: u64, size: usize): u64 {
  return avalanche(<u64>size + bswap<u64>(low) + high + foldProduct(low, high))
}

/** The upper and the lower half of a 128-bit product, one xored into the other. */
function foldProduct(a: u64, b: u64): u64 {
  const aLow = a & 0xffffffff
  const aHigh = a >> 32
  const bLow = b & 0xffffffff
  const bHigh = b >> 32
  const middle = aHigh * bLow
  const cross = ((aLow * bLow) >> 32) + (middle & 0xffffffff) + aLow * bHigh
  return (a * b) ^ ((middle >> 32) + (cross >> 32) + aHigh * bHigh)
}

function avalanche(hash: u64): u64 {
  hash ^= hash >> 37
  hash *= PRIME_MX1
  return hash ^ (hash >> 32)
}

function avalancheShort(hash: u64): u64 {
  hash ^= hash >> 33
  hash *= PRIME64_2
  hash ^= hash >> 29
  hash *= PRIME64_3
  return hash ^ (hash >> 32)
}

function secretWord(offset: usize): u64 {
  return load<u64>(SECRET + offset)
}

function word(low: u32, high: u32): u64 {
  return ((<u64>high) << 32) | <u64>low
}
