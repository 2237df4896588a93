/**
 * A stranger: a program that does one of its deeds after another, drawn by a seed, and keeps what it was
 * told, so that a test can search it for secrets.
 */

import type { Random } from '@homing/base'

/** One deed: resolves when it is over, rejects when it was refused on the way. */
export type Deed = (random: Random) => Promise<void>

export interface Stranger {
  readonly name: string
  readonly deeds: Readonly<Record<string, Deed>>
  stop(): void
}

/** Bytes kept of what strangers were told; beyond it the earliest are dropped. */
const HEARD_BYTES_MAX = 64 * 2 ** 20

/** What strangers have read from the sockets of others. */
export class Hearsay {
  readonly #parts: Buffer[] = []
  #bytes = 0

  add(part: Uint8Array | string): void {
    const bytes = Buffer.from(part)
    this.#parts.push(bytes)
    this.#bytes += bytes.length
    while (this.#bytes > HEARD_BYTES_MAX) this.#bytes -= this.#parts.shift()!.length
  }

  /** Those of the texts that were heard. */
  heard(texts: readonly string[]): readonly string[] {
    const all = Buffer.concat(this.#parts)
    return texts.filter(text => all.includes(text))
  }
}

export function pick<T>(random: Random, items: readonly T[]): T {
  return items[random.below(items.length)]!
}

export function randomBytes(random: Random, length: number): Buffer {
  const bytes = Buffer.allocUnsafe(length)
  for (let i = 0; i < length; i++) bytes[i] = random.below(256)
  return bytes
}

/** A copy with a few bytes changed, cut off or repeated. */
export function mutated(random: Random, seed: Uint8Array): Buffer {
  let bytes = Buffer.from(seed)
  for (let left = 1 + random.below(4); left > 0; left--) {
    const at = random.below(Math.max(1, bytes.length))
    const kind = random.below(4)
    if (kind === 0) bytes = bytes.subarray(0, at)
    else if (kind === 1)
      bytes = Buffer.concat([bytes.subarray(0, at), randomBytes(random, 5), bytes.subarray(at)])
    else if (kind === 2) bytes = Buffer.concat([bytes, bytes.subarray(at, at + 64)])
    else if (bytes.length > 0) bytes[at] = random.below(256)
  }
  return bytes
}

/** Heads of MessagePack that claim more than follows. */
export const CLAIMS: readonly Buffer[] = [
  Buffer.from('94019091ddffffffff', 'hex'),
  Buffer.from('ddffffffff', 'hex'),
  Buffer.from('dfffffffff', 'hex'),
  Buffer.from('94dd7fffffff', 'hex'),
  Buffer.from('c6ffffffff00', 'hex'),
  Buffer.from('dbffffffff41', 'hex'),
  Buffer.alloc(4096, 0x91),
  Buffer.concat(Array.from({ length: 30 }, () => Buffer.from('dd00ffffff', 'hex'))),
]
