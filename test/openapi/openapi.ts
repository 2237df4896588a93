/**
 * docs/openapi.json: every route of `homing router`, from its route tables, docs/operations.md and the
 * answers of real routers.
 *
 *   pnpm exec node test/openapi/openapi.ts      asks routers, and writes it
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { OPERATOR_ROUTES } from '@homing/actors/console'
import { OWN_ROUTES } from '@homing/actors/gateway'
import { WHAT_IF_PROFILES } from '@homing/simulate/what-if'
import { operationId, plain, sampled, sectionOf } from './parts.ts'
import { collectSamples, type Samples } from './samples.ts'
import { type FieldNotes, type Schema, schemaOf } from './schema.ts'

export const OPENAPI_PATH = fileURLToPath(new URL('../../docs/openapi.json', import.meta.url))
const OPERATIONS = readFileSync(new URL('../../docs/operations.md', import.meta.url), 'utf8')

/** One route of the document. */
export interface DocumentedRoute {
  readonly method: string
  /** With `:id` for a variable part. */
  readonly path: string
}

/** What stands for `*` in a path of the route tables. */
const NAMED: Readonly<Record<string, readonly string[]>> = {
  'GET /decisions/*': ['/decisions/:id'],
  'GET /workers/*': ['/workers/:id/diagnosis'],
  'POST /workers/*': ['/workers/:id/drain'],
  'DELETE /workers/*': ['/workers/:id'],
  'GET /v1/models/*': ['/v1/models/:id'],
  'GET /page/*': ['/page/live'],
}

export const ROUTES: readonly DocumentedRoute[] = [...OWN_ROUTES, ...OPERATOR_ROUTES].flatMap(
  ({ method, path }) => {
    if (!path.includes('*')) return [{ method, path }]
    const paths = NAMED[`${method} ${path}`]
    if (paths === undefined)
      throw new Error(`test/openapi/openapi.ts does not name what stands for * in ${method} ${path}`)
    return paths.map(named => ({ method, path: named }))
  },
)

