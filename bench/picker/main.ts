/**
 * Question   What does a decision cost that an Envoy asks for, against one of the router's own requests?
 * Workload   One process of `homing router --picker-port`, before `engines` simulated engines in another. In
 *            turn, `requests` of each: by HTTP, which the router sends to an engine and whose answer it
 *            relays; and by ext_proc, with the frames that an Envoy sends: headers, body, then the head and
 *            the body of the same answer. Prompts of `tokens` tokens, `prompts` different ones, which all
 *            were sent before. Then ext_proc again, with answers of `frames` frames, which is how streams
 *            come.
 * Loop       closed, `concurrency` at a time; the arms take turns in `rounds` rounds.
 * Checked    each answer is whole, and each decision names an engine; the router counts tokens itself to the
 *            end: where answers count others it stops believing its tokenizer, and asks an engine for each.
 * Read it    cpu is that of the router's process, all its threads, a request. ratio is picker to router
 *            within a run: the target is 1.2. added is the time from the last frame of a request until Envoy
 *            is told where it goes, one request at a time: its p99 is to be 3 ms at most on an idle machine.
 */

import assert from 'node:assert/strict'
import { fileURLToPath } from 'node:url'
import { AskingEnvoy, destinationIn, freePort } from '@homing/transport/testing'
import { type Measures, parameter, percentile, runBench, Skip } from '../harness.ts'
import { sendAll } from '../http/client.ts'
import { cpuMsOf, knowsCpuTime, startProcess } from '../http/processes.ts'
import { MODEL, promptBodies, TINY_TOKENIZER } from '../http/prompts.ts'
import { median } from '../statistics.ts'

const engineCount = parameter('engines', { smoke: 2, full: 8 })
const requestCount = parameter('requests', { smoke: 8, full: 300 })
const roundCount = parameter('rounds', { smoke: 1, full: 5 })
const promptCount = parameter('prompts', { smoke: 4, full: 64 })
const promptTokens = parameter('tokens', { smoke: 100, full: 1000 })
const frameCount = parameter('frames', { smoke: 4, full: 64 })
const concurrency = parameter('concurrency', { smoke: 2, full: 8 })
const addedCount = parameter('added', { smoke: 8, full: 1000 })
const seed = parameter('seed', { smoke: 1, full: 1 })

const SPEED = 1000
const OUTPUT_TOKENS = 4
/** Of all prompts, by either way. */
const WARM_UP_PASSES = 4
const HEADERS = { 'content-type': 'application/json' }
const ENGINES = fileURLToPath(new URL('../http/engines.ts', import.meta.url))
const HOMING = fileURLToPath(new URL('../../packages/homing/src/main.ts', import.meta.url))

async function run(): Promise<Measures | Skip> {
  if (!knowsCpuTime) return new Skip('the system does not tell the CPU time of a process')
  const engines = await startProcess(ENGINES, [String(engineCount), String(SPEED), TINY_TOKENIZER])
  try {
    const port = await freePort()
    const workers = engines.urls.flatMap(url => ['--worker', url])
    const listening = [
      '--host',
      '127.0.0.1',
      '--port',
      '0',
      '--picker-port',
      String(port),
      '--picker-tls',
      'off',
    ]
    const tokenizer = ['--tokenizer', TINY_TOKENIZER, '--log-level', 'error']
    const router = await startProcess(HOMING, ['router', ...listening, ...tokenizer, ...workers])
    try {
      return await compare(router.pid, router.urls[0]!, port)
    } finally {
      await router.stop()
    }
  } finally {
    await engines.stop()
  }
}

