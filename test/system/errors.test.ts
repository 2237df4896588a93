/** The errors that clients get, and the bytes that reach the engine when there is no error. */

import assert from 'node:assert/strict'
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { freePort } from '@homing/transport/testing'
import t from 'tap'
import {
  type Answer,
  type Fleet,
  RouterClient,
  send,
  startFleet,
  startTestRouter,
  TINY_TOKENIZER,
} from './fleet.ts'

const CONTEXT_TOKENS_MAX = 256
const BODY_BYTES_MAX = 1024 * 1024
/** Five full blocks of 16 and a bit; every id is plain text in every vocabulary here. */
const PROMPT = Array.from({ length: 84 }, (_, position) => 40 + ((position * 7) % 50))

let capture: Capture
let fleet: Fleet

t.before(async () => {
  capture = await startCapture()
  fleet = await startFleet({
    engines: [
      { model: 'alpha', adapters: ['alpha-poet'] },
      { model: 'alpha', adapters: ['alpha-poet'] },
      { model: 'beta', contextTokensMax: CONTEXT_TOKENS_MAX, tokenizer: TINY_TOKENIZER },
    ],
    otherWorkers: [`${capture.url}?block_size=16`],
    router: ['--max-body-bytes', String(BODY_BYTES_MAX)],
    trust: undefined,
  })
})
t.teardown(async () => {
  await fleet.stop()
  capture.server.closeAllConnections()
  capture.server.close()
})

/** Asserts the status and the OpenAI form of an error, and returns its inside. */
function errorOf(
  answer: Answer,
  status: number,
): { message: string; type: string; param: unknown; code: unknown } {
  assert.equal(answer.status, status, answer.text)
  assert.match(answer.headers['content-type'] ?? '', /^application\/json/)
  const { error } = answer.json
  assert.deepEqual(Object.keys(error).sort(), ['code', 'message', 'param', 'type'])
  assert.equal(typeof error.message, 'string')
  return error
}

t.test('a body that is not JSON is 400', async t => {
  for (const body of [
    '',
    '{',
    '{"model":"alpha",}',
    '[]',
    '"text"',
    '{"model":"alpha" "prompt":"x"}',
    '\xff',
  ]) {
    for (const path of ['/v1/chat/completions', '/v1/completions', '/route']) {
      const error = errorOf(await fleet.send(path, { method: 'POST', body }), 400)
      t.match(error.message, /cannot/, `${path} ${JSON.stringify(body)}: ${error.message}`)
    }
  }
})

t.test('a model that nobody serves is 404, and the known ones are named', async t => {
  const chat = await fleet.send('/v1/chat/completions', {
    body: { model: 'nobody', messages: [{ role: 'user', content: 'hello' }] },
  })
  const error = errorOf(chat, 404)
  t.equal(error.code, 'model_not_found')
  t.match(error.message, /alpha.*beta/)
  t.equal(errorOf(await fleet.send('/v1/models/nobody'), 404).code, 'not_found')
})

t.test('an empty prompt is 400', async t => {
  const bodies = [
    ['/v1/chat/completions', { model: 'alpha', messages: [] }],
    ['/v1/completions', { model: 'alpha', prompt: [] }],
    ['/v1/completions', { model: 'alpha', prompt: [[]] }],
    ['/v1/completions', { model: 'alpha', prompt: [''] }],
    ['/v1/completions', { model: 'alpha', prompt: '' }],
    ['/route', { model: 'alpha', token_ids: [] }],
  ] as const
  for (const [path, body] of bodies) {
    const error = errorOf(await fleet.send(path, { body }), 400)
    t.equal(error.code, 'empty_prompt', JSON.stringify(body))
    t.match(error.message, /empty prompt/)
  }
  for (const path of ['/v1/completions', '/v1/chat/completions']) {
    const error = errorOf(await fleet.send(path, { body: { model: 'alpha' } }), 400)
    t.equal(error.code, 'invalid_value', `${path}: ${error.message}`)
  }
})

