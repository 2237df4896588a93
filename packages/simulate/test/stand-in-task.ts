/**
 * A task for the pool that runs no simulation. A trace that is called `broken` cannot be read; one called
 * `endless` never ends.
 */

import { appendFileSync } from 'node:fs'
import { toErrorRecord } from '@homing/base'
import { MalformedTraceError } from '@homing/trace'
import type { CellOutcome, CellTask } from '../src/cell-task.ts'
import { standInRun } from './stand-in.ts'

/** Each run leaves a line in the file that the workload's path names, so that a test can count them. */
export async function runCellTask({ workload, spec, progress }: CellTask): Promise<CellOutcome> {
  Atomics.store(progress, 1, 2)
  Atomics.store(progress, 0, 1)
  if (workload.kind === 'file')
    appendFileSync(workload.path, `${spec.selection.policy} ${spec.speed} ${spec.seed}\n`)
  if (workload.name === 'broken') {
    return { kind: 'error', error: toErrorRecord(new MalformedTraceError('x.jsonl', 7, 'it is not JSON')) }
  }
  if (workload.name === 'endless') Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)
  return { kind: 'run', run: standInRun(spec) }
}