async function compare(pid: number, url: string, port: number): Promise<Measures> {
  const bodies = bodiesOf()
  const prompts = await Promise.all(bodies.map(body => promptOf(url, body)))
  const envoy = await AskingEnvoy.connect(port, true)
  try {
    // What comes first compiles, and fills caches.
    for (let pass = 0; pass < WARM_UP_PASSES; pass++) {
      await sendAll([url], bodies, concurrency)
      await askAll(envoy, prompts, 1)
    }
    const arms: Record<'router' | 'picker' | 'stream', number[]> = { router: [], picker: [], stream: [] }
    for (let round = 0; round < roundCount; round++) {
      const some = Array.from({ length: requestCount }, (_, index) => prompts[index % prompts.length]!)
      const sent = some.map(({ body }) => body)
      arms.router.push(await cpuUs(pid, () => sendAll([url], sent, concurrency)))
      arms.picker.push(await cpuUs(pid, () => askAll(envoy, some, 1)))
      arms.stream.push(await cpuUs(pid, () => askAll(envoy, some, frameCount)))
    }
    const addedMs = new Float64Array(addedCount)
    for (let index = 0; index < addedCount; index++)
      addedMs[index] = await ask(envoy, prompts[index % prompts.length]!, 1)
    await assertOwnTokens(url)
    const { router, picker, stream } = arms
    return {
      routerCpu: { value: median(router), unit: 'µs' },
      pickerCpu: { value: median(picker), unit: 'µs' },
      ratio: { value: median(picker.map((us, index) => us / router[index]!)), unit: '×' },
      frameCpu: { value: (median(stream) - median(picker)) / (frameCount - 1), unit: 'µs' },
      addedP50: { value: percentile(addedMs, 50), unit: 'ms' },
      addedP99: { value: percentile(addedMs, 99), unit: 'ms' },
    }
  } finally {
    envoy.close()
  }
}

function bodiesOf(): readonly string[] {
  const options = { seed, promptTokens, outputTokens: OUTPUT_TOKENS, conversations: engineCount }
  const found = promptBodies({ ...options, isStream: false })
  return Array.from({ length: promptCount }, () => found.next().value)
}

/** CPU of the router's process for each request of `work`, in microseconds. */
async function cpuUs(pid: number, work: () => Promise<unknown>): Promise<number> {
  const before = cpuMsOf(pid)
  await work()
  return (1000 * (cpuMsOf(pid) - before)) / requestCount
}

async function askAll(envoy: AskingEnvoy, prompts: readonly Prompt[], frames: number): Promise<void> {
  let next = 0
  const askOn = async (): Promise<void> => {
    while (next < prompts.length) await ask(envoy, prompts[next++]!, frames)
  }
  await Promise.all(Array.from({ length: concurrency }, askOn))
}

/** A prompt, and what an engine answers. */
interface Prompt {
  readonly body: string
  readonly answer: string
}

/** With the tokens that an engine counts. */
async function promptOf(url: string, body: string): Promise<Prompt> {
  const reply = await fetch(`${url}/v1/chat/completions`, { method: 'POST', headers: HEADERS, body })
  const { usage } = (await reply.json()) as { usage: object }
  const message = { role: 'assistant', content: 'a b c d' }
  const choices = [{ index: 0, message, finish_reason: 'length' }]
  const answer = { id: 'chatcmpl-1', object: 'chat.completion', model: MODEL, choices, usage }
  return { body, answer: JSON.stringify(answer) }
}

async function assertOwnTokens(url: string): Promise<void> {
  const text = await (await fetch(`${url}/metrics`)).text()
  assert.match(text, new RegExp(`^homing_tokenizer_path_state\\{model="${MODEL}",path="own"\\} 1$`, 'm'))
}

const EVENT = `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: ' a' } }] })}\n\n`

/** One request, as an Envoy asks and shows its answer. Answers how long the choice took, in ms. */
async function ask(envoy: AskingEnvoy, { body, answer }: Prompt, frames: number): Promise<number> {
  const askedMs = performance.now()
  const stream = envoy.ask({ path: '/v1/chat/completions', headers: HEADERS, body })
  const chosen = destinationIn(await stream.next())
  const tookMs = performance.now() - askedMs
  assert.match(chosen ?? 'none', /^127\.0\.0\.1:\d+/)
  const isStream = frames > 1
  stream.answerHead(200, { 'content-type': isStream ? 'text/event-stream' : 'application/json' })
  for (let frame = 0; frame < frames; frame++) {
    const isEnd = frame === frames - 1
    stream.answerBody(isStream ? (isEnd ? 'data: [DONE]\n\n' : EVENT) : answer, isEnd)
  }
  for (;;) {
    const response = await stream.next()
    assert.ok(response !== undefined, 'the stream ended early')
    if (response.response_body?.response.body_mutation?.streamed_response?.end_of_stream === true) break
  }
  stream.end()
  assert.equal((await stream.ended).code, 0)
  return tookMs
}

await runBench(
  {
    name: 'picker',
    question: "What does a decision cost that an Envoy asks for, against one of the router's own requests?",
    targets: {
      ratio: { floor: 1.2, goal: 1 },
      addedP99: { floor: 3, goal: 1 },
    },
  },
  run,
)
