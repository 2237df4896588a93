/**
 * A worker fails in the middle of a stream whose prompt is in pooled memory: the worker that reaches the pool
 * goes on, reads there what the failed one had computed, and computes none of it again (S23 of seed 004).
 * HOMING_FAULTS_RUNS sets how often it fails, in each of two ways (default 2).
 */

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { seededRandom } from '@homing/base'
import type { EngineSettings } from '@homing/engine'
import { freePorts } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import {
  chunksOf,
  type EngineHandle,
  RouterClient,
  send,
  startEngines,
  startProcess,
  startTestRouter,
  type TestProcess,
  until,
} from './fleet.ts'

const RUNS = Number(process.env['HOMING_FAULTS_RUNS'] ?? 2)
const SEED = Number(process.env['HOMING_SEED'] ?? 1)
const MODEL = 'homing-sim'
const PATH = '/v1/completions'
const BLOCK = 16
const PROMPT_BLOCKS = 64
const TOKENS = 4000
/** Tokens of the answer that the first worker gives. */
const FAILS_AT = 500

/**
 * auto would weigh what these engines were seen to take, which is noise where they do not wait. By blocks the
 * worker that holds the prompt comes before the one that reaches it.
 */
const BY_BLOCKS = ['--router-policy', 'linear', '--router-pooled-hit-weight', '0.5']

type Names = readonly [first: string, peer: string, other: string]

function completion(prompt: readonly number[], more: object): object {
  return { model: MODEL, prompt, stream: true, stream_options: { include_usage: true }, ...more }
}

// biome-ignore lint/suspicious/noExplicitAny: chunks of many forms
const textOf = (chunks: readonly any[]) => chunks.map(({ choices: [choice] }) => choice?.text ?? '').join('')

async function poolDirectory(t: Test): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'homing-pool-'))
  t.teardown(() => rm(directory, { recursive: true, force: true }))
  return directory
}

/** The first worker computes a prompt of its own; its blocks are in the pool, and the router knows. */
async function pooledPrompt(client: RouterClient, names: Names, seed: number): Promise<readonly number[]> {
  const random = seededRandom(seed)
  const prompt = Array.from({ length: PROMPT_BLOCKS * BLOCK + 1 }, () => 40 + random.below(80))
  const primed = await client.send(PATH, {
    body: { model: MODEL, prompt, max_tokens: 1, nvext: { backend_instance_id: 1 } },
  })
  if (primed.status !== 200) throw new Error(primed.text)
  let seen: unknown
  await until(
    'the prompt is in the pool',
    async () => {
      const { json } = await client.send('/route', { body: { model: MODEL, prompt } })
      seen = json.cxl_accessible_scores
      return json.cxl_accessible_scores?.[names[1]] === PROMPT_BLOCKS ? true : undefined
    },
    { seen: () => seen },
  )
  return prompt
}

interface Counts {
  readonly promptTokens: number
  readonly hitTokens: number
  readonly poolHitTokens: number
}

async function countsOf(engine: EngineHandle): Promise<Counts> {
  return (await engine.state()).ranks[0]!
}

interface Continued {
  readonly texts: string
  readonly usage: { readonly completion_tokens: number; readonly prompt_tokens: number }
  /** Tokens that the first worker gave. */
  readonly delivered: number
  /** What the peer read out of the pool, and what it computed of prompt and text, in tokens. */
  readonly read: number
  readonly computed: number
}

/** What became of a stream whose first worker failed, with the checks of every way to fail. */
async function checked(
  t: Test,
  client: RouterClient,
  names: Names,
  text: string,
  before: Counts,
  peer: EngineHandle,
): Promise<Continued> {
  await client.drained()
  const { decisions } = (await client.send('/decisions?limit=2')).json
  const [rest, first] = decisions
  t.equal(first.worker, names[0], 'the worker that has the prompt on its device comes first')
  t.equal(rest.worker, names[1], 'the worker that reaches the pool goes on')
  t.match(rest, { continues: { decision: first.id }, delivered: { outcome: 'ok' } })
  const isLeftOut = ({ candidates }: { candidates: { worker: string }[] }) =>
    candidates.every(({ worker }) => worker !== names[0])
  t.ok(isLeftOut(rest), 'the failed worker is no candidate')
  const pooled: number = rest.cxl_accessible_scores[names[1]] ?? 0
  t.ok(pooled >= PROMPT_BLOCKS, 'its receipt shows the pooled blocks')
  const chunks = chunksOf(text)
  const after = await countsOf(peer)
  const asked = after.promptTokens - before.promptTokens
  const read = after.poolHitTokens - before.poolHitTokens
  const delivered: number = rest.continues.delivered_tokens
  t.equal(asked, rest.prompt_tokens, 'it got one request')
  t.equal(asked, PROMPT_BLOCKS * BLOCK + 1 + delivered)
  t.ok(read >= PROMPT_BLOCKS * BLOCK, 'it reads all blocks of the prompt')
  t.ok(read >= pooled * BLOCK, 'and all others that the router counted')
  const computed = asked - read - (after.hitTokens - before.hitTokens)
  return { texts: textOf(chunks), usage: chunks.at(-1).usage, delivered, read, computed }
}

