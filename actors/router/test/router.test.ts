import assert from 'node:assert/strict'
import { createTestSystem } from '@homing/actor/testing'
import { chainSequence } from '@homing/blocks'
import type { AuditMessage, ComputedMessage, Fleet, Trust, WorkerRecord } from '@homing/directory'
import { BlockIndex, KEY_LAYERS, layeredOptions, layerSlot, PREDICTED_LAYER } from '@homing/index'
import type { IndexerMessage, RoutedMessage } from '@homing/indexer'
import { tracker } from '@homing/tracker'
import t from 'tap'
import { type Decision, type RouterArgs, type RoutingRequest, router } from '../src/index.ts'

const ASK = { timeout: '1s' } as const
const SLOTS = 64
const BLOCK = 16

/** Local hashes of a prompt, one block per letter. */
function prompt(letters: string): Int32Array {
  return Int32Array.from([...letters].flatMap(letter => [letter.charCodeAt(0), 7]))
}

function request(letters: string, extra: Partial<RoutingRequest> = {}): RoutingRequest {
  const localHashes = prompt(letters)
  return {
    requestId: `request ${letters}`,
    model: 'm',
    // One token past the last full block, so that all full blocks can be reused.
    promptTokens: letters.length * BLOCK + 1,
    blockSizeTokens: BLOCK,
    localHashes,
    sequenceHashes: chainSequence(localHashes, letters.length),
    unknownPrompt: undefined,
    textBlocks: undefined,
    override: {},
    pinnedInstanceId: undefined,
    pinnedRank: undefined,
    excludedWorkers: [],
    ...extra,
  }
}

interface WorkerOptions {
  readonly id: string
  readonly slots: readonly number[]
  readonly state?: WorkerRecord['state']
  readonly trust?: Trust
  readonly models?: readonly string[]
  readonly blockSizeTokens?: number
}

function fleetOf(...workers: WorkerOptions[]): Fleet {
  return {
    version: 1,
    workers: workers.map(({ id, slots, state, trust, models, blockSizeTokens }, instanceId) => ({
      id,
      instanceId,
      origin: `http://${id}`,
      state: state ?? 'up',
      stateReason: 'as the test has it',
      engine: 'vllm',
      engineVersion: '',
      models: (models ?? ['m']).map(name => ({
        name,
        base: undefined,
        root: undefined,
        maxModelTokens: undefined,
      })),
      blockSizeTokens: { value: blockSizeTokens ?? BLOCK, source: 'given' },
      maxBatchedTokens: { value: 8192, source: 'default' },
      kvBlocks: undefined,
      ranks: { value: slots.length, source: 'given' },
      taints: [],
      canTokenize: false,
      keys: slots.map((workerSlot, dpRank) => ({
        key: `${id}/${dpRank}`,
        workerSlot,
        dpRank,
        eventsEndpoint: undefined,
        replayEndpoint: undefined,
        topic: '',
        shard: 0,
        trust: trust ?? 'exact',
        trustReason: '',
        trustSinceMs: 0,
        epoch: 1,
      })),
    })),
  }
}

async function start(fleet: Fleet, settings: Partial<RouterArgs> = {}, system = createTestSystem()) {
  const index = BlockIndex.create(layeredOptions(1 << 20, SLOTS))
  const trackerRef = system.spawn(tracker, {
    name: 'tracker',
    args: { workerSlotsMax: SLOTS, requestsMax: 100, idleMsMax: 60_000 },
  })
  const directory = system.probe<AuditMessage | ComputedMessage>('directory')
  const ref = system.spawn(router, {
    name: 'router',
    args: {
      tracker: trackerRef,
      directory: directory.ref,
      indexMemories: [index.memory],
      indexers: [],
      workerSlotsMax: SLOTS,
      layerWeights: { host: 0.75, disk: 0.25 },
      predictions: { ttlMs: 120_000, pendingTtlMs: undefined, blocksMax: 1 << 20 },
      mode: 'kv',
      overlapScoreWeight: 1,
      temperature: 0,
      decisionsKept: 3,
      receiptRowsMax: 1000,
      trackerMsMax: 1000,
      ...settings,
    },
  })
  trackerRef.tell({ type: 'fleet', fleet })
  ref.tell({ type: 'fleet', fleet })
  const hold = (workerSlot: number, letters: string): void => {
    const hashes = chainSequence(prompt(letters), letters.length)
    assert.equal(index.store(workerSlot, undefined, hashes, prompt(letters), letters.length), 'stored')
  }
  const decide = async (routing: RoutingRequest): Promise<Decision> => {
    const result = await ref.ask({ type: 'decide', request: routing }, ASK)
    if (result.kind === 'refused') throw new Error(`${result.error.code}: ${result.error.message}`)
    return result.decision
  }
  const refusal = async (routing: RoutingRequest): Promise<string> => {
    const result = await ref.ask({ type: 'decide', request: routing }, ASK)
    return result.kind === 'refused' ? result.error.code : 'decided'
  }
  const loads = async () => (await trackerRef.ask({ type: 'loads' }, ASK)).rows
  return { index, system, ref, trackerRef, directory, hold, decide, refusal, loads }
}

