/** Acceptance scenarios of KV-aware routing: many at once, prefix decisions, salts, a trace. */

import assert from 'node:assert/strict'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { traceTokens } from '@homing/engine'
import { readTrace } from '@homing/trace'
import t from 'tap'
import {
  assertIndexEqualsCaches,
  chunksOf,
  type Fleet,
  RouterClient,
  startEngines,
  startFleet,
  startProcess,
  TINY_TOKENIZER,
  withFleet,
} from './fleet.ts'

const MODEL = 'homing-sim'
const BLOCK_SIZE_TOKENS = 16
const SMALL_TRACE = join(
  dirname(fileURLToPath(import.meta.resolve('@homing/engine'))),
  '..',
  'fixtures',
  'small-trace.jsonl.gz',
)

/** One full block per letter; equal letters, equal blocks. */
function blocksOf(letters: string): number[] {
  return [...letters].flatMap(letter =>
    Array.from({ length: BLOCK_SIZE_TOKENS }, (_, position) => letter.charCodeAt(0) - 30 + position),
  )
}

interface Placed {
  /** Position of the engine in the fleet. */
  readonly engine: number
  readonly rank: number
  readonly overlapBlocks: number
  readonly cachedTokens: number
  readonly decision: string
}

/** Completes a prompt, and waits until the index knows what came of it. */
async function place(
  fleet: Fleet,
  prompt: readonly number[],
  more: object = {},
  headers: Record<string, string> = {},
): Promise<Placed> {
  const answer = await fleet.send('/v1/completions', {
    body: { model: MODEL, prompt, max_tokens: 1, ...more },
    headers,
  })
  assert.equal(answer.status, 200, answer.text)
  await fleet.caughtUp(fleet.engines)
  await fleet.drained()
  const worker = answer.headers['x-homing-worker']!
  return {
    engine: fleet.engines.indexOf(fleet.engineOf(worker)),
    rank: Number(worker.slice(worker.lastIndexOf('/') + 1)),
    overlapBlocks: Number(answer.headers['x-homing-overlap-blocks']),
    cachedTokens: answer.json.usage.prompt_tokens_details?.cached_tokens ?? 0,
    decision: answer.headers['x-homing-decision']!,
  }
}

async function forced(fleet: Fleet, engine: number, rank?: number): Promise<object> {
  const { instance_id: id } = await fleet.worker(fleet.engines[engine]!.url)
  return { nvext: { backend_instance_id: id, ...(rank === undefined ? {} : { dp_rank: rank }) } }
}

t.test('100 chats at once all succeed, and every stream is well-formed', async t => {
  const engine = { speed: 20, tokenizer: TINY_TOKENIZER }
  const fleet = await startFleet({ engines: [engine, engine] })
  t.teardown(() => fleet.stop())
  const outputTokens = 24
  const answers = await Promise.all(
    Array.from({ length: 100 }, (_, number) =>
      fleet.send('/v1/chat/completions', {
        body: {
          model: MODEL,
          messages: [
            {
              role: 'system',
              content: `You are the assistant of house ${number % 5}. Be short and be kind.`,
            },
            { role: 'user', content: `Question ${number}: what is ${number} times ${number + 1}?` },
          ],
          max_tokens: outputTokens,
          stream: number % 4 !== 0,
          ...(number % 4 === 0 ? {} : { stream_options: { include_usage: true } }),
        },
      }),
    ),
  )
  const workers = new Set<string | undefined>()
  for (const [number, answer] of answers.entries()) {
    assert.equal(answer.status, 200, answer.text)
    workers.add(answer.headers['x-homing-worker'])
    if (number % 4 === 0) {
      assert.equal(answer.json.usage.completion_tokens, outputTokens)
      continue
    }
    const chunks = chunksOf(answer.text)
    assert.equal(new Set(chunks.map(({ id }) => id)).size, 1, 'one id')
    const choices = chunks.flatMap(chunk => chunk.choices)
    assert.equal(choices[0].delta.role, 'assistant')
    assert.deepEqual(choices.map(choice => choice.finish_reason).filter(Boolean), ['length'])
    assert.equal(choices.at(-1).finish_reason, 'length', 'nothing after the end')
    assert.equal(chunks.at(-1).usage.completion_tokens, outputTokens)
  }
  t.pass('75 streams and 25 whole answers')
  t.equal(workers.size, 2, 'both engines worked')
  const records = (await Promise.all(fleet.engines.map(({ state }) => state()))).flatMap(
    state => state.requests,
  )
  t.equal(records.length, 100)
  t.ok(records.every(({ outcome }) => outcome === 'finished'))
  await fleet.drained()
  await fleet.caughtUp(fleet.engines)
  await assertIndexEqualsCaches(fleet, fleet.engines)
})

