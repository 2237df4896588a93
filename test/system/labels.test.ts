/**
 * Labels of blocks in the whole system: experts and pooled memory, from the events of workers to the choice
 * of a router, through restarts of it, and after a worker has left (scenarios S21 and S22 of seed 004).
 */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { createPublisher, type KvPublisher, type StoredBlock } from '@homing/publisher'
import { KvRouter, type MoeQueryOptions } from 'homing'
import t, { type Test } from 'tap'
import { RouterClient, send, startEngines, startProcess, startTestRouter, until } from './fleet.ts'

const BLOCK = 16
const PROMPT = Array.from({ length: 8 * BLOCK + 1 }, (_, i) => 40 + (i % 80))
const HASHES = Array.from({ length: 8 }, (_, i) => BigInt(1000 + i))
const EXAMPLE = fileURLToPath(new URL('../../packages/publisher/examples/pooled.ts', import.meta.url))
const DOCS = fileURLToPath(new URL('../../docs/labels.md', import.meta.url))

type Scores = Readonly<Record<string, number>>

interface RouteAnswer {
  readonly worker: string
  readonly scores: Scores
  readonly moe_scores: Scores
  readonly cxl_accessible_scores: Scores
  readonly excluded: readonly { readonly worker: string }[]
}

/** Workers whose events come from publishers of this test, with ids 1, 2, …; their engines publish none. */
async function setUp(t: Test, count: number, options: readonly string[] = [], snapshotOnly = false) {
  const { engines, stop } = await startEngines(
    Array.from({ length: count }, () => ({ publishesEvents: false, blockSizeTokens: BLOCK })),
  )
  t.teardown(() => stop())
  const publishers: KvPublisher[] = []
  for (let i = 0; i < count; i++) {
    const publisher = await createPublisher({
      eventsEndpoint: 'tcp://127.0.0.1:0',
      replayEndpoint: 'tcp://127.0.0.1:0',
      blockSizeTokens: BLOCK,
      ...(snapshotOnly ? { bufferBatchesMax: 1 } : {}),
    })
    t.teardown(() => publisher.close())
    publishers.push(publisher)
  }
  const urls = engines.map(({ url }, i) => {
    const { endpoint, replayEndpoint } = publishers[i]!
    const ports = `events=${portOf(endpoint)}&replay=${portOf(replayEndpoint)}`
    return `${url}?${ports}&id=${i + 1}&block_size=${BLOCK}`
  })
  const start = async () => {
    const running = await startTestRouter(urls, ['--router-policy', 'linear', ...options])
    t.teardown(() => running.stop(0))
    return { running, client: new RouterClient(running.url) }
  }
  return { publishers, urls, names: engines.map(({ url }) => `${new URL(url).host}/0`), start }
}

const portOf = (endpoint: string | undefined) => endpoint?.split(':').at(-1)

function blocks(
  count: number,
  more: (i: number) => Pick<StoredBlock, 'moeMetadata' | 'cxlMetadata'> = () => ({}),
): readonly StoredBlock[] {
  return HASHES.slice(0, count).map((hash, i) => ({
    hash,
    tokens: PROMPT.slice(i * BLOCK, (i + 1) * BLOCK),
    ...more(i),
  }))
}

async function route(client: RouterClient, moeQuery?: object, holder = 'agent_hints'): Promise<RouteAnswer> {
  const nvext = moeQuery === undefined ? {} : { [holder]: { moe_query: moeQuery } }
  const body = { model: 'homing-sim', prompt: PROMPT, nvext }
  const { status, text, json } = await client.send('/route', { body })
  if (status !== 200) throw new Error(text)
  return json as RouteAnswer
}

/** Asks until the answer is as wanted. */
function routed(client: RouterClient, wanted: Partial<RouteAnswer>, moeQuery?: object): Promise<RouteAnswer> {
  let seen: RouteAnswer | undefined
  const isAsWanted = (answer: RouteAnswer) =>
    Object.entries(wanted).every(
      ([name, value]) => JSON.stringify(answer[name as keyof RouteAnswer]) === JSON.stringify(value),
    )
  return until(
    `a route with ${JSON.stringify(wanted)}`,
    async () => {
      seen = await route(client, moeQuery)
      return isAsWanted(seen) ? seen : undefined
    },
    { seen: () => seen },
  )
}

