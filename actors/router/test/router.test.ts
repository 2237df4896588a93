/** Where requests are placed, and which are refused. */

import type { RoutingRequest } from '@homing/placement'
import { selectionSettings } from '@homing/selection'
import t from 'tap'
import { ASK, BLOCK, DELIVERED, fleetOf, GATEWAY, LEFT, prompt, request, start } from './router-world.ts'

t.test('a request goes to the worker that holds most of its prefix', async t => {
  const { hold, decide } = await start(t, fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] }))
  hold(0, 'AB')
  hold(1, 'ABCD')
  const decision = await decide(request('ABCDEF'))
  t.equal(decision.worker, 'b/0')
  t.equal(decision.overlapBlocks, 4)
  t.equal(decision.trust, 'exact')
  t.equal(decision.pinRank, false)
})

t.test('two decisions in a row never see the same load', async t => {
  const { decide, loads } = await start(t, fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] }))
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
    const { hold, decide } = await start(t, fleetOf({ id: 'a', slots: [0] }))
    hold(0, 'ABCD')
    t.equal((await decide(request('ABCD', { promptTokens: 4 * BLOCK }))).overlapBlocks, 3)
  },
)

t.test('what a worker without trust, or with another block size, holds counts for nothing', async t => {
  const { hold, decide } = await start(
    t,
    fleetOf({ id: 'a', slots: [0], trust: 'none' }, { id: 'b', slots: [1], blockSizeTokens: 32 }),
  )
  hold(0, 'ABCD')
  hold(1, 'ABCD')
  t.equal((await decide(request('ABCD'))).overlapBlocks, 0)
  t.equal((await decide(request('ABCD', { requestId: 'again' }))).overlapBlocks, 0)
})

t.test(
  'workers that are down, have failed the request, or serve another model are no candidates',
  async t => {
    const { decide, refusal } = await start(
      t,
      fleetOf(
        { id: 'a', slots: [0], state: 'down' },
        { id: 'b', slots: [1] },
        { id: 'c', slots: [2] },
        { id: 'd', slots: [3], models: ['other'] },
      ),
    )
    t.equal((await decide(request('A', { excludedWorkers: ['b'] }))).worker, 'c/0')
    t.equal(await refusal(request('A', { excludedWorkers: ['b', 'c'] })), 'HOMING_ROUTER_NO_WORKER')
    t.equal(await refusal(request('A', { model: 'nobody' })), 'HOMING_ROUTER_MODEL_NOT_FOUND')
    t.equal((await decide(request('A', { model: 'other' }))).worker, 'd/0')
  },
)

t.test('before any probe has answered there is no worker, rather than no model', async t => {
  const { refusal } = await start(t, fleetOf({ id: 'a', slots: [], state: 'probing', models: [] }))
  t.equal(await refusal(request('A')), 'HOMING_ROUTER_NO_WORKER')
})

t.test('before that, one that may wait is to wait; afterwards it is placed or refused', async t => {
  const { ref, directory } = await start(t, { version: 0, workers: [] })
  t.match(await directory.next(), { type: 'subscribe' }, 'it asks for the fleet')
  let number = 0
  const ask = (more: Partial<RoutingRequest> = {}) => {
    const roomRules = [{ uncachedTokensMin: 0, byStep: false, busyFraction: 1 }]
    const id = `waits-${++number}`
    return ref.ask({ type: 'decide', id, gateway: GATEWAY, request: request('A', more), roomRules }, ASK)
  }
  const pinned = { pinnedInstanceId: 0 }
  const busy = { kind: 'busy', cachedTokens: 0, boundWorker: undefined, falls: undefined }
  t.strictSame(await ask(), busy)
  t.strictSame(await ask(pinned), busy)
  t.strictSame(await ref.ask({ type: 'measure', request: request('A') }, ASK), {
    cachedTokens: 0,
    boundWorker: undefined,
  })
  ref.tell({ type: 'fleet', fleet: fleetOf({ id: 'a', slots: [], state: 'probing', models: [] }) })
  t.strictSame(await ask(), busy)
  ref.tell({ type: 'fleet', fleet: fleetOf({ id: 'a', slots: [0], state: 'down' }) })
  t.match(await ask(), { kind: 'refused', error: { code: 'HOMING_ROUTER_NO_WORKER' } })
  ref.tell({ type: 'fleet', fleet: fleetOf({ id: 'a', slots: [0] }) })
  t.match(await ask(pinned), { kind: 'decided' })
})

