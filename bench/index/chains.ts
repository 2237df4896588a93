/**
 * Ballast: memberships in disjoint chains, and lookups that find their chain in no cache of the processor.
 */

import { chainSequence } from '@homing/blocks'
import { type CorpusTotals, CorpusWriter } from './kvc1.ts'
import { mixInto, SplitMix } from './splitmix.ts'

const CHAIN_BLOCKS = 128
const BLOCK_TOKENS = 64
const SEED = 7

export interface ChainsOptions {
  readonly workers: number
  readonly blocksPerWorker: number
  readonly lookups: number
}

/** The schedule stores every chain and then looks some up; the live file has the stored events alone. */
export function writeChains(
  { workers, blocksPerWorker, lookups }: ChainsOptions,
  path: string,
  livePath: string,
): { readonly totals: CorpusTotals; readonly live: CorpusTotals } {
  const writer = new CorpusWriter(path, BLOCK_TOKENS, workers)
  const liveWriter = new CorpusWriter(livePath, BLOCK_TOKENS, workers)
  const chains = Math.floor(blocksPerWorker / CHAIN_BLOCKS) * workers
  for (let chain = 0; chain < chains; chain++) {
    const locals = localsOf(chain)
    const sequences = chainSequence(locals, CHAIN_BLOCKS)
    for (const each of [writer, liveWriter])
      each.stored(0, chain % workers, locals, sequences, 0, CHAIN_BLOCKS)
  }
  const random = new SplitMix(SEED)
  for (let i = 0; i < lookups; i++) writer.lookup(1, 0, localsOf(random.below(chains)), CHAIN_BLOCKS)
  return { totals: writer.close(), live: liveWriter.close() }
}

function localsOf(chain: number): Int32Array {
  const locals = new Int32Array(2 * CHAIN_BLOCKS)
  for (let i = 0; i < CHAIN_BLOCKS; i++) mixInto(chain * CHAIN_BLOCKS + i, locals, 2 * i)
  return locals
}
