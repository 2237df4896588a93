/** What labels of blocks do to overlaps and choices; without them everything is as before. */

import assert from 'node:assert/strict'
import { seededRandom } from '@homing/base'
import { hashBlocks, namespaceSeed } from '@homing/blocks'
import type { WorkerKeyRecord, WorkerRecord } from '@homing/fleet'
import {
  BlockIndex,
  createLabelMemory,
  GUESSED_LAYER,
  LabelTable,
  layeredOptions,
  layerSlot,
  type MoeLabel,
  POOL_STATE,
} from '@homing/index'
import { type EngineFigures, type EngineProjection, FIGURE_OFFSET, FIGURES_PER_SLOT } from '@homing/load'
import { Audits, POLICY_TERMS_MAX, Selector, selectionSettings } from '@homing/selection'
import fc from 'fast-check'
import t from 'tap'
import type { Candidate } from '../src/candidate.ts'
import {
  decisionOf,
  type MoeQuery,
  matchesExpert,
  OverlapLookup,
  type Placed,
  place,
  placementSettings,
  type RoutingRequest,
  receiptView,
  writeReceipt,
} from '../src/index.ts'

const BLOCK = 4
const SLOTS = 8
const WEIGHTS = { moe: 1, pooled: 1, migration: 2 }

function candidate(slot: number, instanceId = slot): Candidate {
  const key = {
    key: `w${slot}/0`,
    workerSlot: slot,
    shard: 0,
    dpRank: 0,
    trust: 'exact',
    epoch: 1,
  } as unknown as WorkerKeyRecord
  const worker = {
    id: `w${slot}`,
    instanceId,
    keys: [key],
    taints: [],
    models: [],
    blockSizeTokens: { value: BLOCK, source: 'given' },
    maxBatchedTokens: { value: 2048, source: 'given' },
  } as unknown as WorkerRecord
  return { worker, key }
}

function requestOf(tokens: readonly number[], more: Partial<RoutingRequest> = {}): RoutingRequest {
  const { local, sequence } = hashBlocks(Int32Array.from(tokens), BLOCK, namespaceSeed({}))
  return {
    requestId: 'r',
    model: 'm',
    promptTokens: tokens.length,
    blockSizeTokens: BLOCK,
    localHashes: local,
    sequenceHashes: sequence,
    unknownPromptReason: undefined,
    textBlocksReason: undefined,
    override: {},
    pinnedInstanceId: undefined,
    pinnedRank: undefined,
    excludedWorkers: [],
    ...more,
  }
}

const tokens = (blocks: number, rest = 1) => Array.from({ length: blocks * BLOCK + rest }, (_, i) => i)

interface ChooseOptions {
  readonly policy?: 'auto' | 'linear'
  readonly engines?: EngineProjection
  /** By candidate; default: none. */
  readonly activeBlocks?: readonly number[]
  /** Of each candidate; default: none. */
  readonly newBlocks?: number
}

