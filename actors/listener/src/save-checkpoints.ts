import type { ActorRef } from '@homing/actor'
import type { Clock } from '@homing/base'
import type { ListenerMessage, SaveOutcome } from './messages.ts'

/** How many listeners ended each way; `late`: without a word in time. */
export type SaveReport = Readonly<Record<SaveOutcome | 'late', number>>

/** However little of the grace is left. */
const SAVING_MS_MIN = 4000
/**
 * A source that is just being compared with its engine is settled soon; one whose engine is gone is not. So
 * long one that is not settled is asked again.
 */
const SETTLING_MS_MAX = 1000
const SETTLING_POLL_MS = 50

/** How long saving may take at a stop, in milliseconds: what is left of its grace, at least SAVING_MS_MIN. */
export function savingMs(graceEndMs: number, nowMs: number): number {
  return Math.max(SAVING_MS_MIN, graceEndMs - nowMs)
}

/** Has listeners write their checkpoints, and resolves when they have, or after `timeoutMs`. */
export async function saveCheckpoints(
  listeners: readonly ActorRef<ListenerMessage>[],
  timeoutMs: number,
  clock: Clock,
): Promise<SaveReport> {
  const report = { saved: 0, unchanged: 0, unsettled: 0, failed: 0, off: 0, late: 0 }
  const [endMs, settledByMs] = [timeoutMs, SETTLING_MS_MAX].map(ms => clock.nowMs() + ms) as [number, number]
  const saving = listeners.map(async listener => {
    for (;;) {
      const timeout = Math.max(1, endMs - clock.nowMs())
      const outcome = await listener.ask({ type: 'save' }, { timeout }).catch(() => 'late' as const)
      if (outcome !== 'unsettled' || clock.nowMs() >= Math.min(settledByMs, endMs)) return outcome
      await new Promise<void>(resolve => clock.after(SETTLING_POLL_MS, resolve))
    }
  })
  for (const outcome of await Promise.all(saving)) report[outcome]++
  return report
}
