/** The operator routes: passed to the console on the port of the API, or on a port of the console's own. */

import { OPERATOR_ROUTES } from '@homing/actors/console'
import t from 'tap'
import { HOST, start } from './gateway-world.ts'
import { RECEIPT } from './sample-records.ts'
import { data, end, head } from './worker-exchange.ts'

const ADMIN_PORT = 9000
const ADMIN = { origin: `http://${HOST}:${ADMIN_PORT}` }
const BODY = '{"model":"m","prompt":"hi"}'
/** Of routes that want something else than '*' for a decision, or a body of their own. */
interface Special {
  readonly at?: string
  readonly body?: string
  readonly status?: number
  readonly headers?: Record<string, string>
}
const SPECIAL: Readonly<Record<string, Special>> = {
  'POST /workers': { body: '{"url":"http://10.0.0.3:8001"}', status: 201 },
  'GET /workers/*': { at: '/workers/10.0.0.3:8001/diagnosis' },
  // Without a key only for callers that name this machine.
  'GET /page/*': { at: '/page/live', status: 403, headers: { host: 'elsewhere.example' } },
  'POST /what_if': { body: '{"minutes":5}', status: 202 },
  'POST /workers/*': { at: '/workers/10.0.0.3:8001/drain', status: 202 },
}

t.test('with a port of their own no route for operators is on the port of the API', async t => {
  const { ask, answer } = await start(t, {}, { receipts: [RECEIPT] }, { adminPort: ADMIN_PORT })
  for (const { method, path } of OPERATOR_ROUTES) {
    const methods = OPERATOR_ROUTES.filter(route => route.path === path).map(route => route.method)
    // Of programs, which send ids of tokens: this body has none.
    const program = method === 'POST' && path.startsWith('/v1/router/') ? { status: 400 } : {}
    const special: Special = SPECIAL[`${method} ${path}`] ?? program
    const at = special.at ?? path.replace('*', 'decision-1')
    const body = method === 'POST' ? { body: special.body ?? BODY } : {}
    const refused = await ask(method, at, body)
    t.strictSame(refused.error, [404, 'NotFoundError', 'not_found', null], `${method} ${at}`)
    t.match(refused.body, /no such route; the operator routes are on --admin-port/)
    const given = await ask(method, at, { ...ADMIN, ...body, headers: special.headers ?? {} })
    t.equal(given.status, special.status ?? 200, `${method} ${at} of the console`)
    t.equal(given.headers['content-length'], String(Buffer.byteLength(given.body)))
    const wrong = await ask('PUT', at, ADMIN)
    t.strictSame([wrong.status, wrong.headers['allow']], [405, methods.join(', ')])
  }
  for (const path of ['/v1/models', '/health', '/ready']) {
    t.equal((await ask('GET', path)).status, 200, path)
    t.strictSame((await ask('GET', path, ADMIN)).error, [404, 'NotFoundError', 'not_found', null], path)
  }
  await ask('POST', '/v1/embeddings', { body: BODY })
  await answer(head(), end)
  t.equal((await ask('GET', '/metrics/..', ADMIN)).status, 404)
  t.match(JSON.parse((await ask('GET', '/', ADMIN)).body).elsewhere, /--port$/)
})

t.test('both layouts answer the same', async t => {
  const same = { receipts: [RECEIPT] }
  const one = await start(t, {}, same)
  await t.test('on two ports', async t => {
    const two = await start(t, {}, same, { adminPort: ADMIN_PORT })
    for (const path of ['/decisions', '/decisions/decision-1', '/workers', '/dump', '/decisions/x']) {
      const [here, there] = [await one.ask('GET', path), await two.ask('GET', path, ADMIN)]
      t.strictSame([here.status, here.body, here.headers], [there.status, there.body, there.headers], path)
    }
    const route = { method: 'POST', path: '/route' } as const
    for (const body of [BODY, '{']) {
      const [here, there] = [
        await one.ask(route.method, route.path, { body }),
        await two.ask(route.method, route.path, { ...ADMIN, body }),
      ]
      t.strictSame([here.status, here.body], [there.status, there.body], body)
    }
  })
})

