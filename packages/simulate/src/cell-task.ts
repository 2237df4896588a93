/** The task of a sweep's thread: runs one cell. Its argument and its result are plain data. */

import { CodedError, type ErrorRecord, toErrorRecord } from '@homing/base'
import type { CellRun, CellSpec } from './cell-types.ts'
import { simulateCell } from './simulate-cell.ts'
import { openWorkload, type Workload } from './workload.ts'

export interface CellTask {
  readonly workload: Workload
  readonly spec: CellSpec
  /**
   * Word 0: requests done; word 1: requests expected, 0 if unknown. Shared memory: only this thread writes
   * it.
   */
  readonly progress: Int32Array
}

/** An error loses its class between threads, so it travels as a record. */
export type CellOutcome =
  | { readonly kind: 'run'; readonly run: CellRun }
  | { readonly kind: 'error'; readonly error: ErrorRecord }

export async function runCellTask({ workload, spec, progress }: CellTask): Promise<CellOutcome> {
  try {
    const run = await simulateCell(spec, openWorkload(workload, spec), {
      onProgress({ requestsDone, requestsExpected }) {
        Atomics.store(progress, 0, requestsDone)
        Atomics.store(progress, 1, requestsExpected ?? 0)
      },
    })
    return { kind: 'run', run }
  } catch (thrown) {
    // A bug keeps its stack.
    if (!(thrown instanceof CodedError)) throw thrown
    return { kind: 'error', error: toErrorRecord(thrown) }
  }
}
