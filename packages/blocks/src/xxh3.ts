/**
 * XXH3-64 of bytes, of the blocks of a prompt, and of a chain: the WebAssembly module and its memory.
 *
 * The module is small enough to be instantiated while this file is imported, on any thread; each
 * thread has its own. Callers hand over typed arrays; this file copies them into the memory of
 * the module, in pieces, so that a prompt of any length needs the same 256 KiB:
 *
 *   scratch            locals                    sequences
 *   | input            | 8 bytes per block       | 8 bytes per block     |
 *     ≤ PIECE_SIZE       ≤ PIECE_BLOCKS blocks
 *
 * Only a single input longer than a piece makes the memory grow, up to INPUT_SIZE_MAX.
 */

import type { Hash64 } from './hash64.ts'
import { XXH3_WASM_BASE64 } from './xxh3-wasm.ts'

/** The part of the global WebAssembly used here; the type libraries of this workspace lack it. */
declare const WebAssembly: {
  readonly Module: new (bytes: Uint8Array) => object
  readonly Instance: new (module: object) => { readonly exports: object }
}

interface Xxh3Module {
  readonly memory: { readonly buffer: ArrayBuffer; grow(pages: number): number }
  scratch(): number
  hashBytes(input: number, size: number, seedLow: number, seedHigh: number, target: number): void
  hashWindows(
    input: number,
    count: number,
    strideSize: number,
    windowSize: number,
    seedLow: number,
    seedHigh: number,
    target: number,
  ): void
  chain(
    locals: number,
    count: number,
    hasParent: number,
    parentLow: number,
    parentHigh: number,
    target: number,
  ): void
}

/** The longest input of one hash, in bytes. */
export const INPUT_SIZE_MAX = 64 * 1024 * 1024

/** Fits the second-level cache of any processor, and costs 20 calls for a prompt of 300k tokens. */
const PIECE_SIZE = 64 * 1024
const PIECE_BLOCKS = 4096
const PAGE_SIZE = 64 * 1024

const wasm = instantiate()
const scratch = wasm.scratch()
let words = new Int32Array(wasm.memory.buffer)

/** Hashes `bytes`. Throws a RangeError for more than INPUT_SIZE_MAX bytes. */
export function xxh3(bytes: Uint8Array, seed: Hash64): Hash64 {
  const target = scratch + aligned(bytes.length)
  reserve(bytes.length, target + 8)
  new Uint8Array(wasm.memory.buffer).set(bytes, scratch)
  wasm.hashBytes(scratch, bytes.length, seed.lo, seed.hi, target)
  return { lo: words[target >> 2]!, hi: words[(target >> 2) + 1]! }
}

/**
 * Hashes `count` windows of `windowWords` words, `strideWords` apart, from the start of `input`,
 * and writes the pairs into `target` from `targetIndex`. The windows and their hashes must fit.
 */
export function hashWindows(
  input: Int32Array | Uint32Array,
  count: number,
  strideWords: number,
  windowWords: number,
  seed: Hash64,
  target: Int32Array,
  targetIndex: number,
): void {
  const windowSize = windowWords * 4
  const strideSize = strideWords * 4
  const pieceBlocks = Math.min(count, PIECE_BLOCKS, Math.max(1, Math.floor(PIECE_SIZE / windowSize)))
  const inputSize = (pieceBlocks - 1) * strideSize + windowSize
  const locals = scratch + aligned(inputSize)
  reserve(inputSize, locals + pieceBlocks * 8)

  for (let done = 0; done < count; done += pieceBlocks) {
    const blocks = Math.min(pieceBlocks, count - done)
    const start = done * strideWords
    words.set(input.subarray(start, start + (blocks - 1) * strideWords + windowWords), scratch >> 2)
    wasm.hashWindows(scratch, blocks, strideSize, windowSize, seed.lo, seed.hi, locals)
    target.set(words.subarray(locals >> 2, (locals >> 2) + blocks * 2), targetIndex + done * 2)
  }
}

/**
 * Writes the sequence hashes of the first `count` local hashes into `target`, from its start.
 * `parent` is the sequence hash before the first; without it the chain begins here.
 */
export function chainHashes(
  locals: Int32Array,
  count: number,
  parent: Hash64 | undefined,
  target: Int32Array,
): void {
  const pieceBlocks = Math.min(count, PIECE_BLOCKS)
  const sequences = scratch + pieceBlocks * 8
  reserve(pieceBlocks * 8, sequences + pieceBlocks * 8)

  let hasParent = parent === undefined ? 0 : 1
  let lo = parent?.lo ?? 0
  let hi = parent?.hi ?? 0
  for (let done = 0; done < count; done += pieceBlocks) {
    const blocks = Math.min(pieceBlocks, count - done)
    words.set(locals.subarray(done * 2, (done + blocks) * 2), scratch >> 2)
    wasm.chain(scratch, blocks, hasParent, lo, hi, sequences)
    const end = (sequences >> 2) + blocks * 2
    target.set(words.subarray(sequences >> 2, end), done * 2)
    hasParent = 1
    lo = words[end - 2]!
    hi = words[end - 1]!
  }
}

function instantiate(): Xxh3Module {
  const module = new WebAssembly.Module(Buffer.from(XXH3_WASM_BASE64, 'base64'))
  // The exports are those of ../wasm/xxh3.ts; a test compiles it and compares.
  return new WebAssembly.Instance(module).exports as unknown as Xxh3Module
}

function aligned(size: number): number {
  return (size + 15) & ~15
}

/** Makes the memory reach to `end`. */
function reserve(inputSize: number, end: number): void {
  if (inputSize > INPUT_SIZE_MAX) {
    throw new RangeError(`cannot hash ${inputSize} bytes at once: the bound is ${INPUT_SIZE_MAX}`)
  }
  const missing = end - wasm.memory.buffer.byteLength
  if (missing <= 0) return
  wasm.memory.grow(Math.ceil(missing / PAGE_SIZE))
  words = new Int32Array(wasm.memory.buffer)
}
