/** Metrics of the snapshots beside a stream of KV events. Without a stream there are no series. */

import type { SnapshotCounts } from '@homing/actors/directory'
import type { Metrics } from '@homing/metrics'

/** Answers what to call with the counts of the directory; undefined: there is no stream. */
export function streamMetrics(metrics: Metrics): (counts: SnapshotCounts | undefined) => void {
  const passes = metrics.counter({
    name: 'homing_stream_snapshot_passes_total',
    help: 'Looks at the stream of KV events for snapshots, by how they ended: below the limits, locked by another router, done, lost (the lock ended), failed, if only of one key.',
    labels: ['outcome'],
  })
  const snapshots = metrics.counter({
    name: 'homing_stream_snapshots_total',
    help: 'Snapshots of worker keys that were taken; unchanged, since the stored one says as much or the publisher gives snapshots itself; skipped, because the key is not known exactly; or failed.',
    labels: ['outcome'],
  })
  const purged = metrics.counter({
    name: 'homing_stream_purged_messages_total',
    help: 'Messages of the stream that were purged, because a snapshot stands for them.',
    labels: [],
  })
  const begunAgain = metrics.counter({
    name: 'homing_stream_begun_again_total',
    help: 'Listeners that began again from a snapshot, because the stream no longer has what it stands for.',
    labels: [],
  })
  return counts => {
    if (counts === undefined) return
    for (const [outcome, total] of Object.entries(counts.passes)) passes.setTotal(total, { outcome })
    snapshots.setTotal(counts.taken, { outcome: 'taken' })
    snapshots.setTotal(counts.unchanged, { outcome: 'unchanged' })
    snapshots.setTotal(counts.skipped, { outcome: 'skipped' })
    snapshots.setTotal(counts.failed, { outcome: 'failed' })
    purged.setTotal(counts.purgedMessages)
    begunAgain.setTotal(counts.begunAgain)
  }
}
