/**
 * Loading workers: those that may still bring a model that no worker lists. An engine opens its port only
 * when its model is loaded, and one that was restarted may come back with another model.
 */

import type { Fleet, WorkerRecord } from './fleet.ts'

/**
 * Workers that do not answer, and have not for less than `loadingMsMax`. After that time a worker counts as
 * gone: otherwise one dead worker would make every misspelled model look like one that is still loading.
 */
export function loadingWorkers(
  { workers }: Fleet,
  wallMs: number,
  loadingMsMax: number,
): readonly WorkerRecord[] {
  return workers.filter(
    ({ isDraining, unansweredSinceMs }) =>
      isDraining !== true && unansweredSinceMs !== undefined && wallMs - unansweredSinceMs < loadingMsMax,
  )
}
