/**
 * Metrics of NATS brokers: connection state and traffic. Without a broker there are no series.
 */

import type { MetricColumn, Metrics } from '@homing/metrics'
import type { BrokerCounts, Transport } from '@homing/transport'

const COLUMNS: readonly MetricColumn<Readonly<BrokerCounts>>[] = [
  [
    'homing_broker_connected_state',
    '1 while there is a connection to the NATS broker, else 0.',
    broker => +broker.isConnected,
  ],
  [
    'homing_broker_connections_total',
    'Connections to the NATS broker that were made.',
    broker => broker.connections,
  ],
  [
    'homing_broker_published_bytes_total',
    'Bytes of the messages that were published.',
    broker => broker.publishedBytes,
  ],
  [
    'homing_broker_under_way_bytes',
    'Bytes that were published and that the NATS broker has not yet said it has read.',
    broker => broker.underWayBytes,
  ],
  [
    'homing_broker_lost_messages_total',
    'Messages that were not published: 64 MiB were under way, or the connection had ended.',
    broker => broker.lostMessages,
  ],
  [
    'homing_broker_open_requests',
    'Requests to workers that are under way over the NATS broker (--request-plane nats).',
    broker => broker.openCalls,
  ],
  [
    'homing_broker_held_bytes',
    'Bytes of the answers of workers that wait because a client reads slowly (--request-window-bytes each at most).',
    broker => broker.heldBytes,
  ],
  [
    'homing_broker_stream_messages_total',
    'KV event messages that came from a stream (--router-durable-kv-events).',
    broker => broker.streamMessages,
  ],
  [
    'homing_broker_stream_untaken_bytes',
    'Bytes of KV event messages that came from streams and are not applied yet (256 MiB at most).',
    broker => broker.streamUntakenBytes,
  ],
  [
    'homing_broker_stream_foreign_messages_total',
    'Messages in the stream that are no KV events of a publisher; they are passed over.',
    broker => broker.streamForeignMessages,
  ],
  [
    'homing_broker_stream_replays_total',
    'Replays that were read from a stream, because the publisher had forgotten what was asked for.',
    broker => broker.streamReplays,
  ],
  [
    'homing_broker_stream_failures_total',
    'Times that a stream could not be made, written, followed or read; publishers are then followed themselves.',
    broker => broker.streamFailures,
  ],
  [
    'homing_broker_stream_stored_messages_total',
    'KV event messages that a stream has stored for publishers of this process.',
    broker => broker.streamStoredMessages,
  ],
  [
    'homing_broker_stream_lost_messages_total',
    'KV event messages that a stream did not take in time: their publisher could not keep them any longer.',
    broker => broker.streamLostMessages,
  ],
]

export function collectBrokers(metrics: Metrics, brokers: Transport['brokers']): void {
  const table = metrics.table(['broker'], COLUMNS)
  const ended = metrics.counter({
    name: 'homing_broker_requests_total',
    help: 'Requests to workers over the NATS broker that have ended, by how.',
    labels: ['broker', 'outcome'],
  })
  metrics.collect(() => {
    table.replace(brokers().map(([broker, row]) => ({ row, labels: { broker } })))
    for (const [broker, { endedCalls }] of brokers())
      for (const [outcome, total] of Object.entries(endedCalls)) ended.setTotal(total, { broker, outcome })
  })
}
