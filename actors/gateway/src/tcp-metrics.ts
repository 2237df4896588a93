/** Metrics of the TCP request plane of this thread. Without a connection, or a try, there are no series. */

import type { MetricColumn, Metrics } from '@homing/metrics'
import type { TcpCounts } from '@homing/transport'

const COLUMNS: readonly MetricColumn<Readonly<TcpCounts>>[] = [
  ['homing_tcp_open_connections', 'Connections to workers that are open.', tcp => tcp.connections],
  ['homing_tcp_connections_made_total', 'Connections to workers that were made.', tcp => tcp.connected],
  [
    'homing_tcp_open_requests',
    'Requests to workers that are under way over TCP (--request-plane tcp).',
    tcp => tcp.openCalls,
  ],
  [
    'homing_tcp_refused_requests_total',
    'Requests that found as many on the connection to their worker as it takes.',
    tcp => tcp.refusedStreams,
  ],
  [
    'homing_tcp_held_bytes',
    'Bytes of the answers of workers that wait because a client reads slowly (--request-window-bytes each at most).',
    tcp => tcp.heldBytes,
  ],
  [
    'homing_tcp_buffered_bytes',
    'Bytes that wait here for workers that read slowly (--max-tcp-buffer-bytes for each at most).',
    tcp => tcp.bufferedBytes,
  ],
  [
    'homing_tcp_partial_bytes',
    'Bytes of frames of workers that have not come whole (--max-tcp-frame-bytes for each at most).',
    tcp => tcp.partialBytes,
  ],
]

/** Answers how to read the counts. */
export function tcpMetrics(metrics: Metrics, tcp: Readonly<TcpCounts>): () => void {
  const table = metrics.table([], COLUMNS)
  const requests = metrics.counter({
    name: 'homing_tcp_requests_total',
    help: 'Requests to workers over TCP that have ended, by how.',
    labels: ['outcome'],
  })
  const ends = metrics.counter({
    name: 'homing_tcp_connection_ends_total',
    help: 'Connections to workers that ended, or could not be made, by why.',
    labels: ['reason'],
  })
  return () => {
    if (tcp.connected + tcp.ends.connect === 0) return
    table.replace([{ row: tcp, labels: {} }])
    for (const [outcome, total] of Object.entries(tcp.endedCalls)) requests.setTotal(total, { outcome })
    for (const [reason, total] of Object.entries(tcp.ends)) ends.setTotal(total, { reason })
  }
}
