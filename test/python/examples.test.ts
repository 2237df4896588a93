/** The example programs of the Python client, as its README types them, over a demo fleet. */

import { startDemoFleet, startRouter } from 'homing'
import t from 'tap'
import { send, until } from '../system/fleet.ts'
import { found, plainPython, runPython, skipOf } from './interpreter.ts'

const python = plainPython()
t.setTimeout(300_000)

t.test('the Python examples print what docs/python.md says', { skip: skipOf(python) }, async t => {
  const fleet = await startDemoFleet({ demoEngines: 2, demoSpeed: 100, logLevel: 'warn' })
  t.teardown(() => fleet.stop())
  const { workers, model } = fleet
  const start = async (over: readonly string[]) => {
    const settings = { workers: over, port: 0, logLevel: 'error', routerPolicy: 'linear' } as const
    const router = await startRouter({ ...settings, host: '127.0.0.1' })
    t.teardown(() => router.stop(0))
    return router.url
  }
  const url = await start(workers)
  const lines = async (name: string, args: readonly string[]): Promise<readonly string[]> => {
    const { exitCode, stdout, stderr } = await runPython(t, found(python), [`examples/${name}.py`, ...args])
    t.equal(exitCode, 0, stderr)
    return stdout.trimEnd().split('\n')
  }
  t.match(await lines('automatic', [url, model]), [/^Generated 20 tokens: \[(\d+, ){19}\d+\]$/])

  // Some work at worker 0: so the other one is selected.
  const post = (path: string, body: object) => send(url, `/v1/router/${path}`, { method: 'POST', body })
  const prompt = Array.from({ length: 64 }, (_, i) => 700 + i)
  await post('best_worker', { model, token_ids: prompt, request_id: 'other', worker_id: 0 })
  const byLoad = await lines('by_load', [url, model])
  t.match(byLoad.slice(0, 2), [
    /^Worker loads: \[\{'worker_id': 0, 'dp_rank': 0, 'potential_prefill_tokens': 74, .*\{'worker_id': 1, /,
    'Selected worker 1 with 10 prefill tokens',
  ])
  const generated = byLoad.slice(2).map(line => /^Generated tokens: \[([\d, ]*)\]$/.exec(line)?.[1])
  t.notOk(generated.includes(undefined), byLoad.join('\n'))
  t.ok(generated.length <= 20 && generated.length > 0)
  await post('free', { request_id: 'other' })

  t.match(await lines('manual_booking', [url, model]), [
    /^Worker [01] holds 0 blocks$/,
    'Requests there: 1',
    'Generated 8 tokens',
    'Requests there: 0',
  ])
  const routers = await Promise.all(workers.map(worker => start([worker])))
  t.strictSame(await lines('several_routers', [model, ...routers]), [
    'Overlaps: 0 3',
    'Router 2 generated 4 tokens, 48 of the prompt cached',
    'Still there: 1',
  ])
  await until('nothing is booked', async () => {
    const { text } = await send(url, '/metrics')
    return /^homing_gateway_open_requests 0$/m.test(text) &&
      /^homing_gateway_reserved_requests 0$/m.test(text)
      ? true
      : undefined
  })
})
