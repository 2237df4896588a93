/**
 * Streams whose engine dies in the middle, over real sockets: another engine goes on, and the client sees
 * one answer, the same as without the death. HOMING_FAULTS_RUNS sets how often an engine is killed under
 * HOMING_FAULTS_STREAMS streams (default 2 and 60).
 */

import process from 'node:process'
import { setTimeout as after } from 'node:timers/promises'
import { seededRandom } from '@homing/base'
import { freePorts } from '@homing/transport/testing'
import { KvRouter } from 'homing'
import t, { type Test } from 'tap'
import {
  chunksOf,
  RouterClient,
  send,
  startEngines,
  startProcess,
  startTestRouter,
  type ThreadEngine,
  until,
} from './fleet.ts'
import { type RawEngine, startRawEngine } from './raw-engine.ts'

const MODEL = 'homing-sim'
const ENGINES = [{ hashSeed: 1 }, { hashSeed: 1 }, { hashSeed: 1 }] as const
const TOKENS = 60
const RUNS = Number(process.env['HOMING_FAULTS_RUNS'] ?? 2)
const SEED = Number(process.env['HOMING_SEED'] ?? 1)
const STREAMS = Number(process.env['HOMING_FAULTS_STREAMS'] ?? 60)

interface Fleet {
  readonly engines: readonly ThreadEngine[]
  readonly router: RouterClient
}

async function startFleetOf(t: Test, argv: readonly string[] = []): Promise<Fleet> {
  const started = await startEngines(ENGINES)
  t.teardown(started.stop)
  const router = await startTestRouter(
    started.engines.map(({ url }) => url),
    ['--router-mode', 'round-robin', '--router-event-threads', '1', ...argv],
  )
  t.teardown(() => router.stop(0))
  return { engines: started.engines, router: new RouterClient(router.url) }
}

/** The engine whose turn it is. */
async function nextOf({ engines, router }: Fleet): Promise<ThreadEngine> {
  const workers: string[] = []
  for (const _ of engines) {
    const probe = { model: MODEL, prompt: 'probe', max_tokens: 1 }
    const { headers } = await router.send('/v1/completions', { body: probe })
    workers.push(String(headers['x-homing-worker']))
  }
  return engines.find(({ url }) => workers[0]!.startsWith(new URL(url).host))!
}

type Body = Readonly<Record<string, unknown>>

const CHAT = '/v1/chat/completions'
const FORMS: readonly (readonly [path: string, body: Body])[] = [
  ['/v1/completions', { prompt: 'once upon a time there was' }],
  ['/v1/completions', { prompt: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18] }],
  ['/v1/chat/completions', { messages: [{ role: 'user', content: 'tell me "something"\nlong' }] }],
  [
    '/v1/completions',
    { return_token_ids: true, prompt: [5, 4, 3, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13] },
  ],
  ['/v1/chat/completions', { return_token_ids: true, messages: [{ role: 'user', content: 'ids, please' }] }],
]

// biome-ignore lint/suspicious/noExplicitAny: chunks of many forms
function textOf(chunks: readonly any[]): string {
  return chunks.map(({ choices: [choice] }) => choice?.text ?? choice?.delta?.content ?? '').join('')
}

// biome-ignore lint/suspicious/noExplicitAny: chunks of many forms
function idsOf(chunks: readonly any[]): readonly number[] {
  return chunks.flatMap(({ choices: [choice] }) => choice?.token_ids ?? [])
}

/** What a stream in one piece has once. */
// biome-ignore lint/suspicious/noExplicitAny: chunks of many forms
function partsOf(chunks: readonly any[]) {
  return {
    heads: new Set(chunks.map(({ id, object, model, created }) => [id, object, model, created].join())).size,
    roles: chunks.filter(({ choices }) => choices[0]?.delta?.role != null).length,
    ends: chunks.filter(({ choices }) => choices[0]?.finish_reason != null).length,
  }
}

