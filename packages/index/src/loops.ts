/**
 * Loops: the part of the index that is WebAssembly (../wasm/), over the memory of one shard. A writer has an
 * instance, and each reader of each shard has one; they share the memory and nothing else. Addresses are in
 * bytes, hashes are two words; ../wasm/ describes the rest.
 */

import { INDEX_ATOMIC_WASM_BASE64, INDEX_WASM_BASE64 } from './index-wasm.ts'
import type { IndexMemory } from './types.ts'
import { H_ACCESS } from './words.ts'

/** The part of the global WebAssembly used here; the type libraries of this workspace lack it. */
declare const WebAssembly: {
  readonly Module: new (bytes: Uint8Array) => object
  readonly Instance: new (module: object, imports: object) => { readonly exports: object }
}

export interface Loops {
  attach(): void
  // The tree.
  childOf(above: number, low: number, high: number): number
  create(above: number, low: number, high: number, set: number): number
  trim(chunk: number): void
  moveTop(): number
  mergeable(chunk: number): number
  merge(chunk: number, child: number): void
  joinBuckets(budget: number): number
  bucketOfHead(above: number, low: number, high: number): number
  // The engine table.
  findName(low: number, high: number, after: number): number
  insertName(block: number, low: number, high: number): number
  deleteEntryAt(entry: number): void
  deleteName(block: number): void
  relocateName(from: number, to: number): void
  shrinkSegment(segment: number): void
  touchNames(first: number, count: number): void
  // Worker sets.
  withHolder(set: number, holder: number): number
  withoutHolder(set: number, holder: number): number
  internScratch(): number
  moveBlocks(from: number, to: number, count: number): void
  sizeTables(): void
  // Events.
  storeRun(
    holder: number,
    hasParent: number,
    parentLow: number,
    parentHigh: number,
    above: number,
    from: number,
    count: number,
    isSet: number,
  ): number
  removeRun(holder: number, from: number, count: number): number
  // Lookups.
  scratchWords(keys: number, layers: number): number
  useScratch(base: number, keys: number, layers: number): number
  answersAt(): number
  layersAt(): number
  overlap(count: number, available: number): number
  extend(count: number, available: number): number
}

let plainModule: object | undefined
let atomicModule: object | undefined
let substitute: { readonly module: object; readonly hook: () => void } | undefined

/**
 * For tests: instances that are made from now on, on this thread, are of these loops, which call `hook`
 * before each access to a shared word.
 */
export function substituteLoops(binary: Uint8Array, hook: () => void): void {
  substitute = { module: new WebAssembly.Module(binary), hook }
}

/** The loops over a memory. `more` is asked for further hashes of the prompt: how many are there then. */
export function loopsOver(memory: IndexMemory, more: (need: number) => number = () => 0): Loops {
  const isAtomic = new Int32Array(memory.buffer, 0, H_ACCESS + 1)[H_ACCESS] === 1
  const imports = { env: { memory, more, hook: substitute?.hook } }
  const loops = new WebAssembly.Instance(substitute?.module ?? moduleFor(isAtomic), imports).exports as Loops
  loops.attach()
  return loops
}

function moduleFor(isAtomic: boolean): object {
  if (isAtomic) {
    atomicModule ??= new WebAssembly.Module(Buffer.from(INDEX_ATOMIC_WASM_BASE64, 'base64'))
    return atomicModule
  }
  plainModule ??= new WebAssembly.Module(Buffer.from(INDEX_WASM_BASE64, 'base64'))
  return plainModule
}
