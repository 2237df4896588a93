import type { ActorRef } from '@homing/actor'
import type { ListenerMessage, SaveOutcome } from './messages.ts'

/** How many listeners ended each way; `late`: without a word in time. */
export type SaveReport = Readonly<Record<SaveOutcome | 'late', number>>

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
