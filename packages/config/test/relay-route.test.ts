import t from 'tap'
import { parseSettings, readRelayRoute, relayRouteFault, routerCommand, SettingsError } from '../src/index.ts'

t.test('a route has a path, and a method where only one is meant', async t => {
  for (const [text, method, path] of [
    ['/v1/files', undefined, '/v1/files'],
    ['GET /v1/files/*/content', 'GET', '/v1/files/*/content'],
    ['POST  /v1/load_lora_adapter', 'POST', '/v1/load_lora_adapter'],
    ['/v1/completions/render', undefined, '/v1/completions/render'],
    ['/actors-of-mine', undefined, '/actors-of-mine'],
  ] as const) {
    t.equal(relayRouteFault(text), undefined, text)
    t.strictSame(readRelayRoute(text), { method, path }, text)
  }
})

t.test('what is no route, or has two forms, or is served already, is refused', async t => {
  for (const [text, why] of [
    ['v1/files', /is no route/],
    ['get /v1/files', /is no route/],
    ['GET', /is no route/],
    ['GET POST /x', /is no route/],
    ['/v1/../x', /segment '\.\.'/],
    ['/v1/./x', /segment '\.'/],
    ['/v1//x', /segment ''/],
    ['/v1/x/', /segment ''/],
    ['/v1/%2e', /segment '%2e'/],
    ['/v1/a*', /segment 'a\*'/],
    ['/v1/x?a=1', /segment 'x\?a=1'/],
    ['/', /the router itself/],
    ['POST /v1/chat/completions', /the router itself/],
    ['/v1/models/*', /the router itself/],
    ['/metrics', /the router itself/],
    ['POST /busy_threshold', /is a route of the router itself/],
    ['POST /workers/x/drain', /the router itself/],
  ] as const) {
    t.match(relayRouteFault(text), why, text)
  }
})

t.test('the option may be repeated, and a fault of it is told with all others', async t => {
  const machine = { cores: 2 }
  const argv = ['--relay-route', 'GET /v1/files', '--relay-route=/v1/systemone']
  const { settings } = parseSettings(routerCommand, argv, {}, { machine })
  t.strictSame(settings.relayRoutes, ['GET /v1/files', '/v1/systemone'])
  const env = { HOMING_RELAY_ROUTE: 'GET /v1/files, POST /x' }
  t.strictSame(parseSettings(routerCommand, [], env, { machine }).settings.relayRoutes, [
    'GET /v1/files',
    'POST /x',
  ])
  t.throws(() => parseSettings(routerCommand, ['--relay-route', 'x'], {}, { machine }), SettingsError)
})
