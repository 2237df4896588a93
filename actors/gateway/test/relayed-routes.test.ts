/** Routes of the engines besides completions: which pass, which do not, and what they tell the router. */

import { readFileSync } from 'node:fs'
import { readModelAlias } from '@homing/config'
import { SALT } from '@homing/protocol'
import t from 'tap'
import { start } from './gateway-world.ts'
import { JSON_TYPE } from './sample-records.ts'

t.test('the inference routes of engines are relayed by load, with the methods that they have', async t => {
  const { ask, called, script } = await start(t)
  script.read = () => t.fail('the tokenizer was asked') as never
  await ask('POST', '/v1/embeddings?a=1', { headers: JSON_TYPE, body: '{"model":"m","input":"x"}' })
  t.match(called(), {
    request: { method: 'POST', path: '/v1/embeddings?a=1' },
    routing: { model: 'm', unknownPromptReason: /by load/, pinnedInstanceId: undefined },
  })
  const tokensOf = async (path: string) => {
    await ask('POST', path, {
      headers: JSON_TYPE,
      body: JSON.stringify({ model: 'm', input: 'x'.repeat(400) }),
    })
    return called().routing.promptTokens
  }
  t.equal(await tokensOf('/v1/embeddings'), 100)
  t.equal(await tokensOf('/tokenize'), 0, 'no model runs for it')
  await ask('POST', '/v1/audio/transcriptions', {
    headers: { 'content-type': 'multipart/form-data' },
    body: '--x',
  })
  t.match(called(), { request: { method: 'POST' }, routing: { model: '' } })
  await ask('GET', '/v1/responses/resp_1?stream=true')
  t.match(called(), {
    request: { method: 'GET', path: '/v1/responses/resp_1?stream=true' },
    body: '',
  })
  await ask('POST', '/v1/responses/resp_1/cancel', { headers: JSON_TYPE, body: '' })
  t.match(called(), { request: { method: 'POST', path: '/v1/responses/resp_1/cancel' } })
})

const FORM = (model: string) =>
  [
    '--x y',
    'Content-Disposition: form-data; name="file"; filename="model"',
    'Content-Type: audio/wav',
    '',
    'RIFF\r\n--x\r\ncontent-disposition: form-data; name="model"\r\n\r\nno\r\n',
    '--x y',
    'content-disposition: form-data; name="model"',
    '',
    model,
    '--x y--',
    '',
  ].join('\r\n')

t.test('the model of a form is read, and its bytes go on as they came', async t => {
  const { ask, called } = await start(t)
  const headers = { 'content-type': 'multipart/form-data; boundary="x y"' }
  for (const route of ['audio/transcriptions', 'audio/translations', 'images/edits']) {
    await ask('POST', `/v1/${route}`, { headers, body: FORM('whisper') })
    t.equal(called().routing.model, 'whisper', route)
    t.equal(called().body, FORM('whisper'), route)
  }
})

t.test('an alias is the model behind it on relayed routes, too, of JSON and of forms', async t => {
  const modelAliases = ['ears=m', 'claude-*=m'].map(readModelAlias)
  const { ask, called } = await start(t, { modelAliases })
  const form = { 'content-type': 'multipart/form-data; boundary="x y"' }
  await ask('POST', '/v1/audio/transcriptions', { headers: form, body: FORM('ears') })
  t.strictSame([called().routing.model, called().body], ['m', FORM('m')])
  const body = '{"nvext":{},"model":"claude-haiku", "input":1.0}'
  await ask('POST', '/v1/embeddings', { headers: JSON_TYPE, body })
  t.strictSame([called().routing.model, called().body], ['m', '{"model":"m", "input":1.0}'])
  const { data } = JSON.parse((await ask('GET', '/v1/models')).body)
  t.strictSame(
    data.map(({ id, root }: Record<string, string>) => [id, root]),
    [
      ['m', '/models/m'],
      ['org/poet', 'org/poet'],
      ['ears', '/models/m'],
    ],
  )
  t.match(JSON.parse((await ask('GET', '/v1/models/claude-opus')).body), {
    id: 'claude-opus',
    root: '/models/m',
  })
  t.equal((await ask('GET', '/v1/models/gpt')).status, 404)
})

t.test('what separates a relayed prompt from equal ones is told', async t => {
  const { ask, called } = await start(t)
  const routed = async (body: object, headers: Record<string, string> = JSON_TYPE) => {
    await ask('POST', '/v1/messages/count_tokens', { headers, body: JSON.stringify(body) })
    return called().routing.separated?.unnamed
  }
  t.equal(await routed({ model: 'm' }), undefined)
  t.strictSame(await routed({ model: 'm', cache_salt: 's' }), [SALT])
  t.strictSame(await routed({ model: 'm' }, { ...JSON_TYPE, 'x-tenant-id': 'a' }), [SALT])
  t.equal(await routed({ model: 'm' }, { ...JSON_TYPE, 'x-homing-tenant': 'a' }), undefined)
  t.strictSame(await routed({ model: 'm', nvext: { cache_salt: 's' }, extra_key: 'k', lora_path: 'l' }), [7])
})

