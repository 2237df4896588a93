/**
 * The Python client beside `KvRouter` of TypeScript, over one fleet of simulated engines with real
 * sockets.
 */

import { createHash } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { KvRouter, startDemoFleet } from 'homing'
import t, { type Test } from 'tap'
import { certificate, hasOpenssl } from '../system/certificates.ts'
import { startEngines, startFleet, startTestRouter, until } from '../system/fleet.ts'
import { found, plainPython, runPython, skipOf } from './interpreter.ts'

const MODEL = 'homing-sim'
const BLOCK = 4
const python = plainPython()
const skip = skipOf(python)
const CALLS = join(import.meta.dirname, 'calls.py')
t.setTimeout(600_000)

/** Runs functions of calls.py, each with its JSON of arguments; answers what they return. */
async function calls(test: Test, url: string, ...named: readonly (readonly unknown[])[]) {
  const args = [CALLS, url, ...named.map(call => JSON.stringify(call))]
  const { exitCode, stdout, stderr } = await runPython(test, found(python), args)
  if (exitCode !== 0) throw new Error(`calls.py ended with ${exitCode}: ${stderr}`)
  // biome-ignore lint/suspicious/noExplicitAny: answers of many forms
  return JSON.parse(stdout) as any[]
}

t.test('has the results and refusals of the TypeScript class', { skip }, async t => {
  const settings = { blockSizeTokens: BLOCK, blocks: 512 }
  const fleet = await startFleet({
    engines: [settings, { ...settings, ranks: 2 }],
    router: ['--router-policy', 'linear'],
  })
  t.teardown(() => fleet.stop())
  const workers = fleet.engines.map(({ url }) => url)
  const prompt = Array.from({ length: 41 }, (_, i) => 5 + i)
  const answer = await fleet.send('/v1/completions', {
    body: { model: MODEL, prompt, max_tokens: 1 },
  })
  t.equal(answer.status, 200)
  await fleet.caughtUp(fleet.engines)
  await fleet.drained()
  const router = await KvRouter.start({
    workers,
    model: MODEL,
    logLevel: 'error',
    eventThreads: 1,
    routerPolicy: 'linear',
  })
  t.teardown(() => router.close(0))
  await until('both hold the prompt', async () =>
    (await router.findMatchesForRequest(prompt)).length > 0 ? true : undefined,
  )

  const snake = (row: object) =>
    Object.fromEntries(
      Object.entries(row).map(([name, value]) => [
        name.replaceAll(/[A-Z]/g, letter => `_${letter.toLowerCase()}`),
        value,
      ]),
    )
  const held = await router.bestWorker(prompt)
  t.equal(held[2], 10)
  const other = held[0] === 0 ? 1 : 0
  const [best, bestId, byLoad, forced, loads, matches, none, listed, dumped] = await calls(
    t,
    fleet.url,
    ['best_worker', prompt],
    ['best_worker_id', prompt],
    ['best_worker', prompt, { router_config_override: { overlap_score_weight: 0 } }],
    ['best_worker', prompt, { worker_id: other, dp_rank: 0 }],
    ['get_potential_loads', prompt],
    ['find_matches_for_request', prompt],
    ['find_matches_for_request', [9, 9, 9, 9, 9]],
    ['workers'],
    ['dump_events'],
  )
  t.strictSame(best, held)
  t.strictSame(bestId, await router.bestWorkerId(prompt))
  t.equal(byLoad.length, 3)
  t.strictSame(forced, await router.bestWorker(prompt, { workerId: other, dpRank: 0 }))
  t.strictSame(loads, (await router.getPotentialLoads(prompt)).map(snake))
  t.strictSame(matches, (await router.findMatchesForRequest(prompt)).map(snake))
  t.strictSame(none, [])
  t.strictSame(listed, (await router.workers()).map(snake))
  t.strictSame(JSON.parse(dumped), JSON.parse(await router.dumpEvents()))

  t.test('takes an override for the one request', async t => {
    const [worker, rank] = held
    const pin = { request_id: 'other', worker_id: worker, dp_rank: rank }
    const rows = await calls(
      t,
      fleet.url,
      ['best_worker', Array.from({ length: 9 }, (_, i) => 900 + i), pin],
      ['mark_prefill_complete', 'other'],
      ['best_worker', prompt],
      ['best_worker', prompt, { router_config_override: { overlap_score_weight: 0 } }],
      ['best_worker', prompt],
      ['free', 'other'],
    )
    t.strictSame(rows[2], held)
    t.not(rows[3].slice(0, 2).join(), `${worker},${rank}`, 'by load alone')
    t.equal(rows[3][2], 0)
    t.strictSame(rows[4], held, 'and the next as before')
    await fleet.drained()
  })

  t.test('books, marks and frees', async t => {
    const rows = await calls(
      t,
      fleet.url,
      ['best_worker', prompt, { request_id: 'a' }],
      ['get_potential_loads', prompt],
      ['mark_prefill_complete', 'a'],
      ['get_potential_loads', prompt],
      ['free', 'a'],
      ['get_potential_loads', prompt],
    )
    const [worker, rank] = rows[0]
    const row = (position: number) =>
      rows[position].find(
        (each: Record<string, number>) => each['worker_id'] === worker && each['dp_rank'] === rank,
      )
    t.match(row(1), { active_requests: 1, potential_prefill_tokens: 2 })
    t.match(row(3), { active_requests: 1, potential_prefill_tokens: 1 })
    t.match(row(5), { active_requests: 0 })
    await fleet.drained()
  })

  t.test('refuses what the class refuses, with the status of the route', async t => {
    const refusals = await calls(
      t,
      fleet.url,
      ['best_worker', prompt, { request_id: 'a' }],
      ['best_worker', prompt, { request_id: 'a' }],
      ['free', 'a'],
      ['free', 'a'],
      ['mark_prefill_complete', 'a'],
      ['best_worker', prompt, { router_config_override: { router_temperature: -1 } }],
      ['best_worker', prompt, { router_config_override: { temperature: 1 } }],
      ['best_worker', []],
      ['best_worker', [1, -1]],
      ['best_worker', [0.5]],
      ['best_worker', [2 ** 32]],
      ['best_worker', [1, true]],
      ['best_worker', 'text'],
      ['best_worker', [1], { request_id: 7 }],
      ['best_worker', [1], { request_id: '' }],
      ['best_worker', [1], { worker_id: 99 }],
      ['best_worker', [1], { model: 'another' }],
      ['generate', prompt, { stop_conditions: { maxTokens: 1 } }],
      ['generate', prompt, { model: 'another' }],
      ['generate', prompt, { worker_id: 99 }],
    )
    const codes: unknown[] = []
    const refused = async (call: () => unknown) => {
      try {
        await call()
        codes.push('done')
      } catch (thrown) {
        codes.push((thrown as { message: string }).message)
      }
    }
    const requestId = 'a'
    await refused(() => router.bestWorker(prompt, { requestId }))
    await refused(() => router.bestWorker(prompt, { requestId }))
    await refused(() => router.free(requestId))
    await refused(() => router.free(requestId))
    await refused(() => router.markPrefillComplete(requestId))
    await refused(() => router.bestWorker(prompt, { override: { routerTemperature: -1 } }))
    t.strictSame(
      refusals.slice(1, 6).map(refusal => refusal?.message ?? 'done'),
      codes.slice(1),
      'the same words',
    )
    t.strictSame(
      refusals.slice(1).map(refusal => refusal && [refusal.status, refusal.name]),
      [
        [409, 'duplicate_request'],
        null,
        [404, 'not_found'],
        [404, 'not_found'],
        [400, 'invalid_value'],
        ...Array.from({ length: 8 }, () => [0, 'bad_option']),
        [400, 'invalid_value'],
        [400, 'invalid_value'],
        [404, 'model_not_found'],
        [0, 'bad_option'],
        [404, 'model_not_found'],
        [400, 'invalid_value'],
      ],
    )
    t.match(
      refusals.slice(6).map(refusal => refusal?.message ?? ''),
      [
        /^cannot choose a worker: router_config_override\.temperature: there is no such member; known: assume_kv_/,
        /^cannot choose a worker: token_ids: there are none; give at least one id$/,
        /^cannot choose a worker: token_ids\[1\]: -1 is no token id: give a whole number 0 … 4294967295$/,
        /token_ids\[0\]: 0\.5 is no token id/,
        /token_ids\[0\]: 4294967296 is no token id/,
        /token_ids\[1\]: True is no token id/,
        /token_ids: 'text' is a text/,
        /request_id: 7 is no text/,
      ],
    )
    await fleet.drained()
  })

  t.test('generates exactly, at the worker that is forced, and leaves', async t => {
    const exact = { stop_conditions: { max_tokens: 20, ignore_eos: true } }
    const [first, second, third, left] = await calls(
      t,
      fleet.url,
      ['generate', prompt, { ...exact, sampling_options: { temperature: 0.7, top_p: 0.9 } }],
      ['generate', prompt, { ...exact, worker_id: 0 }],
      ['generate', prompt, { ...exact, worker_id: 1, dp_rank: 1 }],
      ['leave', prompt, { stop_conditions: { max_tokens: 1500, ignore_eos: true } }],
    )
    const keys = (await router.workers()).map(({ worker }) => worker)
    for (const outcome of [first, second, third]) {
      t.equal(outcome.tokens.length, 20)
      t.match(outcome.usage, [prompt.length, 20])
      t.equal(outcome.finish_reason, 'length')
    }
    t.equal(second.worker, keys[0])
    t.equal(third.worker, keys[2])
    const stream = router.generate({
      ...{ tokenIds: prompt, workerId: 1, dpRank: 1 },
      stopConditions: { maxTokens: 20, ignoreEos: true },
    })
    let count = 0
    for await (const { tokenIds } of stream) count += tokenIds.length
    t.equal(count, 20)
    t.equal(stream.place?.worker, keys[2], 'also by the class')
    t.equal(left.outputs, 3)
    await fleet.drained()
    t.match((await fleet.send('/metrics')).text, /^homing_gateway_open_requests 0$/m)
  })
})