t.test('a stream is continued, wherever it breaks', async t => {
  const fleet = await startFleetOf(t)
  for (const [path, given] of FORMS)
    await t.test(`${path} ${JSON.stringify(given).slice(0, 30)}`, t => isContinued(t, fleet, path, given))
})

async function isContinued(t: Test, fleet: Fleet, path: string, given: Body): Promise<void> {
  const { engines, router } = fleet
  const before = await countOf(fleet, 'place')
  const body = { model: MODEL, max_tokens: TOKENS, stream: true, stream_options: { include_usage: true } }
  const call = { body: { ...body, ...given } }
  const whole = chunksOf((await send(engines[0]!.url, path, call)).text)
  for (const tokens of [0, 1, 7, TOKENS - 1]) {
    await (await nextOf(fleet)).faults({ die: { tokens, requests: 1 } })
    const answer = await router.send(path, call)
    t.equal(answer.status, 200)
    const chunks = chunksOf(answer.text)
    t.equal(textOf(chunks), textOf(whole), `dead after ${tokens} tokens`)
    t.strictSame(idsOf(chunks), idsOf(whole))
    t.equal(answer.text.split('"prompt_token_ids":[').length, 'return_token_ids' in given ? 2 : 1)
    t.strictSame(partsOf(chunks), { heads: 1, roles: path === CHAT ? 1 : 0, ends: 1 })
    t.match(chunks.at(-1).usage, {
      prompt_tokens: whole.at(-1).usage.prompt_tokens,
      completion_tokens: TOKENS,
      total_tokens: whole.at(-1).usage.prompt_tokens + TOKENS,
    })
  }
  t.equal(await countOf(fleet, 'place'), before + 3, 'before the first byte it is another try')
}

t.test('KvRouter.generate gets each id once', async t => {
  const { engines, stop } = await startEngines(ENGINES)
  t.teardown(stop)
  const prompt = Array.from({ length: 40 }, (_, i) => 100 + i)
  const body = { model: MODEL, prompt, max_tokens: TOKENS, stream: true, return_token_ids: true }
  const whole = chunksOf((await send(engines[0]!.url, '/v1/completions', { body })).text)
  for (const engine of engines.slice(1)) await engine.faults({ die: { tokens: 9, requests: 1 } })
  const router = await KvRouter.start({
    ...{ workers: engines.map(({ url }) => url), model: MODEL, logLevel: 'error', eventThreads: 1 },
    ...{ migrationsMax: 2, routerMode: 'round-robin' },
  })
  t.teardown(() => router.close(0))
  // In turn: two of these answers are cut.
  for (let i = 0; i < 2 * engines.length; i++) {
    const [ids, texts]: [number[], string[]] = [[], []]
    const stream = router.generate({ tokenIds: prompt, stopConditions: { maxTokens: TOKENS } })
    for await (const { tokenIds, text } of stream) {
      ids.push(...tokenIds)
      texts.push(text)
    }
    t.strictSame(ids, idsOf(whole))
    t.equal(texts.join(''), textOf(whole))
    t.match(stream.usage, { promptTokens: prompt.length, completionTokens: TOKENS })
  }
  t.match(await router.metrics(), /^homing_gateway_continuations_total\{outcome="place"\} 2$/m)
})

t.test('KvRouter.generate says that an engine sends no ids, and asks no other one', async t => {
  const event = { choices: [{ index: 0, text: 'one', finish_reason: null }] }
  const plain = (): Promise<RawEngine> =>
    startRawEngine('plain', socket => {
      const head = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n'
      socket.write(`${head}data: ${JSON.stringify(event)}\n\n`)
    })
  const engines = await Promise.all([plain(), plain()])
  for (const engine of engines) t.teardown(() => engine.close())
  const router = await KvRouter.start({
    ...{ workers: engines.map(({ url }) => url), model: 'plain', logLevel: 'error', eventThreads: 1 },
  })
  t.teardown(() => router.close(0))
  const stream = router.generate({ tokenIds: [1, 2, 3], stopConditions: { maxTokens: 9 } })
  await t.rejects(stream.next(), {
    code: 'HOMING_LIBRARY_NO_TOKEN_IDS',
    details: { worker: /^127\.0\.0\.1:\d+\/0$/ },
  })
  t.equal(engines.flatMap(({ requests }) => requests).length, 1)
  await until('nothing is open', async () =>
    /^homing_gateway_open_requests 0$/m.test(await router.metrics()) ? true : undefined,
  )
  t.notMatch(await router.metrics(), /^homing_gateway_continuations_total\{.*\} [1-9]/m)
})