t.test('S21: experts are asked for by layer, id and group, with and without fallback', async t => {
  const { publishers, names, start } = await setUp(t, 3)
  const [a, b, c] = names as [string, string, string]
  const { client } = await start()
  publishers[0]!.stored(
    undefined,
    blocks(4, i => ({ moeMetadata: { layerId: 3, expertId: i, expertGroup: i % 2 } })),
  )
  publishers[1]!.stored(undefined, blocks(2))
  await routed(client, { scores: { [a]: 4, [b]: 2 } })
  t.match(await route(client), { moe_scores: {}, cxl_accessible_scores: {}, excluded: [] })

  const asked = async (query: object) => (await route(client, query)).moe_scores
  t.strictSame(await asked({ layer_id: 3 }), { [a]: 4, [b]: 2 })
  t.strictSame(await asked({ layer_id: 3, expert_ids: [1, 3] }), { [a]: 2, [b]: 1 })
  t.strictSame(await asked({ layer_id: 3, expert_group: 0 }), { [a]: 2, [b]: 1 })
  t.strictSame(await asked({ layer_id: 4 }), {})
  t.strictSame((await route(client, { layer_id: 3 })).scores, { [a]: 8, [b]: 4 })

  const strict = await route(client, { layer_id: 3, expert_ids: [3], fallback_to_unlabeled: false })
  t.equal(strict.worker, a)
  t.strictSame(strict.excluded.map(({ worker }) => worker).sort(), [b, c].sort())
  const none = await route(client, { layer_id: 4, fallback_to_unlabeled: false })
  t.strictSame(none.excluded, [], 'where no worker has such blocks, all may take it')
  t.strictSame((await route(client, { layer_id: 3 }, 'router_config_override')).moe_scores, {
    [a]: 4,
    [b]: 2,
  })

  for (const holder of ['agent_hints', 'router_config_override']) {
    const nvext = { [holder]: { moe_query: 'nonsense' } }
    const body = { model: 'homing-sim', prompt: PROMPT, max_tokens: 1, nvext }
    for (const path of ['/v1/completions', '/route']) {
      const { status, json } = await client.send(path, { body })
      t.equal(status, 400)
      t.match(json.error.message, `cannot use nvext.${holder}.moe_query "nonsense": use an object`)
    }
  }
})

t.test('S21, S22 in a program: KvRouter takes experts, and says what matches and is reached', async t => {
  const { publishers, urls } = await setUp(t, 2)
  const [first] = publishers as [KvPublisher]
  first.stored(
    undefined,
    blocks(4, i => ({ moeMetadata: { layerId: 3, expertId: i } })),
  )
  const moved = HASHES.slice(0, 2)
  first.publishCxlStateTransition(moved, 'in_transit', { poolId: 7, accessibleWorkers: [2] })
  first.publishCxlStateTransition(moved, 'cxl_pooled')
  const router = await KvRouter.start({
    workers: urls,
    model: 'homing-sim',
    logLevel: 'error',
    eventThreads: 1,
    routerPolicy: 'linear',
  })
  t.teardown(() => router.close(0))
  const asking = (moeQuery: MoeQueryOptions) => ({ override: { moeQuery } })
  const rows = (moeScore: number) => [
    { workerId: 1, dpRank: 0, overlapBlocks: 4, moeScore, cxlAccessibleScore: 0 },
    { workerId: 2, dpRank: 0, overlapBlocks: 2, moeScore: 0, cxlAccessibleScore: 2 },
  ]
  let seen: unknown
  await until(
    'the labels have come',
    async () => {
      seen = await router.findMatchesForRequest(PROMPT)
      return JSON.stringify(seen) === JSON.stringify(rows(0)) ? true : undefined
    },
    { seen: () => seen },
  )
  for (const [query, matching] of [
    [{ layerId: 3 }, 4],
    [{ layerId: 3, expertIds: [1, 3] }, 2],
    [{ layerId: 4 }, 0],
  ] as const)
    t.strictSame(await router.findMatchesForRequest(PROMPT, asking(query)), rows(matching))
  const strict = asking({ layerId: 3, expertIds: [3], fallbackToUnlabeled: false })
  t.strictSame(await router.bestWorker(PROMPT, strict), [1, 0, 4])
  await t.rejects(router.bestWorker(PROMPT, asking({ layerId: -1 })), {
    code: 'HOMING_LIBRARY_BAD_OPTION',
  })
  await t.rejects(router.bestWorker(PROMPT, asking({ layer: 3 } as never)), {
    code: 'HOMING_LIBRARY_BAD_OPTION',
  })
})