t.test(
  `S23: ${RUNS} times a worker fails after ${FAILS_AT} of ${TOKENS} tokens, and its peer at the pool goes on`,
  async t => {
    const poolDirectory_ = await poolDirectory(t)
    const pool: Partial<EngineSettings> = { hashSeed: 1, poolId: 0, poolDirectory: poolDirectory_ }
    const { engines, stop } = await startEngines([
      { ...pool, poolWorkers: ['2'] },
      { ...pool, poolWorkers: ['1'] },
      { hashSeed: 1 },
    ])
    t.teardown(() => stop())
    const names = engines.map(({ url }) => `${new URL(url).host}/0`) as unknown as Names
    const [first, peer] = engines as [(typeof engines)[number], (typeof engines)[number]]
    const router = await startTestRouter(
      engines.map(({ url }, i) => `${url}?id=${i + 1}`),
      BY_BLOCKS,
    )
    t.teardown(() => router.stop(0))
    const client = new RouterClient(router.url)
    await client.trusted()
    for (let run = 0; run < RUNS; run++) {
      const prompt = await pooledPrompt(client, names, SEED * 1000 + run)
      const before = await countsOf(peer)
      await first.faults({ die: { tokens: FAILS_AT, requests: 1 } })
      const body = completion(prompt, { max_tokens: TOKENS })
      const { status, text } = await client.send(PATH, { body })
      t.equal(status, 200)
      const rest = await checked(t, client, names, text, before, peer)
      t.equal(rest.delivered, FAILS_AT)
      const tokens = prompt.length + FAILS_AT
      t.equal(rest.read, Math.floor((tokens - 1) / BLOCK) * BLOCK, 'blocks of the answer, too')
      t.equal(rest.computed, tokens - rest.read, 'only what fills no block is computed')
      t.match(rest.usage, { completion_tokens: TOKENS, prompt_tokens: prompt.length })
      const whole = chunksOf((await send(first.url, PATH, { body })).text)
      t.equal(rest.texts, textOf(whole), 'no token is lost, and none is there twice') ||
        t.bailout(`run ${run} has another text`)
    }
  },
)

t.test(`S23: ${RUNS} times the process of a worker is killed (HOMING_SEED=${SEED})`, async t => {
  const directory = await poolDirectory(t)
  const ports = await freePorts(9)
  const start = (i: number): Promise<TestProcess> => {
    const [port, events, replay] = ports.slice(3 * i).map(String) as [string, string, string]
    const pool = i === 2 ? [] : ['--pool', '0', '--pool-dir', directory, '--pool-workers', String(2 - i)]
    return startProcess('engine', [
      ...['--port', port, '--events-port', events, '--replay-port', replay, '--hash-seed', '1'],
      ...['--speed', '0', ...pool],
    ])
  }
  const engines = await Promise.all([0, 1, 2].map(start))
  t.teardown(() => engines.forEach(engine => void engine.kill('SIGKILL')))
  const names = engines.map(({ url }) => `${new URL(url).host}/0`) as unknown as Names
  const router = await startTestRouter(
    engines.map(({ url }, i) => `${url}?id=${i + 1}`),
    [...BY_BLOCKS, '--probe-interval', '500ms'],
  )
  t.teardown(() => router.stop(0))
  const client = new RouterClient(router.url)
  let lastStartedAt: string | undefined
  for (let run = 0; run < RUNS; run++) {
    await until('all workers are up', async () =>
      (await client.workers()).every(({ state }) => state === 'up') ? true : undefined,
    )
    // What another process has in its caches is told anew once a probe has found it.
    await until('the process is known', async () => {
      const startedAt = (await client.workers())[0]!.engine_started_at
      return startedAt !== lastStartedAt && startedAt !== null ? startedAt : undefined
    }).then(startedAt => {
      lastStartedAt = startedAt
    })
    await client.trusted()
    const prompt = await pooledPrompt(client, names, SEED * 1000 + run)
    const before = await countsOf(engines[1]!)
    // So slow that it is in the middle of its answer when it is killed.
    await send(engines[0]!.url, '/admin/faults', { body: { slowMs: 3 } })
    const body = completion(prompt, { max_tokens: TOKENS })
    const answer = await client.open(PATH, { body })
    t.equal(answer.statusCode, 200)
    let text = ''
    let events = 0
    let isKilled = false
    for await (const bytes of answer.body) {
      const part = String(bytes)
      text += part
      events += part.split('data: ').length - 1
      if (isKilled || events < FAILS_AT) continue
      isKilled = true
      engines[0]!.kill('SIGKILL')
    }
    t.ok(isKilled)
    const rest = await checked(t, client, names, text, before, engines[1]!)
    t.ok(rest.delivered >= FAILS_AT && rest.delivered < TOKENS, `killed after ${rest.delivered} tokens`)
    // What it computed last was not in the pool yet.
    t.ok(rest.computed <= (rest.delivered % BLOCK) + 3 * BLOCK, `${rest.computed} tokens are computed again`)
    t.match(rest.usage, { completion_tokens: TOKENS, prompt_tokens: prompt.length })
    await engines[0]!.ended
    engines[0] = await start(0)
    const whole = chunksOf((await send(engines[0]!.url, PATH, { body })).text)
    t.equal(rest.texts, textOf(whole), 'no token is lost, and none is there twice') ||
      t.bailout(`run ${run} has another text`)
  }
})

