/**
 * The Grafana board of deploy/grafana/homing.json, written by `pnpm run docs` from the panels below.
 *
 * It needs Grafana 10 or later and a Prometheus data source, which is asked for at the import. `$job` chooses
 * the scrape job.
 */

import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

export const BOARD_PATH = fileURLToPath(new URL('../deploy/grafana/homing.json', import.meta.url))

/** Unit of Grafana. */
type Unit = 's' | 'short' | 'reqps' | 'percentunit' | 'bytes' | 'tps'

interface Query {
  readonly expr: string
  /** Text with {{label}}. */
  readonly legend: string
}

interface Panel {
  readonly title: string
  readonly help: string
  readonly unit: Unit
  readonly queries: readonly Query[]
  /** One figure in place of a curve. */
  readonly isFigure?: boolean
}

interface Row {
  readonly title: string
  readonly panels: readonly Panel[]
}

const RATE = '$__rate_interval'
const of = (metric: string, more = ''): string => `${metric}{job=~"$job"${more === '' ? '' : `, ${more}`}}`
const rate = (metric: string, more = ''): string => `rate(${of(metric, more)}[${RATE}])`
const quantile = (q: number, metric: string, by: string, more = ''): string =>
  `histogram_quantile(${q}, sum by (le, ${by}) (${rate(`${metric}_bucket`, more)}))`
const quantiles = (metric: string, by: string): Query[] =>
  [0.5, 0.9, 0.99].map(q => ({ expr: quantile(q, metric, by), legend: `p${100 * q} {{${by}}}` }))

