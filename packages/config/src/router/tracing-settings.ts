/** Settings of `homing router` for OpenTelemetry: where spans go, of how many requests, and what may wait. */

import type { SettingDescriptor } from '../descriptor.ts'

export const tracingSettings = [
  {
    key: 'otlpEndpoint',
    name: 'otlp-endpoint',
    group: 'Traces',
    kind: 'text',
    placeholder: 'URL',
    default: undefined,
    unsetMeans: 'no traces are made',
    envAliases: [{ name: 'OTEL_EXPORTER_OTLP_ENDPOINT', isStandard: true }],
    check: (text: string): string | undefined => faultOfCollector(text),
    help: 'Base URL of an OpenTelemetry collector that takes OTLP over HTTP, such as http://127.0.0.1:4318: spans of the stages of each request go to its /v1/traces. It needs packages that are not installed with the router; the error at the start names them (docs/operations.md); where only OTEL_EXPORTER_OTLP_ENDPOINT names it, the router starts without traces and says so. A collector that does not answer delays no request.',
  },
  {
    key: 'otlpSample',
    name: 'otlp-sample',
    group: 'Traces',
    kind: 'number',
    default: 1,
    min: 0,
    max: 1,
    help: 'Share of the requests that are traced. With --otlp-context parent it is that of requests without a trace context.',
  },
  {
    key: 'otlpContext',
    name: 'otlp-context',
    group: 'Traces',
    kind: 'choice',
    choices: ['link', 'parent'],
    default: 'link',
    help: 'What the trace context of a client (traceparent) counts for. link: each request begins a trace of its own, which names that context as a link; no client decides what is traced. parent: that context is the parent of the trace, and its flag decides whether the request is traced: for clients that you trust.',
  },
  {
    key: 'otlpQueueSpans',
    name: 'otlp-queue-spans',
    group: 'Traces',
    kind: 'integer',
    default: 8192,
    min: 512,
    max: 1_000_000,
    unit: 'spans',
    help: 'Most spans that wait for the collector, on each gateway thread, at about 2 KiB each. Of more, the newest are dropped and counted (homing_gateway_trace_spans_total).',
  },
] as const satisfies readonly SettingDescriptor[]

/** No fault repeats the text: it may hold a key. */
function faultOfCollector(text: string): string | undefined {
  const url = URL.parse(text)
  if (url === null || !/^https?:$/.test(url.protocol) || url.hostname === '')
    return 'must be an http or https URL, such as http://127.0.0.1:4318'
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '')
    return 'must have no user, query or fragment; headers for the collector stand in OTEL_EXPORTER_OTLP_HEADERS'
  return undefined
}
