/** Labels in the service: what queries say of experts and pools, and dumps that another index reads. */

import assert from 'node:assert/strict'
import { dumpEvents, pooledEvents } from '@homing/fleet'
import {
  type KvEvent,
  type KvLabels,
  type KvTransition,
  kvRemoved,
  labelMembers,
  type PoolState,
} from '@homing/protocol'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { readDump } from '../src/peer-dump.ts'
import {
  BLOCK,
  type FakeEngine,
  hashes,
  registration,
  type ServiceWorld,
  serviceWorld,
  stored,
  tokensUpTo,
} from './service-world.ts'

const PROMPT = tokensUpTo(16)
const SOME_WORKERS = Int32Array.of(8, 0)
const wide = (...ids: readonly number[]) => Int32Array.from(ids.flatMap(id => [id, 0]))

function labelled(event: KvEvent, labels: Partial<KvLabels>): KvEvent {
  return { ...event, labels: { experts: [], places: [], ...labels } } as KvEvent
}

function moved(numbers: readonly number[], state: PoolState, workers: readonly number[] = []): KvTransition {
  const place = { state, poolId: 5, accessibleWorkers: wide(...workers) }
  return { kind: 'transition', hashes: hashes(...numbers), ...place }
}

const expert = (layerId: number, expertId: number, expertGroup?: number) => ({
  layerId,
  expertId,
  expertGroup,
})

/** Four blocks of experts 0, 1, 2 and of none; the last two go to the pool, which instance 8 reaches. */
const TOLD: readonly KvEvent[] = [
  labelled(stored([101, 102, 103, 104], PROMPT), {
    experts: [expert(3, 0), expert(3, 1, 9), expert(3, 2)],
    places: [{ state: 'local_gpu', poolId: undefined, accessibleWorkers: wide() }],
  }),
  moved([103, 104], 'in_transit', [8]),
  moved([103, 104], 'cxl_pooled'),
]

const QUERIES: readonly object[] = [
  {},
  { moe_query: { layer_id: 3 } },
  { moe_query: { layer_id: 3, expert_ids: [1, 2] } },
  { moe_query: { layer_id: 3, expert_group: 9 } },
  { moe_query: { layer_id: 4 } },
  { moe_query: { layer_id: 3, expert_ids: [0], fallback_to_unlabeled: false } },
  { moe_query: { layer_id: 4, fallback_to_unlabeled: false } },
]

class Asked {
  readonly w: ServiceWorld
  readonly url: string

  constructor(w: ServiceWorld, url: string) {
    this.w = w
    this.url = url
  }

  async one(more: object = {}) {
    return (await this.w.ask(this.url, 'POST', '/query', { token_ids: PROMPT, model_name: 'm', ...more }))
      .json
  }

  /** The answers to all queries. */
  async all(): Promise<readonly unknown[]> {
    const answers: unknown[] = []
    for (const more of QUERIES) answers.push(await this.one(more))
    return answers
  }
}

/** Engines that repeat nothing are instances 7 and 8 of a service that sees all of it. */
async function told(t: Test) {
  const w = serviceWorld(t)
  const engines = [
    await w.engine('10.0.0.1', { hasReplay: false }),
    await w.engine('10.0.0.2', { hasReplay: false }),
  ] as const
  const { url } = await w.start('10.0.0.8', { threads: 1 })
  for (const [i, engine] of engines.entries())
    await w.ask(url, 'POST', '/register', registration(engine, { instance_id: 7 + i }))
  await w.settle()
  return { w, engines, first: new Asked(w, url) }
}

const given = (engines: readonly FakeEngine[]) =>
  engines.map((engine, i) => ({
    instanceId: BigInt(7 + i),
    dpRank: 0,
    model: 'm',
    group: 'default',
    blockSizeTokens: BLOCK,
    endpoint: engine.endpoint,
    replayEndpoint: engine.replayEndpoint,
  }))

/** A service that starts now, with the peer alone to ask. */
async function heir(
  w: ServiceWorld,
  engines: readonly FakeEngine[],
  peer: string,
  host: string,
): Promise<Asked> {
  const second = w.spawn(host, { registrations: given(engines), peers: [peer], threads: 1 })
  await w.settle()
  await w.advance('2s')
  await second.whenReady
  return new Asked(w, second.url)
}