t.test("a prompt that is too long for its model is the engine's own 400, byte for byte", async t => {
  const engine = fleet.engines[2]!
  const prompt = Array.from({ length: CONTEXT_TOKENS_MAX + 1 }, () => 50)
  const bodies = [
    ['/v1/completions', { model: 'beta', prompt, max_tokens: 4 }],
    ['/v1/completions', { model: 'beta', prompt: PROMPT, max_tokens: CONTEXT_TOKENS_MAX }],
    [
      '/v1/chat/completions',
      { model: 'beta', messages: [{ role: 'user', content: 'far too long '.repeat(500) }], stream: true },
    ],
  ] as const
  for (const [path, body] of bodies) {
    const direct = await send(engine.url, path, { body })
    const routed = await fleet.send(path, { body })
    t.equal(direct.status, 400)
    t.equal(routed.status, 400)
    t.ok(routed.bytes.equals(direct.bytes), direct.text)
    t.equal(routed.headers['content-type'], direct.headers['content-type'])
  }
  await fleet.drained()
})

t.test('a body over the limit is 413, whether its length is announced or not', async t => {
  const body = `{"model":"alpha","prompt":"${'x'.repeat(BODY_BYTES_MAX)}"}`
  t.equal(errorOf(await fleet.send('/v1/completions', { body }), 413).code, 'body_too_large')
  async function* pieces() {
    for (let at = 0; at < body.length; at += 65_536) yield Buffer.from(body.slice(at, at + 65_536))
  }
  const reply = await fetch(`${fleet.url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: ReadableStream.from(pieces()),
    duplex: 'half',
    signal: AbortSignal.timeout(240_000),
  } as RequestInit)
  t.equal(reply.status, 413)
  t.equal(((await reply.json()) as { error: { code: string } }).error.code, 'body_too_large')
  t.equal((await fleet.send('/health')).status, 200, 'the router goes on')
})

t.test('without a worker that is up, 503 says when to come back', async t => {
  const unused = await freePort()
  const router = await startTestRouter(
    [`http://127.0.0.1:${unused}?model=ghost&block_size=16`],
    ['--log-level', 'silent'],
  )
  t.teardown(() => router.stop(0))
  const client = new RouterClient(router.url)
  const answer = await client.send('/v1/completions', { body: { model: 'ghost', prompt: PROMPT } })
  const error = errorOf(answer, 503)
  t.equal(error.type, 'ServiceUnavailableError')
  t.ok(Number(answer.headers['retry-after']) >= 1)
  t.equal((await client.send('/health')).status, 200, 'the process is healthy')
  const ready = await client.send('/ready')
  t.equal(ready.status, 503, 'but not ready')
  t.equal(ready.json.waiting_for.length, 1)
})

t.test('a wrong method is 405 and names the right one, an unknown route is 404', async t => {
  for (const [method, path, allow] of [
    ['GET', '/v1/chat/completions', 'POST'],
    ['DELETE', '/v1/completions', 'POST'],
    ['GET', '/route', 'POST'],
    ['POST', '/dump', 'GET'],
    ['PUT', '/decisions/x', 'GET'],
  ] as const) {
    const answer = await fleet.send(path, { method })
    t.equal(errorOf(answer, 405).code, 'method_not_allowed')
    t.match(answer.headers['allow'], allow, `${method} ${path} allows ${allow} (RFC 9110 §15.5.6)`)
  }
  t.equal(errorOf(await fleet.send('/nowhere'), 404).code, 'not_found')
  t.equal(errorOf(await fleet.send('/decisions/nothing'), 404).code, 'not_found')
  errorOf(await fleet.send('/decisions?limit=0'), 400)
})

t.test('other /v1 routes reach an engine, and its answer comes back', async t => {
  const body = '{"model":"capture", "input": "some text"}'
  const answer = await fleet.send('/v1/embeddings?x=1', { body, headers: { 'x-custom': 'yes' } })
  t.equal(answer.status, 200)
  t.equal(capture.last.path, '/v1/embeddings?x=1')
  t.equal(capture.last.body.toString(), body)
  t.equal(capture.last.headers['x-custom'], 'yes')
})