/** An answer that ends with an error, with the text before it. */
function cutOf(text: string): { readonly text: string; readonly error: { readonly code: string } } {
  const events = text.split('\n\n').slice(0, -1)
  const { error } = JSON.parse(events.at(-1)!.slice('data: '.length))
  const chunks = events.slice(0, -1).map(event => JSON.parse(event.slice('data: '.length)))
  return { text: textOf(chunks), error }
}

const MESSAGES = [{ role: 'user', content: 'a chat of which something is to be kept for long enough' }]
const STREAM = { model: MODEL, messages: MESSAGES, max_tokens: TOKENS, stream: true } as const

t.test('an engine that sends an error in the middle is left like one that died', async t => {
  const fleet = await startFleetOf(t)
  const whole = chunksOf((await send(fleet.engines[0]!.url, CHAT, { body: STREAM })).text)
  await (await nextOf(fleet)).faults({ error: { tokens: 9, requests: 1 } })
  const chunks = chunksOf((await fleet.router.send(CHAT, { body: STREAM })).text)
  t.equal(textOf(chunks), textOf(whole))
})

t.test('an engine that falls silent in the middle is left', async t => {
  const fleet = await startFleetOf(t, ['--silence-timeout', '1s'])
  const whole = chunksOf((await send(fleet.engines[0]!.url, CHAT, { body: STREAM })).text)
  const next = await nextOf(fleet)
  // It does not end before it hangs.
  await next.faults({ slowMs: 200 })
  const answer = await fleet.router.open(CHAT, { body: STREAM })
  let text = ''
  for await (const bytes of answer.body) {
    if (text === '') await next.faults({ hang: 'generation' })
    text += String(bytes)
  }
  t.equal(textOf(chunksOf(text)), textOf(whole))
})

t.test(
  'what a worker still has at the limit of its drain is continued when its engine is stopped',
  async t => {
    const fleet = await startFleetOf(t, ['--worker-drain-timeout', '1ms'])
    const { engines, router } = fleet
    const whole = chunksOf((await send(engines[0]!.url, CHAT, { body: STREAM })).text)
    const next = await nextOf(fleet)
    // It does not end before its engine is stopped.
    await next.faults({ slowMs: 500 })
    const answer = await router.open(CHAT, { body: STREAM })
    const { host: id } = new URL(next.url)
    let text = ''
    for await (const bytes of answer.body) {
      if (text === '') {
        t.equal((await router.send(`/workers/${id}/drain`, { method: 'POST' })).status, 202)
        await until(`${id} has left`, async () =>
          (await router.workers()).every(worker => worker.id !== id) ? true : undefined,
        )
        await next.restart()
      }
      text += String(bytes)
    }
    t.equal(textOf(chunksOf(text)), textOf(whole))
    t.equal(await countOf(fleet, 'place'), 1)
  },
)