t.test('other routes of engines are not relayed, and the answer says how to', async t => {
  const { ask, calls } = await start(t)
  for (const [method, path] of [
    ['POST', '/v1/load_lora_adapter'],
    ['POST', '/v1/unload_lora_adapter'],
    ['POST', '/sleep'],
    ['POST', '/reset_prefix_cache'],
    ['POST', '/update_weights'],
    ['GET', '/v1/files'],
    ['GET', '/server_info'],
    ['POST', '/v1/responses/a/b/cancel'],
    ['GET', '/v1/responses/a%2Fb'],
    ['GET', '/v1/responses/'],
    ['POST', '/v1/embeddings/'],
    ['POST', '//v1/embeddings'],
    ['POST', '/v1//embeddings'],
    ['POST', '/v1/./embeddings'],
    ['POST', '/v1/%65mbeddings'],
    ['POST', '/V1/embeddings'],
    ['POST', '/v1/chat%2Fcompletions'],
    ['POST', `/${'x'.repeat(5000)}`],
  ] as const) {
    const refused = await ask(method, path, method === 'POST' ? { body: '{}' } : {})
    t.strictSame(refused.error, [404, 'NotFoundError', 'not_found', null], `${method} ${path.slice(0, 50)}`)
    t.match(refused.body, /--relay-route/)
    t.ok(refused.body.length < 500)
  }
  const wrong = await ask('PUT', '/v1/responses/a')
  t.strictSame(wrong.error, [405, 'MethodNotAllowedError', 'method_not_allowed', null])
  t.equal(wrong.headers['allow'], 'GET, DELETE')
  t.strictSame(calls, [])
})

t.test('docs/requests.md lists the relayed routes', async t => {
  const text = readFileSync(new URL('../../../docs/requests.md', import.meta.url), 'utf8')
  const rows = text
    .split('## Relayed routes')[1]!
    .split('\n## ')[0]!
    .matchAll(/^\| `([A-Z]+)` \| (.*) \|$/gm)
  const documented = [...rows].flatMap(([, method, paths]) =>
    [...paths!.matchAll(/`([^`]+)`/g)].map(([, path]) => `${method} ${path}`),
  )
  const { relayed } = JSON.parse((await (await start(t)).ask('GET', '/')).body)
  t.strictSame(documented.sort(), relayed.sort())
})

t.test('a route that the operator adds is relayed', async t => {
  const relayRoutes = [
    { method: undefined, path: '/v1/files/*' },
    { method: 'POST', path: '/v1/load_lora_adapter' },
  ]
  const { ask, called } = await start(t, { relayRoutes })
  await ask('DELETE', '/v1/files/f-1')
  t.match(called(), { request: { method: 'DELETE', path: '/v1/files/f-1' } })
  await ask('POST', '/v1/load_lora_adapter', { headers: JSON_TYPE, body: '{"lora_name":"a"}' })
  t.match(called(), { request: { path: '/v1/load_lora_adapter' }, routing: { model: '' } })
  t.equal((await ask('GET', '/v1/load_lora_adapter')).headers['allow'], 'POST')
  t.equal((await ask('GET', '/v1/files/f-1/..')).status, 404)
  const { relayed } = JSON.parse((await ask('GET', '/')).body)
  t.ok(relayed.includes('/v1/files/*') && relayed.includes('POST /v1/embeddings'), 'GET / lists them')
})

t.test('pins, salts and what else is meant for the router work on relayed routes, too', async t => {
  const { ask, called } = await start(t)
  const nvext = '"nvext":{"backend_instance_id":7,"dp_rank":1,"cache_salt":"s"}'
  await ask('POST', '/v1/classify', { headers: JSON_TYPE, body: `{"model":"m",${nvext},"input":"x"}` })
  t.match(called().routing, { model: 'm', pinnedInstanceId: 7, pinnedRank: 1 })
  t.equal(called().body, '{"model":"m","input":"x"}')
  await ask('POST', '/v1/embeddings', {
    headers: { ...JSON_TYPE, 'x-worker-instance-id': '3', 'x-data-parallel-rank': '2', 'x-tenant-id': 't' },
    body: `{"model":"m",${nvext}}`,
  })
  t.match(called().routing, { pinnedInstanceId: 3, pinnedRank: 2 }, 'a header wins')
  t.equal(called().body, '{"model":"m"}', 'no salt for a route that has none')
  await ask('GET', '/v1/responses/r', { headers: { 'x-dynamo-worker-instance-id': '5' } })
  t.match(called().routing, { pinnedInstanceId: 5, pinnedRank: undefined })
  const bytes = ' {"model":"m", "input" : 1.0}'
  await ask('POST', '/v1/embeddings', { headers: JSON_TYPE, body: bytes })
  t.equal(called().body, bytes)
  for (const [headers, body, param] of [
    [{ 'x-worker-instance-id': 'x' }, '{}', 'x-worker-instance-id'],
    [{}, '{"nvext":{"dp_rank":-1}}', 'nvext.dp_rank'],
    [{}, '{"nvext":7}', 'nvext'],
  ] as const) {
    const refused = await ask('POST', '/v1/rerank', { headers: { ...JSON_TYPE, ...headers }, body })
    t.strictSame(refused.error, [400, 'BadRequestError', 'invalid_value', param])
  }
})

t.test('a path that climbs out of /v1 is no route', async t => {
  const { ask } = await start(t)
  for (const path of ['/v1/../admin/kill', '/v1/%2e%2e/admin/kill', '/v1/x/%2E./y']) {
    t.equal((await ask('POST', path, { body: '{}' })).status, 404, path)
  }
})
