/**
 * Question   What does one routing decision cost, from token ids to a worker?
 * Workload   SEL: a prompt of 2,048 tokens in blocks of 16. Worker i holds its first (i mod 32) · 64 tokens,
 *            has 16 · i prefill tokens queued, i mod 127 active blocks and i mod 17 requests. W workers;
 *            temperature 0 and 0.7.
 * Loop       one thread, closed, each part in a loop of its own after a warm-up:
 *              choose   scoring and choosing alone
 *              decide   who may take it, index lookup, place: as the router does it (packages/placement)
 *              hash     block and sequence hashes of 2 k, 12 k and 100 k token ids
 *              route    hash, then decide, on prompts of that length
 *              load     projecting, booking, completing and freeing in ActiveLoad
 *            The part `policies` (parts=policies) has every policy and mode at 64 and 1,024 workers, each
 *            decision with its lookup in an index of 10 M blocks. They take turns, so that what else the
 *            machine does falls on all; 64 prompts in turn.
 *            The part `queue` (parts=queue) has what the order of the queue costs a request with 1,000 to
 *            100,000 waiting.
 *            The part `whole` (parts=whole) has a request's whole stay at the router, with real actors.
 *            The part `api` (parts=api) has what a decision costs a program that asks for it.
 * Checked    before the clock starts, every answer against the definition computed with plain arrays: costs,
 *            probabilities, winner, overlaps; `winnerSum` pins the behavior.
 * Read it    nanoseconds per decision, mean of the loop, or median of the turns; a run is one process for
 *            each part. Outside of `policies` one prompt is decided again and again, so caches are warm: on a
 *            router that does other work, expect more. One machine only. `--vs naive`: arrays of records and
 *            a map of sets, for choose and decide. `--pairs 24 against=PATH`: with the packages of another
 *            checkout (installed), CPU time of the thread in place of the clock; `hash` is a control where
 *            the packages blocks and tokenization are the same in both.
 */

import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { seededRandom } from '@homing/base'
import { DEFAULT_SEED, hashBlocks } from '@homing/blocks'
import { BlockIndex } from '@homing/index'
import { ActiveLoad } from '@homing/load'
import { placementSettings } from '@homing/placement'
import { FIXED_POLICY_NAMES, type SelectionSettings, Selector, selectionSettings } from '@homing/selection'
import { isPaired, type Measure, type Measures, parameter, runBench, type Target, usage } from '../harness.ts'
import { BLOCK_TOKENS, type Fixture, fixtureOf, promptOf, SEL_PROMPT_TOKENS } from './fixture.ts'
import { NaiveIndex, naiveChoose } from './naive.ts'
import { Placer, requestOf } from './placer.ts'
import { measurePolicies } from './policies.ts'
import { measureQueue, queueTargets } from './queue.ts'
import { measureWhole, wholeTargets } from './whole.ts'

const budgetMs = parameter('budgetMs', { smoke: 2, full: 300 })
const workersMax = parameter('workers', { smoke: 64, full: 10_000 })
const decideWorkersMax = parameter('decideWorkers', { smoke: 64, full: 1024 })
const promptTokensMax = parameter('promptTokens', { smoke: 12_288, full: 102_400 })
const activePerWorker = parameter('activePerWorker', { smoke: 2, full: 8 })
const blocks = parameter('blocks', { smoke: 20_000, full: 10_000_000 })
const rounds = parameter('rounds', { smoke: 2, full: 50 })
const depthMax = parameter('depth', { smoke: 1000, full: 100_000 })
const parts = parameter('parts', {
  smoke: 'costs,policies,queue,whole,api',
  full: 'costs,policies,queue,whole,api',
}).split(',')

const against = parameter('against', { smoke: '', full: '' })
if (against !== '' && !existsSync(join(against, 'packages/placement')))
  usage(`against=${against}: not a checkout of homing`)

