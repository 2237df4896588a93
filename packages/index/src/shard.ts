/** Shard: one memory with everything laid over it: the loops, and the parts of the index that are in it. */

import { Chunks } from './chunks.ts'
import { EngineTable } from './engine-table.ts'
import type { Layout } from './layout.ts'
import { type Loops, loopsOver } from './loops.ts'
import type { IndexMemory } from './types.ts'
import { WorkerSets } from './worker-sets.ts'

export interface Shard {
  readonly memory: IndexMemory
  readonly words: Int32Array
  readonly loops: Loops
  readonly chunks: Chunks
  readonly sets: WorkerSets
  readonly engines: EngineTable
}

/** The parts of a shard; its memory must be of this layout. */
export function shardOver(layout: Layout, memory: IndexMemory): Shard {
  const words = new Int32Array(memory.buffer)
  const loops = loopsOver(memory)
  return {
    memory,
    words,
    loops,
    chunks: new Chunks(layout, words, loops),
    sets: new WorkerSets(layout, words, loops),
    engines: new EngineTable(layout, words, loops),
  }
}