t.test(
  'S22: a block is reached in the pool only, through restarts and after its worker has left',
  async t => {
    const directory = await mkdtemp(join(tmpdir(), 'homing-labels-'))
    t.teardown(() => rm(directory, { recursive: true, force: true }))
    const options = ['--checkpoint-dir', directory, '--router-event-threads', '1']
    const { publishers, names, start } = await setUp(t, 3, options, true)
    const [a, b] = names as [string, string, string]
    const [first] = publishers as [KvPublisher]
    let { running, client } = await start()
    await client.trusted()
    const held = HASHES.slice(0, 4)
    first.stored(
      undefined,
      blocks(4, () => ({ cxlMetadata: { state: 'local_gpu' } })),
    )
    await routed(client, { scores: { [a]: 4 }, cxl_accessible_scores: {} })

    // Not there yet: cxl_pooled without a way there is refused, and counted.
    first.publishCxlStateTransition(held, 'cxl_pooled', { poolId: 7, accessibleWorkers: [2] })
    first.publishCxlStateTransition(held, 'in_transit', { poolId: 7, accessibleWorkers: [2] })
    const metric = async (name: string) =>
      Number(
        new RegExp(`^${name}\\{shard="0"\\} (\\d+)$`, 'm').exec((await client.send('/metrics')).text)?.[1],
      )
    await until('the transitions have come', async () =>
      (await metric('homing_index_changed_pool_states_total')) === 4 ? true : undefined,
    )
    t.equal(await metric('homing_index_illegal_pool_states_total'), 4)
    t.strictSame((await route(client)).cxl_accessible_scores, {})

    first.publishCxlStateTransition(held, 'cxl_pooled')
    const pooled = { scores: { [a]: 4, [b]: 4 }, cxl_accessible_scores: { [b]: 4 } }
    await routed(client, pooled)
    await client.trusted()

    // The first worker frees its own copies of two blocks.
    first.removed(held.slice(2).reverse())
    const freed = { scores: { [a]: 4, [b]: 4 }, cxl_accessible_scores: { [a]: 2, [b]: 4 } }
    await routed(client, freed)

    // Through a checkpoint; without one through the snapshot of the publisher, which repeats one batch only.
    await running.stop(60_000)
    ;({ running, client } = await start())
    await client.trusted()
    t.match(await route(client), freed, 'from the checkpoint')
    t.equal(await metric('homing_index_changed_pool_states_total'), 0, 'no event was repeated')
    await running.stop(60_000)
    await rm(directory, { recursive: true, force: true })
    ;({ running, client } = await start())
    await routed(client, freed)

    // The worker leaves: the pool is still there.
    const worker = await client.workers()
    const { id } = worker.find(({ worker_keys: [key] }) => key!.worker === a)! as unknown as { id: string }
    t.equal((await client.send(`/workers/${id}`, { method: 'DELETE' })).status, 200)
    await routed(client, { scores: { [b]: 4 }, cxl_accessible_scores: { [b]: 4 } })

    // Its peer says that the pool has evicted a block in the middle: what is behind it is of no use.
    publishers[1]!.publishCxlStateTransition([HASHES[1]!], 'evicted', { poolId: 7 })
    await routed(client, { scores: { [b]: 1 }, cxl_accessible_scores: { [b]: 1 } })
  },
)

