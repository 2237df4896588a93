/** Settings of `homing router`: what it writes, and the demo fleet. */

import { LOG_LEVELS } from '@homing/base'
import type { SettingDescriptor } from '../descriptor.ts'
import { shared } from '../shared-settings.ts'
import { GIB, HOUR_MS, KIB, MIB, MINUTE_MS } from '../units.ts'

export const outputSettings = [
  {
    key: 'decisionLogFile',
    name: 'decision-log',
    group: 'Decision log',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'none is written',
    help: 'File for one JSON line per settled request: arrival, lengths, numbers of its blocks, worker, policy, predicted and delivered cached tokens, times. It is a trace that homing simulate reads (docs/decision-log.md). There is no text and no token id in it. Give each router a file of its own.',
  },
  {
    key: 'decisionLogBytesMax',
    name: 'decision-log-bytes',
    group: 'Decision log',
    kind: 'size',
    default: 64 * MIB,
    min: 4 * KIB,
    max: 64 * GIB,
    help: 'Size at which a file of the decision log is full: it becomes FILE.1, the one before FILE.2, and so on, and a new one is begun. A prompt of 10,000 tokens takes about 4 KiB.',
  },
  {
    key: 'decisionLogFilesMax',
    name: 'decision-log-files',
    group: 'Decision log',
    kind: 'integer',
    default: 8,
    min: 1,
    max: 1000,
    unit: 'files',
    help: 'Files of the decision log that are kept, the one being written included. The oldest is removed.',
  },

  {
    key: 'whatIfMinutes',
    name: 'what-if-minutes',
    group: 'What if',
    kind: 'integer',
    default: 15,
    min: 0,
    max: 1440,
    unit: 'minutes',
    zeroMeans: 'none are kept',
    help: 'How long requests are kept after their end, so that the page, or POST /what_if, can ask what another fleet or policy would have done with them (docs/page.md). Lengths, times and hashes are kept, in memory, no text. 0 keeps none.',
  },
  {
    key: 'whatIfBytes',
    name: 'what-if-bytes',
    group: 'What if',
    kind: 'size',
    default: 16 * MIB,
    min: MIB,
    max: 64 * MIB,
    help: 'Memory for the requests that are kept; the oldest are forgotten first. 16 MiB are some 28,000 prompts of 1,000 tokens in blocks of 16.',
  },
  {
    key: 'whatIfCpuShare',
    name: 'what-if-cpu-share',
    group: 'What if',
    kind: 'number',
    default: 0.25,
    min: 0.01,
    max: 1,
    help: 'Share of one core that an answer may take. It is found on a thread of its own, at the lowest priority (on Linux).',
  },
  {
    key: 'whatIfTimeoutMs',
    name: 'what-if-timeout',
    group: 'What if',
    kind: 'duration',
    default: 300_000,
    min: 1000,
    max: 3_600_000,
    help: 'Longest time for one answer.',
  },

  {
    key: 'metricsDynamoNames',
    name: 'metrics-dynamo-names',
    group: 'Metrics',
    kind: 'flag',
    default: false,
    help: 'Show metrics a second time under the names of NVIDIA Dynamo (dynamo_component_*, dynamo_router_overhead_*, dynamo_frontend_worker_*, dynamo_frontend_router_queue_*), for boards and alerts that are there already; with --no-frontend the first of these only (docs/metrics.md).',
  },
  {
    key: 'metricsModelsMax',
    name: 'metrics-models-max',
    group: 'Metrics',
    kind: 'integer',
    default: 100,
    min: 1,
    max: 10_000,
    unit: 'models',
    help: 'Most models, adapters included, that have series of their own in the metrics; the others share the label other. Each of them has about 120 series.',
  },
  {
    key: 'metricsModelIdleMs',
    name: 'metrics-model-idle',
    group: 'Metrics',
    kind: 'duration',
    default: HOUR_MS,
    min: MINUTE_MS,
    max: 30 * 24 * HOUR_MS,
    help: 'A model without a request for so long loses its series, which makes room for others; they begin anew with its next request.',
  },

  {
    ...shared.accessLog,
    group: 'Access log',
    unsetMeans: 'none is written',
    help: 'File to which one JSON line per request is appended, when the request is over; - is standard output. It has times, tokens, worker and outcome (docs/operations.md), no text, no header and no key. After you move it away, a new one is begun within a second.',
  },
  {
    key: 'accessLogSample',
    name: 'access-log-sample',
    group: 'Access log',
    kind: 'number',
    default: 1,
    min: 0,
    max: 1,
    help: 'Share of the requests that get a line in the access log, drawn for each request.',
  },

  {
    key: 'demoEngines',
    name: 'demo-engines',
    group: 'Demo fleet (where no worker is named)',
    kind: 'integer',
    default: 4,
    min: 1,
    max: 32,
    unit: 'engines',
    help: 'Simulated engines, on at most as many threads as cores, with real HTTP and ZeroMQ between them and the router.',
  },
  {
    key: 'demoSpeed',
    name: 'demo-speed',
    group: 'Demo fleet (where no worker is named)',
    kind: 'number',
    default: 1,
    min: 0.01,
    max: 1000,
    help: 'Divides every duration that the simulated engines pretend to need.',
  },
  {
    key: 'demoDisagg',
    name: 'demo-disagg',
    group: 'Demo fleet (where no worker is named)',
    kind: 'flag',
    default: false,
    help: 'Half of the demo engines, rounded down, compute prompts only and hand them to the others, which answer: prefill and decode apart. A hand-over takes 2 ms and 0.1 ms per token, as over 10 Gbit/s.',
  },
  {
    key: 'demoLoad',
    name: 'demo-load',
    group: 'Demo fleet (where no worker is named)',
    kind: 'flag',
    default: false,
    help: 'Send the demo fleet a gentle load by itself: a few conversations that grow, and share what assistants are told first. Made for looking at the page; the requests take the same way as those of any client.',
  },

  {
    ...shared.logLevel,
    envAliases: [{ name: 'DYN_LOG', read: levelOfFilter }],
    help: 'How much is logged, on standard error. info reports starts, stops and trust; debug every request; trace every batch of KV events.',
  },
  shared.logFormat,
] as const satisfies readonly SettingDescriptor[]

/**
 * The level of a filter such as 'info,hyper=warn': that of its last directive without a target. Directives
 * with a target are about modules that we do not have.
 *
 * Source   EnvFilter of the Rust crate tracing-subscriber.
 */
function levelOfFilter(text: string): string | undefined {
  const words = text.split(',').map(directive => directive.trim().toLowerCase())
  return words
    .map(word => (word === 'off' ? 'silent' : word))
    .findLast(word => (LOG_LEVELS as readonly string[]).includes(word))
}
