/**
 * Both layouts of the routes, on real sockets: all on one port, and the operator routes on a port of their
 * own.
 */

import t from 'tap'
import { send, withFleet } from './fleet.ts'

const COMPLETION = { model: 'homing-sim', prompt: [...Array(100).keys()], max_tokens: 2 }
const OPERATORS = ['/workers', '/decisions', '/actors', '/actors/flight', '/dump', '/metrics', '/']
const DATA = ['/v1/models', '/v1/models/homing-sim', '/health', '/ready']
const COUNTED = /^homing_gateway_requests_total\{route="completions",status="200"\} 1$/m

t.test('on one port everything is there', async t => {
  await withFleet({ engines: [{}] }, async fleet => {
    t.equal(fleet.router.adminUrl, fleet.url)
    t.equal((await fleet.send('/v1/completions', { body: COMPLETION })).status, 200)
    for (const path of [...OPERATORS, ...DATA]) t.equal((await fleet.send(path)).status, 200, path)
    t.match((await fleet.send('/metrics')).text, COUNTED)
    await fleet.caughtUp(fleet.engines)
    t.equal((await fleet.send('/route', { body: COMPLETION })).json.overlap_blocks, 6)
  })
})

t.test('with --admin-port the other one serves the API, /health and /ready alone', async t => {
  const options = { engines: [{}], router: ['--admin-port', '0'], trust: undefined }
  await withFleet(options, async fleet => {
    const { url, adminUrl } = fleet.router
    t.not(adminUrl, url)
    t.equal((await fleet.send('/v1/completions', { body: COMPLETION })).status, 200)
    for (const path of DATA) {
      t.equal((await fleet.send(path)).status, 200, path)
      t.equal((await send(adminUrl, path)).status, 404, path)
    }
    for (const path of OPERATORS) {
      const refused = await fleet.send(path)
      t.strictSame([refused.status, refused.json.error.code], [404, 'not_found'], path)
      t.equal((await send(adminUrl, path)).status, 200, path)
    }
    t.equal((await fleet.send('/route', { body: COMPLETION })).status, 404)
    t.match((await send(adminUrl, '/route', { body: COMPLETION })).json, { model: 'homing-sim' })
    t.match((await send(adminUrl, '/metrics')).text, COUNTED)
    const [receipt] = (await send(adminUrl, '/decisions?limit=1')).json.decisions
    t.match(receipt.delivered, { outcome: 'ok', status: 200 })
    const text = { model: 'homing-sim', prompt: 'hello' }
    t.equal((await fleet.send('/tokenize', { body: text })).status, 200, 'relayed as ever')
    t.equal((await send(adminUrl, '/dump', { method: 'POST', body: {} })).headers['allow'], 'GET')
  })
})