for (const { title, ranks, eventThreads } of [
  { title: 'one event thread', ranks: 1, eventThreads: 1 },
  { title: 'four event threads', ranks: 1, eventThreads: 4 },
  { title: 'two ranks per engine', ranks: 2, eventThreads: 2 },
]) {
  t.test(`the longer prefix wins, with ${title}`, async t => {
    const fleet = await startFleet({
      engines: [{ ranks }, { ranks }],
      router: ['--router-event-threads', String(eventThreads)],
    })
    t.teardown(() => fleet.stop())
    // With ranks, the second engine remembers on its second rank only.
    const [a, b] = [
      await forced(fleet, 0, ranks > 1 ? 0 : undefined),
      await forced(fleet, 1, ranks > 1 ? 1 : undefined),
    ]
    t.match(await place(fleet, blocksOf('AB'), a), { engine: 0, rank: 0, overlapBlocks: 0 })
    t.match(await place(fleet, blocksOf('ACD'), a), { engine: 0, rank: 0, overlapBlocks: 1 })
    t.match(await place(fleet, blocksOf('ACE'), b), { engine: 1, rank: ranks - 1, overlapBlocks: 0 })

    const first = await place(fleet, blocksOf('ACDF'))
    t.match(first, { engine: 0, rank: 0, overlapBlocks: 3, cachedTokens: 48 })
    const second = await place(fleet, blocksOf('ACEG'))
    t.match(second, { engine: 1, rank: ranks - 1, overlapBlocks: 3, cachedTokens: 48 })
    for (const { decision } of [first, second]) {
      const { json: receipt } = await fleet.send(`/decisions/${decision}`)
      t.strictSame(
        receipt.candidates
          .map((candidate: { overlap_blocks: number }) => candidate.overlap_blocks)
          .sort()
          .filter(Boolean),
        [2, 3],
        '3 against 2',
      )
    }
    const records = (await Promise.all(fleet.engines.map(({ state }) => state()))).map(
      state => state.requests,
    )
    t.strictSame(
      records.map(list => [...new Set(list.map(({ rank }) => rank))]),
      [[0], [ranks - 1]],
      'every request ran on the rank that was chosen',
    )
    await assertIndexEqualsCaches(fleet, fleet.engines)
  })
}

t.test('equal tokens under another salt are other blocks', async t => {
  await withFleet({ engines: [{}, {}] }, async fleet => {
    const prompt = [...blocksOf('ABCD'), 50, 51]
    await place(fleet, prompt, { ...(await forced(fleet, 0)), cache_salt: 'x' })
    await place(fleet, prompt, { ...(await forced(fleet, 1)), cache_salt: 'y' })
    const held = { overlapBlocks: 4, cachedTokens: 64 }
    t.match(await place(fleet, prompt, { cache_salt: 'x' }), { engine: 0, ...held })
    t.match(await place(fleet, prompt, { cache_salt: 'y' }), { engine: 1, ...held })
    t.match(await place(fleet, prompt, { nvext: { cache_salt: 'y' } }), { engine: 1, ...held })
    t.match(
      await place(fleet, prompt, { cache_salt: 'y' }, { 'x-tenant-id': 'x' }),
      { engine: 0, ...held },
      'the tenant in the header wins',
    )
    t.match(
      await place(fleet, prompt, { cache_salt: 'y' }, { 'x-homing-tenant': 'x' }),
      { engine: 1, ...held },
      'the key of a share is no salt',
    )
    const none = { overlapBlocks: 0, cachedTokens: 0 }
    t.match(await place(fleet, prompt, { cache_salt: 'z' }), none)
    t.match(await place(fleet, prompt), none, 'no salt is a salt of its own')
  })
})

