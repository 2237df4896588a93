/**
 * Spin: a thread is busy, in pieces of equal work that can be counted. The work is done by machine code of
 * Node: how far the compiler of JavaScript has got with a loop would change it sixfold.
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