function world(weights: typeof WEIGHTS | undefined = WEIGHTS, guessesPending = false) {
  const index = BlockIndex.create(layeredOptions(1 << 20, SLOTS))
  const table = new LabelTable(createLabelMemory(1 << 16), () => true)
  const lookup = new OverlapLookup({
    indexMemories: [index.memory],
    workerSlotsMax: SLOTS,
    weights: { host: 0.75, disk: 0.25 },
    guessesPending,
    labelWeights: weights,
  })
  lookup.takeShard({ shard: 0, memory: index.memory, lowerLayers: {}, labels: table.memory })
  const all = requestOf(tokens(16))
  const audits = new Audits()
  return {
    lookup,
    audits,
    /** Number of leading blocks that the slot holds of the prompt. */
    hold(slot: number, blocks: number) {
      for (let i = 0; i < blocks; i++) {
        const parent = i === 0 ? undefined : Int32Array.of(i, 9)
        index.store(slot, parent, Int32Array.of(i + 1, 9), all.localHashes.slice(2 * i, 2 * i + 2), 1)
      }
    },
    /** Number of leading blocks that were sent there, as far as its events show. */
    guess(slot: number, blocks: number) {
      const guessed = layerSlot(slot, GUESSED_LAYER, SLOTS)
      for (let i = 0; i < blocks; i++) {
        const parent = i === 0 ? undefined : Int32Array.of(i, 9)
        index.store(guessed, parent, Int32Array.of(i + 1, 9), all.localHashes.slice(2 * i, 2 * i + 2), 1)
      }
    },
    label(
      slot: number,
      block: number,
      moe: MoeLabel | undefined,
      pooledFor?: readonly number[],
      state: 1 | 2 | 3 | 4 = POOL_STATE.cxlPooled,
    ) {
      table.stored({
        workerSlot: slot,
        engineHash: [block + 1, 9],
        sequenceHash: [all.sequenceHashes[2 * block]!, all.sequenceHashes[2 * block + 1]!],
        moe,
        place: pooledFor && {
          state,
          poolId: 1,
          workerIds: Int32Array.from(pooledFor.flatMap(id => [id, 0])),
        },
        isHeld: true,
      })
    },
    release: (slot: number) => table.release(slot),
    choose(
      request: RoutingRequest,
      candidates: readonly Candidate[],
      isChosen = false,
      { policy, engines, activeBlocks = [], newBlocks = 0 }: ChooseOptions = {},
    ): { placed: Placed; view: Record<string, unknown> } {
      const overlaps = lookup.lookUp(request, candidates, audits)
      const zeros = () => new Float64Array(candidates.length)
      const placed = place(
        {
          fleet: { version: 1, workers: candidates.map(({ worker }) => worker) },
          request,
          found: { candidates, excluded: [], preferences: undefined, boundWorker: undefined },
          workerSlots: Int32Array.from(candidates, ({ key }) => key.workerSlot),
          overlaps,
          load: {
            activeBlocks: Float64Array.from(candidates, (_, i) => activeBlocks[i] ?? 0),
            newBlocks: zeros().fill(newBlocks),
            activePrefillTokens: zeros(),
            activeRequests: zeros(),
            engines,
          },
          heldBlocks: undefined,
          isWaiting: false,
          isReal: true,
          isChosen,
        } as unknown as Parameters<typeof place>[0],
        placementSettings(selectionSettings(policy === undefined ? {} : { policy })),
        { selector: new Selector(), guard: undefined, random: seededRandom(1), turn: 0 },
      ) as Placed
      const receipt = writeReceipt(placed, 'id', 0, () => 0)
      return { placed, view: receiptView(receipt) as Record<string, unknown> }
    },
  }
}

/** Two candidates with these figures; `first`: what is different at the first one. */
function twoEngines(both: Partial<EngineFigures>, first: Partial<EngineFigures> = {}): EngineProjection {
  const figures = new Float64Array(2 * FIGURES_PER_SLOT)
  for (const [i, each] of [{ ...both, ...first }, both].entries())
    for (const [name, value] of Object.entries(each))
      figures[i * FIGURES_PER_SLOT + FIGURE_OFFSET[name as keyof EngineFigures]] = value
  return {
    count: 2,
    figures,
    kneeTokens: 0,
    busyShare: 0,
    speedSpread: 0,
    outputTokensExpected: 100,
    waitingShare: 0,
    prefillMeanMs: 0,
    sentPerMs: 0,
    transferMs: 50,
    transferTokenMs: 1,
  }
}

const E = (layerId: number, expertId: number, expertGroup?: number): MoeLabel => ({
  layerId,
  expertId,
  expertGroup,
})
const query = (more: Partial<MoeQuery> = {}): MoeQuery => ({
  layerId: 3,
  expertIds: [],
  expertGroup: undefined,
  fallbackToUnlabeled: true,
  ...more,
})

t.test('S21: a block matches by layer, by experts if any are named, and by group if one is', async t => {
  const table: readonly (readonly [MoeLabel, Partial<MoeQuery>, boolean])[] = [
    [E(3, 7), {}, true],
    [E(2, 7), {}, false],
    [E(3, 7), { expertIds: [6, 7] }, true],
    [E(3, 8), { expertIds: [6, 7] }, false],
    [E(3, 7, 1), { expertGroup: 1 }, true],
    [E(3, 7, 2), { expertGroup: 1 }, false],
    [E(3, 7), { expertGroup: 1 }, false],
    [E(3, 7, 1), { expertIds: [8], expertGroup: 1 }, false],
  ]
  for (const [label, asked, expected] of table) t.equal(matchesExpert(label, query(asked)), expected)
})

