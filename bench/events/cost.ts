/**
 * Cost: what one event takes on its thread, without actors and sockets: bytes → decode → hash → index, on an
 * index that holds 10 k, 1 M or 10 M memberships already. A run is stored and removed in turn, so the index
 * keeps its size.
 */

import { BlockIndex, layeredOptions } from '@homing/index'
import { decodeKvBatch } from '@homing/protocol'
import { EventApplier } from '../../actors/indexer/src/event-applier.ts'
import { LayerSlots } from '../../actors/indexer/src/layer-slots.ts'
import { type Measures, percentile } from '../harness.ts'
import { mixInto } from '../index/splitmix.ts'
import { BLOCK_TOKENS, onePayload } from './workload.ts'

const SIZES = [10_000, 1_000_000, 10_000_000] as const
const RUNS = [1, 16, 128] as const
/** Payloads that are taken in turn. */
const PAYLOADS = 256
const BATCHES = 30
const BALLAST_CHAIN_BLOCKS = 128
const BALLAST_AT = 2 ** 45
const BYTES_PER_MEMBERSHIP = 44
const ENGINE_SLOT = 0
const BALLAST_SLOT = 1
const KEYS = 2

/** Microseconds of an event, by what was done and the size of the index. */
export function costOfEvents(membershipsMax: number, labelBytes: number): Measures {
  const measures: Record<string, Measures[string]> = {}
  for (const size of SIZES) {
    if (size > membershipsMax) break
    const name = size < 1e6 ? `${size / 1e3}k` : `${size / 1e6}M`
    const index = ballasted(size)
    const applier = new EventApplier(index, new LayerSlots(KEYS), labelBytes)
    applier.open(ENGINE_SLOT)
    for (const run of RUNS) {
      for (const [what, us] of Object.entries(measure(applier, run))) {
        measures[`${what}${run}@${name}`] = { value: us, unit: 'µs' }
      }
      if (index.blocksHeld(ENGINE_SLOT) !== 0) throw new Error('a run was not removed')
    }
  }
  return measures
}

function measure(applier: EventApplier, run: number): Readonly<Record<string, number>> {
  const stored = Array.from({ length: PAYLOADS }, (_, n) => onePayload('stored', n, run))
  const removed = Array.from({ length: PAYLOADS }, (_, n) => onePayload('removed', n, run))
  const samples = {
    decode: new Float64Array(BATCHES),
    stored: new Float64Array(BATCHES),
    removed: new Float64Array(BATCHES),
  }
  for (let batch = -BATCHES; batch < BATCHES; batch++) {
    const start = performance.now()
    for (const payload of stored) decodeKvBatch(payload)
    const decodedAt = performance.now()
    for (const payload of stored) applier.apply(ENGINE_SLOT, BLOCK_TOKENS, decodeKvBatch(payload).events)
    const storedAt = performance.now()
    for (const payload of removed) applier.apply(ENGINE_SLOT, BLOCK_TOKENS, decodeKvBatch(payload).events)
    const removedAt = performance.now()
    if (batch < 0) continue
    samples.decode[batch] = ((decodedAt - start) * 1000) / PAYLOADS
    samples.stored[batch] = ((storedAt - decodedAt) * 1000) / PAYLOADS
    samples.removed[batch] = ((removedAt - storedAt) * 1000) / PAYLOADS
  }
  return {
    decodeStored: percentile(samples.decode, 50),
    stored: percentile(samples.stored, 50),
    removed: percentile(samples.removed, 50),
  }
}

/** Holds `size` memberships of another worker. */
function ballasted(size: number): BlockIndex {
  const index = BlockIndex.create(layeredOptions((8 << 20) + size * BYTES_PER_MEMBERSHIP, KEYS))
  const locals = new Int32Array(2 * BALLAST_CHAIN_BLOCKS)
  for (let first = 0; first < size; first += BALLAST_CHAIN_BLOCKS) {
    for (let i = 0; i < BALLAST_CHAIN_BLOCKS; i++) mixInto(BALLAST_AT + first + i, locals, 2 * i)
    index.store(BALLAST_SLOT, undefined, locals, locals, BALLAST_CHAIN_BLOCKS)
  }
  return index
}
