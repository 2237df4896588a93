/** Supervision: how often an actor may be restarted, and how long each restart waits. */

import type { Settings } from '../contract/settings.ts'

/** The restarts of one actor that still count against its budget: those within a sliding window. */
export class RestartBudget {
  #timesMs: readonly number[]

  /** With restarts that happened elsewhere, so long ago. */
  constructor(agesMs: readonly number[], nowMs: number) {
    this.#timesMs = agesMs.map(ageMs => nowMs - ageMs)
  }

  /** Takes one restart; its number within the window, from 1. Undefined when the budget is exhausted. */
  take(settings: Settings, nowMs: number): number | undefined {
    const times = this.#timesMs.filter(timeMs => nowMs - timeMs < settings.withinMs)
    if (times.length >= settings.restartsMax) return undefined
    times.push(nowMs)
    this.#timesMs = times
    return times.length
  }
}

/** Delay before restart number `attempt` of the window (from 1): min · 2ⁿ up to max, part of it random. */
export function backoffMs(
  settings: Pick<Settings, 'backoffMsMin' | 'backoffMsMax' | 'jitter'>,
  attempt: number,
  random: number,
): number {
  const full = Math.min(settings.backoffMsMax, settings.backoffMsMin * 2 ** (attempt - 1))
  return full * (1 - settings.jitter * random)
}
