/** Metrics of a worker, which a router and Prometheus read from it, in Prometheus' text form. */

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

interface Family {
  readonly name: string
  readonly kind: 'gauge' | 'counter'
  readonly help: string
  /** By labels, as they are written; '' for none. */
  readonly values: Readonly<Record<string, number>>
}

/** `startedSeconds`: by it others tell a new process from one that went on. */
export function workerMetrics(startedSeconds: number, figures: WorkerFigures): string {
  const families = [
    gauge('process_start_time_seconds', 'Start of the worker, in Unix seconds.', startedSeconds),
    ...ofRequests(figures),
    ...(figures.tcp === undefined ? [] : ofTcp(figures.tcp)),
  ]
  return families.map(textOf).join('')
}

function ofRequests({ counts, openRequests, bodiesBytes, refusedBodies }: WorkerFigures): readonly Family[] {
  const { finished, failed, cancelled, tokens } = counts
  return [
    gauge('homing_worker_open_requests', 'Requests that are open.', openRequests),
    counter('homing_worker_requests_total', 'Requests for token ids that are over, by how they ended.', {
      '{outcome="finished"}': finished,
      '{outcome="failed"}': failed,
      '{outcome="cancelled"}': cancelled,
    }),
    counter('homing_worker_output_tokens_total', 'Token ids that were given.', { '': tokens }),
    gauge('homing_worker_bodies_bytes', 'Bytes of bodies of requests.', bodiesBytes),
    counter('homing_worker_refused_bodies_total', 'Requests without room for their bodies.', {
      '': refusedBodies,
    }),
  ]
}

function ofTcp(tcp: Readonly<TcpCounts>): readonly Family[] {
  return [
    gauge('homing_worker_tcp_connections', 'Connections of routers that are open.', tcp.connections),
    counter('homing_worker_tcp_refused_total', 'Connections and requests past their bounds over TCP.', {
      '{what="connections"}': tcp.refusedConnections,
      '{what="requests"}': tcp.refusedStreams,
    }),
    gauge('homing_worker_tcp_buffered_bytes', 'Bytes for routers that read slowly.', tcp.bufferedBytes),
    gauge('homing_worker_tcp_partial_bytes', 'Bytes of frames that have not come whole.', tcp.partialBytes),
  ]
}

function gauge(name: string, help: string, value: number): Family {
  return { name, kind: 'gauge', help, values: { '': value } }
}

function counter(name: string, help: string, values: Readonly<Record<string, number>>): Family {
  return { name, kind: 'counter', help, values }
}

function textOf({ name, kind, help, values }: Family): string {
  const lines = Object.entries(values).map(([labels, value]) => `${name}${labels} ${value}\n`)
  return `# HELP ${name} ${help}\n# TYPE ${name} ${kind}\n${lines.join('')}`
}
