/**
 * docs/openapi-select.json: every route of `homing select`, from its route table, docs/select.md and the
 * answers of real services.
 *
 *   pnpm exec node test/openapi/select.ts      asks services, and writes it
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { SELECT_ROUTES } from '@homing/actors/select-service'
import { sampled } from './parts.ts'
import type { Samples } from './samples.ts'
import { collectSelectSamples } from './select-samples.ts'
import { renderServiceOpenApi, type ServiceDocument, TEXT, WIDE } from './service-document.ts'

export const SELECT_OPENAPI_PATH = fileURLToPath(new URL('../../docs/openapi-select.json', import.meta.url))

const RANK = { type: 'integer', minimum: 0, maximum: 2 ** 32 - 1 }
const TOKENS = { type: 'integer', minimum: 0, maximum: 2 ** 30 }
const COUNT = { type: 'integer', minimum: 1, maximum: 2 ** 30 }
const WIDES = { type: 'array', items: WIDE }
const OBJECT = { type: 'object', additionalProperties: true }
const FLAG = { type: 'boolean' }

export const SELECT: ServiceDocument = {
  title: 'Homing selection service',
  summary: 'Says which LLM engine should take a prompt, by what is cached there and by its load',
  url: 'http://127.0.0.1:8092',
  routes: SELECT_ROUTES,
  page: readFileSync(new URL('../../docs/select.md', import.meta.url), 'utf8'),
  fields: {
    worker_id: WIDE,
    model_name: TEXT,
    routing_group: TEXT,
    endpoint: TEXT,
    block_size: { type: 'integer', minimum: 1, maximum: 65_536 },
    data_parallel_start_rank: RANK,
    data_parallel_size: { type: 'integer', minimum: 1, maximum: 1024 },
    kv_events_endpoints: { type: ['object', 'string'], additionalProperties: TEXT },
    replay_endpoint: { type: ['object', 'string'], additionalProperties: TEXT },
    max_num_batched_tokens: COUNT,
    total_kv_blocks: COUNT,
    max_model_len: COUNT,
    taints: { type: 'array', items: TEXT },
    lifecycle: { type: 'string', enum: ['schedulable', 'draining', 'unschedulable', null] },
    selection_id: TEXT,
    token_ids: { type: 'array', items: RANK },
    block_hashes: WIDES,
    sequence_hashes: WIDES,
    isl_tokens: TOKENS,
    lora_name: TEXT,
    cache_salt: TEXT,
    mm_routing_info: OBJECT,
    is_eagle: FLAG,
    router_config_override: OBJECT,
    expected_output_tokens: TOKENS,
    session_id: TEXT,
    pinned_worker: { type: ['integer', 'string', 'object'] },
    allowed_worker_ids: WIDES,
    routing_constraints: OBJECT,
    explain: FLAG,
    dp_rank: RANK,
    effective_prefill_tokens: TOKENS,
    track_prefill_tokens: FLAG,
    decay_fraction: { type: 'number', minimum: 0, maximum: 1 },
  },
  required: {
    '/workers': ['worker_id'],
    '/workers/*': [],
    '/select': [],
    '/select_and_reserve': [],
    '/reservations': ['selection_id'],
    '/reservations/*/output_block': [],
    '/potential_loads': [],
    '/overlap_scores': [],
    '/replica_sync/register_peer': ['endpoint'],
    '/replica_sync/deregister_peer': ['endpoint'],
  },
  tagOf: path => {
    if (path.startsWith('/replica_sync')) return 'replicas'
    if (path.startsWith('/workers')) return 'workers'
    if (path.startsWith('/select') || path === '/overlap_scores') return 'selections'
    return /loads|reservations/.test(path) ? 'loads' : 'operators'
  },
  maps: [
    /^GET \/ routes$/,
    /^GET \/dump$/,
    /^GET \/dump .*endpoints(\.\*)?$/,
    /^GET \/workers \[\]\.(kv_events_endpoints|replay_endpoint|listeners)$/,
    / (\w+\.)?overlap\.dp$/,
    / receipt\.candidates\[\]\.terms$/,
    / receipt\.(moe_|cxl_accessible_)?scores$/,
    /^POST \/overlap_scores (scores|instances)(\.\*)?(\.dp)?$/,
  ],
  answersIn: route =>
    /workers|loads|select|overlap|reservations/.test(route) ? 'Fields of answers' : undefined,
  mayBeNull: (route, at) =>
    at.startsWith('receipt.') ||
    (route === 'GET /workers' &&
      /^\[\]\.(endpoint|block_size|max_num_batched_tokens|total_kv_blocks|max_model_len|listeners\.\*\.blocks)$/.test(
        at,
      )),
  headersOf: () => undefined,
}

export function renderSelectOpenApi(samples: Samples): string {
  return renderServiceOpenApi(SELECT, samples)
}

if (import.meta.main) {
  writeFileSync(SELECT_OPENAPI_PATH, renderSelectOpenApi(await sampled(collectSelectSamples)))
  console.error(`${SELECT_OPENAPI_PATH}: ${SELECT_ROUTES.length} routes`)
}