t.test('at the limit of a drain an engine is rid of all that can go on elsewhere', async t => {
  const fleet = await startFleetOf(t, ['--worker-drain-timeout', '500ms'])
  const { engines, router } = fleet
  const whole = chunksOf((await send(engines[0]!.url, CHAT, { body: STREAM })).text)
  const next = await nextOf(fleet)
  // Neither ends before it was looked at.
  await next.faults({ slowMs: 300 })
  const answer = await router.open(CHAT, { body: STREAM })
  const { instance_id: own } = (await router.workers()).find(({ url }) => url === next.url)!
  const unfit = await router.open(CHAT, {
    body: { ...STREAM, logprobs: true, nvext: { backend_instance_id: own } },
  })
  const [text, other] = [answer.body.text(), unfit.body.text()]
  const { host: id } = new URL(next.url)
  t.equal((await router.send(`/workers/${id}/drain`, { method: 'POST' })).status, 202)
  const outcomes = async () => (await next.state()).requests.slice(-2).map(({ outcome }) => outcome)
  await until('its stream goes on elsewhere', async () =>
    (await outcomes()).includes('aborted') ? true : undefined,
  )
  t.strictSame(await outcomes(), ['aborted', 'running'])
  await next.faults({ slowMs: 0 })
  t.notOk((await router.workers()).some(worker => worker.id === id))
  const chunks = chunksOf(await text)
  t.equal(textOf(chunks), textOf(whole))
  t.strictSame(partsOf(chunks), { heads: 1, roles: 1, ends: 1 })
  t.equal(textOf(chunksOf(await other)), textOf(whole), 'what cannot go on ends there')
  t.strictSame(await outcomes(), ['aborted', 'finished'])
  t.equal(await countOf(fleet, 'place'), 1)
  await router.drained()
})

t.test('at the limit of a drain what has no byte yet is asked of another engine', async t => {
  const fleet = await startFleetOf(t, ['--worker-drain-timeout', '500ms'])
  const { engines, router } = fleet
  const { stream: _, ...whole } = STREAM
  const said = textOf(chunksOf((await send(engines[0]!.url, CHAT, { body: STREAM })).text))
  const next = await nextOf(fleet)
  await next.faults({ hang: 'generation' })
  const bodies = [STREAM, STREAM, STREAM, whole, whole, whole]
  const answers = bodies.map(body => router.send(CHAT, { body }))
  const { host: id } = new URL(next.url)
  await until('a stream and a whole answer wait there', async () => {
    const [key] = (await router.worker(next.url)).worker_keys
    return key!.load.requests === 2 ? true : undefined
  })
  t.equal((await router.send(`/workers/${id}/drain`, { method: 'POST' })).status, 202)
  for (const [i, { status, text }] of (await Promise.all(answers)).entries()) {
    t.equal(status, 200)
    t.equal(i < 3 ? textOf(chunksOf(text)) : JSON.parse(text).choices[0].message.content, said)
  }
  const { text } = await router.send('/metrics')
  t.match(text, /^homing_request_retries_total\{model="homing-sim",reason="drained"\} 2$/m)
  await router.drained()
})

t.test('a chat without a limit ends where it would have ended', async t => {
  const { max_tokens: _, ...body } = STREAM
  const fleet = await startFleetOf(t)
  // A prompt whose answer is long enough to be cut.
  let [messages, whole] = [MESSAGES, [] as ReturnType<typeof chunksOf>]
  for (let i = 0; whole.length < 12; i++) {
    messages = [{ role: 'user', content: `a chat without an end ${i}` }]
    whole = chunksOf((await send(fleet.engines[0]!.url, CHAT, { body: { ...body, messages } })).text)
  }
  await (await nextOf(fleet)).faults({ die: { tokens: 6, requests: 1 } })
  const chunks = chunksOf((await fleet.router.send(CHAT, { body: { ...body, messages } })).text)
  t.equal(textOf(chunks), textOf(whole))
  t.equal(chunks.at(-1).choices[0].finish_reason, 'stop')
})