/** Answers of engines, which the engines' own APIs define. */
const OF_ENGINES: Readonly<Record<string, string>> = {
  '/v1/chat/completions': 'A chat, as OpenAI has it. Sent to the worker that holds the prefix',
  '/v1/completions':
    'A completion of text or token ids, as OpenAI has it. Sent to the worker that holds the prefix',
  '/v1/messages': 'A chat, as Anthropic has it. Sent to the worker that holds the prefix',
  '/v1/responses': 'A response, as OpenAI has it. Sent to the worker that holds the prefix',
}
const MODELS: Readonly<Record<string, string>> = {
  '/v1/models': 'Models of all workers',
  '/v1/models/:id': 'One model',
}
/** Answers that are no JSON, by their kind. */
const TEXTS: Readonly<Record<string, string>> = {
  '/metrics': 'text/plain',
  '/page/live': 'text/event-stream',
}
/** Objects whose keys are data. */
const MAPS = [
  /^GET \/dump$/,
  /^GET \/ routes$/,
  /^GET \/ elsewhere$/,
  /^GET \/queue models\[\]\.\w+\[\]\.refused$/,
  /terms$/,
  /\b(moe_|cxl_accessible_)?scores$/,
  /observations$/,
]
/** Fields that nothing is known of at times. */
const UNKNOWN_AT_TIMES: Readonly<Record<string, RegExp>> = {
  '/queue': /expected_wait_ms$|drain_tokens_per_second$|assumed\[\]\.value$/,
  '/workers':
    /(_ms|_age|sequence|refusal|_reason|_usage|parent|root|max_model_len|tokenizer|precision|events|kv_blocks|block_size)$|learned/,
  '/replicas': /silent_ms$|endpoint$/,
  '/what_if': /^run$|^answer$|^error$|since$|profile$/,
  '/actors/flight': /./,
}
const QUERIES: Readonly<Record<string, readonly [string, Schema, string][]>> = {
  'GET /decisions': [['limit', { type: 'integer' }, 'How many, 1 … 1000; 20 where it is not given']],
  'GET /actors': [
    ['format', { type: 'string' }, '`text` for a table'],
    ['limit', { type: 'integer' }, 'Actors at most'],
  ],
  'GET /actors/flight': [
    ['thread', { type: 'string' }, 'Name of the thread'],
    ['format', { type: 'string' }, '`text` for a table'],
    ['limit', { type: 'integer' }, 'Entries at most'],
  ],
}
const MODEL_BODY: Schema = {
  type: 'object',
  properties: { model: { type: 'string', description: 'Name of a model of GET /v1/models' } },
  required: ['model'],
  additionalProperties: true,
}
const PROMPT_BODY: Schema = {
  type: 'object',
  properties: {
    model: { type: 'string', description: 'Name of a model of GET /v1/models; default: the only one' },
    token_ids: { type: 'array', items: { type: 'integer', minimum: 0, maximum: 2 ** 32 - 1 } },
    worker_id: { type: ['integer', 'null'], description: 'Only this worker may be chosen' },
    dp_rank: { type: ['integer', 'null'], description: 'Only this rank of it' },
  },
  required: ['token_ids'],
  additionalProperties: true,
}
const BEST_WORKER_BODY: Schema = {
  ...PROMPT_BODY,
  properties: {
    ...PROMPT_BODY.properties,
    request_id: {
      type: ['string', 'null'],
      description: 'The request is booked under it, until it is freed',
    },
  },
}
/** Dynamo's name for the tokens. */
const NEW_BODY: Schema = { ...BEST_WORKER_BODY, required: [] }
const REQUEST_BODY: Schema = {
  type: 'object',
  properties: { request_id: { type: 'string', description: 'As it was booked' } },
  required: ['request_id'],
  additionalProperties: true,
}
const BODIES: Readonly<Record<string, Schema>> = {
  'POST /v1/router/best_worker': BEST_WORKER_BODY,
  'POST /v1/router/new': NEW_BODY,
  'POST /v1/router/potential_loads': PROMPT_BODY,
  'POST /v1/router/find_matches': PROMPT_BODY,
  'POST /v1/router/query': PROMPT_BODY,
  'POST /v1/router/mark_prefill_complete': REQUEST_BODY,
  'POST /v1/router/mark_prefill': REQUEST_BODY,
  'POST /v1/router/free': REQUEST_BODY,
  'POST /v1/router/mark_free': REQUEST_BODY,
  'POST /route': { ...MODEL_BODY, description: 'A body of /v1/chat/completions or /v1/completions' },
  'POST /workers': {
    type: 'object',
    properties: { url: { type: 'string', description: 'As `--worker` takes it' } },
    required: ['url'],
    additionalProperties: false,
  },
  'POST /what_if': {
    type: 'object',
    properties: {
      minutes: { type: 'number', description: 'Requests of so many minutes; default: of all that are kept' },
      profile: {
        type: ['string', 'null'],
        enum: [...WHAT_IF_PROFILES, null],
        description: 'Step times of the engines; default: those that reproduce best what was seen',
      },
      anyway: { type: 'boolean', description: 'Answer also if the simulation does not fit' },
    },
    additionalProperties: false,
  },
  'POST /busy_threshold': {
    type: 'object',
    properties: {
      model: { type: 'string', description: 'Default: of all models' },
      active_decode_blocks_threshold: {
        type: ['number', 'null'],
        description: 'Share of the KV blocks, 0 … 1',
      },
      active_prefill_tokens_threshold: { type: ['number', 'null'], description: 'Prompt tokens' },
      active_prefill_tokens_threshold_frac: {
        type: ['number', 'null'],
        description: 'Of a step of the engine',
      },
    },
    additionalProperties: false,
  },
}
const ERROR: Schema = {
  type: 'object',
  description: 'What went wrong, and what would be right. docs/errors.md has every code',
  properties: {
    error: {
      type: 'object',
      properties: {
        message: { type: 'string' },
        type: { type: 'string' },
        param: { type: ['string', 'null'] },
        code: { type: ['string', 'null'] },
      },
      required: ['message', 'type'],
      additionalProperties: true,
    },
  },
  required: ['error'],
  additionalProperties: true,
}

export function renderOpenApi(samples: Samples): string {
  const paths: Record<string, Record<string, unknown>> = {}
  for (const route of ROUTES) {
    const path = route.path.replaceAll(/:(\w+)/g, '{$1}')
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operationOf(route, samples) }
  }
  const document = {
    openapi: '3.1.0',
    info: {
      title: 'Homing router',
      version: '0.1.0',
      summary: 'Sends each request to the LLM engine that holds the KV cache of its prompt’s prefix',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [
      {
        url: 'http://127.0.0.1:8000',
        description: 'Where nothing else is given; operator routes are on --admin-port where one is set',
      },
    ],
    components: {
      schemas: { Error: ERROR },
      securitySchemes: {
        adminKey: {
          type: 'http',
          scheme: 'bearer',
          description: 'With --admin-key-file or --admin-keys-file',
        },
      },
    },
    paths,
  }
  return `${JSON.stringify(document, undefined, 1)}\n`
}

