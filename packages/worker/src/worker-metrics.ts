/** Metrics of a worker, which a router and Prometheus read from it. */

import { Metrics } from '@homing/metrics'
import type { TcpCounts } from '@homing/transport'
import type { TokenCounts } from './token-lines.ts'

export interface WorkerFigures {
  readonly counts: TokenCounts
  readonly openRequests: number
  readonly bodiesBytes: number
  readonly refusedBodies: number
  /** Undefined: requests do not come over TCP connections of many. */
  readonly tcp: Readonly<TcpCounts> | undefined
}

/** By this name others tell a new process from one that went on. */
const START = '# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds '

/** Renders the figures as they are when it is called. */
export function workerMetrics(startedSeconds: number, read: () => WorkerFigures): () => Promise<string> {
  const metrics = new Metrics()
  const gauge = (name: string, help: string) => metrics.gauge({ name, help })
  const counter = (name: string, help: string) => metrics.counter({ name, help })
  const open = gauge('homing_worker_open_requests', 'Requests that are open.')
  const ended = metrics.counter({
    name: 'homing_worker_requests_total',
    help: 'Requests for token ids that are over, by how they ended.',
    labels: ['outcome'],
  })
  const tokens = counter('homing_worker_output_tokens_total', 'Token ids that were given.')
  const bodies = gauge('homing_worker_bodies_bytes', 'Bytes of bodies of requests.')
  const refused = counter('homing_worker_refused_bodies_total', 'Requests without room for their bodies.')
  const connections = gauge('homing_worker_tcp_connections', 'Connections of routers that are open.')
  const full = metrics.counter({
    name: 'homing_worker_tcp_refused_total',
    help: 'What was not taken over TCP: connections past their bound, and requests past that of a connection.',
    labels: ['what'],
  })
  const waiting = metrics.gauge({
    name: 'homing_worker_tcp_bytes',
    help: 'Bytes of the TCP plane: buffered for routers that read slowly, and of frames that are not whole.',
    labels: ['what'],
  })
  return async () => {
    const { counts, openRequests, bodiesBytes, refusedBodies, tcp } = read()
    open.set(openRequests)
    for (const outcome of ['finished', 'failed', 'cancelled'] as const)
      ended.setTotal(counts[outcome], { outcome })
    tokens.setTotal(counts.tokens)
    bodies.set(bodiesBytes)
    refused.setTotal(refusedBodies)
    if (tcp !== undefined) {
      connections.set(tcp.connections)
      full.setTotal(tcp.refusedConnections, { what: 'connections' })
      full.setTotal(tcp.refusedStreams, { what: 'requests' })
      waiting.set(tcp.bufferedBytes, { what: 'buffered' })
      waiting.set(tcp.partialBytes, { what: 'partial' })
    }
    return `${START}${startedSeconds}\n${await metrics.render()}`
  }
}