t.test('queries say what experts and pools have of a prompt, and only where there is something', async t => {
  const { w, engines, first } = await told(t)
  engines[0].publish(stored([101, 102, 103, 104], PROMPT))
  await w.settle()
  const plain = await first.one()
  t.strictSame(Object.keys(plain), ['scores', 'frequencies', 'instances'], 'without labels all is as it was')
  t.strictSame((await first.one({ moe_query: { layer_id: 3 } })).moe_scores, {})

  engines[0].publish(...TOLD)
  engines[1].publish(stored([201, 202], tokensUpTo(8)))
  await w.settle()
  const answer = await first.one({ moe_query: { layer_id: 3 } })
  t.strictSame(answer.scores, { 7: { 0: 16 }, 8: { 0: 8 } })
  t.strictSame(answer.moe_scores, { 7: { 0: 3 }, 8: { 0: 2 } }, 'an expert is of the block')
  t.strictSame(answer.cxl_accessible_scores, { 8: { 0: 2 } })
  const moe_query = { layer_id: 3, expert_ids: [1, 2] }
  t.strictSame((await first.one({ moe_query })).moe_scores, { 7: { 0: 2 }, 8: { 0: 1 } })
  const strict = await first.one({
    moe_query: { ...moe_query, expert_ids: [2], fallback_to_unlabeled: false },
  })
  t.strictSame([Object.keys(strict.scores), Object.keys(strict.instances)], [['7'], ['7']])
  const none = await first.one({ moe_query: { layer_id: 4, fallback_to_unlabeled: false } })
  t.strictSame(Object.keys(none.scores), ['7', '8'], 'where no rank matches, all are listed')

  // The first frees its own copies: it reaches the last two in the pool, as the second does.
  engines[0].publish(kvRemoved({ hashes: hashes(103, 104) }))
  await w.settle()
  const freed = await first.one()
  t.strictSame(freed.scores, { 7: { 0: 8 }, 8: { 0: 8 } })
  t.strictSame(freed.cxl_accessible_scores, { 7: { 0: 2 }, 8: { 0: 2 } })
})

t.test('a moe_query that is none is refused, and named', async t => {
  const { w, first } = await told(t)
  for (const [moe_query, why] of [
    ['nonsense', 'moe_query is "nonsense"; it must be an object'],
    [{}, 'moe_query.layer_id is null; it must be a whole number from 0 to 4294967295'],
    [{ layer_id: 1, expert_ids: [-1] }, 'moe_query.expert_ids[0] is -1; it must be a whole number'],
    [{ layer_id: 1, fallback_to_unlabeled: 1 }, 'moe_query.fallback_to_unlabeled is 1; it must be true or'],
    [{ layer_id: 1, experts: [] }, 'moe_query has no member experts; known: layer_id'],
  ] as const) {
    for (const [path, prompt] of [
      ['/query', { token_ids: PROMPT }],
      ['/query_by_hash', { block_hashes: [1] }],
    ] as const) {
      const { status, json } = await w.ask(first.url, 'POST', path, { model_name: 'm', ...prompt, moe_query })
      t.equal(status, 400)
      t.match(json.error, `cannot query: ${why}`)
    }
  }
})

t.test('a dump that another index reads gives the same answers, also after later events', async t => {
  const { w, engines, first } = await told(t)
  engines[0].publish(...TOLD)
  engines[1].publish(stored([201, 202], tokensUpTo(8)))
  // Of the third block only the pool has a copy; the fourth is held, behind a hole.
  engines[0].publish(kvRemoved({ hashes: hashes(103) }))
  await w.settle()
  const before = await first.all()
  t.match(before[0], { cxl_accessible_scores: { 7: { 0: 2 }, 8: { 0: 2 } } })
  const second = await heir(w, engines, first.url, '10.0.0.9')
  t.strictSame(await second.all(), before)
  const third = await heir(w, engines, second.url, '10.0.0.10')
  t.strictSame(await third.all(), before, 'and a dump of what was inherited')

  const everywhere = async (name: string) => {
    await w.settle()
    const answers = await first.all()
    t.strictSame(await second.all(), answers, name)
    t.strictSame(await third.all(), answers, name)
    return answers
  }
  engines[0].publish(moved([104], 'evicted'))
  const evicted = await everywhere('an eviction ends what was inherited')
  t.match(evicted[0], { cxl_accessible_scores: { 8: { 0: 1 } } })
  engines[0].publish(moved([103], 'local_gpu'))
  const gone = (await everywhere('and so does a way back'))[0] as object
  t.notOk('cxl_accessible_scores' in gone)
})

