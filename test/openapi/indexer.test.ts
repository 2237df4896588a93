/**
 * docs/openapi-indexer.json is a valid document of the routes of `homing indexer`, and says what it takes and
 * answers.
 */

import { readFileSync } from 'node:fs'
import { SERVICE_ROUTES } from '@homing/actors/index-service'
import { Validator } from '@seriousme/openapi-schema-validator'
import { Ajv2020 } from 'ajv/dist/2020.js'
import t from 'tap'
import { send, startProcess } from '../system/fleet.ts'
import { bodyOf, INDEXER_OPENAPI_PATH } from './indexer.ts'
import { BODIES, collectIndexerSamples } from './indexer-samples.ts'

interface Content {
  readonly content: { readonly 'application/json'?: { readonly schema: object } }
}

interface Operation {
  readonly summary: string
  readonly operationId: string
  readonly requestBody?: Content
  readonly responses: Readonly<Record<string, Content>>
}

const document = JSON.parse(readFileSync(INDEXER_OPENAPI_PATH, 'utf8')) as {
  readonly openapi: string
  readonly components: { readonly schemas: { readonly Error: object } }
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
}
const ajv = new Ajv2020({ allErrors: true, allowUnionTypes: true })

t.test('it is OpenAPI 3.1', async t => {
  const { valid, errors } = await new Validator().validate(structuredClone(document) as never)
  t.ok(valid, JSON.stringify(errors))
  t.equal(document.openapi, '3.1.0')
})

t.test('it has the routes of the route table and no other (write it with `pnpm run docs`)', async t => {
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      route: `${method.toUpperCase()} ${path}`,
      ...operation,
    })),
  )
  t.strictSame(
    operations.map(({ route }) => route).sort(),
    SERVICE_ROUTES.map(({ method, path }) => `${method} ${path}`).sort(),
  )
  t.equal(new Set(operations.map(({ operationId }) => operationId)).size, operations.length)
  for (const { method, path, summary } of SERVICE_ROUTES) {
    const operation = document.paths[path]![method.toLowerCase()]!
    t.equal(operation.summary.toLowerCase(), summary.toLowerCase())
    t.strictSame(
      operation.requestBody?.content['application/json']?.schema,
      bodyOf(path),
      `${method} ${path}`,
    )
  }
})

t.test('what indexers answer is what it says', async t => {
  const seen = new Map<string, number>()
  await collectIndexerSamples((route, status, answer) => {
    const [method, path] = route.split(' ') as [string, string]
    const { responses } = document.paths[path]![method.toLowerCase()]!
    seen.set(`${route} ${status}`, (seen.get(`${route} ${status}`) ?? 0) + 1)
    if (typeof answer === 'string') {
      t.ok('text/plain' in responses[status]!.content, `${route} answers text`)
      return
    }
    const schema =
      status >= 400
        ? document.components.schemas.Error
        : responses[status]?.content['application/json']?.schema
    if (schema === undefined) t.fail(`${route} answered ${status}, which the document does not have`)
    else if (!ajv.validate(schema, answer))
      t.fail(`${route}: ${ajv.errorsText()} in ${JSON.stringify(answer)}`)
  })
  for (const [path, methods] of Object.entries(document.paths))
    for (const [method, { responses }] of Object.entries(methods))
      for (const status of Object.keys(responses).filter(each => each !== 'default'))
        t.ok(
          seen.has(`${method.toUpperCase()} ${path} ${status}`),
          `${method} ${path} ${status} was answered`,
        )
  for (const refused of ['POST /register 400', 'POST /register 409', 'POST /query 404'])
    t.ok(seen.has(refused), refused)
})

t.test('bodies as it says are taken, and a field that must be there is', async t => {
  const indexer = await startProcess('indexer', ['--host', '127.0.0.1', '--port', '0'])
  t.teardown(() => indexer.kill('SIGKILL'))
  for (const [route, body] of Object.entries(BODIES)) {
    const [, path] = route.split(' ') as [string, string]
    const schema = bodyOf(path)!
    t.strictSame(Object.keys(body).sort(), Object.keys(schema.properties!).sort(), `${route}: all its fields`)
    t.ok(ajv.validate(schema, body), `${route}: ${ajv.errorsText()}`)
    for (const name of Object.keys(body)) {
      const { [name]: _, ...rest } = body
      const { status, text } = await send(indexer.url, path, { body: rest })
      if (schema.required!.includes(name)) t.match(text, `${name} is missing`, `${route} without ${name}`)
      else t.not(status, 400, `${route} without ${name}: ${text}`)
    }
  }
})
