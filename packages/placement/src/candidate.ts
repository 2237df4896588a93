/** Candidate: a worker key that may take a request. */

import type { WorkerKeyRecord, WorkerRecord } from '@homing/fleet'

export interface Candidate {
  readonly worker: WorkerRecord
  readonly key: WorkerKeyRecord
}

/** The worker slots of the candidates, in their order. */
export function slotsOf(candidates: readonly Candidate[]): Int32Array {
  const slots = new Int32Array(candidates.length)
  for (let i = 0; i < slots.length; i++) slots[i] = candidates[i]!.key.workerSlot
  return slots
}