function operationOf({ method, path }: DocumentedRoute, samples: Samples): object {
  const route = `${method} ${path}`
  const parameters = [
    ...[...path.matchAll(/:(\w+)/g)].map(([, name]) => ({
      name,
      in: 'path',
      required: true,
      schema: { type: 'string' },
    })),
    ...(QUERIES[route] ?? []).map(([name, schema, description]) => ({
      name,
      in: 'query',
      description,
      schema,
    })),
  ]
  const body = path in OF_ENGINES ? MODEL_BODY : BODIES[route]
  return {
    operationId: operationId(method, path),
    summary: summaryOf(route, path),
    tags: [isInference(path) ? 'inference' : 'operators'],
    ...(!isInference(path) && { security: [{}, { adminKey: [] }] }),
    ...(parameters.length > 0 && { parameters }),
    ...(body !== undefined && {
      requestBody: { required: true, content: { 'application/json': { schema: body } } },
    }),
    responses: {
      ...responsesOf(route, path, samples),
      default: {
        description: 'An error',
        content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
      },
    },
  }
}

function isInference(path: string): boolean {
  return path.startsWith('/v1/') && !path.startsWith('/v1/router/')
}

function responsesOf(route: string, path: string, samples: Samples): object {
  if (path in OF_ENGINES)
    return {
      200: {
        description: 'The answer of the engine, with headers x-homing-*',
        content: {
          'application/json': { schema: { type: 'object', additionalProperties: true } },
          'text/event-stream': { schema: { type: 'string' } },
        },
      },
    }
  const text = TEXTS[path]
  if (text !== undefined)
    return { 200: { description: 'Text', content: { [text]: { schema: { type: 'string' } } } } }
  const own = [...samples].filter(([key]) => key.startsWith(`${route} → `))
  if (own.length === 0) throw new Error(`no router was asked for ${route}`)
  return Object.fromEntries(
    own.map(([key, answers]) => {
      const schema = schemaOf(answers, notesOf(route, path))
      const table = route.startsWith('GET /actors') ? { 'text/plain': { schema: { type: 'string' } } } : {}
      return [
        key.split(' → ')[1]!,
        { description: 'As described', content: { 'application/json': { schema }, ...table } },
      ]
    }),
  )
}

export function summaryOf(route: string, path: string): string {
  const known = OF_ENGINES[path] ?? MODELS[path]
  if (known !== undefined) return known
  for (const [, cell, meaning] of sectionOf(OPERATIONS, 'Routes').matchAll(/^\| (`[^|]*) \| (.*) \|$/gm)) {
    const names = [...cell!.matchAll(/`([^`?]+)[^`]*`/g)].map(([, name]) => name)
    if (names.includes(route)) return plain(meaning!)
  }
  if (path.startsWith('/page/')) return summaryOf('GET /page/*', '')
  throw new Error(`docs/operations.md has no route ${route}`)
}

/** Fields of these routes have a table in docs/operations.md. */
const TABLES: readonly (readonly [RegExp, string, string])[] = [
  [/^GET \/workers$/, 'Fields of /workers', ''],
  [/^GET \/decisions\/:id$|^POST \/route$/, 'Fields of a receipt', ''],
  [/^GET \/decisions$/, 'Fields of a receipt', 'decisions[].'],
  [/diagnosis$/, 'A diagnosis', ''],
]

function notesOf(route: string, path: string): FieldNotes {
  const descriptions = new Map<string, string>()
  const [, heading, before] = TABLES.find(([pattern]) => pattern.test(route)) ?? []
  if (heading !== undefined) {
    for (const [, cell, meaning] of sectionOf(OPERATIONS, heading).matchAll(/^\| (`[^|]*) \| ?(.*) ?\|$/gm))
      for (const [, name] of cell!.matchAll(/`([^`]+)`/g))
        descriptions.set(`${before}${name}`, plain(meaning!))
  }
  // "A field that does not apply is null."
  const isReceipt = heading === 'Fields of a receipt'
  return {
    meaningOf: at => descriptions.get(at),
    isMap: at => MAPS.some(pattern => pattern.test(`${route}${at === '' ? '' : ` ${at}`}`)),
    mayBeNull: at =>
      at !== '' &&
      !at.endsWith('[]') &&
      ((isReceipt && !/^(decisions\[\]\.)?(id|request_id|at)$|^decisions$/.test(at)) ||
        /`null`|\bnull\b/.test(descriptions.get(at) ?? '') ||
        UNKNOWN_AT_TIMES[path]?.test(at) === true),
  }
}

if (import.meta.main) {
  const samples = await sampled(collectSamples)
  writeFileSync(OPENAPI_PATH, renderOpenApi(samples))
  console.error(`${OPENAPI_PATH}: ${ROUTES.length} routes`)
}
