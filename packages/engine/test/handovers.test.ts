/** What simulated engines refuse of hand-overs, as the real ones do. */

import t, { type Test } from 'tap'
import { transferMsOf } from '../src/handover-settings.ts'
import { send, startEngine, until } from './engine-client.ts'

type Settings = Parameters<typeof startEngine>[0]

async function started(t: Test, settings: Settings) {
  const started = await startEngine(settings)
  t.teardown(() => started.close())
  const post = (body: object, headers?: Record<string, string>) =>
    send(started.transport, started.url, 'POST', '/v1/completions', { prompt: 'abcdefgh', ...body }, headers)
  return { ...started, post, held: () => started.engine.state().handovers }
}

const OFFER = { max_tokens: 1, kv_transfer_params: { do_remote_decode: true, do_remote_prefill: false } }

t.test('a computed prompt is handed over once', async t => {
  const prefill = await started(t, { role: 'prefill' })
  const decode = await started(t, { role: 'decode' })
  const plain = JSON.parse((await decode.post({ max_tokens: 4 })).text)
  t.equal(plain.kv_transfer_params, null)
  const offered = JSON.parse((await prefill.post(OFFER)).text)
  t.match(offered.kv_transfer_params, {
    do_remote_prefill: true,
    remote_port: prefill.engine.describe().port,
  })
  t.equal(prefill.held(), 1)
  const { kv_transfer_params } = offered
  const taken = await decode.post({ max_tokens: 4, kv_transfer_params, cache_salt: 'its own' })
  t.equal(taken.status, 200, taken.text)
  t.equal(JSON.parse(taken.text).choices[0].text, plain.choices[0].text)
  t.equal(prefill.held(), 0)
  const again = await decode.post({ max_tokens: 4, kv_transfer_params })
  t.match(again, { status: 500, text: /KV load from http:.* failed: it answered 410/ })
  const { remote_request_id: _, ...missing } = kv_transfer_params
  t.match(await decode.post({ kv_transfer_params: missing }), { status: 500, text: /members are missing/ })
  const ended = await prefill.post({
    ...OFFER,
    stop: JSON.parse((await prefill.post({ max_tokens: 1 })).text).choices[0].text,
  })
  t.equal(JSON.parse(ended.text).kv_transfer_params, null, 'an answer that has ended is not handed over')
})

t.test('a prompt that no decode engine takes is let go in time', async t => {
  const prefill = await started(t, { role: 'prefill', handoverMsMax: 20 })
  const decode = await started(t, { role: 'decode' })
  const { kv_transfer_params } = JSON.parse((await prefill.post(OFFER)).text)
  await until(() => prefill.held() === 0, 'nothing is held')
  t.match(await decode.post({ kv_transfer_params }), { status: 500, text: /410/ })
})

t.test('engines meet in a room, whichever comes first', async t => {
  const prefill = await started(t, { role: 'prefill', handover: 'bootstrap', ranks: 2 })
  const decode = await started(t, { role: 'decode', handover: 'bootstrap' })
  const { host, port } = prefill.engine.describe()
  const at = (room: string | number) => ({ bootstrap_host: host, bootstrap_port: port, bootstrap_room: room })
  // A number of 63 bits is one in JSON, not in JavaScript.
  const big = `{"prompt":"abcdefgh","max_tokens":4,"bootstrap_host":"${host}","bootstrap_port":${port},"bootstrap_room":9223372036854775807}`
  const raw = (engine: typeof prefill, headers?: Record<string, string>) =>
    fetch(`${engine.url}/v1/completions`, { method: 'POST', body: big, headers: headers ?? {} })
  const both = await Promise.all([raw(decode), raw(prefill, { 'x-data-parallel-rank': '1' })])
  t.strictSame(
    both.map(({ status }) => status),
    [200, 200],
  )
  const computing = prefill.post(at(2), { 'x-data-parallel-rank': '0' })
  await until(() => prefill.held() === 1, 'the room is open')
  t.equal((await decode.post(at(2))).status, 200)
  t.equal((await computing).status, 200)

  // Requests that fail before they are computed close theirs.
  for (const fault of [{ die: { tokens: 0, requests: 1 } }, { error: { tokens: 0, requests: 1 } }]) {
    prefill.engine.setFaults(fault)
    await prefill.post(at(4), { 'x-data-parallel-rank': '0' }).catch(() => undefined)
    t.equal(prefill.held(), 0, JSON.stringify(fault))
  }
  t.match(await prefill.post(at(3), { 'x-data-parallel-rank': '0' }), {
    status: 400,
    text: /is not a room of/,
  })
  t.match(await prefill.post({}), { status: 400, text: /without bootstrap room id/ })
  t.match(await decode.post({}), { status: 400, text: /without bootstrap room id/ })
  t.equal(prefill.held(), 0)
})

t.test('a room that does not open in time, and one that no engine comes to, fail', async t => {
  const settings = { handover: 'bootstrap', handoverMsMax: 20 } as const
  const prefill = await started(t, { ...settings, role: 'prefill' })
  const decode = await started(t, { ...settings, role: 'decode' })
  const { host, port } = prefill.engine.describe()
  const at = (room: number) => ({ bootstrap_host: host, bootstrap_port: port, bootstrap_room: room })
  t.match(await decode.post(at(7)), { status: 500, text: /KV load from/ })
  // The decode engine may give up first, even before the prefill engine has heard of it: another room.
  t.match(await prefill.post(at(8)), { status: 500, text: /No decode engine took the prompt over/ })
  await until(() => prefill.held() === 0, 'nothing is held')
  t.pass('no room stays open')
})

t.test('a hand-over takes its time, where the prompt is taken over', async t => {
  const per = { transferMs: 5, transferMsPerToken: 0.25, blockSizeTokens: 16 }
  t.equal(transferMsOf({ ...per, speed: 1 }, 17), 5 + 0.25 * 32, 'whole blocks')
  t.equal(transferMsOf({ ...per, speed: 10 }, 16), 0.9)
  t.equal(transferMsOf({ ...per, speed: 0 }, 16), 0)

  const prefill = await started(t, { role: 'prefill' })
  const decode = await started(t, {
    role: 'decode',
    speed: 1000,
    transferMs: 40_000,
    transferMsPerToken: 1000,
    blockSizeTokens: 8,
  })
  const { kv_transfer_params } = JSON.parse((await prefill.post(OFFER)).text)
  const startMs = performance.now()
  const taken = await decode.post({ max_tokens: 1, kv_transfer_params })
  // 40 ms, and 8 ms for a block of 8 tokens; a timer may be a millisecond early.
  t.ok(performance.now() - startMs >= 46)
  t.equal(taken.status, 200, taken.text)
})