t.test('a request goes to the worker that holds most of its prefix', async t => {
  const { system, hold, decide } = await start(fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] }))
  t.teardown(() => system.shutdown())
  hold(0, 'AB')
  hold(1, 'ABCD')
  const decision = await decide(request('ABCDEF'))
  t.equal(decision.worker, 'b/0')
  t.equal(decision.overlapBlocks, 4)
  t.equal(decision.trust, 'exact')
  t.equal(decision.pinRank, false)
})

t.test('two decisions in a row never see the same load', async t => {
  const { system, decide, loads } = await start(fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] }))
  t.teardown(() => system.shutdown())
  const decisions = await Promise.all(
    ['ABCD', 'EFGH', 'IJKL', 'MNOP'].map(letters => decide(request(letters))),
  )
  t.strictSame(decisions.map(({ worker }) => worker).sort(), ['a/0', 'a/0', 'b/0', 'b/0'])
  t.strictSame(
    (await loads()).map(({ activeBlocks, activeRequests }) => [activeBlocks, activeRequests]),
    [
      [8, 2],
      [8, 2],
    ],
  )
})

t.test(
  'the last token is always computed: a whole prompt of full blocks overlaps one block less',
  async t => {
    const { system, hold, decide } = await start(fleetOf({ id: 'a', slots: [0] }))
    t.teardown(() => system.shutdown())
    hold(0, 'ABCD')
    t.equal((await decide(request('ABCD', { promptTokens: 4 * BLOCK }))).overlapBlocks, 3)
  },
)

t.test('what a worker without trust, or with another block size, holds counts for nothing', async t => {
  const { system, hold, decide } = await start(
    fleetOf({ id: 'a', slots: [0], trust: 'none' }, { id: 'b', slots: [1], blockSizeTokens: 32 }),
  )
  t.teardown(() => system.shutdown())
  hold(0, 'ABCD')
  hold(1, 'ABCD')
  t.equal((await decide(request('ABCD'))).overlapBlocks, 0)
  t.equal((await decide(request('ABCD', { requestId: 'again' }))).overlapBlocks, 0)
})

t.test(
  'workers that are down, have failed the request, or serve another model are no candidates',
  async t => {
    const { system, decide, refusal } = await start(
      fleetOf(
        { id: 'a', slots: [0], state: 'down' },
        { id: 'b', slots: [1] },
        { id: 'c', slots: [2] },
        { id: 'd', slots: [3], models: ['other'] },
      ),
    )
    t.teardown(() => system.shutdown())
    t.equal((await decide(request('A', { excludedWorkers: ['b'] }))).worker, 'c/0')
    t.equal(await refusal(request('A', { excludedWorkers: ['b', 'c'] })), 'HOMING_ROUTER_NO_WORKER')
    t.equal(await refusal(request('A', { model: 'nobody' })), 'HOMING_ROUTER_MODEL_NOT_FOUND')
    t.equal((await decide(request('A', { model: 'other' }))).worker, 'd/0')
  },
)