t.test("a router's dump, played into another index, answers for experts and pools as the router", async t => {
  const { publishers, names, start } = await setUp(t, 2)
  const [first, second] = publishers as [KvPublisher, KvPublisher]
  const [a, b] = names as [string, string]
  const { client } = await start()
  await client.trusted()
  first.stored(
    undefined,
    blocks(6, i => ({ moeMetadata: { layerId: 3, expertId: i % 3 } })),
  )
  first.publishCxlStateTransition(HASHES.slice(2, 6), 'in_transit', { poolId: 7, accessibleWorkers: [2] })
  first.publishCxlStateTransition(HASHES.slice(2, 5), 'cxl_pooled')
  first.removed(HASHES.slice(3, 6).reverse())
  second.stored(undefined, blocks(2))
  const experts = { layer_id: 3, expert_ids: [0, 2] }
  const known = await routed(client, { cxl_accessible_scores: { [a]: 2, [b]: 3 } })
  t.strictSame((await route(client, experts)).moe_scores, { [a]: 2, [b]: 1 })

  // As text: JSON.parse would round its hashes.
  const events = (await client.send('/v1/router/dump_events')).text
  const endpoints = Object.fromEntries(publishers.map(({ endpoint }, i) => [i + 1, { 0: endpoint }]))
  const head = JSON.stringify({ block_size: BLOCK, endpoints }).slice(0, -1)
  const dump = `{"m:default":${head},"events":${events}}}`
  const peer = createServer((_, answer) => answer.end(dump)).listen(0, '127.0.0.1')
  t.teardown(() => peer.close())
  await once(peer, 'listening')
  const url = `http://127.0.0.1:${(peer.address() as AddressInfo).port}`
  const workers = publishers.map(({ endpoint }, i) => `${i + 1}=${endpoint}`).join(',')
  const indexer = await startProcess('indexer', [
    ...['--host', '127.0.0.1', '--port', '0', '--threads', '1', '--model-name', 'm', '--workers', workers],
    ...['--block-size', String(BLOCK), '--peers', url, '--peer-wait', '5s'],
  ])
  t.teardown(() => indexer.kill('SIGKILL'))
  const told = await until('what peers said is told', () =>
    indexer.outputLines.find(line => line.startsWith('peers: ')),
  )
  // Three cached and three pooled of the first one, which counts the more of either; none on its way there.
  t.equal(told, `peers: 5 blocks of 2 of 2 ranks are known only from ${url}`)
  const query = async (more: object) => {
    const body = { model_name: 'm', token_ids: PROMPT, ...more }
    return (await send(indexer.url, '/query', { method: 'POST', body })).json
  }
  const answer = await query({ moe_query: experts })
  t.strictSame(answer.scores, { 1: { 0: 3 * BLOCK }, 2: { 0: 2 * BLOCK } })
  t.strictSame(answer.moe_scores, { 1: { 0: 2 }, 2: { 0: 1 } })
  t.strictSame(answer.cxl_accessible_scores, { 1: { 0: 2 }, 2: { 0: 3 } })
  t.strictSame(Object.values(known.cxl_accessible_scores), [2, 3], 'the same as the router')
  const strict = { ...experts, expert_ids: [2], fallback_to_unlabeled: false }
  t.strictSame(Object.keys((await query({ moe_query: strict })).scores), ['1'])
})

