/**
 * `homing select` chooses as a router does: over the same engines, every candidate has the same terms and the
 * same cost in `POST /select` as in `POST /route` of a router beside it, by every policy; and after the same
 * history of bookings the same worker is chosen. HOMING_SEED sets the seed.
 */

import assert from 'node:assert/strict'
import process from 'node:process'
import { isDeepStrictEqual } from 'node:util'
import { seededRandom } from '@homing/base'
import { type GivenSelectSettings, KvRouter, startSelect } from 'homing'
import t, { type Test } from 'tap'
import {
  type Fleet,
  send,
  startEngines,
  startFleet,
  type ThreadEngine,
  until,
  type WorkerView,
} from './fleet.ts'

const SEED = Number(process.env['HOMING_SEED'] ?? 1)
t.comment(`HOMING_SEED=${SEED}`)
const BLOCK = 4
const MODEL = 'homing-sim'
const PROMPTS = 24
const STEPS = 60
const READ_MS_MAX = 60_000

interface Facts {
  readonly max_num_batched_tokens: { readonly value: number }
  readonly kv_blocks: { readonly value: number } | null
  readonly models: readonly { readonly max_model_len: number | null }[]
}

interface CandidateView {
  readonly worker: string
  readonly trust: string
  readonly cost: number
}

interface ReceiptView {
  readonly policy: string
  readonly candidates: readonly CandidateView[]
}

interface SelectView {
  readonly receipt: ReceiptView
  readonly overlap: { readonly gpu: number }
}

const random = seededRandom(SEED)
const below = (bound: number): number => random.below(bound)

/** Prompts that begin alike and part at some block, so that caches hold different lengths of them. */
function prompts(count: number): readonly (readonly number[])[] {
  const made: number[][] = []
  for (let i = 0; i < count; i++) {
    const stem = made.length > 0 && below(4) > 0 ? made[below(made.length)]! : []
    const kept = stem.slice(0, below(stem.length + 1))
    const tail = Array.from({ length: 1 + below(80) }, () => 5 + below(200))
    made.push([...kept, ...tail])
  }
  return made
}

async function computeAt(engine: ThreadEngine, prompt: readonly number[]): Promise<void> {
  const { status, text } = await send(engine.url, '/v1/completions', {
    body: { prompt, max_tokens: 1 },
  })
  if (status !== 200) throw new Error(text)
}

/** A selection service beside the router of a fleet, told what the router has found out. */
async function selectBeside(
  t: Test,
  engines: readonly ThreadEngine[],
  factsOf: (url: string) => Promise<Facts>,
  given: GivenSelectSettings,
): Promise<string> {
  const running = await startSelect({
    host: '127.0.0.1',
    port: 0,
    eventThreads: 1,
    logLevel: 'error',
    ...given,
  })
  t.teardown(() => running.stop(0))
  for (const [i, { url, description }] of engines.entries()) {
    const facts = await factsOf(url)
    const added = await send(running.url, '/workers', {
      body: {
        worker_id: i,
        model_name: MODEL,
        endpoint: url,
        block_size: BLOCK,
        data_parallel_size: description.ranks.length,
        kv_events_endpoints: Object.fromEntries(description.ranks.map(({ rank, events }) => [rank, events])),
        replay_endpoint: Object.fromEntries(description.ranks.map(({ rank, replay }) => [rank, replay])),
        max_num_batched_tokens: facts.max_num_batched_tokens.value,
        total_kv_blocks: facts.kv_blocks?.value,
        max_model_len: facts.models[0]!.max_model_len,
      },
    })
    t.equal(added.status, 201, added.text)
  }
  await caughtUp(running.url, engines)
  return running.url
}