t.test('the test goals of seed 004', async t => {
  const directory = await poolDirectory(t)
  const pool: Partial<EngineSettings> = { hashSeed: 1, poolId: 0, poolDirectory: directory }
  const { engines, stop } = await startEngines([
    { ...pool, poolWorkers: ['2'] },
    { ...pool, poolWorkers: ['1'] },
    { hashSeed: 1 },
  ])
  t.teardown(() => stop())
  const names = engines.map(({ url }) => `${new URL(url).host}/0`) as unknown as Names
  const [first, peer] = engines as [(typeof engines)[number], (typeof engines)[number]]
  const urls = engines.map(({ url }, i) => `${url}?id=${i + 1}`)
  const router = await startTestRouter(urls, BY_BLOCKS)
  t.teardown(() => router.stop(0))
  const client = new RouterClient(router.url)
  await client.trusted()
  const prompt = await pooledPrompt(client, names, SEED)

  await t.test('CXL accessibility scoring in routing decisions', async t => {
    const { json } = await client.send('/route', { body: { model: MODEL, prompt } })
    t.strictSame(json.cxl_accessible_scores, { [names[1]]: PROMPT_BLOCKS })
    t.strictSame(json.scores, { [names[0]]: PROMPT_BLOCKS, [names[1]]: PROMPT_BLOCKS })
  })

  const before = await countsOf(peer)
  await first.faults({ die: { tokens: FAILS_AT, requests: 1 } })
  const body = completion(prompt, { max_tokens: TOKENS })
  const { text } = await client.send(PATH, { body })
  await client.drained()
  const { decisions } = (await client.send('/decisions?limit=2')).json
  const [rest, failed] = decisions

  await t.test('CXL-aware worker selection during migration', async t => {
    t.equal(failed.worker, names[0])
    t.equal(rest.worker, names[1])
    t.match(rest.excluded, [{ worker: names[0], reason: 'failed this request' }])
    t.ok(rest.cxl_accessible_scores[names[1]] >= PROMPT_BLOCKS)
  })
  await t.test('Successful completion without re-prefill', async t => {
    const after = await countsOf(peer)
    const asked = after.promptTokens - before.promptTokens
    const computed = asked - (after.poolHitTokens - before.poolHitTokens)
    t.equal(asked, prompt.length + FAILS_AT)
    t.ok(computed <= BLOCK, `${computed} of ${asked} tokens are computed: what fills no block`)
    t.match(rest.delivered, { outcome: 'ok' })
  })
  await t.test('Correct token count preservation across failure', async t => {
    const chunks = chunksOf(text)
    t.equal(chunks.at(-1).usage.completion_tokens, TOKENS)
    t.equal(rest.continues.delivered_tokens, FAILS_AT)
    const whole = chunksOf((await send(first.url, PATH, { body })).text)
    t.equal(textOf(chunks), textOf(whole))
  })
})
