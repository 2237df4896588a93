/** `homing router --demo-disagg`: what its first steps print is what happens. */

import t from 'tap'
import { RunningCommand } from './command.ts'

t.test('prompts of the demo are computed by one kind of engine and answered by the other', async t => {
  const more = ['--router-event-threads', '1', '--log-level', 'error', '--demo-speed', '20']
  const args = ['--port', '0', '--host', '127.0.0.1', '--demo-disagg', '--demo-engines', '2', ...more]
  const router = new RunningCommand(t, ['router', ...args])
  const { url } = await router.ready()
  const [, body] = await router.says(
    /1 compute prompts and hand them over, 1 answer[\s\S]*completions -H \S+ \S+ -d '([^']+)'/,
  )
  const [, engine] = await router.says(/curl -s -X POST (\S+)\/admin\/kill\n/)
  const send = () =>
    fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: body!,
    })
  const first = await send()
  t.equal(first.status, 200, await first.text())
  const computed = first.headers.get('x-homing-prefill-worker')
  t.ok(computed?.startsWith(new URL(engine!).host), 'the engine that is named computes')
  t.not(first.headers.get('x-homing-worker'), computed)
  const second = await send()
  await second.text()
  t.equal(second.headers.get('x-homing-prefill-worker'), computed)

  const json = async (path: string) => (await fetch(`${url}${path}`)).json()
  t.match(await json('/decisions?limit=1'), { decisions: [{ leg: 'decode', prefill: { leg: 'prefill' } }] })
  t.match(await json('/workers'), {
    workers: [
      { role: { value: 'prefill' }, prefill_state: { 'homing-demo': 'active' } },
      { role: { value: 'decode' } },
    ],
  })
  const metrics = await (await fetch(`${url}/metrics`)).text()
  t.match(metrics, /^homing_gateway_prefill_legs_total\{outcome="handed_over"\} 2$/m)

  await fetch(`${engine}/admin/kill`, { method: 'POST' })
  const alone = await send()
  t.equal(alone.status, 200, await alone.text())
  t.equal(alone.headers.get('x-homing-prefill-worker'), null)
  router.child.kill('SIGTERM')
  t.equal((await router.exit()).code, 0)
})
