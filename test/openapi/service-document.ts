/**
 * The OpenAPI document of a service with wide JSON, from its route table, the tables of its page and the
 * answers of real ones.
 */

import type { Route } from '@homing/http'
import { operationId, plain, sectionOf } from './parts.ts'
import type { Samples } from './samples.ts'
import { type FieldNotes, type Schema, schemaOf } from './schema.ts'

export const WIDE: Schema = { type: ['integer', 'string'] }
export const TEXT: Schema = { type: 'string' }

export interface ServiceRoute extends Route {
  readonly query?: string
  readonly summary: string
}

export interface ServiceDocument {
  readonly title: string
  readonly summary: string
  readonly url: string
  readonly routes: readonly ServiceRoute[]
  /** Markdown, with the table 'Fields of requests'. */
  readonly page: string
  /** Fields of bodies by name; what each means is in the page. */
  readonly fields: Readonly<Record<string, Schema>>
  /** By path: without these a request is refused. */
  readonly required: Readonly<Record<string, readonly string[]>>
  readonly tagOf: (path: string) => string
  /** 'POST /query', and behind a space a place in its answer: an object whose keys are data. */
  readonly maps: readonly RegExp[]
  /** The section of the page that has the fields of the answers of a route. */
  readonly answersIn: (route: string) => string | undefined
  readonly mayBeNull: (route: string, at: string) => boolean
  readonly headersOf: (route: string) => object | undefined
}

const ERROR: Schema = {
  type: 'object',
  description: 'What went wrong, and what would be right. docs/errors.md has every code',
  properties: { error: { type: 'string' }, code: { type: 'string' } },
  required: ['code', 'error'],
  additionalProperties: false,
}

export function renderServiceOpenApi(service: ServiceDocument, samples: Samples): string {
  const paths: Record<string, Record<string, unknown>> = {}
  for (const route of service.routes)
    paths[documentPath(route.path)] = {
      ...paths[documentPath(route.path)],
      [route.method.toLowerCase()]: operationOf(service, route, samples),
    }
  const document = {
    openapi: '3.1.0',
    info: {
      title: service.title,
      version: '0.1.0',
      summary: service.summary,
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: service.url, description: 'Where nothing else is given' }],
    components: { schemas: { Error: ERROR } },
    security: [],
    paths,
  }
  return `${JSON.stringify(document, undefined, 1)}\n`
}

/** As the document names it: '/workers/{id}'. */
export function documentPath(path: string): string {
  return path.replace('*', '{id}')
}

function operationOf(service: ServiceDocument, route: ServiceRoute, samples: Samples): object {
  const { method, path, query, summary } = route
  const parameters: object[] = [...new URLSearchParams(query).keys()].map(name => ({
    name,
    in: 'query',
    description: `Only what has this ${name}`,
    schema: TEXT,
  }))
  if (path.includes('*'))
    parameters.unshift({
      name: 'id',
      in: 'path',
      required: true,
      description: 'What it is for',
      schema: TEXT,
    })
  const body = method === 'GET' || method === 'DELETE' ? undefined : bodyOf(service, path)
  return {
    operationId: operationId(method, path.replace('*', 'id')),
    summary: `${summary[0]!.toUpperCase()}${summary.slice(1)}`,
    tags: [service.tagOf(path)],
    ...(parameters.length > 0 && { parameters }),
    ...(body !== undefined && {
      requestBody: {
        required: service.required[path]!.length > 0,
        content: { 'application/json': { schema: body } },
      },
    }),
    responses: {
      ...answersOf(service, `${method} ${path}`, samples),
      default: {
        description: 'An error',
        content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
      },
    },
  }
}

/** Undefined: the route takes none. */
export function bodyOf({ page, fields, required }: ServiceDocument, path: string): Schema | undefined {
  const needed = required[path]
  if (needed === undefined) return undefined
  const properties: Record<string, Schema> = {}
  const rows = /^\| `(\w+)` \| (.*) \| (.*) \|$/gm
  for (const [, name, routes, meaning] of sectionOf(page, 'Fields of requests').matchAll(rows)) {
    if (!routes!.includes(`\`${path}\``)) continue
    const { type, ...more } = fields[name!]!
    // Null counts as a missing field.
    const types = needed.includes(name!) ? type! : [type!, 'null'].flat()
    properties[name!] = { type: types, description: plain(meaning!), ...more }
  }
  return { type: 'object', properties, required: [...needed], additionalProperties: true }
}

function answersOf(service: ServiceDocument, route: string, samples: Samples): object {
  if (route === 'GET /metrics')
    return { 200: { description: 'Text', content: { 'text/plain': { schema: TEXT } } } }
  const good = [...samples].filter(([key]) => key.startsWith(`${route} → 2`))
  if (good.length === 0) throw new Error(`no service was asked for ${route}`)
  const headers = service.headersOf(route)
  return Object.fromEntries(
    good.map(([key, answers]) => {
      const schema = schemaOf(answers, notesOf(service, route))
      const content = { 'application/json': { schema } }
      const answer = { description: 'As described', ...(headers && { headers }), content }
      return [key.split(' → ')[1]!, answer]
    }),
  )
}

function notesOf({ page, maps, answersIn, mayBeNull }: ServiceDocument, route: string): FieldNotes {
  const heading = answersIn(route)
  const meanings = heading === undefined ? new Map<string, string>() : meaningsIn(page, heading)
  return {
    meaningOf: at => meanings.get(at.split('.').at(-1)!),
    isMap: at => maps.some(pattern => pattern.test(`${route}${at === '' ? '' : ` ${at}`}`)),
    mayBeNull: at => mayBeNull(route, at),
  }
}

/** Of the fields of a table, by name. */
function meaningsIn(page: string, heading: string): Map<string, string> {
  const meanings = new Map<string, string>()
  for (const [, cell, meaning] of sectionOf(page, heading).matchAll(/^\| (`[^|]*) \| (.*) \|$/gm))
    for (const [, name] of cell!.matchAll(/`([^`]+)`/g)) meanings.set(name!, plain(meaning!))
  return meanings
}
