/** docs/openapi.json is a valid document of the routes that there are, and says what routers answer. */

import { readFileSync } from 'node:fs'
import { Validator } from '@seriousme/openapi-schema-validator'
import { Ajv2020 } from 'ajv/dist/2020.js'
import t from 'tap'
import { OPENAPI_PATH, ROUTES, summaryOf } from './openapi.ts'
import { collectSamples } from './samples.ts'

interface Operation {
  readonly summary: string
  readonly operationId: string
  readonly responses: Readonly<
    Record<string, { readonly content: { readonly 'application/json'?: { readonly schema: object } } }>
  >
}

const document = JSON.parse(readFileSync(OPENAPI_PATH, 'utf8')) as {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
}

function operationOf(method: string, path: string): Operation | undefined {
  return document.paths[path.replaceAll(/:(\w+)/g, '{$1}')]?.[method.toLowerCase()]
}

t.test('it is OpenAPI 3.1', async t => {
  const { valid, errors } = await new Validator().validate(structuredClone(document) as never)
  t.ok(valid, JSON.stringify(errors))
  t.equal((document as unknown as { openapi: string }).openapi, '3.1.0')
})

t.test('it has the routes of the route tables and no other (write it with `pnpm run docs`)', async t => {
  const operations = Object.values(document.paths).flatMap(methods => Object.values(methods))
  t.equal(operations.length, ROUTES.length)
  for (const { method, path } of ROUTES)
    t.equal(operationOf(method, path)?.summary, summaryOf(`${method} ${path}`, path), `${method} ${path}`)
  t.equal(new Set(operations.map(({ operationId }) => operationId)).size, operations.length)
})

t.test('what routers answer is what it says', async t => {
  const ajv = new Ajv2020({ allErrors: true, allowUnionTypes: true })
  const seen = new Map<string, number>()
  await collectSamples((route, status, answer) => {
    const [method, path] = route.split(' ') as [string, string]
    const schema = operationOf(method, path)?.responses[status]?.content['application/json']?.schema
    if (schema === undefined) {
      t.fail(`${route} answered ${status}, which the document does not have: ${JSON.stringify(answer)}`)
      return
    }
    seen.set(route, (seen.get(route) ?? 0) + 1)
    const fits = ajv.validate(schema, answer)
    if (!fits) t.fail(`${route}: ${ajv.errorsText()}`)
  })
  t.ok(seen.size >= 18, `${seen.size} routes were asked`)
  t.comment(`${[...seen.values()].reduce((sum, count) => sum + count, 0)} answers`)
})