t.test(
  'S21: matching blocks are a bonus, without fallback a condition, and where none match nothing',
  async t => {
    const w = world()
    const all = [candidate(0), candidate(1), candidate(2)]
    w.hold(0, 6)
    w.hold(1, 4)
    for (let block = 0; block < 4; block++) w.label(1, block, undefined)
    w.label(1, 2, E(3, 7))
    w.label(1, 3, E(3, 8))
    const ask = (moeQuery: MoeQuery | undefined) => w.choose(requestOf(tokens(8), { moeQuery }), all)
    t.equal(ask(undefined).placed.winner.key.key, 'w0/0')
    t.match(ask(undefined).view, { scores: { 'w0/0': 6, 'w1/0': 4 }, moe_scores: {} })
    // The labels are of blocks that both hold: they are of the block, not of the worker.
    t.strictSame(ask(query()).view['moe_scores'], { 'w0/0': 2, 'w1/0': 2 })
    t.strictSame(ask(query({ expertIds: [7] })).view['moe_scores'], { 'w0/0': 1, 'w1/0': 1 })
    t.strictSame(ask(query({ layerId: 1 })).view['moe_scores'], {})
    const strict = ask(query({ fallbackToUnlabeled: false }))
    t.strictSame(Object.keys(strict.view['scores'] as object).sort(), ['w0/0', 'w1/0'])
    t.match(strict.view['excluded'], [
      { worker: 'w2/0', reason: 'has no block of the experts that the request asks for (moe_query)' },
    ])
    const none = ask(query({ layerId: 1, fallbackToUnlabeled: false }))
    t.strictSame(none.view['excluded'], [])
    t.equal(none.placed.winner.key.key, 'w0/0')
  },
)

t.test('labelled blocks deeper in the prompt make their holder win', async t => {
  const w = world({ ...WEIGHTS, moe: 5 })
  w.hold(0, 5)
  w.hold(1, 4)
  w.hold(2, 3)
  w.label(0, 4, E(3, 7))
  t.match(w.choose(requestOf(tokens(12), { moeQuery: query() }), [candidate(0), candidate(1)]).view, {
    worker: 'w0/0',
    moe_scores: { 'w0/0': 1 },
    scores: { 'w0/0': 10, 'w1/0': 4 },
  })
})

t.test('a pooled block counts once for each worker that reaches it, behind what it holds', async t => {
  const w = world()
  const all = [candidate(0, 10), candidate(1, 11), candidate(2, 12)]
  w.hold(0, 6)
  w.hold(1, 2)
  for (let block = 0; block < 6; block++) w.label(0, block, undefined, [11])
  const { view, placed } = w.choose(requestOf(tokens(8)), all)
  t.match(view, {
    scores: { 'w0/0': 6, 'w1/0': 6 },
    cxl_accessible_scores: { 'w1/0': 4 },
    moe_scores: {},
  })
  const [, second] = view['candidates'] as { layers: unknown }[]
  t.strictSame(second?.layers, [
    { layer: 'device', blocks: 2, factor: 1 },
    { layer: 'pooled', blocks: 4, factor: 1 },
  ])
  t.ok(placed)
})

t.test(
  'a block that is guessed and pooled counts once, as guessed, and pooled ones are told apart',
  async t => {
    for (const [held, guessed, pooled, expected] of [
      [2, 4, 6, 2],
      [2, 6, 6, 0],
      [2, 6, 4, 0],
      [2, 2, 6, 4],
      [0, 3, 5, 2],
    ] as const) {
      const w = world(WEIGHTS, true)
      w.hold(1, held)
      w.guess(1, guessed)
      for (let block = 0; block < pooled; block++) w.label(0, block, undefined, [1])
      const { placed } = w.choose(requestOf(tokens(8)), [candidate(1)])
      const { guessedBlocks, pooledBlocks, overlapBlocks } = placed
      const own = Math.max(held, guessed)
      t.strictSame(
        [guessedBlocks, pooledBlocks, overlapBlocks],
        [own - held, expected, Math.max(own, pooled)],
        `${held} held, ${guessed} guessed, ${pooled} pooled`,
      )
      const decision = decisionOf(
        writeReceipt(placed, 'id', 0, () => 0),
        placed,
        0,
      )
      t.match(decision, { guessedTokens: (own - held) * BLOCK, pooledTokens: expected * BLOCK })
    }
  },
)