t.test('checks the size of blocks, and takes settings for all calls', { skip }, async t => {
  const fleet = await startDemoFleet({ demoEngines: 1, demoSpeed: 100, logLevel: 'warn' })
  t.teardown(() => fleet.stop())
  const { startRouter } = await import('homing')
  const router = await startRouter({ workers: fleet.workers, port: 0, logLevel: 'error' })
  t.teardown(() => router.stop(0))
  const [fits, differs, set, wrong] = await calls(
    t,
    router.url,
    ['with', { block_size: fleet.blockSizeTokens }],
    ['with', { block_size: fleet.blockSizeTokens + 1 }],
    ['with', { kv_router_config: { router_temperature: -1 } }],
    ['with', { kv_router_config: { temperature: 1 } }],
  )
  t.equal(fits.length, 3)
  t.match(differs, { name: 'bad_option', message: /block_size: 17: the router's workers have 16$/ })
  t.match(set, { status: 400, message: /router_temperature -1/ })
  t.match(wrong, { name: 'bad_option', message: /kv_router_config\.temperature: there is no such member/ })
})

t.test(
  'Python speaks https, and shows the keys of operators and clients',
  { skip: skip === false && !hasOpenssl ? 'openssl is not installed' : skip },
  async t => {
    const folder = mkdtempSync(join(tmpdir(), 'homing-python-tls-'))
    t.teardown(() => rmSync(folder, { recursive: true, force: true }))
    const { key, cert } = certificate(folder, 'router', 'IP:127.0.0.1')
    const clientKey = `hk-${'k'.repeat(43)}`
    const files = {
      'tls.pem': cert,
      'tls.key': key,
      'admin.key': 'operator-key-0123456789',
      'keys.yaml': `- name: team\n  sha256: '${createHash('sha256').update(clientKey).digest('hex')}'\n`,
    }
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text)
    const { engines, stop } = await startEngines([{ blockSizeTokens: BLOCK }])
    t.teardown(stop)
    const router = await startTestRouter(
      [engines[0]!.url],
      [
        ...['--tls-cert', join(folder, 'tls.pem'), '--tls-key', join(folder, 'tls.key')],
        ...['--admin-port', '0', '--admin-key-file', join(folder, 'admin.key')],
        ...['--client-keys-file', join(folder, 'keys.yaml')],
      ],
    )
    t.teardown(() => router.stop(0))
    const ca = join(folder, 'tls.pem')
    const keys = { admin_key: files['admin.key'], client_key: clientKey }
    const admin = { admin_endpoint: router.adminUrl }
    const [fits, elsewhere, stranger, untrusted] = await calls(
      t,
      router.url,
      ['secured', ca, { ...keys, ...admin }],
      ['secured', ca, keys],
      ['secured', ca, { ...keys, ...admin, client_key: `hk-${'x'.repeat(43)}` }],
      ['secured', null, { ...keys, ...admin }],
    )
    t.strictSame(fits, [[0, 0, 0], 'length'])
    t.match(elsewhere, { status: 401 }, 'the key of operators is none of a client')
    t.match(stranger, { status: 401, name: 'unauthorized' })
    t.match(untrusted, { status: 0, name: 'unreachable', message: /certificate/i })
  },
)
