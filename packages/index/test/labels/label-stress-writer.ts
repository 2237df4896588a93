/** Changes one block of a label table as fast as it can: in another pool, dropped, under another record. */

import { workerData } from 'node:worker_threads'
import { LabelTable, POOL_STATE } from '../../src/index.ts'

const { memory, rounds } = workerData as { readonly memory: SharedArrayBuffer; readonly rounds: number }
const table = new LabelTable(memory, () => true)
const ids = (id: number) => Int32Array.from({ length: 18 }, (_, i) => (i % 2 === 0 ? id : i))
for (let round = 0; round < rounds; round++) {
  const workerSlot = round % 3
  table.stored({
    workerSlot,
    engineHash: [round % 5, 1],
    sequenceHash: [1, 2],
    moe: { layerId: round, expertId: round, expertGroup: round },
    place: { state: POOL_STATE.cxlPooled, poolId: round, workerIds: ids(round) },
    isHeld: true,
  })
  table.clear(workerSlot)
}