/** Every rank is exact, and has the blocks of its engine. */
async function caughtUp(url: string, engines: readonly ThreadEngine[]): Promise<void> {
  const wanted = await Promise.all(
    engines.map(async engine => (await engine.state(true)).ranks.map(rank => rank.blocks!.length)),
  )
  let seen: unknown
  await until(
    'the index has all blocks',
    async () => {
      const workers = (await send(url, '/workers')).json as readonly {
        readonly listeners: Record<string, { readonly trust: string; readonly blocks: number }>
      }[]
      seen = workers.map(({ listeners }) => listeners)
      return workers.every(({ listeners }, i) =>
        wanted[i]!.every(
          (blocks, rank) => listeners[rank]?.trust === 'exact' && listeners[rank]!.blocks === blocks,
        ),
      )
        ? true
        : undefined
    },
    { seen: () => ({ wanted, seen }) },
  )
}

async function factsFrom(fleet: Fleet, url: string): Promise<Facts> {
  return (await fleet.worker(url)) as WorkerView & Facts
}

/** By '<number of the engine>/<rank>', which is the worker key in the service. */
function byEngine({ candidates }: ReceiptView, engines: readonly ThreadEngine[]): Record<string, object> {
  return Object.fromEntries(
    candidates.map(({ worker, ...terms }) => {
      const at = engines.findIndex(({ url }) => worker.startsWith(url.slice('http://'.length)))
      return [at < 0 ? worker : `${at}/${worker.split('/').at(-1)}`, terms]
    }),
  )
}

for (const [policy, options, given] of [
  ['auto', [], {}],
  ['linear', ['--router-policy', 'linear'], { routerPolicy: 'linear' }],
  [
    'linear with weights',
    ['--kv-overlap-score-weight', '3', '--router-kv-overlap-score-credit', '0.5'],
    { overlapWeight: 3, overlapCredit: 0.5 },
  ],
  ['product', ['--router-policy', 'product'], { routerPolicy: 'product' }],
  ['est-ttft', ['--router-policy', 'est-ttft'], { routerPolicy: 'est-ttft' }],
  ['threshold', ['--router-policy', 'threshold'], { routerPolicy: 'threshold' }],
] as const) {
  t.test(`by policy ${policy} every candidate costs what it does at a router`, async t => {
    const settings = { blockSizeTokens: BLOCK, blocks: 256 }
    const fleet = await startFleet({
      engines: [settings, { ...settings, ranks: 2 }, { ...settings, blocks: 400 }],
      router: options,
    })
    t.teardown(() => fleet.stop())
    const { engines } = fleet
    const made = prompts(PROMPTS)
    for (const prompt of made) await computeAt(engines[below(engines.length)]!, prompt)
    await fleet.caughtUp(engines)
    const url = await selectBeside(t, engines, engine => factsFrom(fleet, engine), given)
    let held = 0
    const compared = async (prompt: readonly number[], salt: object) => {
      const body = { model: MODEL, token_ids: prompt, ...salt }
      const expected = (await fleet.send('/route', { body })).json as ReceiptView
      const asked = { model_name: MODEL, token_ids: prompt, explain: true, ...salt }
      const chosen = await send(url, '/select', { body: asked })
      assert.equal(chosen.status, 200, chosen.text)
      const { receipt, overlap } = chosen.json as SelectView
      held += overlap.gpu
      return { expected, receipt }
    }
    // Either may still read a shard that has moved as it was.
    await until(
      'both read all shards',
      async () => {
        const pairs = await Promise.all(made.map(prompt => compared(prompt, {})))
        const isSame = pairs.every(({ expected, receipt }) =>
          isDeepStrictEqual(byEngine(receipt, engines), byEngine(expected, engines)),
        )
        return isSame ? true : undefined
      },
      { msMax: READ_MS_MAX },
      // What differs then is shown below.
    ).catch(() => {})
    for (const prompt of [...made, ...prompts(8)]) {
      const { expected, receipt } = await compared(prompt, below(4) === 0 ? { cache_salt: 'x' } : {})
      t.equal(receipt.policy, expected.policy)
      t.strictSame(byEngine(receipt, engines), byEngine(expected, engines))
    }
    t.ok(held > 0, 'caches count')
  })
}