t.test('what an engine says itself takes the place of what a dump said', async t => {
  const { w, engines, first } = await told(t)
  engines[0].publish(...TOLD)
  await w.settle()
  const second = await heir(w, engines, first.url, '10.0.0.9')
  t.strictSame((await second.one({ moe_query: { layer_id: 3 } })).moe_scores, { 7: { 0: 3 } })
  engines[0].publish(labelled(stored([101, 102, 103, 104], PROMPT), { experts: [expert(4, 1)] }))
  await w.settle()
  for (const asked of [first, second])
    t.strictSame((await asked.one({ moe_query: { layer_id: 4 } })).moe_scores, { 7: { 0: 1 } })
  engines[0].publish({ kind: 'cleared' } as KvEvent)
  await w.settle()
  for (const asked of [first, second])
    t.strictSame(await asked.one(), { scores: {}, frequencies: [], instances: {} })
})

t.test(
  'a dump has labels where they are told, in the members of stored blocks and as transitions',
  async t => {
    const { w, engines, first } = await told(t)
    engines[0].publish(stored([101, 102, 103, 104], PROMPT))
    await w.settle()
    const dump = () => w.ask(first.url, 'GET', '/dump')
    const plain = (await dump()).text
    t.notMatch(plain, /metadata|transition/)
    engines[0].publish(...TOLD, kvRemoved({ hashes: hashes(103, 104) }), kvRemoved({ hashes: hashes(104) }))
    await w.settle()
    const { events } = (await dump()).json['m:default']
    t.strictSame(
      events.map(({ event }: { event: { event_id: number } }) => event.event_id),
      events.map((_: unknown, i: number) => i),
    )
    t.match(events[0].event.data.stored.blocks, [
      {
        block_hash: 101,
        moe_metadata: { layer_id: 3, expert_id: 0 },
        cxl_metadata: { state: 'local_gpu', accessible_workers: [] },
      },
      { block_hash: 102, moe_metadata: { layer_id: 3, expert_id: 1, expert_group: 9 } },
    ])
    const { cxl_state_transition: transition } = events.at(-1).event.data
    t.match(transition, { new_state: 'cxl_pooled', pool_id: 5, accessible_workers: [8] })
    t.equal(transition.sequence_hashes.length, transition.block_hashes.length)
  },
)

const value = fc.letrec(tie => ({
  value: fc.oneof(
    { maxDepth: 4 },
    fc.constantFrom(null, true, '', 'ä', '123456789012345', '01234567890123456', 0.5, 1e20, 2 ** 63, 1e300),
    fc.string({ unit: 'grapheme', maxLength: 8 }),
    fc.double({ noNaN: true, noDefaultInfinity: true }),
    fc.bigInt({ min: -(2n ** 63n), max: 2n ** 64n - 1n }),
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(fc.string({ maxLength: 4 }), tie('value'), { maxKeys: 4 }),
  ),
})).value
const members = fc
  .dictionary(fc.constantFrom('__proto__', 'constructor', '7', 'heat', 'ä'), value, { maxKeys: 3 })
  .map(named => {
    const text = labelMembers(Object.entries(named))
    return text === undefined ? {} : { members: text }
  })

