/** A router with --discovery-backend dns at a DNS server of ours: its fleet is what the names say. */

import { createServer } from 'node:http'
import { freePort } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import { type DnsRecord, DnsServer } from '../../packages/discovery/test/dns-server.ts'
import { RouterClient, startTestRouter, until } from './fleet.ts'

const MODEL = 'm'
const NAME = 'engines.test'
const a = (address: string): DnsRecord => ({ type: 'A', address, ttl: 1 })

/** At an address of its own, as a pod. */
async function startEngine(t: Test, address: string, port: number) {
  const engine = {
    address,
    served: 0,
    /** Ends the answers that it holds back. */
    finish: undefined as (() => void) | undefined,
    isHeld: false,
  }
  const server = createServer((request, response) => {
    const json = (body: object): void => {
      response.writeHead(200, { 'content-type': 'application/json' })
      response.end(JSON.stringify(body))
    }
    if (request.url === '/health') return json({})
    if (request.url === '/v1/models')
      return json({ object: 'list', data: [{ id: MODEL, object: 'model', created: 1, owned_by: 'vllm' }] })
    if (request.url !== '/v1/completions') return void response.writeHead(404).end()
    engine.served++
    const answer = (): void =>
      json({
        id: 'c',
        object: 'text_completion',
        created: 1,
        model: MODEL,
        choices: [{ index: 0, text: 'a' }],
      })
    request.resume().on('end', () => {
      if (engine.isHeld) engine.finish = answer
      else answer()
    })
  })
  await new Promise<void>(resolve => server.listen(port, address, resolve))
  t.teardown(() => {
    server.close()
    server.closeAllConnections()
  })
  return engine
}

t.test('addresses come, move and go; while names cannot be looked up, the fleet stays', async t => {
  const port = await freePort()
  const dns = await DnsServer.start()
  t.teardown(() => dns.stop())
  const [one, other] = [await startEngine(t, '127.0.11.1', port), await startEngine(t, '127.0.11.2', port)]
  dns.set(NAME, [a(one.address)])
  const router = await startTestRouter(
    [],
    [
      ...['--discovery-backend', 'dns', '--dns-name', `http://${NAME}:${port}`],
      ...['--dns-server', dns.address, '--dns-refresh', '1s', '--probe-interval', '200ms'],
    ],
  )
  t.teardown(() => router.stop(0))
  const client = new RouterClient(router.url)
  const states = async (): Promise<Record<string, string>> =>
    Object.fromEntries((await client.workers()).map(({ id, state }) => [id.split(':')[0], state]))
  const says = (what: string, wanted: Record<string, string>) =>
    until(what, async () => JSON.stringify(await states()) === JSON.stringify(wanted) || undefined, {
      seen: states,
    })
  let sent = 0
  const ask = async () => {
    const body = { model: MODEL, prompt: `prompt ${sent++}`, max_tokens: 1 }
    return (await client.send('/v1/completions', { body })).status
  }

  await says('the first is up', { [one.address]: 'up' })
  t.equal(await ask(), 200)

  one.isHeld = true
  const held = ask()
  await until('it has a request', () => one.finish !== undefined || undefined)
  dns.set(NAME, [a(one.address), a(other.address)])
  await says('another address has come', { [one.address]: 'up', [other.address]: 'up' })

  // The name moves from the first, which has a request: that ends there.
  dns.set(NAME, [a(other.address)])
  await until('it drains', async () => (await states())[one.address] === 'draining' || undefined)
  const before = one.served
  for (let n = 0; n < 10; n++) t.equal(await ask(), 200)
  t.equal(one.served, before, 'no new request goes there')
  one.isHeld = false
  one.finish!()
  await says('it has left', { [other.address]: 'up' })
  t.equal(await held, 200, 'what it had has ended')

  for (const mood of ['servfail', 'silent'] as const) {
    dns.mood = mood
    const asked = dns.log.length
    await until('it has asked again', () => dns.log.length > asked + 2 || undefined)
    t.strictSame(await states(), { [other.address]: 'up' }, mood)
    t.equal(await ask(), 200, mood)
  }

  dns.mood = 'well'
  dns.set(NAME, [a(one.address)])
  await says('the name has moved wholly', { [one.address]: 'up' })
  t.equal(await ask(), 200)
})