t.test('after the same bookings the same worker is chosen, and the loads are the same', async t => {
  const settings = { blockSizeTokens: BLOCK, blocks: 256 }
  const { engines, stop } = await startEngines([settings, { ...settings, ranks: 2 }, settings])
  t.teardown(stop)
  const made = prompts(PROMPTS)
  for (const prompt of made) await computeAt(engines[below(engines.length)]!, prompt)
  const router = await KvRouter.start({
    workers: engines.map(({ url }, i) => `${url}?id=${i}`),
    model: MODEL,
    routerPolicy: 'linear',
    eventThreads: 1,
    logLevel: 'error',
  })
  t.teardown(() => router.close(0))
  await until('the router knows all caches', async () =>
    (await router.workers()).every(({ trust }) => trust === 'exact') ? true : undefined,
  )
  const facts = {
    max_num_batched_tokens: { value: 8192 },
    kv_blocks: null,
    models: [{ max_model_len: null }],
  }
  const url = await selectBeside(t, engines, async () => facts, { routerPolicy: 'linear' })
  const potentialOf = async (prompt: readonly number[]) => {
    const body = { model_name: MODEL, token_ids: prompt }
    const rows = (await send(url, '/potential_loads', { body })).json as readonly Record<string, number>[]
    return {
      here: rows.map(row => [
        row['worker_id'],
        row['dp_rank'],
        row['potential_prefill_tokens'],
        row['potential_decode_blocks'],
        row['active_requests'],
      ]),
      there: (await router.getPotentialLoads(prompt)).map(row => [
        row.workerId,
        row.dpRank,
        row.potentialPrefillTokens,
        row.potentialDecodeBlocks,
        row.activeRequests,
      ]),
    }
  }
  await until(
    'both read all shards',
    async () => {
      const pairs = await Promise.all(made.map(potentialOf))
      return pairs.every(({ here, there }) => isDeepStrictEqual(here, there)) ? true : undefined
    },
    { msMax: READ_MS_MAX },
    // What differs then is shown below.
  ).catch(() => {})
  const held: string[] = []
  let compared = 0
  for (let step = 0; step < STEPS; step++) {
    const act = below(6)
    const id = held[below(held.length)]
    if (act === 0 && id !== undefined) {
      held.splice(held.indexOf(id), 1)
      await router.free(id)
      t.equal((await send(url, `/reservations/${id}`, { method: 'DELETE' })).status, 200)
    } else if (act === 1 && id !== undefined) {
      await router.markPrefillComplete(id)
      t.equal((await send(url, `/reservations/${id}/prefill_complete`, { method: 'POST' })).status, 200)
    } else {
      const prompt = made[below(made.length)]!
      const asked = { model_name: MODEL, token_ids: prompt }
      const { here, there } = await potentialOf(prompt)
      t.strictSame(here, there, `step ${step}`)
      const { receipt } = (await send(url, '/select', { body: { ...asked, explain: true } })).json as {
        readonly receipt: ReceiptView
      }
      const [first, second] = receipt.candidates.map(({ cost }) => cost).sort((a, b) => a - b)
      // Of two that cost the same either may be drawn.
      if (first === second) continue
      const requestId = `r${step}`
      const [workerId, dpRank, overlapBlocks] = await router.bestWorker(prompt, { requestId })
      const reserved = await send(url, '/select_and_reserve', { body: { ...asked, selection_id: requestId } })
      t.match(reserved.json, { worker_id: workerId, dp_rank: dpRank }, `step ${step}`)
      t.equal(Number(reserved.headers['x-homing-overlap-blocks']), overlapBlocks)
      held.push(requestId)
      compared++
    }
  }
  t.ok(compared > STEPS / 4, `${compared} choices were compared`)
  for (const id of held) {
    await router.free(id)
    await send(url, `/reservations/${id}`, { method: 'DELETE' })
  }
  const loads = (await send(url, '/loads')).json as readonly { readonly loads: readonly object[] }[]
  for (const load of loads[0]!.loads)
    t.match(load, { active_prefill_tokens: 0, active_decode_blocks: 0, active_requests: 0 })
})