t.test('an engine whose events name no salts is credited with nothing that may be salted', async t => {
  await withFleet({ engines: [{ eventForm: 'vllm-array-8' }] }, async fleet => {
    const trust = async () => (await fleet.send('/workers')).json.workers[0].worker_keys[0]
    const prompt = [...blocksOf('ABCD'), 50, 51]
    const salted = { cache_salt: 'x' }
    t.match(await place(fleet, prompt, salted), { overlapBlocks: 0, cachedTokens: 0 })
    t.match(await place(fleet, prompt), { overlapBlocks: 0, cachedTokens: 0 }, 'nothing is predicted')
    t.match(await place(fleet, prompt, salted), { overlapBlocks: 0, cachedTokens: 64 }, 'nor of the salted')

    const other = [...blocksOf('WXYZ'), 50, 51]
    const held = { overlapBlocks: 4, cachedTokens: 64 }
    t.match(await place(fleet, other), { overlapBlocks: 0, cachedTokens: 0 })
    t.match(await place(fleet, other), held)
    t.match(await place(fleet, other, salted), { overlapBlocks: 0, cachedTokens: 0 })
    t.match(await place(fleet, other), held, 'what was there before is known')
    t.match(await trust(), { trust: 'exact' })

    // Of several prompts the router knows the first.
    const both = { prompt: [blocksOf('EF'), blocksOf('GH')], max_tokens: 1, model: MODEL, ...salted }
    t.equal((await fleet.send('/v1/completions', { body: both })).status, 200)
    await fleet.caughtUp(fleet.engines)
    t.match(await trust(), { trust: 'partial', trust_reason: /not know were sent there with a cache salt/ })
  })
})

t.test('of a block that has lost one of its copies less is known than is held, and nothing more', async t => {
  await withFleet({ engines: [{ blocks: 9 }] }, async fleet => {
    for (let copy = 0; copy < 2; copy++) await place(fleet, blocksOf('AB'))
    const lostCopies = async () => {
      const [rank] = (await fleet.engines[0]!.state(true)).ranks
      return rank!.blocks!.filter(({ hasLostCopy }) => hasLostCopy)
    }
    t.equal(await assertIndexEqualsCaches(fleet, fleet.engines), 2)
    for (const letter of 'CDEFGHIJ') {
      if ((await lostCopies()).length > 0) break
      await place(fleet, blocksOf(letter))
    }
    t.match(await lostCopies(), [{ copies: 1 }])
    const known = [...(await fleet.indexedBlocks()).values()].flat()
    const [{ hash } = { hash: '' }] = await lostCopies()
    t.notOk(
      known.some(block => block.startsWith(hash)),
      'it counts as gone',
    )
    t.ok((await assertIndexEqualsCaches(fleet, fleet.engines)) > known.length)
  })
})

t.test('1,000 lines of the small trace leave no load, no warning and an exact index', async t => {
  const engines = await startEngines(Array.from({ length: 4 }, () => ({ blockSizeTokens: 64 })))
  t.teardown(() => engines.stop())
  const child = await startProcess('router', [
    ...['--port', '0', '--host', '127.0.0.1', '--detach'],
    // A slow machine is no warning.
    ...['--probe-timeout', '10s'],
    ...engines.engines.flatMap(({ url }) => ['--worker', url]),
  ])
  t.teardown(() => child.kill('SIGKILL'))
  const router = new RouterClient(child.url)
  await router.trusted()

  const trace = readTrace(SMALL_TRACE).slice(0, 1000)
  const startedAt = performance.now()
  let next = 0
  let cachedTokens = 0
  let promptTokens = 0
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      for (let line = trace[next++]; line !== undefined; line = trace[next++]) {
        const answer = await router.send('/v1/completions', {
          body: { model: MODEL, prompt: [...traceTokens(line)], max_tokens: Math.min(line.outputTokens, 64) },
        })
        assert.equal(answer.status, 200, answer.text.slice(0, 500))
        promptTokens += line.inputTokens
        cachedTokens += answer.json.usage.prompt_tokens_details?.cached_tokens ?? 0
      }
    }),
  )
  const seconds = (performance.now() - startedAt) / 1000
  t.comment(
    `${trace.length} requests, 8 at a time, in ${seconds.toFixed(1)} s; hit rate ${((100 * cachedTokens) / promptTokens).toFixed(1)} %`,
  )
  await router.drained()
  t.pass('all load is gone')
  await router.caughtUp(engines.engines)
  t.ok((await assertIndexEqualsCaches(router, engines.engines)) > 1000, 'the index equals the caches')
  const metrics = await router.send('/metrics')
  t.equal(metrics.status, 200)

  child.kill('SIGTERM')
  t.equal(await child.ended, 0)
  const complaints = child.errorLines.filter(line => {
    const { level } = JSON.parse(line) as { level: string }
    return level === 'warn' || level === 'error'
  })
  t.strictSame(complaints, [], 'the log has no warning and no error')
})