t.test('a decode leg pays for no read of pooled blocks, and prefers who reaches them', async t => {
  const w = world()
  for (const block of [0, 1, 2, 3]) w.label(0, block, undefined, [1])
  const all = [candidate(1), candidate(2)]
  const engines = twoEngines({ prefillStepMs: 10, decodeStepMs: 10 })
  const leg = { kind: 'decode', handover: 'kv_transfer', prefillId: 'p', topology: [] } as const
  const waitMs = ({ placed }: ReturnType<typeof w.choose>) =>
    all.map((_, i) => placed.choice.terms.ofPolicy[i * POLICY_TERMS_MAX]!)
  const whole = w.choose(requestOf(tokens(8)), all, false, { policy: 'auto', engines })
  t.strictSame(waitMs(whole), [50 + 4 * BLOCK, 0], 'a whole request waits for what it reads')
  for (const policy of ['auto', 'linear'] as const) {
    const request = requestOf(tokens(8), { leg, override: { overlapWeight: 0 } })
    const decode = w.choose(request, all, false, { policy, engines, newBlocks: 8 })
    if (policy === 'auto') t.strictSame(waitMs(decode), [0, 0], 'its blocks are handed over')
    t.match(decode.view, { worker: 'w1/0', cxl_accessible_scores: { 'w1/0': 4 } })
    const preferences = (decode.view['candidates'] as { preference: number }[]).map(one => one.preference)
    t.strictSame(preferences, [0.95, 1], `${policy}: half of the prompt`)
    const busy = w.choose(request, all, false, {
      policy,
      engines: twoEngines({ prefillStepMs: 10, decodeStepMs: 10 }, { backlogMs: 100 }),
      activeBlocks: [4, 0],
      newBlocks: 8,
    })
    t.equal(busy.placed.winner.key.key, 'w2/0', `${policy}: load decides`)
  }
  const none = w.choose(requestOf(tokens(8), { leg }), [candidate(2)], false, { policy: 'auto', engines })
  t.match(none.view['candidates'], [{ preference: 1 }])
})

t.test('only pooled blocks without a gap count; those in transit or evicted do not', async t => {
  for (const [state, expected] of [
    [POOL_STATE.localGpu, {}],
    [POOL_STATE.inTransit, {}],
    [POOL_STATE.cxlPooled, { 'w1/0': 3 }],
    [POOL_STATE.evicted, {}],
  ] as const) {
    const w = world()
    for (const block of [0, 1, 2, 4]) w.label(0, block, undefined, [1], state)
    t.strictSame(w.choose(requestOf(tokens(8)), [candidate(1)]).view['cxl_accessible_scores'], expected)
  }
})

t.test('what a worker that has left has pooled is reached by the workers with access', async t => {
  const w = world()
  for (const block of [0, 1]) w.label(0, block, undefined, [1])
  w.release(0)
  const { view } = w.choose(requestOf(tokens(8)), [candidate(1), candidate(2)])
  t.strictSame(view['cxl_accessible_scores'], { 'w1/0': 2 })
})

