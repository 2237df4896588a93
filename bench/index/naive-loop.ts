/** Naive: the plainest index that is right, on the schedule of loop A. */

import type { Measures } from '../harness.ts'
import { blockOps, perSecond, prepare } from './drive.ts'
import { LOOKUP, STORED } from './kvc1.ts'
import { NaivePeer } from './naive-peer.ts'

export function naiveLoop(): Measures {
  const { corpus } = prepare()
  const { kinds, workers, counts, hashes, locals, parents } = corpus
  const peer = new NaivePeer()
  const from = performance.now()
  for (let i = 0; i < kinds.length; i++) {
    if (kinds[i] === LOOKUP) peer.overlap(hashes[i]!, counts[i]!)
    else if (kinds[i] === STORED) peer.store(workers[i]!, parents[i], hashes[i]!, locals[i]!, counts[i]!)
    else peer.remove(workers[i]!, hashes[i]!, counts[i]!)
  }
  const mixedMs = performance.now() - from
  let sum = 0
  for (let i = 0; i < kinds.length; i++) {
    if (kinds[i] !== LOOKUP) continue
    for (const blocks of peer.overlap(hashes[i]!, counts[i]!).values()) sum += blocks
  }
  return {
    mixed: perSecond(blockOps(corpus), mixedMs, 'block op/s'),
    scoreSum: { value: sum, unit: 'blocks' },
  }
}
