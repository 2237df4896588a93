/**
 * `GET /workers/ID/diagnosis` of a running router gives what `homing doctor` gives, and what the router
 * knows.
 */

import { join } from 'node:path'
import t from 'tap'
import { startRouter } from '../src/index.ts'
import { DoctorWorld } from './doctor-world.ts'

t.test('a worker of a running router is diagnosed from where the router stands', async t => {
  const world = new DoctorWorld(t)
  const { engine, url } = await world.engine(t, { offersReplay: false })
  const router = await startRouter({ workers: [url], port: 0, host: '127.0.0.1', logLevel: 'silent' })
  t.teardown(() => router.stop())
  const ask = async (path: string) => {
    const answer = await fetch(`${router.url}${path}`, { signal: AbortSignal.timeout(240_000) })
    return { status: answer.status, body: (await answer.json()) as Readonly<Record<string, unknown>> }
  }
  const id = new URL(url).host
  const { status, body } = await ask(`/workers/${id}/diagnosis`)
  t.equal(status, 200)
  t.match(body, {
    worker: id,
    verdict: 'inexact',
    reachable_trust: 'partial',
    engine_flags: /^--enable-prefix-caching --kv-events-config '\{.*\}'$/,
    router: { state: 'up', worker_keys: [{ worker: `${id}/0`, trust: String, trust_reason: /\S/ }] },
  })
  const { router: _, ...found } = body
  const alone = await world.look(url)
  t.strictSame(Object.keys(alone).slice(0, -1), Object.keys(found), 'the same fields')
  t.match(await ask('/workers/127.0.0.1:1/diagnosis'), { status: 404 })

  const both = await Promise.all([ask(`/workers/${id}/diagnosis`), ask(`/workers/${id}/diagnosis`)])
  t.strictSame(both[0], both[1], 'the answer is shared')

  engine.setFaults({ hang: 'all' })
  const hung = await ask(`/workers/${id}/diagnosis`)
  t.match(hung.body, {
    verdict: 'unusable',
    findings: [{ text: /does not answer GET \/v1\/models within 2000 ms/ }],
  })
  engine.clearFaults()
})

t.test('a worker behind a key is diagnosed with the key that the router has', async t => {
  const world = new DoctorWorld(t)
  const { url } = await world.engine(t, { apiKey: 'pigeon-secret' })
  const engineKeyFile = join(t.testdir({ key: 'pigeon-secret' }), 'key')
  const given = { workers: [url], port: 0, host: '127.0.0.1', logLevel: 'silent' } as const
  const router = await startRouter({ ...given, engineKeyFile })
  t.teardown(() => router.stop())
  const answer = await fetch(`${router.url}/workers/${new URL(url).host}/diagnosis`, {
    signal: AbortSignal.timeout(240_000),
  })
  const text = await answer.text()
  t.match(JSON.parse(text), { verdict: 'well', reachable_trust: 'exact', router: { state: 'up' } })
  t.notMatch(text, /pigeon-secret/)
})
