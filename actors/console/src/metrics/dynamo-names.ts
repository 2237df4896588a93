/**
 * Dynamo's names: families of metrics once more as NVIDIA Dynamo calls them (--metrics-dynamo-names).
 *
 * Its histograms have other buckets, so quantiles are as fine as ours; what it measures apart and we do in
 * one pass has the time of that pass.
 */

import type { RenamedFamily, SampleLabels } from '@homing/metrics'

/** There is one router in a process. */
const ROUTER_ID = '0'
const WORKER_TYPE = 'decode'
const SECOND_MS = 1000

/** What an index says of events that it skipped, where Dynamo has a word for it. */
const STATUSES: Readonly<Record<string, string>> = {
  unplaced: 'parent_block_not_found',
  block_size: 'invalid_block',
  uneven_tokens: 'invalid_block',
  no_blocks: 'invalid_block',
}

const FAMILIES: readonly RenamedFamily[] = [
  ...['requests_started_total', 'requests_total'].map(what =>
    component(what, 'homing_request_started_total', 'Requests that were placed on a worker.'),
  ),
  component(
    'time_to_first_token_seconds',
    'homing_request_first_token_seconds',
    'Time from the arrival of a stream to its first token.',
  ),
  component(
    'inter_token_latency_seconds',
    'homing_request_token_gap_seconds',
    'Mean time between the tokens of an answer.',
  ),
  component('input_sequence_tokens', 'homing_request_prompt_tokens', 'Prompt tokens.'),
  component('output_sequence_tokens', 'homing_request_output_tokens', 'Output tokens.'),
  component('kv_hit_rate', 'homing_request_overlap_ratio', 'Predicted cached part of the prompt.'),
  component(
    'non_max_overlap_selections_total',
    'homing_request_overlap_passed_total',
    'Requests that went to a worker with less overlap than another.',
  ),
  component(
    'overlap_blocks_lost',
    'homing_request_overlap_lost_blocks',
    'Overlap of the best worker beyond the chosen one, in blocks.',
  ),
  {
    name: 'dynamo_component_router_worker_registered',
    from: 'homing_directory_worker_state',
    help: '1 while the worker takes requests.',
    labels: ({ worker = '', state }) =>
      state === 'up' ? { worker_id: worker, dp_rank: 'none', worker_type: WORKER_TYPE } : undefined,
  },
  {
    name: 'dynamo_component_kv_cache_events_applied',
    from: 'homing_index_events_total',
    help: 'KV events of engines, by kind and what became of them.',
    labels: ({ event = '', status = '' }) =>
      Object.hasOwn(STATUSES, status)
        ? { event_type: 'stored', status: STATUSES[status]! }
        : { event_type: event, status },
  },
  overhead('block_hashing_ms', 'tokenize', 'Template, tokens and hashes of a prompt.'),
  overhead('indexer_find_matches_ms', 'lookup', 'Look-up in the index.'),
  overhead('scheduling_ms', 'decide', 'The decision, look-up included.'),
  overhead('total_ms', 'place', 'From tokens to the decision, waiting included.'),
  queue('pending_requests', 'homing_queue_waiting_requests', 'Requests that wait.'),
  queue('pending_isl_tokens', 'homing_queue_waiting_prompt_tokens', 'Tokens of prompts that wait.'),
  queue('pending_cached_tokens', 'homing_queue_waiting_cached_tokens', 'Tokens of them that a worker holds.'),
  queue('backpressure_total', 'homing_queue_refused_requests_total', 'Requests that could not wait.'),
  worker('active_decode_blocks', 'homing_tracker_active_blocks', 'Blocks of running requests.'),
  worker('active_prefill_tokens', 'homing_tracker_active_prefill_tokens', 'Prompt tokens not yet computed.'),
  worker(
    'last_time_to_first_token_seconds',
    'homing_worker_last_first_token_seconds',
    'Time to the first token of the last stream.',
  ),
  worker(
    'last_inter_token_latency_seconds',
    'homing_worker_last_token_gap_seconds',
    'Mean time between the tokens of the last stream.',
  ),
  worker(
    'last_input_sequence_tokens',
    'homing_worker_last_prompt_tokens',
    'Prompt tokens of the last answer.',
  ),
]

/** A router without a frontend has only those of a component, as Dynamo's standalone router. */
export function dynamoFamilies(hasFrontend: boolean): readonly RenamedFamily[] {
  return FAMILIES.filter(({ name }) => hasFrontend || name.startsWith('dynamo_component_'))
}

function component(what: string, from: string, help: string): RenamedFamily {
  return { name: `dynamo_component_router_${what}`, from, help }
}

function overhead(what: string, ofStage: string, help: string): RenamedFamily {
  return {
    name: `dynamo_router_overhead_${what}`,
    from: 'homing_request_stage_seconds',
    help,
    labels: ({ stage }) => (stage === ofStage ? { router_id: ROUTER_ID } : undefined),
    factor: SECOND_MS,
  }
}

function queue(what: string, from: string, help: string): RenamedFamily {
  const labels = ({ model = '', class: policyClass = '', ...others }: SampleLabels): SampleLabels => ({
    model,
    worker_type: WORKER_TYPE,
    policy_class: policyClass,
    ...others,
  })
  return { name: `dynamo_frontend_router_queue_${what}`, from, help, labels }
}

/** 'host:port/rank' is a worker and its rank. */
function worker(what: string, from: string, help: string): RenamedFamily {
  const labels = ({ worker: key = '' }: SampleLabels): SampleLabels => {
    const at = key.lastIndexOf('/')
    return { worker_id: key.slice(0, at), dp_rank: key.slice(at + 1), worker_type: WORKER_TYPE }
  }
  return { name: `dynamo_frontend_worker_${what}`, from, help, labels }
}
