/**
 * Spin: keeps a thread busy with pieces of equal work that can be counted. The work is native code of Node:
 * a loop in JavaScript would change its speed sixfold while it is compiled.
 */

import process from 'node:process'
import { crc32 } from 'node:zlib'

/** Some 4 µs, in the first cache of a core. */
const PIECE_BYTES = 16_384
const piece = new Uint8Array(PIECE_BYTES)

export interface Spun {
  readonly pieces: number
  readonly ms: number
  /** CPU time that the thread had meanwhile. */
  readonly cpuMs: number
}

/** Is busy until `isOver`, looked at after each piece. */
export function spin(isOver: () => boolean): Spun {
  const before = process.threadCpuUsage()
  const fromMs = performance.now()
  let checksum = 0
  let pieces = 0
  do {
    checksum = crc32(piece, checksum)
    pieces++
  } while (!isOver())
  const ms = performance.now() - fromMs
  const { user, system } = process.threadCpuUsage(before)
  return { pieces, ms, cpuMs: (user + system) / 1000 }
}

/** Is busy for so long. */
export function spinFor(ms: number): Spun {
  const fromMs = performance.now()
  return spin(() => performance.now() - fromMs >= ms)
}