t.test('what comes out of a dump has the members that went in, whatever they are', async t => {
  const same = fc.property(fc.array(fc.tuple(members, members), { minLength: 1, maxLength: 5 }), all => {
    const labels = all.map(([ofExpert, ofPlace], i) => ({
      engineHash: [i + 1, 0] as const,
      sequenceHash: [i + 1, 9] as const,
      moe: { ...expert(1, i), ...ofExpert },
      place: {
        state: 'cxl_pooled' as const,
        poolId: 5,
        accessibleWorkers: SOME_WORKERS,
        ...ofPlace,
      },
    }))
    const blocks = labels.map((label, i) => ({
      engineHash: (i + 1).toString(16),
      localHash: 'a',
      parentEngineHash: i === 0 ? undefined : i.toString(16),
      isReachable: true,
      label,
    }))
    let id = 0
    const events = [dumpEvents(7n, 0, blocks, () => id++), pooledEvents(7n, 0, labels, () => id++)]
    const text = `{"m:default":{"block_size":4,"events":[${events.join()}]}}`
    const leftOut = { labels: 0, members: 0, transitions: 0 }
    const [rank] = readDump('http://peer', new TextEncoder().encode(text), leftOut)
    assert.deepEqual(leftOut, { labels: 0, members: 0, transitions: 0 })
    const { runs, pooled } = rank!
    assert.deepEqual(
      runs.map(run => run.labels),
      [{ experts: labels.map(({ moe }) => moe), places: labels.map(({ place }) => place) }],
    )
    for (const { engineHashes, experts, place } of pooled) {
      for (const [i, one] of experts.entries()) {
        const label = labels[engineHashes[2 * i]! - 1]!
        assert.deepEqual([one, place], [label.moe, label.place])
      }
    }
    assert.equal(pooled.flatMap(({ experts }) => experts).length, labels.length)
  })
  t.doesNotThrow(() => fc.assert(same, { numRuns: 1000 }))
})

t.test('members go from dump to dump; those of a dump that cannot be kept are counted', async t => {
  const { w, engines, first } = await told(t)
  const others = { members: '{"heat":{"of":[1,18446744073709551615]}}' }
  engines[0].publish(
    labelled(stored([101, 102, 103, 104], PROMPT), {
      experts: [{ ...expert(3, 0), ...others }],
      places: Array.from({ length: 4 }, () => ({
        state: 'local_gpu' as const,
        poolId: undefined,
        accessibleWorkers: wide(),
        ...others,
      })),
    }),
    ...TOLD.slice(1),
    kvRemoved({ hashes: hashes(104) }),
  )
  await w.settle()
  const second = await heir(w, engines, first.url, '10.0.0.9')
  const third = await heir(w, engines, second.url, '10.0.0.10')
  for (const { url } of [first, second, third]) {
    const { text } = await w.ask(url, 'GET', '/dump')
    const found = text.match(/"heat":\{"of":\[1,18446744073709551615\]\}/g) ?? []
    t.equal(found.length, 5, 'one expert, three places of blocks, one in a transition')
  }
  const long = { layer_id: 1, expert_id: 2, heat: 'x'.repeat(2000) }
  const blocks = [{ block_hash: 1, tokens_hash: 2, moe_metadata: long }]
  const event = { worker_id: 7, event: { event_id: 0, data: { stored: { blocks } } } }
  const text = JSON.stringify({ 'm:default': { block_size: 4, events: [event] } })
  const leftOut = { labels: 0, members: 0, transitions: 0 }
  const [rank] = readDump('http://peer', new TextEncoder().encode(text), leftOut)
  t.strictSame(rank!.runs[0]!.labels!.experts, [expert(1, 2)])
  t.strictSame(leftOut, { labels: 0, members: 1, transitions: 0 })
})