const FLEETS = [2, 32, 64, 1024, 10_000]
const TEMPERATURES = [0, 0.7]
const POLICY_FLEETS = [64, 1024]
const PROMPTS = [2048, 12_288, 102_400]
const WHOLE_FLEETS = [4, 64]
const QUEUE_DEPTHS = [1000, 10_000, 100_000]
/** Every worker of the fixture with the leading blocks it holds; hashes are those of the prompt. */
function indexOf(fixture: Fixture, prompt: Int32Array): BlockIndex {
  const { local, sequence } = hashBlocks(prompt, BLOCK_TOKENS, DEFAULT_SEED)
  const index = BlockIndex.create({ capacityBytes: 64 << 20, workerSlotsMax: Math.max(64, fixture.workers) })
  for (let worker = 0; worker < fixture.workers; worker++) {
    const held = fixture.overlapBlocks[worker]!
    if (held > 0) assert.equal(index.store(worker, undefined, sequence, local, held), 'stored')
  }
  return index
}

function settingsAt(temperature: number): SelectionSettings {
  return selectionSettings({ temperature })
}

function ours(): Measures {
  const measures: Record<string, Measure> = {}
  let winnerSum = 0
  for (const workers of FLEETS.filter(workers => workers <= workersMax)) {
    for (const temperature of TEMPERATURES) {
      winnerSum += check(workers, temperature)
      measures[`choose W=${workers} T=${temperature}`] = measureChoose(workers, temperature)
    }
  }
  for (const workers of FLEETS.filter(workers => workers <= decideWorkersMax)) {
    const fixture = fixtureOf(workers, SEL_PROMPT_TOKENS)
    const prompt = promptOf(SEL_PROMPT_TOKENS)
    const index = indexOf(fixture, prompt)
    const { local, count } = hashBlocks(prompt, BLOCK_TOKENS, DEFAULT_SEED)
    for (const temperature of TEMPERATURES) {
      const placer = new Placer(fixture, index)
      const settings = placementSettings(settingsAt(temperature))
      const request = requestOf(local, count, SEL_PROMPT_TOKENS)
      const { winner, overlaps } = placer.place(request, settings)
      winnerSum += winner
      assert.deepEqual(overlaps.blocks, fixture.overlapBlocks, 'overlaps of the index')
      measures[`decide W=${workers} T=${temperature}`] = nanosecondsEach(() => {
        placer.place(request, settings)
      })
    }
  }
  for (const promptTokens of PROMPTS.filter(tokens => tokens <= promptTokensMax)) {
    const prompt = promptOf(promptTokens)
    const name = `${Math.floor(promptTokens / 1000)}k`
    measures[`hash ${name}`] = nanosecondsEach(() => {
      hashBlocks(prompt, BLOCK_TOKENS, DEFAULT_SEED)
    })
    for (const workers of FLEETS.filter(workers => workers <= decideWorkersMax)) {
      const fixture = fixtureOf(workers, promptTokens)
      const placer = new Placer(fixture, indexOf(fixture, prompt))
      const settings = placementSettings(settingsAt(0))
      const { local, count } = hashBlocks(prompt, BLOCK_TOKENS, DEFAULT_SEED)
      const { overlaps } = placer.place(requestOf(local, count, promptTokens), settings)
      assert.deepEqual(overlaps.blocks, fixture.overlapBlocks, 'overlaps of the index')
      measures[`route ${name} W=${workers} T=0`] = nanosecondsEach(() => {
        const hashed = hashBlocks(prompt, BLOCK_TOKENS, DEFAULT_SEED)
        placer.place(requestOf(hashed.local, hashed.count, promptTokens), settings)
      })
    }
  }
  for (const workers of FLEETS.filter(workers => workers <= decideWorkersMax)) {
    Object.assign(measures, measureLoad(workers))
  }
  measures['winnerSum'] = { value: winnerSum, unit: '' }
  return measures
}