t.test('as many workers go on as may, one after the other', async t => {
  const two = await startFleetOf(t, ['--migration-limit', '2'])
  const whole = textOf(chunksOf((await send(two.engines[0]!.url, CHAT, { body: STREAM })).text))
  // Whichever goes on first, once it dies, too.
  for (const at of [0, 1]) {
    const next = await nextOf(two)
    const other = two.engines.filter(engine => engine !== next)[at]!
    for (const engine of [next, other]) await engine.faults({ die: { tokens: 9, requests: 1 } })
    t.equal(textOf(chunksOf((await two.router.send(CHAT, { body: STREAM })).text)), whole)
    for (const engine of two.engines) await engine.faults({ die: { tokens: 0, requests: 0 } })
  }
  t.equal(await countOf(two, 'place'), 3)
  for (const [limit, deaths] of [
    [2, 3],
    [1, 2],
    [0, 1],
  ] as const) {
    const fleet = await startFleetOf(t, ['--migration-limit', String(limit)])
    for (const engine of fleet.engines) await engine.faults({ die: { tokens: 9, requests: 1 } })
    const cut = cutOf((await fleet.router.send(CHAT, { body: STREAM })).text)
    t.match(cut.error, { code: 'upstream_failed' })
    t.equal(cut.text, whole.slice(0, cut.text.length))
    t.equal(cut.text.length, deaths * 9 * 5, 'a space and four letters for each token')
  }
})

const UNFIT: readonly (readonly [outcome: string, path: string, body: Body])[] = [
  ['choices', CHAT, { n: 2 }],
  ['guided', CHAT, { response_format: { type: 'json_object' } }],
  ['guided', CHAT, { structured_outputs: { regex: 'a+' } }],
  ['tools', CHAT, { tools: [{ type: 'function', function: { name: 'f' } }] }],
  ['logprobs', CHAT, { logprobs: true }],
  ['penalties', CHAT, { presence_penalty: 0.5 }],
  ['penalties', CHAT, { repetition_penalty: 1.1 }],
  ['penalties', CHAT, { repetition_detection: { max_pattern_size: 20 } }],
  ['reasoning', CHAT, { include_reasoning: false }],
  ['ids', CHAT, { return_tokens_as_token_ids: true }],
  ['stops', CHAT, { return_token_ids: true, stop: ['###'] }],
  ['route', '/v1/responses', { input: 'a question' }],
  ['route', '/v1/messages', { messages: MESSAGES }],
  ['too_long', CHAT, { messages: [{ role: 'user', content: 'long '.repeat(100) }] }],
]

t.test('what cannot be continued ends with an error, and the metric says why', async t => {
  const fleet = await startFleetOf(t, ['--migration-max-seq-len', '300'])
  for (const [outcome, path, given] of UNFIT) {
    const { max_tokens: limit, messages, ...common } = STREAM
    const chat = path === CHAT ? { messages } : {}
    const limits = path === '/v1/responses' ? { max_output_tokens: limit } : { max_tokens: limit }
    const before = await countOf(fleet, outcome)
    await (await nextOf(fleet)).faults({ die: { tokens: 9, requests: 1 } })
    const { text } = await fleet.router.send(path, { body: { ...common, ...limits, ...chat, ...given } })
    t.match(text, /upstream_failed|api_error|server_error/, `${outcome} ${path} ends with an error`)
    t.equal(await countOf(fleet, outcome), before + 1, `${outcome}: ${JSON.stringify(given)}`)
  }
})

async function countOf({ router }: Fleet, outcome: string): Promise<number> {
  const { text } = await router.send('/metrics')
  const row = new RegExp(`^homing_gateway_continuations_total\\{outcome="${outcome}"\\} (\\d+)$`, 'm').exec(
    text,
  )
  return Number(row?.[1] ?? 0)
}

t.test('the rest goes only where its client allows it', async t => {
  const fleet = await startFleetOf(t)
  const workers = await fleet.router.workers()
  for (let turn = 0; turn < 2; turn++) {
    const next = await nextOf(fleet)
    const own = workers.find(({ url }) => url === next.url)!.instance_id
    const other = workers.find(({ url }) => url !== next.url)!
    await next.faults({ die: { tokens: 9, requests: 1 } })
    const allowed = turn === 0 ? [own] : [own, other.instance_id]
    const { text } = await fleet.router.send(CHAT, {
      body: { ...STREAM, nvext: { allowed_worker_ids: allowed } },
    })
    await fleet.router.drained()
    if (turn === 0) t.match(cutOf(text).error, { code: 'upstream_failed' })
    else {
      chunksOf(text)
      const { decisions } = (await fleet.router.send('/decisions?limit=1')).json
      t.match(decisions[0], { continues: {}, worker: `${new URL(other.url).host}/0` })
    }
  }
})

