/** Metrics of the keys of operators. */

import { type FilesFigures, fileMetrics, type Metrics } from '@homing/metrics'
import type { AdminKeyRefusal } from '../admin-access.ts'

/** Answers what counts a refusal. `files`: of --admin-keys-file; undefined: there is none. */
export function collectAdminKeys(
  metrics: Metrics,
  files: FilesFigures | undefined,
): (reason: AdminKeyRefusal) => void {
  const refused = metrics.counter({
    name: 'homing_operator_keys_refused_total',
    help: 'Operator requests that --admin-keys-file does not allow: without a key, with one of no entry, or with one whose role may not.',
    labels: ['reason'],
  })
  const read = fileMetrics(metrics, 'homing_operator_keys', '--admin-keys-file')
  metrics.collect(() => read(files, true))
  return reason => refused.add(1, { reason })
}
