/**
 * docs/openapi-indexer.json: every route of `homing indexer`, from its route table, docs/indexer-service.md
 * and the answers of real indexers.
 *
 *   pnpm exec node test/openapi/indexer.ts      asks indexers, and writes it
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { type NamedServiceRoute, SERVICE_ROUTES } from '@homing/actors/index-service'
import { collectIndexerSamples } from './indexer-samples.ts'
import { operationId, plain, sampled, sectionOf } from './parts.ts'
import type { Samples } from './samples.ts'
import { type FieldNotes, type Schema, schemaOf } from './schema.ts'

export const INDEXER_OPENAPI_PATH = fileURLToPath(new URL('../../docs/openapi-indexer.json', import.meta.url))
const PAGE = readFileSync(new URL('../../docs/indexer-service.md', import.meta.url), 'utf8')

const WIDE: Schema = { type: ['integer', 'string'] }
const TEXT: Schema = { type: 'string' }
const TOKEN_MAX = 2 ** 32 - 1
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
  /^POST \/query(?:_by_hash)? (?:scores(?:\.\*)?|instances|instances\.\*\.dp)$/,
  /^GET \/dump(?: \.\*\.endpoints(?:\.\*)?)?$/,
]
/** Of a listener, while nothing is known of it. */
const UNKNOWN_AT_TIMES =
  /\.(?:replay_endpoint|blocks|inherited|last_sequence|last_event_age_ms|gaps|replays|foreign_ranks|resumed_sequence|saved_sequence)$/
const ERROR: Schema = {
  type: 'object',
  description: 'What went wrong, and what would be right. docs/errors.md has every code',
  properties: { error: { type: 'string' }, code: { type: 'string' } },
  required: ['code', 'error'],
  additionalProperties: false,
}
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

export function renderIndexerOpenApi(samples: Samples): string {
  const paths: Record<string, Record<string, unknown>> = {}
  for (const route of SERVICE_ROUTES)
    paths[route.path] = { ...paths[route.path], [route.method.toLowerCase()]: operationOf(route, samples) }
  const document = {
    openapi: '3.1.0',
    info: {
      title: 'Homing indexer',
      version: '0.1.0',
      summary: 'Tells how much of a prompt each LLM engine holds in its KV cache',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: 'http://127.0.0.1:8090', description: 'Where nothing else is given' }],
    components: { schemas: { Error: ERROR } },
    security: [],
    paths,
  }
  return `${JSON.stringify(document, undefined, 1)}\n`
}

function operationOf(route: NamedServiceRoute, samples: Samples): object {
  const { method, path, query, summary } = route
  const parameters = [...new URLSearchParams(query).keys()].map(name => ({
    name,
    in: 'query',
    description: `Only what has this ${name}`,
    schema: TEXT,
  }))
  const body = bodyOf(path)
  return {
    operationId: operationId(method, path),
    summary: `${summary[0]!.toUpperCase()}${summary.slice(1)}`,
    tags: [tagOf(path)],
    ...(parameters.length > 0 && { parameters }),
    ...(body !== undefined && {
      requestBody: { required: true, content: { 'application/json': { schema: body } } },
    }),
    responses: {
      ...answersOf(`${method} ${path}`, samples),
      default: {
        description: 'An error',
        content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
      },
    },
  }
}

function tagOf(path: string): string {
  if (path.startsWith('/query')) return 'queries'
  if (path.includes('peer') || path === '/dump') return 'peers'
  return /register|workers/.test(path) ? 'engines' : 'operators'
}

/** Undefined: the route takes none. */
export function bodyOf(path: string): Schema | undefined {
  const required = REQUIRED[path]
  if (required === undefined) return undefined
  const properties: Record<string, Schema> = {}
  const rows = /^\| `(\w+)` \| (.*) \| (.*) \|$/gm
  for (const [, name, routes, meaning] of sectionOf(PAGE, 'Fields of requests').matchAll(rows)) {
    if (!routes!.includes(`\`${path}\``)) continue
    const { type, ...more } = FIELDS[name!]!
    // Null counts as a missing field.
    const types = required.includes(name!) ? type! : [type!, 'null'].flat()
    properties[name!] = { type: types, description: plain(meaning!), ...more }
  }
  return { type: 'object', properties, required: [...required], additionalProperties: true }
}

function answersOf(route: string, samples: Samples): object {
  if (route === 'GET /metrics')
    return { 200: { description: 'Text', content: { 'text/plain': { schema: TEXT } } } }
  const good = [...samples].filter(([key]) => key.startsWith(`${route} → 2`))
  if (good.length === 0) throw new Error(`no indexer was asked for ${route}`)
  const headers = route.startsWith('POST /query') ? { headers: QUERY_HEADERS } : {}
  return Object.fromEntries(
    good.map(([key, answers]) => {
      const schema = schemaOf(answers, notesOf(route))
      const content = { 'application/json': { schema } }
      return [key.split(' → ')[1]!, { description: 'As described', ...headers, content }]
    }),
  )
}

function notesOf(route: string): FieldNotes {
  const isWorkers = route === 'GET /workers'
  const heading = isWorkers ? 'Fields of /workers' : route.startsWith('POST /query') ? 'Queries' : undefined
  const meanings = heading === undefined ? new Map<string, string>() : meaningsIn(heading)
  return {
    meaningOf: at => meanings.get(at.split('.').at(-1)!),
    isMap: at => MAPS.some(pattern => pattern.test(`${route}${at === '' ? '' : ` ${at}`}`)),
    mayBeNull: at =>
      at.endsWith('.parent_hash') || (isWorkers && UNKNOWN_AT_TIMES.test(at) && !at.includes('.inherited.')),
  }
}

/** Of the fields of a table, by name. */
function meaningsIn(heading: string): Map<string, string> {
  const meanings = new Map<string, string>()
  for (const [, cell, meaning] of sectionOf(PAGE, heading).matchAll(/^\| (`[^|]*) \| (.*) \|$/gm))
    for (const [, name] of cell!.matchAll(/`([^`]+)`/g)) meanings.set(name!, plain(meaning!))
  return meanings
}

if (import.meta.main) {
  writeFileSync(INDEXER_OPENAPI_PATH, renderIndexerOpenApi(await sampled(collectIndexerSamples)))
  console.error(`${INDEXER_OPENAPI_PATH}: ${SERVICE_ROUTES.length} routes`)
}
