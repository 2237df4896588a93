/**
 * Metrics of the queue, by model and policy class: both are set by operators, so their number is bounded.
 * Tenants are on `GET /queue`.
 */

import type { Metrics } from '@homing/metrics'
import type { ClassRow } from '@homing/queue'
import type { ConsoleArgs } from '../console-args.ts'

export function collectQueue(metrics: Metrics, args: ConsoleArgs): void {
  const classes = metrics.table<ClassRow, 'model' | 'class'>(
    ['model', 'class'],
    [
      ['homing_queue_waiting_requests', 'Requests that wait for room.', row => row.waiting.requests],
      [
        'homing_queue_waiting_uncached_tokens',
        'Tokens that no worker holds, of the prompts that wait.',
        row => row.waiting.uncachedTokens,
      ],
      [
        'homing_queue_waiting_elsewhere_requests',
        'Requests that wait at other routers of the same workers; they count towards the limits of classes.',
        row => row.elsewhere.requests,
      ],
      [
        'homing_queue_oldest_seconds',
        'Age of the oldest request that waits.',
        row => row.waiting.oldestMs / 1000,
      ],
      [
        'homing_queue_expected_wait_seconds',
        'How long a request that comes now is expected to wait.',
        row => (row.expectedWaitMs === undefined ? undefined : row.expectedWaitMs / 1000),
      ],
      ['homing_queue_placed_requests_total', 'Requests that were placed.', row => row.served.requests],
      [
        'homing_queue_placed_uncached_tokens_total',
        'Tokens that no worker held, of the prompts that were placed.',
        row => row.served.uncachedTokens,
      ],
    ],
  )
  const refused = metrics.counter({
    name: 'homing_queue_refused_requests_total',
    help: 'Requests that had to wait and could not, or not any longer.',
    labels: ['model', 'class', 'reason'],
  })
  const room = metrics.gauge({
    name: 'homing_queue_used_ratio',
    help: 'Part of its bounds that the queue uses: requests, tokens, bytes.',
    labels: ['bound'],
  })
  metrics.collect(async () => {
    const status = await args.queue.ask({ type: 'queueStatus' }, { timeout: args.askMsMax })
    const rows = status.models.flatMap(({ model, snapshot }) =>
      snapshot.classes.map(row => ({ row, labels: { model, class: row.policyClass } })),
    )
    classes.replace(rows)
    for (const { row, labels } of rows) {
      for (const [reason, count] of Object.entries(row.refused))
        refused.setTotal(count, { ...labels, reason })
    }
    room.replace([
      { value: status.requests / Math.max(1, status.requestsMax), labels: { bound: 'requests' } },
      { value: status.tokens / Math.max(1, status.tokensMax), labels: { bound: 'tokens' } },
      { value: status.bytes / Math.max(1, status.bytesMax), labels: { bound: 'bytes' } },
    ])
  })
}
