/**
 * docs/openapi-slots.json is a valid document of the routes of `homing slots`, and says what it takes and
 * answers.
 */

import { readFileSync } from 'node:fs'
import { SLOT_ROUTES } from '@homing/actors/slot-service'
import { Validator } from '@seriousme/openapi-schema-validator'
import { Ajv2020 } from 'ajv/dist/2020.js'
import t from 'tap'
import { send, startProcess } from '../system/fleet.ts'
import { bodyOf } from './service-document.ts'
import { SLOTS, SLOTS_OPENAPI_PATH } from './slots.ts'
import { collectSlotSamples, SLOT_BODIES } from './slots-samples.ts'

interface Content {
  readonly content: { readonly 'application/json'?: { readonly schema: object } }
}

interface Operation {
  readonly requestBody?: Content
  readonly responses: Readonly<Record<string, Content>>
}

const document = JSON.parse(readFileSync(SLOTS_OPENAPI_PATH, 'utf8')) as {
  readonly components: { readonly schemas: { readonly Error: object } }
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
}
const ajv = new Ajv2020({ allErrors: true, allowUnionTypes: true })

t.test('it is OpenAPI 3.1 of the route table (write it with `pnpm run docs`)', async t => {
  const { valid, errors } = await new Validator().validate(structuredClone(document) as never)
  t.ok(valid, JSON.stringify(errors))
  const routes = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map(method => `${method.toUpperCase()} ${path}`),
  )
  t.strictSame(routes.sort(), SLOT_ROUTES.map(({ method, path }) => `${method} ${path}`).sort())
  for (const { method, path } of SLOT_ROUTES) {
    const { requestBody } = document.paths[path]![method.toLowerCase()]!
    t.strictSame(requestBody?.content['application/json']?.schema, bodyOf(SLOTS, path), `${method} ${path}`)
  }
})

t.test('what slot trackers answer is what it says', async t => {
  const seen = new Set<string>()
  await collectSlotSamples((route, status, answer) => {
    const [method, path] = route.split(' ') as [string, string]
    seen.add(`${route} ${status}`)
    if (typeof answer === 'string') return
    const { responses } = document.paths[path]![method.toLowerCase()]!
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
        t.ok(seen.has(`${method.toUpperCase()} ${path} ${status}`), `${method} ${path} ${status}`)
  for (const refused of ['POST /register 422', 'POST /register 409', 'POST /add 404'])
    t.ok(seen.has(refused), refused)
})

t.test('bodies as it says are taken, and a field that must be there is', async t => {
  const slots = await startProcess('slots', ['--host', '127.0.0.1', '--port', '0'])
  t.teardown(() => slots.kill('SIGKILL'))
  for (const [route, body] of Object.entries(SLOT_BODIES)) {
    const [, path] = route.split(' ') as [string, string]
    const schema = bodyOf(SLOTS, path)!
    t.strictSame(Object.keys(body).sort(), Object.keys(schema.properties!).sort(), `${route}: all its fields`)
    t.ok(ajv.validate(schema, body), `${route}: ${ajv.errorsText()}`)
    for (const name of Object.keys(body)) {
      const { [name]: _, ...rest } = body
      const { status, text } = await send(slots.url, path, { body: rest })
      if (schema.required!.includes(name)) t.match(text, `${name} is missing`, `${route} without ${name}`)
      else t.not(status, 400, `${route} without ${name}: ${text}`)
    }
  }
})
