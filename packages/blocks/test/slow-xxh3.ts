/**
 * XXH3-64 in BigInt, as plainly as the specification states it: the naive model of ../wasm/xxh3.ts.
 * Slow, and written without looking at speed; shares nothing with the fast one but the constants.
 */

const MASK = (1n << 64n) - 1n
const P32 = [0x9e3779b1n, 0x85ebca77n, 0xc2b2ae3dn] as const
const P64 = [
  0x9e3779b185ebca87n,
  0xc2b2ae3d27d4eb4fn,
  0x165667b19e3779f9n,
  0x85ebca77c2b2ae63n,
  0x27d4eb2f165667c5n,
] as const
const SECRET = Buffer.from(
  'b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221' +
    'b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8' +
    'a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb' +
    '170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e',
  'hex',
)

export function slowXxh3(input: Buffer, seed: bigint): bigint {
  const size = input.length
  if (size === 0) return finishShort(seed ^ at(SECRET, 56) ^ at(SECRET, 64))
  if (size <= 3) {
    const first = BigInt(input[0]!)
    const middle = BigInt(input[size >> 1]!)
    const last = BigInt(input[size - 1]!)
    const all = (first << 16n) | (middle << 24n) | last | (BigInt(size) << 8n)
    const flip = add(BigInt(SECRET.readUInt32LE(0) ^ SECRET.readUInt32LE(4)) & 0xffffffffn, seed)
    return finishShort(all ^ flip)
  }
  if (size <= 8) {
    const swapped = BigInt(Buffer.from(words32(seed)).readUInt32BE(0))
    const flip = subtract(at(SECRET, 8) ^ at(SECRET, 16), seed ^ (swapped << 32n))
    const first = BigInt(input.readUInt32LE(0))
    const last = BigInt(input.readUInt32LE(size - 4))
    let hash = (last + (first << 32n)) ^ flip
    hash ^= rotate(hash, 49n) ^ rotate(hash, 24n)
    hash = multiply(hash, 0x9fb21c651e98df25n)
    hash ^= add(hash >> 35n, BigInt(size))
    hash = multiply(hash, 0x9fb21c651e98df25n)
    return hash ^ (hash >> 28n)
  }
  if (size <= 16) {
    const low = at(input, 0) ^ add(at(SECRET, 24) ^ at(SECRET, 32), seed)
    const high = at(input, size - 8) ^ subtract(at(SECRET, 40) ^ at(SECRET, 48), seed)
    return finish(add(add(add(BigInt(size), swapBytes(low)), high), fold(low, high)))
  }
  if (size <= 128) {
    let sum = multiply(BigInt(size), P64[0])
    const pairs = ((size - 1) >> 5) + 1
    for (let i = 0; i < pairs; i++) {
      sum = add(sum, mix(input, i * 16, i * 32, seed))
      sum = add(sum, mix(input, size - 16 * (i + 1), i * 32 + 16, seed))
    }
    return finish(sum)
  }
  if (size <= 240) {
    let sum = multiply(BigInt(size), P64[0])
    for (let i = 0; i < size >> 4; i++) {
      if (i === 8) sum = finish(sum)
      sum = add(sum, mix(input, i * 16, i < 8 ? i * 16 : (i - 8) * 16 + 3, seed))
    }
    if (size >> 4 === 8) sum = finish(sum)
    return finish(add(sum, mix(input, size - 16, 136 - 17, seed)))
  }
  return long(input, seed)
}

function long(input: Buffer, seed: bigint): bigint {
  const size = input.length
  const secret = Buffer.alloc(192)
  for (let i = 0; i < 192; i += 16) {
    secret.writeBigUInt64LE(add(at(SECRET, i), seed), i)
    secret.writeBigUInt64LE(subtract(at(SECRET, i + 8), seed), i + 8)
  }
  const lanes = [P32[2], P64[0], P64[1], P64[2], P64[3], P32[1], P64[4], P32[0]] as bigint[]
  const addStripe = (offset: number, secretOffset: number) => {
    for (let i = 0; i < 8; i++) {
      const data = at(input, offset + i * 8)
      const keyed = data ^ at(secret, secretOffset + i * 8)
      lanes[i ^ 1] = add(lanes[i ^ 1]!, data)
      lanes[i] = add(lanes[i]!, (keyed & 0xffffffffn) * (keyed >> 32n))
    }
  }
  const stripes = Math.floor((size - 1) / 64)
  for (let stripe = 0; stripe < stripes; stripe++) {
    addStripe(stripe * 64, (stripe % 16) * 8)
    if (stripe % 16 !== 15) continue
    for (let i = 0; i < 8; i++) {
      const lane = lanes[i]!
      lanes[i] = multiply(lane ^ (lane >> 47n) ^ at(secret, 128 + i * 8), P32[0])
    }
  }
  addStripe(size - 64, 121)
  let sum = multiply(BigInt(size), P64[0])
  for (let i = 0; i < 4; i++) {
    sum = add(sum, fold(lanes[i * 2]! ^ at(secret, 11 + i * 16), lanes[i * 2 + 1]! ^ at(secret, 19 + i * 16)))
  }
  return finish(sum)
}

function mix(input: Buffer, offset: number, secretOffset: number, seed: bigint): bigint {
  return fold(
    at(input, offset) ^ add(at(SECRET, secretOffset), seed),
    at(input, offset + 8) ^ subtract(at(SECRET, secretOffset + 8), seed),
  )
}

function fold(a: bigint, b: bigint): bigint {
  const product = a * b
  return (product & MASK) ^ (product >> 64n)
}

function finish(value: bigint): bigint {
  const hash = multiply(value ^ (value >> 37n), 0x165667919e3779f9n)
  return hash ^ (hash >> 32n)
}

function finishShort(value: bigint): bigint {
  let hash = multiply(value ^ (value >> 33n), P64[1])
  hash = multiply(hash ^ (hash >> 29n), P64[2])
  return hash ^ (hash >> 32n)
}

function at(bytes: Buffer, offset: number): bigint {
  return bytes.readBigUInt64LE(offset)
}

function words32(value: bigint): Uint8Array {
  const bytes = Buffer.alloc(8)
  bytes.writeBigUInt64LE(value)
  return bytes
}

function swapBytes(value: bigint): bigint {
  return Buffer.from(words32(value)).readBigUInt64BE(0)
}

function rotate(value: bigint, bits: bigint): bigint {
  return ((value << bits) | (value >> (64n - bits))) & MASK
}

function add(a: bigint, b: bigint): bigint {
  return (a + b) & MASK
}

function subtract(a: bigint, b: bigint): bigint {
  return (a - b) & MASK
}

function multiply(a: bigint, b: bigint): bigint {
  return (a * b) & MASK
}
