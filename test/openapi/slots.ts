/**
 * docs/openapi-slots.json: every route of `homing slots`, from its route table, docs/slots.md and the answers
 * of real slot trackers.
 *
 *   pnpm exec node test/openapi/slots.ts      asks slot trackers, and writes it
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { SLOT_ROUTES } from '@homing/actors/slot-service'
import { sampled } from './parts.ts'
import type { Samples } from './samples.ts'
import { renderServiceOpenApi, type ServiceDocument, TEXT, WIDE } from './service-document.ts'
import { collectSlotSamples } from './slots-samples.ts'

export const SLOTS_OPENAPI_PATH = fileURLToPath(new URL('../../docs/openapi-slots.json', import.meta.url))

const RANK = { type: 'integer', minimum: 0, maximum: 2 ** 32 - 1 }
const PROMPT = ['model_name', 'sequence_hashes']

export const SLOTS: ServiceDocument = {
  title: 'Homing slot tracker',
  summary: 'Knows the load of each LLM engine from what its callers tell it',
  url: 'http://127.0.0.1:8091',
  routes: SLOT_ROUTES,
  page: readFileSync(new URL('../../docs/slots.md', import.meta.url), 'utf8'),
  fields: {
    model_name: TEXT,
    routing_group: TEXT,
    worker_id: WIDE,
    block_size: { type: 'integer', minimum: 1, maximum: 65_536 },
    dp_start: RANK,
    dp_size: { type: 'integer', minimum: 1, maximum: 2 ** 32 },
    request_id: TEXT,
    dp_rank: RANK,
    sequence_hashes: { type: 'array', items: WIDE },
    new_isl_tokens: { type: 'integer', minimum: 0, maximum: 2 ** 30 },
    endpoint: TEXT,
  },
  required: {
    '/register': ['model_name', 'worker_id', 'block_size'],
    '/unregister': ['model_name', 'worker_id'],
    '/add': [...PROMPT, 'worker_id', 'request_id'],
    '/prefill_complete': ['model_name', 'request_id'],
    '/free': ['model_name', 'request_id'],
    '/potential_loads': PROMPT,
    '/replica_sync/register_peer': ['endpoint'],
    '/replica_sync/deregister_peer': ['endpoint'],
  },
  tagOf: path => {
    if (path.startsWith('/replica_sync')) return 'replicas'
    if (/register|workers/.test(path)) return 'workers'
    return /loads|add|complete|free/.test(path) ? 'loads' : 'operators'
  },
  maps: [/^GET \/ routes$/],
  answersIn: route => (/workers|loads/.test(route) ? 'Fields of answers' : undefined),
  mayBeNull: () => false,
  headersOf: () => undefined,
}

export function renderSlotsOpenApi(samples: Samples): string {
  return renderServiceOpenApi(SLOTS, samples)
}

if (import.meta.main) {
  writeFileSync(SLOTS_OPENAPI_PATH, renderSlotsOpenApi(await sampled(collectSlotSamples)))
  console.error(`${SLOTS_OPENAPI_PATH}: ${SLOT_ROUTES.length} routes`)
}