t.test('of a hundred decisions five look at a worker on trial, the others say why not', async t => {
  const fleet = fleetOf(
    { id: 'a', slots: [0] },
    { id: 'b', slots: [1] },
    { id: 'new', slots: [2, 3], isOnTrial: true },
  )
  const { ref, trackerRef, decide, loads } = await start(t, fleet, { decisionsKept: 300 })
  const ids: string[] = []
  for (let i = 0; i < 100; i++) ids.push((await decide(request('ABCD', { requestId: `${i}` }))).id)
  const reason = 'joined a moment ago: what it holds is not known yet'
  const leftOut = ['new/0', 'new/1'].map(worker => ({ worker, reason }))
  let looks = 0
  for (const id of ids) {
    const receipt = await ref.ask({ type: 'receipt', id }, ASK)
    const names = receipt!.candidates.map(({ worker }) => worker).sort()
    const looked = names.length > 2
    if (looked) looks++
    t.strictSame(names, looked ? ['a/0', 'b/0', 'new/0', 'new/1'] : ['a/0', 'b/0'])
    t.strictSame(receipt!.excluded, looked ? [] : leftOut)
  }
  t.equal(looks, 5)
  const before = (await loads()).map(({ activeRequests }) => activeRequests)
  t.equal(before[2]! + before[3]!, 5, 'it is empty, so each that looks takes it')
  for (const id of ids) ref.tell({ type: 'settled', id, delivery: DELIVERED, wasTaken: true })

  for (let i = 0; i < 20; i++)
    t.equal((await decide(request('EF', { pinnedInstanceId: 2, requestId: `pin ${i}` }))).workerId, 'new')
  const others = { excludedWorkers: ['a', 'b'] }
  for (let i = 0; i < 20; i++)
    t.equal((await decide(request('GH', { ...others, requestId: `alone ${i}` }))).workerId, 'new')
  const known = { ...fleet, workers: fleet.workers.map(({ isOnTrial: _, ...worker }) => worker) }
  for (const to of [ref, trackerRef]) to.tell({ type: 'fleet', fleet: known })
  const { id } = await decide(request('IJ'))
  t.equal((await ref.ask({ type: 'receipt', id }, ASK))!.candidates.length, 4, 'its trial is over')
})

t.test('a request that names a worker or a rank goes there or is refused', async t => {
  const { decide, refusal } = await start(t, fleetOf({ id: 'a', slots: [0, 1] }, { id: 'b', slots: [2, 3] }))
  t.equal((await decide(request('A', { pinnedInstanceId: 1, pinnedRank: 1 }))).worker, 'b/1')
  const decision = await decide(request('B', { pinnedRank: 1, requestId: 'rank only' }))
  t.equal(decision.dpRank, 1)
  t.equal(decision.pinRank, true)
  t.equal(await refusal(request('A', { pinnedInstanceId: 7 })), 'HOMING_ROUTER_PINNED_WORKER')
  t.equal(await refusal(request('A', { pinnedRank: 2 })), 'HOMING_ROUTER_PINNED_WORKER')
})

t.test('round-robin takes turns, and a weight of 0 ignores the cache', async t => {
  const fleet = fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] })
  const roundRobin = await start(t, fleet, { selection: selectionSettings({ mode: 'round-robin' }) })
  roundRobin.hold(0, 'AB')
  const turns: string[] = []
  for (let i = 0; i < 4; i++)
    turns.push((await roundRobin.decide(request('AB', { requestId: `${i}` }))).worker)
  t.strictSame(turns.slice(2), turns.slice(0, 2))
  t.not(turns[0], turns[1])

  const blind = await start(t, fleet)
  blind.hold(0, 'ABCD')
  await blind.decide(request('ABCD'))
  const override = { overlapWeight: 0 }
  const decision = await blind.decide(request('WXYZ', { override }))
  t.equal(decision.worker, 'b/0', 'only load counts')
})