t.test('before any probe has answered there is no worker, rather than no model', async t => {
  const { system, refusal } = await start(fleetOf({ id: 'a', slots: [], state: 'probing', models: [] }))
  t.teardown(() => system.shutdown())
  t.equal(await refusal(request('A')), 'HOMING_ROUTER_NO_WORKER')
})

t.test('a request that names a worker or a rank goes there or is refused', async t => {
  const { system, decide, refusal } = await start(
    fleetOf({ id: 'a', slots: [0, 1] }, { id: 'b', slots: [2, 3] }),
  )
  t.teardown(() => system.shutdown())
  t.equal((await decide(request('A', { pinnedInstanceId: 1, pinnedRank: 1 }))).worker, 'b/1')
  const decision = await decide(request('B', { pinnedRank: 1, requestId: 'rank only' }))
  t.equal(decision.dpRank, 1)
  t.equal(decision.pinRank, true)
  t.equal(await refusal(request('A', { pinnedInstanceId: 7 })), 'HOMING_ROUTER_PINNED_WORKER')
  t.equal(await refusal(request('A', { pinnedRank: 2 })), 'HOMING_ROUTER_PINNED_WORKER')
})

/** One block per letter, in a layer of a key. */
const holdIn = (index: BlockIndex, workerSlot: number, layer: number, letters: string, from = 0): void => {
  const count = letters.length - from
  const [hashes, words] = [chainSequence(prompt(letters), letters.length), prompt(letters)]
  const parent = from === 0 ? undefined : hashes.subarray(2 * from - 2, 2 * from)
  const slot = layerSlot(workerSlot, layer, SLOTS)
  const others = KEY_LAYERS.map((_, other) => layerSlot(workerSlot, other, SLOTS))
  const rest = [hashes.subarray(2 * from), words.subarray(2 * from)] as const
  assert.equal(index.store(slot, parent, ...rest, count, 'set', others), 'stored')
}

t.test('without events, what was sent to a worker counts, and is told to its indexer', async t => {
  const system = createTestSystem()
  const indexer = system.probe<IndexerMessage | RoutedMessage>('indexer')
  t.teardown(() => system.shutdown())
  const fleet = fleetOf({ id: 'a', slots: [0], trust: 'approximate' }, { id: 'b', slots: [1] })
  const { index, ref, decide } = await start(fleet, { indexers: [indexer.ref] }, system)
  const first = await decide(request('ABCD', { pinnedInstanceId: 0 }))
  t.match(first, { worker: 'a/0', trust: 'approximate', overlapBlocks: 0, guessedTokens: 0 })
  const routed = () => indexer.waiting.filter(message => message.type === 'routed')
  t.match(routed(), [{ workerSlot: 0, epoch: 1, ttlMs: 120_000, blocksMax: 1 << 20 }])
  t.strictSame(routed()[0]!.localHashes, prompt('ABCD'))
  holdIn(index, 0, PREDICTED_LAYER, 'ABCD')
  holdIn(index, 1, PREDICTED_LAYER, 'ABCD')
  const again = await decide(request('ABCDE', { pinnedInstanceId: 0 }))
  t.match(again, { trust: 'approximate', overlapBlocks: 4, guessedTokens: 4 * BLOCK })
  const receipt = await ref.ask({ type: 'receipt', id: again.id }, ASK)
  t.match(receipt?.candidates, [
    { creditFactor: 0.8, layers: [{ layer: 'predicted', blocks: 4, factor: 0.8 }] },
  ])
  const exact = await decide(request('ABCDE', { pinnedInstanceId: 1 }))
  t.match(
    exact,
    { trust: 'exact', overlapBlocks: 0, guessedTokens: 0 },
    'where events tell, they alone count',
  )
  t.equal(routed().length, 2)
})