export const ROWS: readonly Row[] = [
  {
    title: 'Does it pay?',
    panels: [
      {
        title: 'Cached share of prompts',
        help: 'Prompt tokens that engines had in their caches, by all prompt tokens, as engines report them.',
        unit: 'percentunit',
        isFigure: true,
        queries: [
          {
            expr: `sum(${rate('homing_request_cached_tokens_total')}) / sum(${rate('homing_request_prompt_tokens_sum')})`,
            legend: 'cached',
          },
        ],
      },
      {
        title: 'Tokens not computed again',
        help: 'Prompt tokens a second that engines found in their caches.',
        unit: 'tps',
        isFigure: true,
        queries: [{ expr: `sum(${rate('homing_request_cached_tokens_total')})`, legend: 'tokens' }],
      },
      {
        title: 'Requests a second',
        help: 'Answers by status.',
        unit: 'reqps',
        queries: [
          { expr: `sum by (status) (${rate('homing_gateway_requests_total')})`, legend: '{{status}}' },
        ],
      },
      {
        title: 'Time to the first token',
        help: 'From the arrival of a request to the first token of its stream.',
        unit: 's',
        queries: quantiles('homing_request_first_token_seconds', 'model'),
      },
      {
        title: 'Time between tokens',
        help: 'Mean time between the tokens of an answer.',
        unit: 's',
        queries: quantiles('homing_request_token_gap_seconds', 'model'),
      },
      {
        title: 'Regret',
        help: 'What the last decisions cost beyond what round-robin and least-loaded would have cost, as predicted. Below 0: it pays.',
        unit: 's',
        queries: [{ expr: of('homing_guard_regret_seconds'), legend: 'against {{rule}}' }],
      },
      {
        title: 'Predicted and delivered',
        help: 'Cached tokens that were predicted, and those that engines delivered.',
        unit: 'tps',
        queries: [
          { expr: `sum(${rate('homing_audit_predicted_tokens_total')})`, legend: 'predicted' },
          { expr: `sum(${rate('homing_audit_delivered_tokens_total')})`, legend: 'delivered' },
        ],
      },
    ],
  },
  {
    title: 'Fleet',
    panels: [
      {
        title: 'Workers',
        help: 'By state.',
        unit: 'short',
        queries: [{ expr: `sum by (state) (${of('homing_directory_worker_state')})`, legend: '{{state}}' }],
      },
      {
        title: 'Trust',
        help: 'Worker keys by how far what is known of their caches is trusted.',
        unit: 'short',
        queries: [{ expr: `sum by (trust) (${of('homing_directory_trust_state')})`, legend: '{{trust}}' }],
      },
      {
        title: 'Requests at workers',
        help: 'That are booked.',
        unit: 'short',
        queries: [{ expr: of('homing_tracker_active_requests'), legend: '{{worker}}' }],
      },
      {
        title: 'Prefill at workers',
        help: 'Prompt tokens that are still to be computed.',
        unit: 'short',
        queries: [{ expr: of('homing_tracker_active_prefill_tokens'), legend: '{{worker}}' }],
      },
      {
        title: 'KV blocks in use',
        help: 'Blocks of running requests, by blocks of the worker.',
        unit: 'percentunit',
        queries: [
          {
            expr: `${of('homing_tracker_active_blocks')} / on (instance, worker) group_left () label_replace(${of('homing_worker_kv_blocks')}, "worker", "$1/0", "worker", "(.*)")`,
            legend: '{{worker}}',
          },
        ],
      },
      {
        title: 'Events',
        help: 'KV events a second that workers told.',
        unit: 'short',
        queries: [{ expr: rate('homing_listener_events_total'), legend: '{{worker}}' }],
      },
      {
        title: 'Gaps and restarts',
        help: 'Events that were missed and asked for again; lives of engines that ended.',
        unit: 'short',
        queries: [
          { expr: `sum(increase(${of('homing_listener_gaps_total')}[${RATE}]))`, legend: 'gaps' },
          { expr: `sum(increase(${of('homing_listener_restarts_total')}[${RATE}]))`, legend: 'restarts' },
        ],
      },
    ],
  },
  {
    title: 'Waiting and failures',
    panels: [
      {
        title: 'Waiting',
        help: 'Requests that wait for room, by policy class.',
        unit: 'short',
        queries: [{ expr: of('homing_queue_waiting_requests'), legend: '{{model}} {{class}}' }],
      },
      {
        title: 'Oldest',
        help: 'Age of the oldest request that waits.',
        unit: 's',
        queries: [{ expr: of('homing_queue_oldest_seconds'), legend: '{{model}} {{class}}' }],
      },
      {
        title: 'Failures',
        help: 'Requests that the fleet failed.',
        unit: 'reqps',
        queries: [{ expr: `sum by (phase) (${rate('homing_gateway_failures_total')})`, legend: '{{phase}}' }],
      },
      {
        title: 'Clients that left',
        help: 'Before their answer was complete.',
        unit: 'reqps',
        queries: [{ expr: `sum(${rate('homing_gateway_clients_gone_total')})`, legend: 'left' }],
      },
    ],
  },
  {
    title: 'The house',
    panels: [
      {
        title: 'Stages',
        help: 'What a request takes in the router, p99.',
        unit: 's',
        queries: [{ expr: quantile(0.99, 'homing_request_stage_seconds', 'stage'), legend: '{{stage}}' }],
      },
      {
        title: 'Event loop',
        help: 'Delay of the main thread, p99.',
        unit: 's',
        queries: [{ expr: of('nodejs_eventloop_lag_p99_seconds'), legend: '{{instance}}' }],
      },
      {
        title: 'CPU',
        help: 'Cores in use.',
        unit: 'short',
        queries: [{ expr: rate('process_cpu_seconds_total'), legend: '{{instance}}' }],
      },
      {
        title: 'Memory',
        help: 'Resident, and what the prefix index uses of its limit.',
        unit: 'bytes',
        queries: [
          { expr: of('process_resident_memory_bytes'), legend: 'resident {{instance}}' },
          { expr: `sum by (instance) (${of('homing_index_used_bytes')})`, legend: 'index {{instance}}' },
        ],
      },
      {
        title: 'Actors restarted',
        help: 'By the supervisors.',
        unit: 'short',
        queries: [
          { expr: `sum by (instance) (${of('homing_actor_restarts_total')})`, legend: '{{instance}}' },
        ],
      },
    ],
  },
  {
    title: 'Page, what if, replicas',
    panels: [
      {
        title: 'Tabs of the page',
        help: 'That are open, and those that were refused or cut.',
        unit: 'short',
        queries: [
          { expr: of('homing_page_open_tabs'), legend: 'open {{instance}}' },
          {
            expr: `sum by (reason) (increase(${of('homing_page_closed_tabs_total')}[${RATE}]))`,
            legend: '{{reason}}',
          },
        ],
      },
      {
        title: 'Update of the page',
        help: 'What the last one took, for all tabs together.',
        unit: 's',
        queries: [{ expr: of('homing_page_build_seconds'), legend: '{{instance}}' }],
      },
      {
        title: 'Updates of the page',
        help: 'A second; and those that a tab was not sent because it had not taken the one before.',
        unit: 'short',
        queries: [
          { expr: `sum(${rate('homing_page_updates_total')})`, legend: 'made' },
          { expr: `sum(${rate('homing_page_skipped_updates_total')})`, legend: 'skipped' },
        ],
      },
      {
        title: 'Questions what if',
        help: 'That have ended, by outcome.',
        unit: 'short',
        queries: [
          {
            expr: `sum by (outcome) (increase(${of('homing_what_if_runs_total')}[${RATE}]))`,
            legend: '{{outcome}}',
          },
        ],
      },
      {
        title: 'CPU of what if',
        help: 'Cores that answers take, on their own threads.',
        unit: 'short',
        queries: [{ expr: rate('homing_what_if_cpu_seconds_total'), legend: '{{instance}}' }],
      },
      {
        title: 'Requests kept for what if',
        help: 'In memory, and those that found no room a second.',
        unit: 'short',
        queries: [
          { expr: of('homing_what_if_kept_requests'), legend: 'kept {{instance}}' },
          { expr: `sum(${rate('homing_what_if_dropped_requests_total')})`, legend: 'dropped a second' },
        ],
      },
      {
        title: 'Other routers',
        help: 'Of the same workers, by what is known of their bookings. With --router-replica-sync.',
        unit: 'short',
        queries: [
          {
            expr: `sum by (instance, state) (${of('homing_replica_known_routers')})`,
            legend: '{{state}} at {{instance}}',
          },
        ],
      },
      {
        title: 'Their requests',
        help: 'That other routers have open at the workers.',
        unit: 'short',
        queries: [{ expr: of('homing_replica_open_requests'), legend: '{{instance}}' }],
      },
      {
        title: 'Missed bookings',
        help: 'Batches of other routers that were missing, and bookings of workers that are not known here.',
        unit: 'short',
        queries: [
          { expr: `sum(increase(${of('homing_replica_gaps_total')}[${RATE}]))`, legend: 'gaps' },
          {
            expr: `sum(increase(${of('homing_replica_unbooked_operations_total')}[${RATE}]))`,
            legend: 'unbooked',
          },
        ],
      },
    ],
  },
]