t.test('an unknown prompt is placed by load, and its receipt says why', async t => {
  const { ref, decide } = await start(t, fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] }))
  const unknown = {
    promptTokens: 0,
    localHashes: new Int32Array(0),
    sequenceHashes: new Int32Array(0),
    unknownPromptReason: 'it holds a picture',
  }
  await decide(request('ABCD', { pinnedInstanceId: 0 }))
  const decision = await decide(request('', unknown))
  t.equal(decision.worker, 'b/0')
  t.equal(decision.trust, 'none')
  t.equal(
    (await ref.ask({ type: 'receipt', id: decision.id }, ASK))?.unknownPromptReason,
    'it holds a picture',
  )
})

t.test('requests with unknown prompts spread by number of requests, and say so', async t => {
  const { ref, decide } = await start(
    t,
    fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] }, { id: 'c', slots: [2] }),
  )
  const unknown = {
    promptTokens: 0,
    localHashes: new Int32Array(0),
    sequenceHashes: new Int32Array(0),
    unknownPromptReason: 'no tokenizer',
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

t.test(
  'a request with pictures is load on its worker, and its receipt says that it is estimated',
  async t => {
    const { ref, decide } = await start(t, fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] }))
    const pictures = await decide(
      request('', {
        promptTokens: 4096,
        estimate: { tokensMax: 100_000 },
        unknownPromptReason: 'it holds pictures',
        pinnedInstanceId: 0,
      }),
    )
    const estimated = await ref.ask({ type: 'receipt', id: pictures.id }, ASK)
    t.match(estimated, { promptTokens: 4096, isEstimated: true, unknownPromptReason: 'it holds pictures' })
    for (const letters of ['ABCD', 'EFGH']) await decide(request(letters, { pinnedInstanceId: 1 }))
    const { id, worker } = await decide(request('WXYZ'))
    t.equal(worker, 'b/0')
    const receipt = await ref.ask({ type: 'receipt', id }, ASK)
    const [a] = receipt!.candidates.filter(({ worker: name }) => name === 'a/0')
    t.equal(a!.activePrefillTokens, 4096)
    t.equal(receipt!.isEstimated, false)
  },
)

const PREFILL_TOKENS = 4 * BLOCK + 1
const thresholds = (change: object) => ({
  busyThresholds: {
    others: { decodeBlocksFraction: undefined, prefillTokens: undefined, prefillFraction: undefined },
    byModel: new Map([
      [
        'm',
        { decodeBlocksFraction: undefined, prefillTokens: undefined, prefillFraction: undefined, ...change },
      ],
    ]),
  },
})

t.test('a worker past a busy threshold takes no more; when all are, requests are refused', async t => {
  const fleet = {
    ...fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] }),
    ...thresholds({ prefillTokens: 0 }),
  }
  const { ref, hold, decide, refusal, trackerRef } = await start(t, fleet)
  hold(0, 'ABCD')
  const first = await decide(request('ABCD'))
  t.equal(first.worker, 'a/0')
  t.equal((await decide(request('ABCD'))).worker, 'b/0', 'the best has a prompt under way')
  t.equal(await refusal(request('ABCD')), 'HOMING_ROUTER_ALL_BUSY')
  t.equal(await refusal(request('ABCD', { pinnedInstanceId: 0 })), 'HOMING_ROUTER_ALL_BUSY')
  t.strictSame(await ref.ask({ type: 'busyRefused' }, ASK), [['m', 2]])
  trackerRef.tell({ type: 'prefillComplete', decisionId: first.id })
  const explained = await ref.ask({ type: 'explain', request: request('EFGH') }, ASK)
  t.match(explained, {
    worker: 'a/0',
    excluded: [{ worker: 'b/0', reason: /prefill tokens are under way, of 0 that may be/ }],
  })
  t.equal((await decide(request('EFGH'))).worker, 'a/0')
  t.equal(await refusal(request('IJKL')), 'HOMING_ROUTER_ALL_BUSY')
  const continues = { decisionId: first.id, deliveredTokens: 1 }
  t.match(await decide(request('IJKL', { continues })), { worker: /0$/ }, 'a stream was admitted before')
  t.match(await decide(request('IJKL', { isAdmitted: true })), { worker: /0$/ }, 'so was what a worker has')
})