/** One choice against its definition; the index of the winner. */
function check(workers: number, temperature: number): number {
  const { candidates } = fixtureOf(workers, SEL_PROMPT_TOKENS)
  const request = { promptTokens: SEL_PROMPT_TOKENS, blockSizeTokens: BLOCK_TOKENS }
  const choice = new Selector().choose(candidates, request, settingsAt(temperature), seededRandom(3))
  const naive = naiveChoose(candidates, request, temperature, seededRandom(3))
  for (let i = 0; i < workers; i++) {
    assert.equal(choice.terms.cost[i], naive.costs[i], `cost of worker ${i}`)
    const difference = Math.abs(choice.terms.probability[i]! - naive.probabilities[i]!)
    assert.ok(difference < 1e-12, `probability of worker ${i}`)
  }
  assert.equal(choice.winner, naive.winner)
  return choice.winner
}

function measureChoose(workers: number, temperature: number): Measure {
  const { candidates } = fixtureOf(workers, SEL_PROMPT_TOKENS)
  const selector = new Selector(workers)
  const settings = settingsAt(temperature)
  const random = seededRandom(1)
  const request = { promptTokens: SEL_PROMPT_TOKENS, blockSizeTokens: BLOCK_TOKENS }
  return nanosecondsEach(() => {
    selector.choose(candidates, request, settings, random)
  })
}

/**
 * Bookkeeping of one request on a fleet that is busy with others; all of them begin with the same 64 blocks.
 */
function measureLoad(workers: number): Measures {
  const load = new ActiveLoad({ workerSlotsMax: workers })
  const shared = hashBlocks(promptOf(SEL_PROMPT_TOKENS), BLOCK_TOKENS, DEFAULT_SEED).sequence
  const count = SEL_PROMPT_TOKENS / BLOCK_TOKENS
  for (let worker = 0; worker < workers; worker++) {
    for (let i = 0; i < activePerWorker; i++) {
      const sequenceHashes = shared.map((word, at) => (at < count ? word : word ^ (worker * 64 + i + 1)))
      const booking = { sequenceHashes, count, promptTokens: SEL_PROMPT_TOKENS, prefillTokens: 16 }
      assert.equal(load.book(`${worker}-${i}`, worker, booking), 'booked')
    }
  }
  const before = load.stats
  const slots = Int32Array.from({ length: workers }, (_, i) => i)
  const projection = load.project(shared, count, slots)
  for (let i = 0; i < workers; i++) assert.equal(projection.newBlocks[i], count / 2)

  const booking = { sequenceHashes: shared, count, promptTokens: SEL_PROMPT_TOKENS, prefillTokens: 512 }
  let worker = 0
  const project = nanosecondsEach(() => {
    load.project(shared, count, slots)
  })
  const life = nanosecondsEach(() => {
    worker = (worker + 1) % workers
    load.book('request', worker, booking)
    load.prefillComplete('request')
    load.free('request')
  })
  const { requests, activeBlocks, distinctBlocks } = load.stats
  assert.deepEqual(
    [requests, activeBlocks, distinctBlocks],
    [before.requests, before.activeBlocks, before.distinctBlocks],
    'load returns to where it was',
  )
  return { [`load project W=${workers}`]: project, [`load book+complete+free W=${workers}`]: life }
}

/** Mean over calls that fill `budgetMs`, after a fifth of it as warm-up. */
function nanosecondsEach(call: () => void): Measure {
  repeat(call, budgetMs / 5)
  return { value: repeat(call, budgetMs), unit: 'ns' }
}

/** CPU time where processes are compared: what else the machine does must not count. */
function nowMs(): number {
  if (!isPaired) return performance.now()
  const { user, system } = process.threadCpuUsage()
  return (user + system) / 1000
}

