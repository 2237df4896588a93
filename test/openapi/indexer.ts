/**
 * docs/openapi-indexer.json: every route of `homing indexer`, from its route table, docs/indexer-service.md
 * and the answers of real indexers.
 *
 *   pnpm exec node test/openapi/indexer.ts      asks indexers, and writes it
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { SERVICE_ROUTES } from '@homing/actors/index-service'
import { collectIndexerSamples } from './indexer-samples.ts'
import { sampled } from './parts.ts'
import type { Samples } from './samples.ts'
import type { Schema } from './schema.ts'
import {
  bodyOf as bodyOfService,
  renderServiceOpenApi,
  type ServiceDocument,
  TEXT,
  WIDE,
} from './service-document.ts'

export const INDEXER_OPENAPI_PATH = fileURLToPath(new URL('../../docs/openapi-indexer.json', import.meta.url))
const PAGE = readFileSync(new URL('../../docs/indexer-service.md', import.meta.url), 'utf8')

const TOKEN_MAX = 2 ** 32 - 1
const U32: Schema = { type: 'integer', minimum: 0, maximum: TOKEN_MAX }
/** By name; what each means is in the page. */
const FIELDS: Readonly<Record<string, Schema>> = {
  instance_id: WIDE,
  model_name: TEXT,
  routing_group: TEXT,
  dp_rank: { type: 'integer', minimum: 0, maximum: TOKEN_MAX },
  block_size: { type: 'integer', minimum: 1, maximum: 65_536 },
  endpoint: TEXT,
  replay_endpoint: TEXT,
  token_ids: { type: 'array', items: { type: 'integer', minimum: 0, maximum: TOKEN_MAX } },
  lora_name: TEXT,
  cache_salt: TEXT,
  moe_query: {
    type: 'object',
    properties: {
      layer_id: U32,
      expert_ids: { type: ['array', 'null'], items: U32 },
      expert_group: { ...U32, type: ['integer', 'null'] },
      fallback_to_unlabeled: { type: 'boolean' },
    },
    required: ['layer_id'],
    additionalProperties: false,
  },
  block_hashes: { type: 'array', items: WIDE },
  url: TEXT,
}
/** Without these a request is refused. */
const REQUIRED: Readonly<Record<string, readonly string[]>> = {
  '/register': ['instance_id', 'model_name', 'block_size', 'endpoint'],
  '/unregister': ['instance_id', 'model_name'],
  '/query': ['model_name', 'token_ids'],
  '/query_by_hash': ['model_name', 'block_hashes'],
  '/register_peer': ['url'],
  '/deregister_peer': ['url'],
}
/** Objects whose keys are data: names, numbers of instances and ranks. */
const MAPS = [
  /^GET \/ routes$/,
  /^GET \/workers \[\]\.(?:endpoints|listeners)$/,
  /^POST \/query(?:_by_hash)? (?:(?:scores|moe_scores|cxl_accessible_scores)(?:\.\*)?|instances|instances\.\*\.dp)$/,
  /^GET \/dump(?: \.\*\.endpoints(?:\.\*)?)?$/,
]
/** Of a listener, while nothing is known of it. */
const UNKNOWN_AT_TIMES =
  /\.(?:replay_endpoint|blocks|inherited|last_sequence|last_event_age_ms|gaps|replays|foreign_ranks|resumed_sequence|saved_sequence)$/
const QUERY_HEADERS = {
  'x-homing-trust': {
    description: 'The lowest trust of those that are listed; none: nobody is',
    schema: { type: 'string', enum: ['exact', 'partial', 'approximate', 'none'] },
  },
  'x-homing-complete': {
    description: 'false: a part of the index could not be read in time, so more may be held',
    schema: { type: 'string', enum: ['true', 'false'] },
  },
}

const INDEXER: ServiceDocument = {
  title: 'Homing indexer',
  summary: 'Tells how much of a prompt each LLM engine holds in its KV cache',
  url: 'http://127.0.0.1:8090',
  routes: SERVICE_ROUTES,
  page: PAGE,
  fields: FIELDS,
  required: REQUIRED,
  tagOf,
  maps: MAPS,
  answersIn: route => {
    if (route === 'GET /workers') return 'Fields of /workers'
    return route.startsWith('POST /query') ? 'Queries' : undefined
  },
  mayBeNull: (route, at) =>
    at.endsWith('.parent_hash') ||
    (route === 'GET /workers' && UNKNOWN_AT_TIMES.test(at) && !at.includes('.inherited.')),
  headersOf: route => (route.startsWith('POST /query') ? QUERY_HEADERS : undefined),
}

export function renderIndexerOpenApi(samples: Samples): string {
  return renderServiceOpenApi(INDEXER, samples)
}

/** Undefined: the route takes none. */
export function bodyOf(path: string): Schema | undefined {
  return bodyOfService(INDEXER, path)
}

function tagOf(path: string): string {
  if (path.startsWith('/query')) return 'queries'
  if (path.includes('peer') || path === '/dump') return 'peers'
  return /register|workers/.test(path) ? 'engines' : 'operators'
}

if (import.meta.main) {
  writeFileSync(INDEXER_OPENAPI_PATH, renderIndexerOpenApi(await sampled(collectIndexerSamples)))
  console.error(`${INDEXER_OPENAPI_PATH}: ${SERVICE_ROUTES.length} routes`)
}
