/**
 * docs/openapi-select.json is a valid document of the routes of `homing select`, and says what it takes and
 * answers.
 */

import { readFileSync } from 'node:fs'
import { SELECT_ROUTES } from '@homing/actors/select-service'
import { Validator } from '@seriousme/openapi-schema-validator'
import { Ajv2020 } from 'ajv/dist/2020.js'
import t from 'tap'
import { freePortPairs, send, startProcess } from '../system/fleet.ts'
import { SELECT, SELECT_OPENAPI_PATH } from './select.ts'
import { collectSelectSamples, SELECT_BODIES, tablePath } from './select-samples.ts'
import { bodyOf, documentPath } from './service-document.ts'

interface Content {
  readonly content: { readonly 'application/json'?: { readonly schema: object } }
}

interface Operation {
  readonly requestBody?: Content
  readonly responses: Readonly<Record<string, Content>>
}

const document = JSON.parse(readFileSync(SELECT_OPENAPI_PATH, 'utf8')) as {
  readonly components: { readonly schemas: { readonly Error: object } }
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
}
/** Without the prompt, its hashes are missing. */
const OF_ONE_FORM = ['token_ids']
const ajv = new Ajv2020({ allErrors: true, allowUnionTypes: true })

t.test('it is OpenAPI 3.1 of the route table (write it with `pnpm run docs`)', async t => {
  const { valid, errors } = await new Validator().validate(structuredClone(document) as never)
  t.ok(valid, JSON.stringify(errors))
  const routes = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map(method => `${method.toUpperCase()} ${path}`),
  )
  t.strictSame(
    routes.sort(),
    SELECT_ROUTES.map(({ method, path }) => `${method} ${documentPath(path)}`).sort(),
  )
  for (const { method, path } of SELECT_ROUTES) {
    const { requestBody } = document.paths[documentPath(path)]![method.toLowerCase()]!
    const body = method === 'GET' || method === 'DELETE' ? undefined : bodyOf(SELECT, path)
    t.strictSame(requestBody?.content['application/json']?.schema, body, `${method} ${path}`)
  }
})

t.test('what selection services answer is what it says', async t => {
  const seen = new Set<string>()
  await collectSelectSamples((route, status, answer) => {
    const [method, path] = route.split(' ') as [string, string]
    seen.add(`${method} ${documentPath(path)} ${status}`)
    if (typeof answer === 'string') return
    const { responses } = document.paths[documentPath(path)]![method.toLowerCase()]!
    const schema =
      status >= 400
        ? document.components.schemas.Error
        : responses[status]?.content['application/json']?.schema
    // Not ready is an answer, not an error.
    if (path === '/ready' && status === 503) return
    if (schema === undefined) t.fail(`${route} answered ${status}, which the document does not have`)
    else if (!ajv.validate(schema, answer))
      t.fail(`${route}: ${ajv.errorsText()} in ${JSON.stringify(answer)}`)
  })
  for (const [path, methods] of Object.entries(document.paths))
    for (const [method, { responses }] of Object.entries(methods))
      for (const status of Object.keys(responses).filter(each => each !== 'default'))
        t.ok(seen.has(`${method.toUpperCase()} ${path} ${status}`), `${method} ${path} ${status}`)
  for (const refused of ['POST /workers 422', 'POST /workers 409', 'POST /select 404', 'GET /ready 503'])
    t.ok(seen.has(refused), refused)
})

t.test('bodies as it says are taken, and a field that must be there is', async t => {
  const [port] = await freePortPairs(1)
  const listening = ['--host', '127.0.0.1', '--port', '0', '--replica-endpoint', `tcp://127.0.0.1:${port}`]
  const select = await startProcess('select', listening)
  t.teardown(() => select.kill('SIGKILL'))
  for (const [route, body] of Object.entries(SELECT_BODIES)) {
    const [method, path] = route.split(' ') as [string, string]
    const schema = method === 'DELETE' ? undefined : bodyOf(SELECT, tablePath(path))
    if (schema === undefined) {
      t.equal((await send(select.url, path, { method })).status, 200, route)
      continue
    }
    t.strictSame(Object.keys(body).sort(), Object.keys(schema.properties!).sort(), `${route}: all its fields`)
    t.ok(ajv.validate(schema, body), `${route}: ${ajv.errorsText()}`)
    const whole = await send(select.url, path, { method, body })
    t.ok(whole.status < 300, `${route}: ${whole.text}`)
    for (const name of Object.keys(body)) {
      const { [name]: _, ...rest } = body
      const { status, text } = await send(select.url, path, { method, body: rest })
      if (schema.required!.includes(name)) t.match(text, `${name} is missing`, `${route} without ${name}`)
      else if (OF_ONE_FORM.includes(name)) t.equal(status, 422, `${route} without ${name}: ${text}`)
      else t.not(status, 400, `${route} without ${name}: ${text}`)
    }
  }
})