function repeat(call: () => void, forMs: number): number {
  const from = nowMs()
  let calls = 0
  let elapsedMs = 0
  for (let batch = 1; elapsedMs < forMs; batch = Math.min(batch * 2, 1024)) {
    for (let i = 0; i < batch; i++) call()
    calls += batch
    elapsedMs = nowMs() - from
  }
  return (elapsedMs * 1e6) / calls
}

function naivePeer(): Measures {
  const measures: Record<string, Measure> = {}
  const request = { promptTokens: SEL_PROMPT_TOKENS, blockSizeTokens: BLOCK_TOKENS }
  const prompt = promptOf(SEL_PROMPT_TOKENS)
  const { sequence, count } = hashBlocks(prompt, BLOCK_TOKENS, DEFAULT_SEED)
  for (const workers of FLEETS.filter(workers => workers <= workersMax)) {
    const { candidates, overlapBlocks } = fixtureOf(workers, SEL_PROMPT_TOKENS)
    const index = new NaiveIndex()
    overlapBlocks.forEach((held, worker) => {
      index.store(worker, sequence, held)
    })
    for (const temperature of TEMPERATURES) {
      const random = seededRandom(1)
      measures[`choose W=${workers} T=${temperature}`] = nanosecondsEach(() => {
        naiveChoose(candidates, request, temperature, random)
      })
      if (workers > decideWorkersMax) continue
      measures[`decide W=${workers} T=${temperature}`] = nanosecondsEach(() => {
        const overlaps = index.overlaps(sequence, count)
        for (let i = 0; i < workers; i++) candidates.overlapBlocks[i] = overlaps.get(i) ?? 0
        naiveChoose(candidates, request, temperature, random)
      })
    }
  }
  return measures
}

/**
 * Linear within 4 µs at 64 workers and 30 µs at 1,024; every other fixed policy within 1.5 times that; auto
 * with its guard within 2 and 4 times; with all messages, and of the queue, see there.
 */
function targets(): Readonly<Record<string, Target>> {
  const of = (floor: number): Target => ({ floor, goal: 0.8 * floor })
  const others = FIXED_POLICY_NAMES.filter(policy => policy !== 'linear')
  return Object.fromEntries([
    ['linear T=0, W=64', of(4000)],
    ['linear T=0, W=1024', of(30_000)],
    ...POLICY_FLEETS.flatMap(workers =>
      others.map(policy => [`${policy} T=0 ÷ linear, W=${workers}`, of(1.5)]),
    ),
    ['auto with its guard ÷ linear, W=64', of(2)],
    ['auto with its guard ÷ linear, W=1024', of(4)],
    ...Object.entries(wholeTargets(WHOLE_FLEETS)),
    ...Object.entries(queueTargets(QUEUE_DEPTHS)),
    ...WHOLE_FLEETS.map((workers): [string, Target] => [
      `api ÷ inside, W=${workers}`,
      { floor: 1.2, goal: 1.1 },
    ]),
  ])
}

async function run(part: string): Promise<Measures> {
  if (part === 'queue') {
    return measureQueue({ depths: QUEUE_DEPTHS.filter(depth => depth <= depthMax), rounds })
  }
  if (part === 'api') {
    // Loaded here, because another checkout may lack what it imports.
    const { measureApi } = await import('./api.ts')
    return measureApi({ fleets: WHOLE_FLEETS, rounds })
  }
  if (part === 'whole') return measureWhole({ fleets: WHOLE_FLEETS, rounds })
  if (part !== 'policies') return ours()
  return measurePolicies({
    fleets: POLICY_FLEETS.filter(workers => workers <= decideWorkersMax),
    blocks,
    rounds,
  })
}

await runBench(
  {
    name: 'decide',
    question: 'What does one routing decision cost, from token ids to a worker?',
    parts,
    peers: {
      naive: { run: naivePeer, parts: ['costs'] },
      ...(against === '' ? {} : { before: { run, packagesOf: against } }),
    },
    targets: targets(),
    pins: ['winnerSum'],
  },
  run,
)
