/**
 * Simulate cell: runs one cell (cell.ts) to its end, and lets the process do other things now and then.
 */

import { systemClock } from '@homing/base'
import type { TraceSource } from '@homing/trace'
import { arrivalsOf } from './arrivals.ts'
import { Cell } from './cell.ts'
import { checkSpec } from './cell-spec.ts'
import type { CellRun, CellSpec, ClosedLoop, SimulateOptions } from './cell-types.ts'

const PROGRESS_MS = 100
/** Events between two looks at the real clock. */
const EVENTS_PER_LOOK = 8192

/**
 * Runs one cell. Throws SimulationError for a spec or requests that cannot be, the reason of `signal`, and
 * what reading the source throws.
 */
export async function simulateCell(
  spec: CellSpec,
  requests: TraceSource | ClosedLoop,
  options: SimulateOptions = {},
): Promise<CellRun> {
  checkSpec(spec)
  const clock = options.clock ?? systemClock
  const startedMs = clock.nowMs()
  const { arrivals, expected } = await arrivalsOf(spec, requests)
  const cell = new Cell(spec, clock, arrivals, expected, options.onServed)
  let lookedMs = startedMs
  while (await cell.run(EVENTS_PER_LOOK)) {
    const nowMs = clock.nowMs()
    if (nowMs - lookedMs < PROGRESS_MS) continue
    lookedMs = nowMs
    options.onProgress?.({
      requestsDone: cell.requestsDone,
      requestsExpected: expected,
      simulatedMs: cell.nowMs,
    })
    // Lets the process hear of Ctrl-C and of messages.
    await new Promise<void>(resolve => void clock.after(0, resolve))
    options.signal?.throwIfAborted()
  }
  return { result: cell.result(), cost: cell.cost(clock.nowMs() - startedMs) }
}