t.test(
  'weights: what exceeds 1 changes the cost and not the tokens booked; the sum is cut at the prompt',
  async t => {
    const w = world()
    for (const block of [0, 1, 2, 3]) w.label(0, block, undefined, [1])
    const continues = { decisionId: 'd', deliveredTokens: 1 }
    const once = w.choose(requestOf(tokens(10)), [candidate(1), candidate(2)])
    const moved = w.choose(requestOf(tokens(10), { continues }), [candidate(1), candidate(2)])
    t.equal(once.placed.prefillTokens, 41 - 16)
    t.equal(moved.placed.prefillTokens, 41 - 16, 'four blocks are there, whatever they weigh')
    const costOf = ({ view }: typeof once) => (view['candidates'] as { cost: number }[])[0]!.cost
    t.equal(costOf(once), (41 - 16) / BLOCK)
    t.equal(costOf(moved), (41 - 32) / BLOCK)
    const short = w.choose(requestOf(tokens(5), { continues }), [candidate(1)])
    t.strictSame(short.view['scores'], { 'w1/0': 5 })
    t.equal(costOf(short), 1 / BLOCK, 'one token is computed, and never less than none')
    const half = world({ ...WEIGHTS, pooled: 0.5 })
    for (const block of [0, 1, 2, 3]) half.label(0, block, undefined, [1])
    t.equal(costOf(half.choose(requestOf(tokens(10)), [candidate(1)])), (41 - 8) / BLOCK)
  },
)

t.test(
  'without labels, and without a query, every figure is bit for bit what it is without a table',
  async t => {
    const holds = fc.array(fc.nat(16), { minLength: 1, maxLength: SLOTS })
    const same = fc.property(
      holds,
      fc.integer({ min: 1, max: 16 }),
      fc.nat(BLOCK - 1),
      fc.boolean(),
      fc.boolean(),
      (held, blocks, rest, hasQuery, hasExperts) => {
        const plain = world(undefined)
        const labelled = world({ moe: 3, pooled: 3, migration: 3 })
        for (const w of [plain, labelled]) for (const [slot, count] of held.entries()) w.hold(slot, count)
        // Experts that are not asked for say nothing, and neither does a query where there are none.
        if (hasExperts) for (let block = 0; block < 16; block++) labelled.label(0, block, E(3, block))
        const moeQuery = hasQuery && !hasExperts ? query({ fallbackToUnlabeled: false }) : undefined
        const candidates = held.map((_, slot) => candidate(slot))
        const request = requestOf(tokens(blocks, rest), { moeQuery })
        const before = plain.choose(requestOf(tokens(blocks, rest)), candidates)
        const after = labelled.choose(request, candidates)
        assert.deepEqual(after.view, before.view)
        assert.deepEqual(
          { ...after.placed, request: 0, choice: after.placed.choice.terms, known: 0, input: 0 },
          { ...before.placed, request: 0, choice: before.placed.choice.terms, known: 0, input: 0 },
        )
      },
    )
    t.doesNotThrow(() => fc.assert(same, { numRuns: 500 }))
  },
)

t.test('no candidate is credited with more than the prompt, or with blocks that it cannot reach', async t => {
  const spots = fc.array(fc.record({ block: fc.nat(15), slot: fc.nat(3), ids: fc.subarray([0, 1, 2, 3]) }), {
    maxLength: 20,
  })
  const sound = fc.property(
    fc.array(fc.nat(16), { minLength: 4, maxLength: 4 }),
    spots,
    fc.integer({ min: 1, max: 16 }),
    (held, spots, blocks) => {
      const w = world({ moe: 2, pooled: 1, migration: 2 })
      for (const [slot, count] of held.entries()) w.hold(slot, count)
      for (const { block, slot, ids } of spots) w.label(slot, block, undefined, ids)
      const candidates = held.map((_, slot) => candidate(slot))
      const request = requestOf(tokens(blocks))
      const found = w.lookup.lookUp(request, candidates, w.audits)
      // A later word of a slot on a block replaces the earlier one.
      const last = new Map(spots.map(({ block, slot, ids }) => [`${slot} ${block}`, { block, slot, ids }]))
      for (const [i, count] of held.entries()) {
        let reached = Math.min(count, blocks)
        const start = reached
        const reaches = ({ block, slot, ids }: { block: number; slot: number; ids: number[] }) =>
          block === reached && (slot === i || ids.includes(i))
        while (reached < blocks && [...last.values()].some(reaches)) reached++
        assert.equal(found.labels?.pooled[i] ?? 0, reached - start)
        assert.equal(found.blocks[i], reached)
      }
    },
  )
  t.doesNotThrow(() => fc.assert(sound, { numRuns: 1000 }))
})
