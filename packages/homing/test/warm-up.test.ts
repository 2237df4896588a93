/** Warm-up: the router's own requests, before those of clients. */

import { silentLog } from '@homing/base'
import t from 'tap'
import {
  RouterClient,
  send,
  startEngines,
  startProcess,
  TINY_TOKENIZER,
  until,
} from '../../../test/system/fleet.ts'
import { routerSettingsOf, type ServedRouter, serveRouter } from '../src/start-router.ts'
import { warmsUp, warmUp } from '../src/warm-up.ts'

const REQUESTS = 16
const REQUESTS_MAX = 10_000
const log = silentLog

interface Case {
  readonly name: string
  readonly settings: Parameters<typeof routerSettingsOf>[0]
}

const CASES: readonly Case[] = [
  { name: 'the default', settings: {} },
  { name: 'its own tokenizer', settings: { tokenizers: [TINY_TOKENIZER] } },
  { name: 'a tokenizer of one model', settings: { tokenizers: [`some/model=${TINY_TOKENIZER}`] } },
  { name: 'round-robin', settings: { routerMode: 'round-robin' } },
  { name: 'a queue', settings: { queueThreshold: '2', queueOrder: 'wspt' } },
  { name: 'bodies that a thread reads', settings: { inlineBodyBytesMax: 0, tokenizers: [TINY_TOKENIZER] } },
]

async function withRouter(
  settings: Case['settings'],
  use: (router: ServedRouter, all: ReturnType<typeof routerSettingsOf>, url: string) => Promise<void>,
): Promise<void> {
  const { engines, stop } = await startEngines([{}])
  const [{ url }] = engines as [(typeof engines)[0]]
  try {
    const all = routerSettingsOf({
      host: '127.0.0.1',
      port: 0,
      logLevel: 'error',
      workers: [url],
      ...settings,
    })
    const router = await serveRouter(all)
    try {
      await use(router, all, url)
    } finally {
      await router.stop(0)
    }
  } finally {
    await stop()
  }
}

for (const { name, settings } of CASES) {
  t.test(`all of its requests are answered: ${name}`, async t => {
    await withRouter(settings, async (router, all) => {
      t.equal(await warmUp(all, router.inputs, { requests: REQUESTS, log }).whenOver, REQUESTS)
    })
  })
}

t.test('the router counts nothing of it, and its engines see nothing', async t => {
  await withRouter({ tokenizers: [TINY_TOKENIZER] }, async (router, all, engineUrl) => {
    await warmUp(all, router.inputs, { requests: REQUESTS, log }).whenOver
    const { text } = await send(router.url, '/metrics')
    t.match(text, /^homing_/m)
    for (const family of ['homing_request_started_total', 'homing_decisions_total'])
      t.notMatch(text, new RegExp(`^${family}(\\{[^}]*\\})? [1-9]`, 'm'), family)
    t.strictSame((await send(router.url, '/decisions')).json.decisions, [])
    t.match((await send(engineUrl, '/admin/state')).json, { requestsTaken: 0 })
    const [worker] = await new RouterClient(router.url).workers()
    t.match(worker, { worker_keys: [{ load: { requests: 0, active_blocks: 0, prefill_tokens: 0 } }] })
  })
})

t.test('told to stop, it ends at once, whatever it is at, and gives its actors back', async t => {
  await withRouter({}, async (router, all) => {
    const begin = (firstPauseMs?: number) =>
      warmUp(all, router.inputs, {
        requests: REQUESTS_MAX,
        log,
        ...(firstPauseMs === 0 ? { firstPauseMs } : {}),
      })
    const pausing = begin()
    await pausing.stop()
    t.equal(await pausing.whenOver, 0, 'in the pause before it')
    const starting = begin(0)
    // The pause of a millisecond is over, and the modules are there.
    await import('../src/warm-up-router.ts')
    await starting.stop()
    t.equal(await starting.whenOver, 0, 'in its start')
    const serving = begin(0)
    await until('some requests were answered', () => (serving.answered > 2 ? true : undefined))
    await Promise.all([serving.stop(), serving.stop()])
    const answered = await serving.whenOver
    t.ok(answered > 2 && answered < REQUESTS_MAX, `${answered} answered`)
    t.equal((await send(router.url, '/health')).status, 200)
  })
})

t.test('the router serves its clients meanwhile', async t => {
  await withRouter({}, async (router, all) => {
    const warm = warmUp(all, router.inputs, { requests: REQUESTS_MAX, firstPauseMs: 0, log })
    await until('some requests were answered', () => (warm.answered > 2 ? true : undefined))
    const body = { model: router.fleet.workers[0]!.models[0]!.name, prompt: 'hello', max_tokens: 2 }
    for (let i = 0; i < 8; i++) t.equal((await send(router.url, '/v1/completions', { body })).status, 200)
    await warm.stop()
    await warm.whenOver
    t.match((await send(router.url, '/metrics')).text, /^homing_request_started_total\{[^}]*\} 8$/m)
  })
})

t.test('there is none where main has no gateway, or nothing chooses', async t => {
  const settings = (given: Case['settings']) =>
    routerSettingsOf({ workers: ['http://127.0.0.1:9'], ...given })
  t.ok(warmsUp(settings({})))
  t.ok(warmsUp(settings({ tokenizers: [TINY_TOKENIZER] })))
  for (const given of [{ gatewayThreads: 2 }, { frontend: false }, { routerMode: 'direct' }] as const)
    t.notOk(warmsUp(settings(given)), JSON.stringify(given))
})

t.test('what cannot be warmed up stops nothing', async t => {
  await withRouter({}, async (router, all) => {
    const lines: string[] = []
    const tell = (_: object, line: string) => void lines.push(line)
    const broken = { ...router.inputs, loadedTokenizers: undefined as never }
    const told = { debug: tell, warn: tell }
    t.equal(await warmUp(all, broken, { requests: REQUESTS, log: told }).whenOver, 0)
    t.strictSame(lines, ['the warm-up was given up', 'warm-up is over'])
    t.equal((await send(router.url, '/health')).status, 200)
  })
})

t.test('homing router warms up by itself, and ends in the midst of it', async t => {
  const { engines, stop } = await startEngines([{}])
  t.teardown(stop)
  const argv = ['--port', '0', '--log-level', 'debug', '--worker', engines[0]!.url]
  const says = (lines: readonly string[]) => lines.find(line => line.includes('warm-up is over'))
  const short = await startProcess('router', [...argv, '--warmup-requests', String(REQUESTS)])
  t.match(await until('the warm-up is over', async () => says(short.errorLines)), String(REQUESTS))
  short.kill('SIGTERM')
  t.equal(await short.ended, 0)
  const long = await startProcess('router', [...argv, '--warmup-requests', String(REQUESTS_MAX)])
  long.kill('SIGTERM')
  t.equal(await long.ended, 0)
  const none = await startProcess('router', [...argv, '--warmup-requests', '0'])
  t.equal((await send(none.url, '/health')).status, 200)
  none.kill('SIGTERM')
  t.equal(await none.ended, 0)
  t.equal(says(none.errorLines), undefined)
})