t.test('the program of docs/labels.md does what the page says', async t => {
  const child = spawn(process.execPath, [EXAMPLE], { stdio: ['ignore', 'pipe', 'inherit'] })
  t.teardown(async () => {
    child.kill('SIGTERM')
    if (child.exitCode === null) await once(child, 'exit')
  })
  const [ports] = (await once(createInterface({ input: child.stdout }), 'line')) as [string]
  const { engines, stop } = await startEngines(
    [1, 2].map(() => ({ publishesEvents: false, blockSizeTokens: BLOCK })),
  )
  t.teardown(() => stop())
  const [first, second] = engines.map(({ url }) => url) as [string, string]
  const urls = [`${first}?${ports}&id=1&block_size=${BLOCK}`, `${second}?id=2&block_size=${BLOCK}`]
  const running = await startTestRouter(urls, [])
  t.teardown(() => running.stop(0))
  const client = new RouterClient(running.url)
  const prompt = Array.from({ length: 4 * BLOCK + 1 }, (_, i) => 40 + i)
  const body = {
    model: 'homing-sim',
    prompt,
    nvext: { agent_hints: { moe_query: { layer_id: 3, expert_ids: [0, 1] } } },
  }
  const [a, b] = [first, second].map(url => `${new URL(url).host}/0`) as [string, string]
  let seen: unknown
  const answer = await until(
    'the labels have come',
    async () => {
      const { json } = await client.send('/route', { body })
      seen = json
      return json.cxl_accessible_scores?.[b] === 4 ? (json as RouteAnswer) : undefined
    },
    { seen: () => seen },
  )
  t.strictSame(answer.moe_scores, { [a]: 2 })
  t.strictSame(answer.cxl_accessible_scores, { [a]: 2, [b]: 4 })
  t.strictSame(answer.scores, { [a]: 4, [b]: 4 })
  const page = await readFile(DOCS, 'utf8')
  const program = await readFile(EXAMPLE, 'utf8')
  t.ok(page.includes(program.slice(program.indexOf('import {')).trim()), 'the page has the program as it is')
})

t.test('a simulated engine with a pool: a lost transition is a gap like any other', async t => {
  const pool = { poolId: 4, poolWorkers: ['2'], poolBlocks: 5 }
  const { engines, stop } = await startEngines([pool, { publishesEvents: false }])
  t.teardown(() => stop())
  const [first] = engines as [(typeof engines)[number]]
  const [a, b] = engines.map(({ url }) => `${new URL(url).host}/0`) as [string, string]
  const urls = engines.map(({ url }, i) => `${url}?id=${i + 1}&block_size=${BLOCK}`)
  const running = await startTestRouter(urls, ['--router-policy', 'linear'])
  t.teardown(() => running.stop(0))
  const client = new RouterClient(running.url)
  const trustOf = async () => {
    const keys = (await client.workers()).flatMap(({ worker_keys }) => worker_keys)
    return keys.find(({ worker }) => worker === a)?.trust
  }
  const exact = () => until('it is exact', async () => ((await trustOf()) === 'exact' ? true : undefined))
  const serve = async (prompt: readonly number[]) => {
    const nvext = { backend_instance_id: 1 }
    const body = { model: 'homing-sim', prompt, max_tokens: 1, nvext }
    t.equal((await client.send('/v1/completions', { body })).status, 200)
  }
  const reached = async (prompt: readonly number[], scores: Scores, pooled: Scores) => {
    const body = { model: 'homing-sim', prompt }
    let seen: unknown
    await until(
      'what is held and pooled is known',
      async () => {
        const { json } = await client.send('/route', { body })
        seen = [json.scores, json.cxl_accessible_scores]
        return JSON.stringify(seen) === JSON.stringify([scores, pooled]) ? true : undefined
      },
      { seen: () => seen },
    )
  }
  const [one, two] = [0, 1].map(more => PROMPT.slice(0, 4 * BLOCK + 1).map(token => token + more))
  await exact()
  await serve(one!)
  await reached(one!, { [a]: 4, [b]: 4 }, { [b]: 4 })

  // The batches that say so are lost: the second prompt goes to the pool, which evicts most of the first.
  await first.faults({ events: { drop: 2 } })
  await serve(two!)
  // A further block shows the gap, and evicts the rest of the first prompt.
  await serve(PROMPT.slice(0, BLOCK + 1).map(token => token + 2))
  await reached(one!, { [a]: 4 }, {})
  await reached(two!, { [a]: 4, [b]: 4 }, { [b]: 4 })
  await exact()

  await first.restart()
  await reached(two!, {}, {})
})