/** Name under which the import asks for the data source. */
const INPUT = 'DS_PROMETHEUS'
const WIDTH = 24
const PANEL_WIDTH = 8
const PANEL_HEIGHT = 8

export function renderBoard(): string {
  const panels: object[] = []
  let id = 0
  let y = 0
  for (const row of ROWS) {
    panels.push({
      id: ++id,
      type: 'row',
      title: row.title,
      collapsed: false,
      gridPos: { h: 1, w: WIDTH, x: 0, y },
      panels: [],
    })
    y++
    row.panels.forEach((panel, number) => {
      const x = (number * PANEL_WIDTH) % WIDTH
      const line = Math.floor((number * PANEL_WIDTH) / WIDTH)
      panels.push(panelOf(panel, ++id, { h: PANEL_HEIGHT, w: PANEL_WIDTH, x, y: y + line * PANEL_HEIGHT }))
    })
    y += Math.ceil(row.panels.length / (WIDTH / PANEL_WIDTH)) * PANEL_HEIGHT
  }
  const board = {
    __inputs: [
      {
        name: INPUT,
        label: 'Prometheus',
        type: 'datasource',
        pluginId: 'prometheus',
        pluginName: 'Prometheus',
      },
    ],
    __requires: [
      { type: 'grafana', id: 'grafana', name: 'Grafana', version: '10.0.0' },
      { type: 'datasource', id: 'prometheus', name: 'Prometheus', version: '1.0.0' },
    ],
    uid: 'homing',
    title: 'Homing',
    description: 'What the fleet remembers, where requests go, and whether it pays.',
    tags: ['homing'],
    schemaVersion: 38,
    version: 1,
    editable: true,
    refresh: '10s',
    time: { from: 'now-1h', to: 'now' },
    templating: {
      list: [
        {
          name: 'job',
          type: 'query',
          label: 'Job',
          datasource: SOURCE,
          query: { query: 'label_values(homing_build_info, job)', refId: 'job' },
          includeAll: true,
          multi: true,
          allValue: '.*',
          current: { text: 'All', value: '$__all' },
          refresh: 2,
        },
      ],
    },
    panels,
  }
  return `${JSON.stringify(board, undefined, 2)}\n`
}

const SOURCE = { type: 'prometheus', uid: `$\{${INPUT}}` }

function panelOf(panel: Panel, id: number, gridPos: object): object {
  return {
    id,
    type: panel.isFigure ? 'stat' : 'timeseries',
    title: panel.title,
    description: panel.help,
    datasource: SOURCE,
    gridPos,
    fieldConfig: { defaults: { unit: panel.unit }, overrides: [] },
    options: panel.isFigure
      ? { reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false } }
      : { legend: { displayMode: 'list', placement: 'bottom' }, tooltip: { mode: 'multi' } },
    targets: panel.queries.map(({ expr, legend }, at) => ({
      refId: String.fromCharCode(65 + at),
      expr,
      legendFormat: legend,
      datasource: SOURCE,
    })),
  }
}

if (import.meta.main) writeFileSync(BOARD_PATH, renderBoard())