t.test(
  'a prompt that is known as text only is matched by what was sent before, whatever events say',
  async t => {
    const system = createTestSystem()
    const indexer = system.probe<IndexerMessage | RoutedMessage>('indexer')
    t.teardown(() => system.shutdown())
    const { index, ref, decide } = await start(
      fleetOf({ id: 'a', slots: [0] }),
      { indexers: [indexer.ref] },
      system,
    )
    holdIn(index, 0, 0, 'ABC')
    holdIn(index, 0, PREDICTED_LAYER, 'AB')
    const decision = await decide(request('ABCD', { textBlocks: 'no tokenizer' }))
    t.match(decision, { trust: 'approximate', overlapBlocks: 2, guessedTokens: 2 * BLOCK })
    t.match(
      indexer.waiting.filter(message => message.type === 'routed'),
      [{ workerSlot: 0, ttlMs: 120_000 }],
    )
    t.match(await ref.ask({ type: 'receipt', id: decision.id }, ASK), {
      mode: 'kv',
      textBlocks: 'no tokenizer',
    })
  },
)

t.test('until events come, what was sent counts after what they say, where that is wanted', async t => {
  const system = createTestSystem()
  const indexer = system.probe<IndexerMessage | RoutedMessage>('indexer')
  t.teardown(() => system.shutdown())
  const predictions = { ttlMs: 120_000, pendingTtlMs: 5000, blocksMax: 100 }
  const fleet = fleetOf({ id: 'a', slots: [0] })
  const { index, ref, decide } = await start(fleet, { indexers: [indexer.ref], predictions }, system)
  holdIn(index, 0, 0, 'AB')
  const known = await decide(request('ABC'))
  t.match(known, { trust: 'exact', overlapBlocks: 2, guessedTokens: 0 })
  t.match(
    indexer.waiting.filter(message => message.type === 'routed'),
    [{ ttlMs: 5000, blocksMax: 100 }],
  )
  holdIn(index, 0, PREDICTED_LAYER, 'ABCD')
  const guessed = await decide(request('ABCDE'))
  t.match(guessed, { trust: 'approximate', overlapBlocks: 4, guessedTokens: 2 * BLOCK })
  const receipt = await ref.ask({ type: 'receipt', id: guessed.id }, ASK)
  t.match(receipt?.candidates, [
    {
      creditFactor: 0.9,
      layers: [
        { layer: 'device', blocks: 2, factor: 1 },
        { layer: 'predicted', blocks: 2, factor: 0.8 },
      ],
    },
  ])
})

t.test('lower tiers count less, and only after what is on the device', async t => {
  const system = createTestSystem()
  t.teardown(() => system.shutdown())
  const fleet = fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] })
  const { index, ref, decide } = await start(fleet, {}, system)
  holdIn(index, 0, 0, 'AB')
  holdIn(index, 0, KEY_LAYERS.indexOf('host'), 'ABCD')
  holdIn(index, 0, KEY_LAYERS.indexOf('disk'), 'ABCDEF', 4)
  holdIn(index, 1, 0, 'ABC')
  t.equal((await decide(request('ABCDEFG'))).worker, 'b/0', 'before the indexer has spoken of lower tiers')
  const [host, disk] = [1 << KEY_LAYERS.indexOf('host'), 1 << KEY_LAYERS.indexOf('disk')]
  const lowerLayers = { 0: host | disk }
  ref.tell({ type: 'shardMemory', shard: 0, memoryNumber: 1, memory: index.memory, lowerLayers })
  const decision = await decide(request('ABCDEFG', { requestId: 'again', pinnedInstanceId: 0 }))
  t.match(decision, { overlapBlocks: 6, guessedTokens: 0, trust: 'exact' })
  const receipt = await ref.ask({ type: 'receipt', id: decision.id }, ASK)
  t.match(receipt?.candidates, [
    {
      creditFactor: (2 + 2 * 0.75 + 2 * 0.25) / 6,
      layers: [
        { layer: 'device', blocks: 2, factor: 1 },
        { layer: 'host', blocks: 2, factor: 0.75 },
        { layer: 'disk', blocks: 2, factor: 0.25 },
      ],
    },
  ])
})