t.test('a body for the console is bounded as any other', async t => {
  const { ask } = await start(t, {}, {}, { adminPort: ADMIN_PORT })
  const large = { body: 'x'.repeat(2000) }
  t.equal((await ask('POST', '/route', { ...ADMIN, ...large })).status, 413)
})

t.test('an error of the reader names its field, whoever is asked', async t => {
  const refused = {
    kind: 'refused',
    error: { code: 'HOMING_OPENAI_EMPTY_PROMPT', message: 'empty', details: {} },
    param: 'prompt',
  } as const
  const { ask } = await start(t, {}, { read: () => refused })
  t.match((await ask('POST', '/route', { body: BODY })).error, [400, String, String, 'prompt'])
})

t.test('a diagnosis is of a worker that is there, and of few at one time', async t => {
  const { ask } = await start(t)
  t.match((await ask('GET', '/workers/10.0.0.4:8001/diagnosis')).error, [404, 'NotFoundError'])
  t.match((await ask('GET', '/workers/busy:1/diagnosis')).error, [503])
  const { error, body } = await ask('GET', '/workers/10.0.0.3:8001')
  t.match(error, [400])
  t.match(body, /use GET \/workers\/ID\/diagnosis/)
  const found = await ask('GET', '/workers/10.0.0.3:8001/diagnosis')
  t.match(JSON.parse(found.body), { verdict: 'inexact', router: { worker_keys: [{ trust: 'partial' }] } })
})

t.test('a console that does not answer is 504, and requests go on meanwhile', async t => {
  const { system, send, ask, answer } = await start(t, {}, {}, { consoleAnswers: false })
  const view = send('GET', '/workers')
  const route = send('POST', '/route', { body: BODY })
  await system.settle()
  const call = await ask('POST', '/v1/completions', { body: BODY })
  await answer(head(), data('x'), end)
  t.strictSame([call.status, call.body, view.status], [200, 'x', undefined])
  await system.advance('7s')
  t.match([view.error, route.error], [[504], [504]])
})

t.test('a console that has ended is 503, and requests go on', async t => {
  const { system, ask, answer, console } = await start(t)
  await system.stop(console)
  t.match((await ask('GET', '/metrics')).error, [503])
  const call = await ask('POST', '/v1/completions', { body: BODY })
  await answer(head(), data('x'), end)
  t.strictSame([call.status, call.body], [200, 'x'])
  t.equal((await ask('GET', '/ready')).status, 200)
})

t.test('errors and cut clients on a port of its own are counted as on the other', async t => {
  const counted = async (options: { readonly adminPort?: number }) => {
    const { ask, send, system } = await start(t, {}, { read: () => undefined }, options)
    const at = options.adminPort === undefined ? {} : ADMIN
    for (const path of ['/decisions?limit=0', '/decisions/x', '/actors/flight?thread=x', '/nowhere'])
      t.match(await ask('GET', path, at), { status: /^4/ }, path)
    t.equal((await ask('PUT', '/workers', at)).status, 405)
    t.equal((await ask('POST', '/route', { ...at, body: 'x'.repeat(2000) })).status, 413)
    const stalled = send('POST', '/route', { ...at, body: BODY })
    await system.settle()
    stalled.call.pause()
    await system.advance('3m')
    t.equal(stalled.end, 'broken')
    const { body } = await ask('GET', '/metrics', at)
    return [...body.matchAll(/^homing_gateway_(?:requests|clients_stalled)_total\{(.*)\} (\d+)$/gm)].map(
      ([, what, n]) => `${what} ${n}`,
    )
  }
  const here = await counted({})
  t.ok(here.includes('route="route" 1'), 'the client that was cut')
  t.equal(here.length, 8)
  t.strictSame((await counted({ adminPort: ADMIN_PORT })).sort(), here.sort())
})