t.test('without memory for the text nothing is continued, and memory is given back', async t => {
  const none = await startFleetOf(t, ['--migration-memory', '0'])
  await (await nextOf(none)).faults({ die: { tokens: 9, requests: 1 } })
  t.match(cutOf((await none.router.send(CHAT, { body: STREAM })).text), {
    error: { code: 'upstream_failed' },
  })
  t.equal(await countOf(none, 'memory'), 1)
  const fleet = await startFleetOf(t)
  await Promise.all(Array.from({ length: 8 }, () => fleet.router.send(CHAT, { body: STREAM })))
  t.match((await fleet.router.send('/metrics')).text, /^homing_gateway_continuation_bytes 0$/m)
})

t.test('the rest has a receipt of its own, and finds in the cache what there is', async t => {
  const fleet = await startFleetOf(t)
  await (await nextOf(fleet)).faults({ die: { tokens: 40, requests: 1 } })
  const answer = await fleet.router.send(CHAT, { body: STREAM })
  await fleet.router.drained()
  const { decisions } = (await fleet.router.send('/decisions?limit=2')).json
  const [rest, first] = decisions
  t.equal(first.id, answer.headers['x-homing-decision'])
  t.match(rest, { continues: { decision: first.id, delivered_tokens: 40 }, delivered: { outcome: 'ok' } })
  t.match(first, { continues: null, delivered: { outcome: 'error' } })
  t.not(rest.worker, first.worker)
  t.equal(rest.prompt_tokens, first.prompt_tokens + 40)
})

/** Three engines, each a process, and a router over them. `start`: again, in place of one that is dead. */
async function startProcesses(t: Test, argv: readonly string[]) {
  const ports = await freePorts(9)
  const start = (i: number) => {
    const [port, events, replay] = ports.slice(3 * i).map(String) as [string, string, string]
    return startProcess('engine', [
      ...['--port', port, '--events-port', events, '--replay-port', replay, '--max-num-seqs', '64'],
      ...['--speed', '2', '--blocks', '2000'],
    ])
  }
  const engines = await Promise.all([0, 1, 2].map(start))
  t.teardown(() => engines.forEach(engine => void engine.kill('SIGKILL')))
  const router = await startTestRouter(
    engines.map(({ url }) => url),
    argv,
  )
  t.teardown(() => router.stop(0))
  return { engines, start, client: new RouterClient(router.url) }
}

t.test('the streams of an engine that is stopped go on elsewhere, or end with an error', async t => {
  // All limits of requests are those by default.
  const { engines, client } = await startProcesses(t, [
    '--probe-interval',
    '300ms',
    '--probe-timeout',
    '200ms',
  ])
  const body = (i: number) => ({
    ...{ model: MODEL, max_tokens: 400, stream: true },
    messages: [{ role: 'user', content: `chat ${i}` }],
    // Every fourth one cannot be continued.
    ...(i % 4 === 0 ? { logprobs: true } : {}),
  })
  const answers = Array.from({ length: 36 }, (_, i) => client.open(CHAT, { body: body(i) }))
  const begun = await Promise.all(answers)
  const texts = begun.map(async ({ body }) => body.text())
  engines[0]!.kill('SIGSTOP')
  const beganMs = performance.now()
  const counts = { whole: 0, cut: 0 }
  let isOver = false
  // Others go on answering.
  const load = (async () => {
    while (!isOver) await client.send(CHAT, { body: { ...STREAM, nvext: { backend_instance_id: 1 } } })
  })()
  const all = await Promise.all(texts)
  isOver = true
  await load
  t.comment(`over after ${Math.round(performance.now() - beganMs)} ms`)
  const wholes = await Promise.all(all.map((_, i) => send(engines[1]!.url, CHAT, { body: body(i) })))
  for (const [i, text] of all.entries()) {
    if (text.endsWith('data: [DONE]\n\n')) {
      counts.whole++
      const chunks = chunksOf(text)
      t.strictSame(partsOf(chunks), { heads: 1, roles: 1, ends: 1 })
      t.equal(textOf(chunks), textOf(chunksOf(wholes[i]!.text)))
    } else {
      counts.cut++
      t.equal(i % 4, 0, `stream ${i} could have gone on: ${text.slice(-300)}`)
      t.match(cutOf(text).error, { code: 'timeout' })
    }
  }
  t.ok(counts.cut >= 1 && counts.whole >= 27, JSON.stringify(counts))
  t.ok((await countOf({ router: client, engines: [] }, 'place')) >= 1)
  await client.drained()
})