t.test('labels of a dump that cannot be used are left out and counted, and its blocks count', async t => {
  const block = { block_hash: 1, tokens_hash: 2 }
  let leftOut = { labels: 0, members: 0, transitions: 0 }
  const read = (data: object) => {
    leftOut = { labels: 0, members: 0, transitions: 0 }
    const event = { worker_id: 7, event: { event_id: 0, data } }
    const text = JSON.stringify({ 'm:default': { block_size: 4, events: [event] } })
    return readDump('http://peer', new TextEncoder().encode(text), leftOut)
  }
  const storedWith = (labels: object) => read({ stored: { blocks: [{ ...block, ...labels }] } })
  const transition = {
    block_hashes: [1],
    sequence_hashes: [2],
    new_state: 'cxl_pooled',
    pool_id: 1,
    other: 1,
  }
  t.match(storedWith({ cxl_metadata: { state: 'evicted', other: 1 }, moe_metadata: null }), [
    { runs: [{ labels: { experts: [undefined], places: [{ state: 'evicted', poolId: undefined }] } }] },
  ])
  t.notOk(storedWith({ moe_metadata: null })[0]!.runs[0]!.labels)
  t.match(read({ cxl_state_transition: transition }), [{ runs: [], pooled: [{ place: { poolId: 1 } }] }])
  t.strictSame(read({ cxl_state_transition: { ...transition, sequence_hashes: null } }), [])
  const many = Array.from({ length: 1025 }, (_, i) => i)
  for (const labels of [
    { moe_metadata: { layer_id: 1 } },
    { moe_metadata: { layer_id: 1, expert_id: 2 ** 32 } },
    { moe_metadata: [] },
    { cxl_metadata: { state: 'remote_cxl' } },
    { cxl_metadata: { state: 'cxl_pooled', pool_id: -1 } },
    { cxl_metadata: { state: 'cxl_pooled', accessible_workers: many } },
    { cxl_metadata: 'local_gpu' },
  ]) {
    const [rank] = storedWith(labels)
    t.strictSame(rank!.runs[0]!.engineHashes, Int32Array.of(1, 0), JSON.stringify(labels).slice(0, 80))
    t.notOk(rank!.runs[0]!.labels)
    t.strictSame(leftOut, { labels: 1, members: 0, transitions: 0 })
  }
  t.match(storedWith({ moe_metadata: { layer_id: 1 }, cxl_metadata: { state: 'local_gpu' } }), [
    { runs: [{ labels: { experts: [undefined], places: [{ state: 'local_gpu' }] } }] },
  ])
  const eight = { cxl_metadata: { state: 'cxl_pooled', accessible_workers: [8] } }
  const refers = (first: unknown) => ({
    cxl_metadata: { state: 'cxl_pooled', accessible_workers: [], workers_of: first },
  })
  const placesOf = (...labels: readonly object[]) =>
    read({ stored: { blocks: labels.map(label => ({ ...block, ...label })) } })[0]!.runs[0]!.labels!.places
  t.strictSame(
    placesOf({}, eight, refers(1), refers(2)).map(place => place?.accessibleWorkers),
    [undefined, ...Array.from({ length: 3 }, () => Int32Array.of(8, 0))],
  )
  for (const first of [0, 2, 7, -1, 'a', [1]])
    t.equal(placesOf({}, eight, refers(first))[2], undefined, `workers of ${first}`)
  for (const wrong of [
    { sequence_hashes: [1, 2] },
    { sequence_hashes: 'all' },
    { new_state: 'remote_cxl' },
    { block_hashes: 'all' },
    { accessible_workers: many },
  ]) {
    t.strictSame(read({ cxl_state_transition: { ...transition, ...wrong } }), [])
    t.strictSame(leftOut, { labels: 0, members: 0, transitions: 1 })
  }
  for (const experts of [[null, null], [{ layer_id: 1 }], 'all']) {
    const [rank] = read({ cxl_state_transition: { ...transition, moe_metadata: experts } })
    t.strictSame([rank!.pooled.length, rank!.pooled[0]!.experts[0]], [1, undefined])
    t.strictSame(leftOut, { labels: 1, members: 0, transitions: 0 })
  }
  // The place is what the transition says itself.
  const said = { state: 'in_transit', pool_id: 7, accessible_workers: [9], workers_of: 0 }
  const [rank] = read({ cxl_state_transition: { ...transition, cxl_metadata: { ...said, other: 1 } } })
  t.match(rank!.pooled[0]!.place, { state: 'cxl_pooled', members: '{"other":1}' })
  const [listed] = read({ cxl_state_transition: { ...transition, cxl_metadata: [null] } })
  t.equal(listed!.pooled[0]!.place.members, undefined)
  t.strictSame(leftOut, { labels: 0, members: 1, transitions: 0 })
  t.strictSame(read({ cxl_state_transition: 'all' }), [])
  t.throws(() => storedWith({ block_hash: 'one' }), /event 0 of "m:default" cannot be read/)
})
