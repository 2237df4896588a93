/**
 * Chosen before: the worker key that an answer has named already, where a request is to be booked now.
 *
 * What the choice went by (constraints, health, busy thresholds, sessions) is not asked again: its caller
 * sends the request there in any case.
 */

import { type ErrorRecord, toErrorRecord } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import type { Eligible } from './eligible.ts'
import { WorkerGoneError } from './errors.ts'

export interface ChosenBefore {
  readonly worker: string
  /** Of the worker key when it was chosen: a worker that was replaced has another. */
  readonly workerSlot: number
  /** Tokens of the prompt that count as load, as the answer said. */
  readonly prefillTokens: number
}

/** The worker key as the only candidate; or that it is gone. */
export function candidateChosen({ workers }: Fleet, chosen: ChosenBefore): Eligible | ErrorRecord {
  for (const worker of workers)
    for (const key of worker.keys)
      if (key.key === chosen.worker && key.workerSlot === chosen.workerSlot)
        return { candidates: [{ worker, key }], excluded: [], preferences: undefined }
  return toErrorRecord(new WorkerGoneError(chosen.worker))
}