t.test('a worker is busy only if all its ranks are, also for a request that names one', async t => {
  const fleet = {
    ...fleetOf({ id: 'a', slots: [0, 1] }),
    ...thresholds({ prefillTokens: PREFILL_TOKENS - 1 }),
  }
  const { decide, refusal } = await start(t, fleet)
  await decide(request('ABCD', { pinnedRank: 0 }))
  t.equal((await decide(request('EFGH', { pinnedRank: 0 }))).worker, 'a/0', 'its other rank is idle')
  await decide(request('IJKL', { pinnedRank: 1 }))
  t.equal(await refusal(request('MNOP', { pinnedRank: 0 })), 'HOMING_ROUTER_ALL_BUSY')
})

t.test('thresholds of another model, or none, hold nothing back', async t => {
  const { busyThresholds } = thresholds({ prefillTokens: 0 })
  const { decide } = await start(t, {
    ...fleetOf({ id: 'a', slots: [0] }),
    busyThresholds: { ...busyThresholds, byModel: new Map([['other', busyThresholds.byModel.get('m')!]]) },
  })
  for (const letters of ['ABCD', 'EFGH', 'IJKL']) t.equal((await decide(request(letters))).worker, 'a/0')
})

t.test('what was chosen before is placed there as any other, whatever the choice would be now', async t => {
  const fleet = fleetOf(
    { id: 'a', slots: [0], trust: 'approximate', state: 'draining' },
    { id: 'b', slots: [1] },
  )
  const { ref, told, loads, system } = await start(t, fleet)
  const separated = { firstTokens: BLOCK, hashes: Int32Array.of(1, 2), unnamed: [1] }
  const message = { type: 'decide', id: 'one', gateway: GATEWAY } as const
  const chosen = { worker: 'a/0', workerSlot: 0, prefillTokens: 9 }
  const placed = await ref.ask({ ...message, request: request('ABCD', { separated }), chosen }, ASK)
  t.match(placed, { kind: 'decided', decision: { worker: 'a/0', workerSlot: 0 } })
  t.match((await loads())[0], { worker: 'a/0', activeBlocks: 4, activePrefillTokens: 9, activeRequests: 1 })
  t.match(told('separated'), [{ workerSlot: 0, prompt: separated }])
  t.match(told('routed'), [{ workerSlot: 0, localHashes: prompt('ABCD') }])
  ref.tell({ type: 'settled', id: 'one', delivery: LEFT, wasTaken: false })
  await system.settle()
  t.match(await loads(), [{ activeRequests: 0 }, { activeRequests: 0 }])
  t.match(told('unrouted'), [{ id: 'one', workerSlot: 0 }])

  const elsewhere = { ...chosen, workerSlot: 1 }
  for (const gone of [elsewhere, { ...chosen, worker: 'c/0' }])
    t.match(await ref.ask({ ...message, id: 'two', request: request('A'), chosen: gone }, ASK), {
      kind: 'refused',
      error: { code: 'HOMING_ROUTER_WORKER_GONE' },
    })
  t.match(await loads(), [{ activeRequests: 0 }, { activeRequests: 0 }])
})

t.test('a worker that the tracker knows to have left is not chosen', async t => {
  const fleet = fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] })
  const { ref, trackerRef, hold, decide, refusal } = await start(t, fleet)
  hold(0, 'ABCD')
  trackerRef.tell({ type: 'fleet', fleet: fleetOf({ id: 'b', slots: [1] }) })
  t.match(await decide(request('ABCD')), { worker: 'b/0' })
  t.equal(await refusal(request('ABCD', { pinnedInstanceId: 0 })), 'HOMING_ROUTER_NO_WORKER')
  const chosen = { worker: 'a/0', workerSlot: 0, prefillTokens: 1 }
  const asked = { type: 'decide', id: 'one', gateway: GATEWAY, request: request('ABCD'), chosen } as const
  t.match(await ref.ask(asked, ASK), { kind: 'refused', error: { code: 'HOMING_ROUTER_WORKER_GONE' } })
})