t.test('an explanation books nothing and is what the decision will be', async t => {
  const { system, ref, hold, decide, loads } = await start(
    fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] }),
  )
  t.teardown(() => system.shutdown())
  hold(1, 'AB')
  const explained = await ref.ask({ type: 'explain', request: request('ABC') }, ASK)
  if ('code' in explained) throw new Error(explained.message)
  t.equal(
    (await loads()).reduce((sum, row) => sum + row.activeRequests, 0),
    0,
  )
  t.equal(explained.worker, (await decide(request('ABC'))).worker)
  t.strictSame(
    explained.candidates.map(({ worker, overlapBlocks, prefillTokens, decodeBlocks, costBlocks }) => {
      return { worker, overlapBlocks, prefillTokens, decodeBlocks, costBlocks }
    }),
    [
      { worker: 'a/0', overlapBlocks: 0, prefillTokens: 49, decodeBlocks: 3, costBlocks: 49 / 16 + 3 },
      { worker: 'b/0', overlapBlocks: 2, prefillTokens: 17, decodeBlocks: 3, costBlocks: 17 / 16 + 3 },
    ],
  )
  t.equal(explained.runnerUp, 'a/0')
})

t.test('receipts are kept up to the bound, and completed with what was delivered', async t => {
  const { system, ref, decide } = await start(fleetOf({ id: 'a', slots: [0] }))
  t.teardown(() => system.shutdown())
  const decision = await decide(request('A'))
  const ids = [decision.id]
  for (const letters of ['B', 'C', 'D']) ids.push((await decide(request(letters))).id)
  t.equal(new Set(ids).size, 4)
  t.equal(await ref.ask({ type: 'receipt', id: ids[0]! }, ASK), undefined)
  const latest = await ref.ask({ type: 'receipts', limit: 2 }, ASK)
  t.strictSame(
    latest.map(({ id }) => id),
    [ids[3], ids[2]],
  )
  const delivery = {
    outcome: 'ok',
    status: 200,
    promptTokens: 17,
    completionTokens: 4,
    cachedTokens: 0,
    timeToFirstByteMs: 12,
    durationMs: 40,
    error: undefined,
  } as const
  ref.tell({ type: 'delivered', decision: { ...decision, id: ids[3]! }, delivery })
  ref.tell({ type: 'delivered', decision: { ...decision, id: ids[0]! }, delivery })
  t.strictSame((await ref.ask({ type: 'receipt', id: ids[3]! }, ASK))?.delivery, delivery)
  t.equal(await ref.ask({ type: 'receipt', id: ids[0]! }, ASK), undefined)
})

t.test('round-robin takes turns, and a weight of 0 ignores the cache', async t => {
  const fleet = fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] })
  const roundRobin = await start(fleet, { mode: 'round-robin' })
  t.teardown(() => roundRobin.system.shutdown())
  roundRobin.hold(0, 'AB')
  const turns: string[] = []
  for (let i = 0; i < 4; i++)
    turns.push((await roundRobin.decide(request('AB', { requestId: `${i}` }))).worker)
  t.strictSame(turns.slice(2), turns.slice(0, 2))
  t.not(turns[0], turns[1])

  const blind = await start(fleet)
  t.teardown(() => blind.system.shutdown())
  blind.hold(0, 'ABCD')
  await blind.decide(request('ABCD'))
  const override = { overlapScoreWeight: 0 }
  const decision = await blind.decide(request('WXYZ', { override }))
  t.equal(decision.worker, 'b/0', 'only load counts')
})

t.test('an unknown prompt is placed by load, and its receipt says why', async t => {
  const { system, ref, decide } = await start(fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] }))
  t.teardown(() => system.shutdown())
  const unknown = {
    promptTokens: 0,
    localHashes: new Int32Array(0),
    sequenceHashes: new Int32Array(0),
    unknownPrompt: 'it holds a picture',
  }
  await decide(request('ABCD', { pinnedInstanceId: 0 }))
  const decision = await decide(request('', unknown))
  t.equal(decision.worker, 'b/0')
  t.equal(decision.trust, 'none')
  t.equal((await ref.ask({ type: 'receipt', id: decision.id }, ASK))?.unknownPrompt, 'it holds a picture')
})

t.test('requests with unknown prompts spread by number of requests, and say so', async t => {
  const { system, ref, decide } = await start(
    fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] }, { id: 'c', slots: [2] }),
  )
  t.teardown(() => system.shutdown())
  const unknown = {
    promptTokens: 0,
    localHashes: new Int32Array(0),
    sequenceHashes: new Int32Array(0),
    unknownPrompt: 'no tokenizer',
  }
  const counts = new Map<string, number>()
  let last = ''
  for (let i = 0; i < 30; i++) {
    const { worker, id } = await decide(request('', { ...unknown, requestId: `${i}` }))
    counts.set(worker, (counts.get(worker) ?? 0) + 1)
    last = id
  }
  t.strictSame([...counts.values()], [10, 10, 10])
  t.equal((await ref.ask({ type: 'receipt', id: last }, ASK))?.mode, 'least-loaded')
})

