/**
 * Metrics of files that are followed while a program runs: whether they can be used, and what became of
 * changes.
 */

import type { Metrics } from './metrics.ts'

/** What their owner counts. */
export interface FilesFigures {
  /** Why they cannot be used as they are. */
  readonly fault: string | undefined
  readonly counts: { readonly loaded: number; readonly refused: number }
}

/**
 * Answers what takes their figures at each scrape; undefined: there are none. `tells`: of several owners of
 * the same files it is the one that counts changes. `options`: the settings that name them.
 */
export function fileMetrics(
  metrics: Metrics,
  prefix: string,
  options: string,
): (files: FilesFigures | undefined, tells: boolean) => void {
  const broken = metrics.gauge({
    name: `${prefix}_files_broken_state`,
    help: `1 while the files of ${options} cannot be used, and what they said before counts.`,
  })
  const reloads = metrics.counter({
    name: `${prefix}_reloads_total`,
    help: `Changes of the files of ${options}: loaded, or refused because they cannot be used.`,
    labels: ['outcome'],
  })
  return (files, tells) => {
    broken.set(files?.fault === undefined ? 0 : 1)
    if (files === undefined || !tells) return
    reloads.setTotal(files.counts.loaded, { outcome: 'loaded' })
    reloads.setTotal(files.counts.refused, { outcome: 'refused' })
  }
}