t.test("the engine gets the client's own bytes", async t => {
  const bodies = [
    '{"model":"capture","prompt":"a\\u0062c","temperature":1.0e0,"unknown":{"deep":[1,2.50,"\\/"]},"seed":12345678901234567890}',
    ' {\n\t"prompt" : [ 50,51 , 52 ] , "model":"capture"\n} \n',
    '{"model":"capture","messages":[{"role":"user","content":"h\\u00e9 \u{1f426}"}],"stream":false}',
  ]
  for (const body of bodies) {
    const path = body.includes('messages') ? '/v1/chat/completions' : '/v1/completions'
    const answer = await fleet.send(path, {
      body,
      headers: { authorization: 'Bearer secret', 'x-request-id': 'mine-1', 'x-homing-worker': 'forged' },
    })
    t.equal(answer.status, 200, answer.text)
    t.equal(capture.last.body.toString(), body)
    t.equal(capture.last.headers['authorization'], 'Bearer secret')
    t.equal(capture.last.headers['x-request-id'], 'mine-1')
    t.equal(capture.last.headers['x-homing-worker'], undefined)
  }
})

t.test('what is meant for the router is cut out, and nothing else', async t => {
  const nvext = '"nvext" : { "annotations":["x:y"], "agent_hints":{"osl":5}, "odd":"}\\",{" }'
  const bodies = [
    `{${nvext}, "model":"capture" ,"prompt":[50 ,51]}`,
    `{"model":"capture", ${nvext} ,"prompt":[50 ,51], "top_p": 1.0}`,
    `{"model":"capture","prompt":[50 ,51],\n ${nvext}\n}`,
    `{"model":"capture","router_config_override":{"router_temperature":0.5},"prompt":[50 ,51], ${nvext}}`,
  ]
  for (const body of bodies) {
    const answer = await fleet.send('/v1/completions', { body })
    t.equal(answer.status, 200, answer.text)
    const text = capture.last.body.toString()
    const { nvext: _, router_config_override: __, ...expected } = JSON.parse(body)
    t.strictSame(JSON.parse(text), expected)
    for (const part of [
      '"model":"capture"',
      '"prompt":[50 ,51]',
      ...(body.includes('top_p') ? ['"top_p": 1.0'] : []),
    ]) {
      t.ok(text.includes(part), `${part} is in ${text}`)
    }
  }
})

t.test('a pinned worker is honoured, a header wins over the body, an impossible pin is 400', async t => {
  const workers = await fleet.workers()
  const pinned = (body: object, headers: Record<string, string> = {}) =>
    fleet.send('/v1/completions', {
      body: { model: 'alpha', prompt: PROMPT, max_tokens: 1, ...body },
      headers,
    })
  for (const turn of [0, 1, 1, 0]) {
    const { instance_id: id, url } = workers.find(worker => worker.url === fleet.engines[turn]!.url)!
    const other = workers.find(worker => worker.url === fleet.engines[1 - turn]!.url)!.instance_id
    for (const nvext of [
      { backend_instance_id: id },
      { decode_worker_id: id },
      { backend_instance_id: id, decode_worker_id: other },
      { decode_worker_id: String(id) },
    ]) {
      const byBody = await pinned({ nvext })
      t.equal(fleet.engineOf(byBody.headers['x-homing-worker']).url, url, JSON.stringify(nvext))
    }
    for (const name of ['x-dynamo-worker-instance-id', 'x-worker-instance-id']) {
      const byHeader = await pinned({ nvext: { backend_instance_id: other } }, { [name]: String(id) })
      t.equal(fleet.engineOf(byHeader.headers['x-homing-worker']).url, url, name)
    }
  }
  const alpha = workers.find(({ url }) => url === fleet.engines[0]!.url)!.instance_id
  const beta = workers.find(({ url }) => url === fleet.engines[2]!.url)!
  errorOf(await pinned({ nvext: { backend_instance_id: 4711 } }), 400)
  errorOf(await pinned({ nvext: { decode_worker_id: 4711 } }), 400)
  // No worker computes prompts for others here.
  errorOf(await pinned({ nvext: { prefill_worker_id: alpha } }), 503)
  errorOf(await pinned({ nvext: { prefill_worker_id: 4711 } }), 400)
  errorOf(await pinned({ nvext: { backend_instance_id: beta.instance_id } }), 400)
  errorOf(await pinned({ nvext: { decode_worker_id: beta.instance_id } }), 400)
  errorOf(await pinned({ nvext: { backend_instance_id: 'one' } }), 400)
  errorOf(await pinned({ nvext: { dp_rank: 7 } }), 400)
  errorOf(await pinned({}, { 'x-dp-rank': '7' }), 400)
})