t.test('a tracker that is gone refuses requests and leaves the router and its receipts alone', async t => {
  const { system, ref, trackerRef, decide, refusal } = await start(fleetOf({ id: 'a', slots: [0] }))
  t.teardown(() => system.shutdown())
  const { id } = await decide(request('A'))
  await system.stop(trackerRef)
  t.equal(await refusal(request('B')), 'HOMING_ACTOR_TERMINATED')
  const explained = await ref.ask({ type: 'explain', request: request('B') }, ASK)
  t.match(explained, { code: 'HOMING_ACTOR_TERMINATED' })
  t.equal((await ref.ask({ type: 'receipt', id }, ASK))?.id, id)
})

t.test('answers are compared with predictions, and what follows is told to the directory', async t => {
  const { system, ref, directory, hold, decide } = await start(fleetOf({ id: 'a', slots: [0] }))
  t.teardown(() => system.shutdown())
  hold(0, 'ABCD')
  const deliver = async (cachedTokens: number | undefined, outcome: 'ok' | 'aborted' = 'ok') => {
    const decision = await decide(request('ABCDE'))
    t.equal(decision.predictedTokens, 4 * BLOCK)
    const times = { timeToFirstByteMs: 1, durationMs: 2 }
    const delivery = { ...times, outcome, status: 200, promptTokens: 81, completionTokens: 1, cachedTokens }
    ref.tell({ type: 'delivered', decision, delivery: { ...delivery, error: undefined } })
  }
  const audits = () => ref.ask({ type: 'audits' }, ASK)
  await deliver(0, 'aborted')
  t.strictSame(await audits(), [])
  await deliver(undefined)
  t.match(await audits(), [{ worker: 'a/0', state: 'unaudited' }])
  for (let i = 0; i < 4; i++) await deliver(0)
  t.match(await audits(), [{ state: 'audited', requests: 4, overPredictions: 4, precision: 0 }])
  await system.settle()
  t.match(directory.waiting, [{ type: 'audit', workerSlot: 0, epoch: 1, verdict: 'contradicted' }])

  const [receipt] = await ref.ask({ type: 'receipts', limit: 1 }, ASK)
  t.equal(receipt?.candidates[0]?.creditFactor, 16 / 19, 'as measured by three answers before')
  ref.tell({ type: 'fleet', fleet: fleetOf({ id: 'b', slots: [0] }) })
  t.strictSame(await audits(), [], 'the slot serves another worker')
})

t.test('the directory is told of blocks that were computed, now and then', async t => {
  const { system, ref, directory, hold, decide } = await start(fleetOf({ id: 'a', slots: [0] }))
  t.teardown(() => system.shutdown())
  hold(0, 'ABC')
  const deliver = async (letters: string, outcome: 'ok' | 'aborted' = 'ok') => {
    const decision = await decide(request(letters))
    const promptTokens = letters.length * BLOCK
    const tokens = { promptTokens, completionTokens: 1, cachedTokens: undefined }
    const delivery = {
      outcome,
      status: 200,
      ...tokens,
      timeToFirstByteMs: 1,
      durationMs: 70,
      error: undefined,
    }
    ref.tell({ type: 'delivered', decision, delivery })
    await system.settle()
  }
  await deliver('ABCD')
  await deliver('ABCDE', 'aborted')
  t.strictSame(directory.waiting, [], 'the last block may be cached; an answer that was cut says nothing')
  await deliver('ABCDE')
  await deliver('ABCDEF')
  const told = { type: 'computed', workerSlot: 0, epoch: 1, durationMs: 70 }
  t.strictSame(directory.waiting, [told])
  await system.advance(1000)
  await deliver('ABCDEF')
  t.strictSame(directory.waiting, [told, told])
})
