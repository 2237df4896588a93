/** What goes out to an origin that the router has a key for. */

import { systemClock } from '@homing/base'
import t, { type Test } from 'tap'
import { MemoryNetwork, systemTransport, type Transport } from '../src/index.ts'

async function sent(t: Test, transport: Transport) {
  const { http } = transport
  t.teardown(() => transport.close())
  const seen: unknown[] = []
  const listener = await http.listen({ host: '127.0.0.1', port: 0 }, exchange => {
    const { authorization, 'x-api-key': apiKey, accept } = exchange.headers
    seen.push([authorization, apiKey, accept])
    exchange.writeHead(200, {})
    exchange.end()
  })
  const origin = `http://127.0.0.1:${listener.port}`
  const headers = { Authorization: 'Bearer client', 'x-api-key': 'client', accept: 'a/b' }
  const ask = () => http.fetch({ origin, method: 'GET', path: '/', headers }, { timeoutMs: 60_000 })
  await ask()
  http.setAccess(origin, { key: 'router' })
  await ask()
  http.setAccess(origin, { key: undefined })
  await ask()
  http.setAccess(origin, undefined)
  await ask()
  return seen
}

const EXPECTED = [
  ['Bearer client', 'client', 'a/b'],
  ['Bearer router', undefined, 'a/b'],
  [undefined, undefined, 'a/b'],
  ['Bearer client', 'client', 'a/b'],
]

t.test('over real sockets', async t => {
  t.strictSame(await sent(t, systemTransport({ clock: systemClock, log: { warn() {} } })), EXPECTED)
})

t.test('in memory', async t => {
  t.strictSame(await sent(t, new MemoryNetwork({ clock: systemClock }).transport()), EXPECTED)
})