t.test('/route says where, with every term, and changes nothing', async t => {
  const prompt = PROMPT.map(id => id + 1)
  const sent = await fleet.send('/v1/completions', { body: { model: 'alpha', prompt, max_tokens: 1 } })
  t.equal(sent.status, 200)
  const engine = fleet.engineOf(sent.headers['x-homing-worker'])
  await fleet.caughtUp(fleet.engines)
  await fleet.drained()
  const before = await stateOf(fleet)
  for (let turn = 0; turn < 5; turn++) {
    const answer = await fleet.send('/route', { body: { model: 'alpha', token_ids: prompt } })
    t.equal(answer.status, 200, answer.text)
    t.equal(answer.json.overlap_blocks, 5)
    t.equal(fleet.engineOf(answer.json.worker).url, engine.url)
    t.equal(answer.json.prompt_tokens, PROMPT.length)
    t.equal(answer.json.candidates.length, 2)
  }
  const chat = await fleet.send('/route', {
    body: { model: 'beta', messages: [{ role: 'user', content: 'where would this go?' }] },
  })
  t.equal(chat.status, 200, chat.text)
  t.equal(chat.json.tokenized_by, 'router')
  t.strictSame(await stateOf(fleet), before)
})

t.test('/route does not take the turn of round-robin', async t => {
  const turns = await startFleet({ engines: [{}, {}], router: ['--router-mode', 'round-robin'] })
  t.teardown(() => turns.stop())
  const body = { model: 'homing-sim', prompt: PROMPT, max_tokens: 1 }
  const served: (string | undefined)[] = []
  for (let request = 0; request < 4; request++) {
    await turns.send('/route', { body })
    served.push((await turns.send('/v1/completions', { body })).headers['x-homing-worker'])
  }
  t.not(served[0], served[1])
  t.strictSame(served.slice(2), served.slice(0, 2))
})

t.test('a receipt shows every term of the cost and what was delivered', async t => {
  const prompt = PROMPT.toReversed()
  const ask = (max_tokens: number) =>
    fleet.send('/v1/completions', {
      body: { model: 'alpha', prompt, max_tokens },
      headers: { 'x-request-id': `receipt-${max_tokens}` },
    })
  const first = await ask(1)
  await fleet.caughtUp(fleet.engines)
  await fleet.drained()
  const second = await ask(3)
  t.equal(second.headers['x-homing-worker'], first.headers['x-homing-worker'])
  t.equal(second.headers['x-homing-trust'], 'exact')
  const { json: receipt } = await fleet.send(`/decisions/${second.headers['x-homing-decision']}`)
  t.match(receipt, {
    id: second.headers['x-homing-decision'],
    request_id: 'receipt-3',
    mode: 'kv',
    model: 'alpha',
    prompt_tokens: 84,
    block_size: 16,
    prompt_blocks: 6,
    unknown_prompt: null,
    worker: second.headers['x-homing-worker'],
    trust: 'exact',
    overlap_blocks: 5,
    predicted_cached_tokens: 80,
    delivered: { outcome: 'ok', status: 200, prompt_tokens: 84, completion_tokens: 3, cached_tokens: 80 },
  })
  t.equal(receipt.candidates.length, 2)
  for (const candidate of receipt.candidates) {
    const {
      overlap_blocks: overlap,
      queued_prefill_tokens: queued,
      prefill_tokens: prefill,
      prefill_blocks: prefillBlocks,
      active_blocks: active,
      new_blocks: fresh,
      decode_blocks: decode,
      cost,
    } = candidate
    t.equal(prefill, queued + 84 - overlap * 16)
    t.equal(prefillBlocks, prefill / 16)
    t.equal(decode, active + fresh)
    const sum = Object.values(candidate.terms as Record<string, number>).reduce((all, term) => all + term, 0)
    t.ok(Math.abs(cost - sum) < 1e-9, `the cost ${cost} is the sum of its terms, ${sum}`)
  }
  const costs = receipt.candidates.map((candidate: { cost: number }) => candidate.cost)
  const chosen = receipt.candidates.find(
    (candidate: { worker: string }) => candidate.worker === receipt.worker,
  )
  t.equal(chosen.cost, Math.min(...costs))
  t.not(receipt.runner_up, receipt.worker)
  const list = await fleet.send('/decisions?limit=2')
  t.strictSame(
    list.json.decisions.map((one: { request_id: string }) => one.request_id),
    ['receipt-3', 'receipt-1'],
  )
})