t.test(
  'more requests than the retry budget has are saved when their engine is killed before a byte',
  async t => {
    const { engines, client } = await startProcesses(t, ['--router-mode', 'round-robin'])
    const body = (i: number) => ({ model: MODEL, prompt: `prompt ${i}`, max_tokens: 800 })
    const answers = Array.from({ length: 240 }, (_, i) => client.send('/v1/completions', { body: body(i) }))
    await until('most of a third of them are at the engine', async () => {
      const [key] = (await client.worker(engines[0]!.url)).worker_keys
      return key!.load.requests >= 50 ? true : undefined
    })
    engines[0]!.kill('SIGKILL')
    const statuses = (await Promise.all(answers)).map(({ status }) => status)
    t.strictSame(
      statuses.filter(status => status !== 200),
      [],
    )
    const { text } = await client.send('/metrics')
    const again = [...text.matchAll(/^homing_request_retries_total\{.*\} (\d+)$/gm)]
    const count = again.reduce((sum, [, value]) => sum + Number(value), 0)
    t.ok(count > 40, `${count} were placed again`)
    await client.drained()
  },
)

t.test(`${RUNS} times an engine is killed under ${STREAMS} streams (HOMING_SEED=${SEED})`, async t => {
  const random = seededRandom(SEED)
  const { engines, start, client } = await startProcesses(t, [])
  for (let run = 0; run < RUNS; run++) {
    const bodies = Array.from({ length: STREAMS }, (_, i) => ({
      model: MODEL,
      messages: [{ role: 'user', content: `run ${run}, chat ${i}: ${'word '.repeat(random.below(40))}` }],
      max_tokens: 100 + random.below(200),
      stream: true,
      stream_options: { include_usage: true },
    }))
    const answers = bodies.map(body => client.send(CHAT, { body }))
    await after(random.next() * 1500)
    const killed = random.below(3)
    engines[killed]!.kill('SIGKILL')
    const texts = await Promise.all(answers)
    engines[killed] = await start(killed)
    const wholes = await Promise.all(bodies.map(body => send(engines[0]!.url, CHAT, { body })))
    for (const [i, { status, text }] of texts.entries()) {
      t.equal(status, 200)
      const chunks = chunksOf(text)
      const whole = chunksOf(wholes[i]!.text)
      t.equal(textOf(chunks), textOf(whole)) || t.bailout(`run ${run}, stream ${i} has another text`)
      t.strictSame(partsOf(chunks), { heads: 1, roles: 1, ends: 1 }, `run ${run}, stream ${i}`)
      t.equal(chunks.at(-1).usage.completion_tokens, bodies[i]!.max_tokens)
    }
    await client.drained()
    t.match((await client.send('/metrics')).text, /^homing_gateway_continuation_bytes 0$/m)
  }
  t.comment(`continued: ${await countOf({ router: client, engines: [] }, 'place')}`)
})
