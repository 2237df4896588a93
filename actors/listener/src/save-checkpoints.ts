import type { ActorRef } from '@homing/actor'
import type { ListenerMessage, SaveOutcome } from './messages.ts'

/** How many listeners ended each way; `late`: without a word in time. */
export type SaveReport = Readonly<Record<SaveOutcome | 'late', number>>

/** However little of the grace is left. */
const SAVING_MS_MIN = 4000

/** How long saving may take at a stop, in milliseconds: what is left of its grace, at least SAVING_MS_MIN. */
export function savingMs(graceEndMs: number, nowMs: number): number {
  return Math.max(SAVING_MS_MIN, graceEndMs - nowMs)
}

/** Has listeners write their checkpoints, and resolves when they have, or after `timeoutMs`. */
export async function saveCheckpoints(
  listeners: readonly ActorRef<ListenerMessage>[],
  timeoutMs: number,
): Promise<SaveReport> {
  const report = { saved: 0, unchanged: 0, unsettled: 0, failed: 0, off: 0, late: 0 }
  const asked = listeners.map(listener =>
    listener.ask({ type: 'save' }, { timeout: timeoutMs }).catch(() => 'late' as const),
  )
  for (const outcome of await Promise.all(asked)) report[outcome]++
  return report
}