t.test('query_instance_id answers the choice and the tokens, and sends nothing', async t => {
  const before = await stateOf(fleet)
  const answer = await fleet.send('/v1/completions', {
    body: {
      model: 'alpha',
      prompt: PROMPT,
      stream: true,
      nvext: { annotations: ['query_instance_id'] },
    },
  })
  t.equal(answer.status, 200)
  t.match(answer.headers['content-type'], /^text\/event-stream/)
  const events = answer.text.split('\n\n')
  t.match(events[0], /^event: worker_instance_id\ndata: "\d+"$/)
  t.equal(events[1], `event: token_data\ndata: ${JSON.stringify(PROMPT)}`)
  t.equal(events[2], 'data: [DONE]')
  t.strictSame(await stateOf(fleet), before)
})

t.test('several models and adapters behind one router keep apart', async t => {
  const { json: models } = await fleet.send('/v1/models')
  const parents = Object.fromEntries(
    models.data.map((card: { id: string; parent: unknown }) => [card.id, card.parent]),
  )
  t.match(parents, { alpha: null, beta: null, 'alpha-poet': 'alpha', capture: null })

  const prompt = Array.from({ length: 100 }, (_, position) => 60 + ((position * 3) % 30))
  const ask = async (model: string) => {
    const answer = await fleet.send('/v1/completions', { body: { model, prompt, max_tokens: 1 } })
    t.equal(answer.status, 200, answer.text)
    t.equal(answer.json.model, model)
    await fleet.caughtUp(fleet.engines)
    await fleet.drained()
    const overlapBlocks = Number(answer.headers['x-homing-overlap-blocks'])
    t.equal(
      answer.json.usage.prompt_tokens_details?.cached_tokens ?? 0,
      overlapBlocks * 16,
      `${model}: as predicted`,
    )
    return { overlapBlocks, engine: fleet.engineOf(answer.headers['x-homing-worker']) }
  }
  const isAlpha = (engine: { url: string }) => engine.url !== fleet.engines[2]!.url
  t.ok(isAlpha((await ask('alpha')).engine))
  const first = await ask('alpha-poet')
  t.equal(first.overlapBlocks, 0, 'an adapter shares nothing with its base')
  t.ok(isAlpha(first.engine))
  const again = await ask('alpha-poet')
  t.equal(again.overlapBlocks, 6)
  t.equal(again.engine.url, first.engine.url)
  const beta = await ask('beta')
  t.equal(beta.overlapBlocks, 0)
  t.notOk(isAlpha(beta.engine))
  t.equal((await ask('beta')).overlapBlocks, 6)
})

/** Everything that a question must not change: load, blocks, decisions, requests taken. */
async function stateOf(fleet: Fleet): Promise<unknown> {
  const engines = await Promise.all(fleet.engines.map(({ state }) => state()))
  const decisions = await fleet.send('/decisions?limit=1000')
  return {
    loads: (await fleet.workers()).flatMap(worker =>
      worker.worker_keys.map(({ worker, load, blocks_held }) => ({ worker, load, blocks_held })),
    ),
    decisions: decisions.json.decisions.map((decision: { id: string }) => decision.id),
    taken: engines.map(({ requestsTaken }) => requestsTaken),
  }
}

interface Capture {
  readonly server: Server
  readonly url: string
  /** The last request that was no probe. */
  last: { path: string; headers: IncomingHttpHeaders; body: Buffer }
}

/** A worker that keeps the requests it receives, and reports only its model. */
async function startCapture(): Promise<Capture> {
  const server = createServer((request, response) => {
    const parts: Buffer[] = []
    request.on('data', (bytes: Buffer) => parts.push(bytes))
    request.on('end', () => {
      if (request.url === '/v1/models') return void response.end('{"data":[{"id":"capture"}]}')
      if (request.method !== 'POST' || !request.url?.startsWith('/v1/'))
        return void response.writeHead(404).end()
      result.last = { path: request.url, headers: request.headers, body: Buffer.concat(parts) }
      response.writeHead(200, { 'content-type': 'application/json' }).end('{"ok":true}')
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const result: Capture = {
    server,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    last: { path: '', headers: {}, body: Buffer.alloc(0) },
  }
  return result
}
