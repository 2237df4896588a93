/** The queue: what waits, who goes next, and that each request ends exactly once. */

import { seededRandom } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import { parsePolicyClasses } from '@homing/queue'
import type { WaitingRow } from '@homing/replication'
import t from 'tap'
import { FLEET, fleetOf, fleetWithStep, start } from './queue-world.ts'

t.test('with room a request goes at once, after one question', async t => {
  const { system, script, ends, place, status, watches } = await start(t)
  script.room = 1
  void place('a')
  await system.settle()
  t.strictSame([...ends], [['a', 'placed']])
  t.strictSame(script.log, ['decide a'])
  t.equal(watches(), 0)
  const { models, requests } = await status()
  t.equal(requests, 0)
  t.match(models[0]!.snapshot.classes, [{ served: { requests: 1, uncachedTokens: 100 } }])
})

t.test(
  'without room it waits; when load falls, what waits is asked about in order until there is no room',
  async t => {
    const { system, script, ends, place, status, watches, fell } = await start(t)
    for (const id of ['a', 'b', 'c']) void place(id)
    void place('urgent', { strictPriority: 1 })
    await system.settle()
    t.strictSame([...ends], [])
    t.equal(watches(), 1, 'the tracker is asked once')
    t.equal((await status()).models[0]!.snapshot.waiting.requests, 4)
    script.log.length = 0
    script.room = 2
    fell()
    await system.settle()
    t.strictSame([...ends.keys()], ['urgent', 'a'])
    t.strictSame(script.log, ['decide urgent', 'decide a', 'decide b'])
    t.equal(watches(), 2, 'and again, because something waits still')
    script.room = 2
    fell()
    await system.settle()
    t.strictSame([...ends.keys()], ['urgent', 'a', 'b', 'c'])
    await system.advance('10s')
    t.equal(watches(), 2, 'while nothing waits, nobody is asked')
  },
)

t.test('a request that comes while others wait is measured, and waits its turn', async t => {
  const { system, script, ends, place, fell, status } = await start(t)
  void place('a')
  await system.settle()
  script.cachedTokens = 60
  void place('b')
  await system.settle()
  t.ok(script.log.includes('measure'))
  t.equal((await status()).models[0]!.snapshot.waiting.uncachedTokens, 140)
  script.room = 2
  fell()
  await system.settle()
  t.strictSame([...ends.keys()], ['a', 'b'])
})

t.test('a pinned request that has no room holds up nobody', async t => {
  const { system, script, ends, place } = await start(t)
  void place('pinned', {}, { request: { pinnedInstanceId: 7 } })
  await system.settle()
  script.room = 1
  void place('free')
  await system.settle()
  t.strictSame([...ends], [['free', 'placed']])
})

t.test('a request whose session is bound waits for that worker, and holds up nobody', async t => {
  const { system, script, ends, place, fell } = await start(t)
  void place('first')
  void place('second')
  void place('other')
  await system.settle()
  // The session of the first two is bound while they wait.
  const sessions = new Set(['first', 'second'])
  script.boundWorker = ({ requestId }) => (sessions.has(requestId) ? 'w/1' : undefined)
  script.isBusy = request => script.boundWorker(request) !== undefined
  script.room = 1
  fell()
  await system.settle()
  t.strictSame([...ends], [['other', 'placed']])
  script.log.length = 0
  script.room = 1
  void place('third')
  await system.settle()
  t.equal(ends.get('third'), 'placed')
  script.isBusy = () => false
  script.room = 2
  fell()
  await system.settle()
  t.strictSame([...ends.keys()], ['other', 'third', 'first', 'second'])
})

t.test('what may not wait is refused, with its reason', async t => {
  const { system, script, ends, place } = await start(t, { requestsMax: 1 })
  void place('first')
  await system.settle()
  void place('full')
  void place('never', { doNotQueue: true })
  void place('late', { deadlineMs: 0 })
  await system.settle()
  t.strictSame(Object.fromEntries(ends), {
    full: 'HOMING_QUEUE_FULL',
    never: 'HOMING_QUEUE_DO_NOT_QUEUE',
    late: 'HOMING_QUEUE_DEADLINE',
  })
  t.notOk(script.booked.size)
})

t.test('a deadline ends a wait, and so does the longest wait', async t => {
  const { system, ends, place } = await start(t, { waitMsMax: 30_000 })
  void place('short', { deadlineMs: 500 })
  void place('long', { deadlineMs: 90_000 })
  await system.advance('700ms')
  t.strictSame([...ends], [['short', 'HOMING_QUEUE_DEADLINE']])
  await system.advance('30s')
  t.equal(ends.get('long'), 'HOMING_QUEUE_DEADLINE')
})

t.test('no word of the tracker: the queue looks again by itself', async t => {
  const { system, script, ends, place } = await start(t)
  void place('a')
  await system.settle()
  script.room = 1
  await system.advance('200ms')
  t.strictSame([...ends], [['a', 'placed']])
})

t.test('it is taken back in every state, and the router hears of it behind every question', async t => {
  const { system, script, ends, place, settle, answerKept, status, fell } = await start(t)
  script.answers = false
  void place('asked')
  await system.settle()
  settle('asked')
  await system.settle()
  t.strictSame(script.log, ['decide asked', 'settled asked'])
  script.room = 1
  answerKept()
  script.room = 0
  script.answers = true
  void place('waiting')
  await system.settle()
  script.answers = false
  void place('measured')
  await system.settle()
  settle('measured')
  settle('waiting')
  await system.settle()
  answerKept()
  script.answers = true
  void place('released')
  await system.settle()
  script.answers = false
  fell()
  await system.settle()
  settle('released')
  await system.settle()
  t.equal(script.log.at(-1), 'settled released')
  answerKept()
  await system.settle()
  t.strictSame(new Set(ends.values()), new Set(['HOMING_QUEUE_CANCELLED']))
  t.equal((await status()).requests, 0)
})

t.test(
  'what an earlier life of a gateway had waiting is dropped, and the router told behind its questions',
  async t => {
    const { system, ref, script, ends, place, fell } = await start(t)
    void place('old')
    void place('new', {}, { life: 'two' })
    await system.settle()
    ref.tell({ type: 'gatewayStarted', gateway: { name: 'gateway', life: 'two' } })
    await system.settle()
    t.strictSame([...ends.keys()], ['old'])
    t.equal(script.log.at(-1), 'started two')
    script.room = 5
    fell()
    await system.settle()
    t.equal(ends.get('new'), 'placed')
  },
)

t.test('no worker left while 1,000 requests wait: each is refused in the words of the router', async t => {
  const { system, ref, script, ends, place, status } = await start(t, { requestsMax: 1000 })
  for (let i = 0; i < 1000; i++) void place(`${i}`)
  await system.settle()
  script.refusal = { code: 'HOMING_ROUTER_NO_WORKER', message: 'none', details: {} }
  ref.tell({ type: 'fleet', fleet: fleetOf() })
  await system.settle()
  t.equal(ends.size, 1000)
  t.strictSame(new Set(ends.values()), new Set(['HOMING_ROUTER_NO_WORKER']))
  t.equal((await status()).requests, 0)
})

t.test(
  'a class whose limits are for each worker, and no worker is up: the router says so, not the limit',
  async t => {
    const policyClass = { name: 'few', order: 'fcfs', family: 'few', cacheBucket: 'all', quantum: 1 } as const
    const profile = {
      defaultFamily: 'few',
      buckets: [{ tokensMin: 0, name: 'all' }],
      classes: [{ ...policyClass, busyFraction: 1, requestsPerWorker: 2 }],
    }
    const rules = { threshold: 1, order: 'fcfs', classes: { profile, models: new Map() } } as const
    const { system, ref, script, ends, place } = await start(t, { rules })
    void place('waits')
    await system.settle()
    script.refusal = { code: 'HOMING_ROUTER_NO_WORKER', message: 'none', details: {} }
    ref.tell({ type: 'fleet', fleet: fleetOf() })
    await system.settle()
    void place('comes')
    await system.settle()
    t.strictSame(Object.fromEntries(ends), {
      waits: 'HOMING_ROUTER_NO_WORKER',
      comes: 'HOMING_ROUTER_NO_WORKER',
    })
  },
)

t.test('what never waits is passed on: no hints, no such model, no threshold', async t => {
  const { system, script, ends, place } = await start(t)
  void place('model', {}, { request: { model: 'unknown' } })
  await system.settle()
  t.equal(ends.get('model'), 'placed')
  t.strictSame(script.log, ['decide model'])
  const off = await start(t, { rules: { threshold: undefined, order: 'fcfs', classes: undefined } })
  void off.place('off')
  await off.system.settle()
  t.equal(off.ends.get('off'), 'placed')
  t.notOk((await off.status()).isOn)
})

t.test('what its rules go by for want of a figure of an engine is said of each model', async t => {
  const worker = (id: string, fields: object) => ({ ...fleetOf('m').workers[0]!, id, ...fields })
  const fleet = (busyThresholds?: Fleet['busyThresholds']): Fleet => ({
    version: 2,
    workers: [
      worker('says', {}),
      worker('says nothing', { maxBatchedTokens: { value: 8192, source: 'default' } }),
      worker('of another', { models: [{ name: 'another' }], kvBlocks: { value: 100, source: 'probed' } }),
    ],
    busyThresholds,
  })
  const assumedBy = async (threshold: number | undefined, given: Fleet): Promise<unknown[]> => {
    const { ref, status } = await start(t, { rules: { threshold, order: 'fcfs', classes: undefined } })
    ref.tell({ type: 'fleet', fleet: given })
    return (await status()).models.map(({ model, isOn, assumed }) => ({ model, isOn, assumed: assumed.rows }))
  }
  const step = { worker: 'says nothing', what: 'max_batched_tokens', value: 8192 }
  const blocks = ['says', 'says nothing'].map(id => ({ worker: id, what: 'kv_blocks', value: undefined }))
  t.strictSame(await assumedBy(1, fleet()), [
    { model: 'm', isOn: true, assumed: [step] },
    { model: 'another', isOn: true, assumed: [] },
  ])
  t.strictSame(await assumedBy(undefined, fleet()), [
    { model: 'm', isOn: false, assumed: [] },
    { model: 'another', isOn: false, assumed: [] },
  ])
  const others = { decodeBlocksFraction: 0.9, prefillTokens: undefined, prefillFraction: 2 }
  t.strictSame(await assumedBy(undefined, fleet({ others, byModel: new Map() })), [
    { model: 'm', isOn: false, assumed: [blocks[0], step, blocks[1]] },
    { model: 'another', isOn: false, assumed: [] },
  ])
})

t.test('a queue that is killed answers all that waited, and goes on', async t => {
  const { system, ref, script, ends, place, settle, kill } = await start(t)
  const ids = Array.from({ length: 1000 }, (_, i) => `${i}`)
  for (const id of ids) void place(id, {}, { request: { promptTokens: 10 } })
  await system.settle()
  kill()
  await system.advance('1s')
  t.notOk([...ends.values()].includes('placed'))
  t.equal(ends.size, 1000, 'each has an answer')
  for (const id of ids) settle(id)
  ref.tell({ type: 'fleet', fleet: fleetOf('m') })
  script.room = 1
  void place('next')
  await system.advance('1s')
  t.equal(ends.get('next'), 'placed')
})

t.test('a long prompt without a tenant key counts until it is computed, and no longer', async t => {
  const { system, ref, script, ends, place, fell } = await start(t)
  ref.tell({ type: 'fleet', fleet: fleetOf('m', 'm') })
  const long = { request: { promptTokens: 20_000 } }
  script.room = 1
  const placed = place('long', {}, long)
  await system.settle()
  t.match(await placed, { kind: 'decided', isLong: true })
  ref.tell({ type: 'prefillComplete', id: 'long', model: 'm' })
  script.room = 1
  void place('chat', { tenant: 'a' })
  await system.settle()
  void place('next', {}, long)
  await system.settle()
  script.room = 1
  fell()
  await system.settle()
  t.equal(ends.get('next'), 'placed', 'nothing holds it')
})

t.test('long prompts of an earlier life of a gateway count no more', async t => {
  const { system, ref, script, ends, place } = await start(t)
  ref.tell({ type: 'fleet', fleet: fleetOf('m', 'm') })
  const long = { request: { promptTokens: 20_000 } }
  script.room = 3
  void place('chat', { tenant: 'a' })
  await system.settle()
  void place('old', { tenant: 'b' }, long)
  await system.settle()
  void place('held', { tenant: 'b' }, { ...long, life: 'two' })
  await system.settle()
  t.strictSame([...ends.keys()], ['chat', 'old'], 'all workers but one have a long prompt of it')
  ref.tell({ type: 'gatewayStarted', gateway: { name: 'gateway', life: 'two' } })
  await system.settle()
  t.equal(ends.get('held'), 'placed')
})

t.test('a prompt is long if it is longer than a step of its engines', async t => {
  const { system, ref, script, place } = await start(t)
  ref.tell({ type: 'fleet', fleet: fleetWithStep(2048, 'm', 'm') })
  script.room = 1
  const placed = place('a', { tenant: 'a' }, { request: { promptTokens: 2049 } })
  await system.settle()
  t.match(await placed, { kind: 'decided', isLong: true })
})

t.test('with room a request is placed, also if its deadline is over', async t => {
  const { system, script, ends, place } = await start(t)
  script.room = 1
  void place('late', { deadlineMs: 0 })
  await system.settle()
  t.equal(ends.get('late'), 'placed')
})

t.test('after a restart requests are held although no fleet has come yet', async t => {
  const { system, ref, script, ends, place, kill, status } = await start(t)
  await system.settle()
  kill()
  await system.advance('1s')
  void place('a')
  await system.settle()
  t.strictSame([...ends], [])
  t.equal((await status()).requests, 1)
  ref.tell({ type: 'fleet', fleet: fleetOf('m') })
  script.room = 1
  await system.advance('200ms')
  t.strictSame([...ends], [['a', 'placed']])
})

t.test('lanes without room do not keep another from its turn, however often load falls', async t => {
  const { system, script, ends, place, fell } = await start(t)
  for (let id = 0; id < 5; id++) void place(`pinned ${id}`, {}, { request: { pinnedInstanceId: id } })
  await system.settle()
  void place('free', {}, { request: { pinnedInstanceId: 5 } })
  await system.settle()
  // Each question is answered late, and load has fallen meanwhile.
  script.answers = false
  script.isBusy = ({ pinnedInstanceId }) => pinnedInstanceId !== 5
  script.room = 1
  fell()
  for (let i = 0; i < 8; i++) {
    await system.settle()
    for (const answer of script.kept.splice(0)) {
      fell()
      answer()
    }
  }
  await system.settle()
  t.equal(ends.get('free'), 'placed')
})

t.test('a second question with the id of one that is open is refused, and the first goes on', async t => {
  const { system, script, place, fell } = await start(t)
  const first = place('a')
  await system.settle()
  const second = place('a')
  await system.settle()
  t.match(await second, { kind: 'refused', error: { code: 'HOMING_QUEUE_DUPLICATE' } })
  script.room = 1
  fell()
  await system.settle()
  t.match(await first, { kind: 'decided' })
})

t.test('whatever happens, each request ends once, and nothing stays booked', async t => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    await t.test(`seed ${seed}`, async t => {
      const random = seededRandom(seed)
      const world = await start(t, { requestsMax: 12, waitMsMax: 5000 })
      const { system, ref, script, ends, place, settle, fell, kill, answerKept } = world
      const open: string[] = []
      for (let step = 0; step < 60; step++) {
        const draw = random.below(20)
        if (draw < 9) {
          const id = `${step}`
          open.push(id)
          const pinned = random.below(4) === 0 ? { pinnedInstanceId: random.below(2) } : {}
          const hints = {
            tenant: ['', 'a', 'b'][random.below(3)]!,
            strictPriority: random.below(2),
            doNotQueue: random.below(8) === 0,
            ...(random.below(4) === 0 ? { deadlineMs: random.below(400) } : {}),
          }
          void place(id, hints, { request: { promptTokens: 1 + random.below(20_000), ...pinned } })
        } else if (draw < 12) script.room += 1 + random.below(3)
        else if (draw < 14) fell()
        else if (draw < 16 && open.length > 0) settle(open.splice(random.below(open.length), 1)[0]!)
        else if (draw === 16) {
          script.answers = !script.answers
          if (script.answers) answerKept()
        } else if (draw === 17 && random.below(4) === 0) {
          kill()
          ref.tell({ type: 'fleet', fleet: fleetOf('m') })
        } else if (random.below(3) === 0) await system.settle()
        else await system.advance(random.below(150))
      }
      script.answers = true
      answerKept()
      script.room = 1000
      await system.advance('10s')
      for (const id of open) settle(id)
      await system.advance('1s')
      t.strictSame([...script.booked], [], 'nothing is booked')
      const status = await world.status()
      t.strictSame([status.requests, status.tokens, status.bytes], [0, 0, 0], 'nothing waits')
      for (const id of open) t.ok(ends.has(id), `${id} has an answer`)
    })
  }
})

const SEEDS = 40

t.test('what waits here is told to other routers, and what waits there counts towards limits', async t => {
  const { profile } = parsePolicyClasses(
    `default_policy_family: any
uncached_isl_buckets: [{ min_tokens: 0, bucket: all }]
policy_classes:
  - { name: any_all, policy_family: any, cache_bucket: all, quantum: 1, request_queue_limit_per_worker: 4 }
`,
    'classes.yaml',
  )
  const classes = { profile, models: new Map() }
  const { system, ref, ends, place, status } = await start(t, {
    rules: { threshold: 1, order: 'fcfs', classes },
  })
  const exchange = (elsewhere: readonly WaitingRow[]) =>
    ref.ask({ type: 'exchangeWaiting', elsewhere }, { timeout: '1s' })
  void place('a')
  void place('b')
  await system.settle()
  const there = { model: 'm', policyClass: 'any_all', requests: 1, promptTokens: 50, uncachedTokens: 20 }
  t.same(await exchange([there, there, { ...there, model: 'another' }]), [
    { model: 'm', policyClass: 'any_all', requests: 2, promptTokens: 200, uncachedTokens: 200 },
  ])
  t.match((await status()).models[0]!.snapshot.classes[0]!.elsewhere, {
    requests: 2,
    promptTokens: 100,
    uncachedTokens: 40,
  })
  void place('c')
  await system.settle()
  t.strictSame([...ends], [['c', 'HOMING_QUEUE_CLASS_LIMIT']])
  await exchange([])
  void place('d')
  await system.settle()
  t.notOk(ends.has('d'), 'it waits')
})

t.test('when the queue is full, the tenant with most of it makes room with its newest request', async t => {
  const { system, script, ends, place, fell, status } = await start(t, { requestsMax: 3 })
  for (const id of ['flood 0', 'flood 1', 'flood 2', 'flood 3']) void place(id, { tenant: 'flood' })
  await system.settle()
  t.strictSame([...ends], [['flood 3', 'HOMING_QUEUE_FULL']])
  void place('chat', { tenant: 'chat' })
  await system.settle()
  t.strictSame(
    [...ends],
    [
      ['flood 3', 'HOMING_QUEUE_FULL'],
      ['flood 2', 'HOMING_QUEUE_FULL'],
    ],
  )
  t.equal((await status()).requests, 3)
  script.room = 3
  fell()
  await system.settle()
  t.strictSame([...ends.keys()].slice(2).sort(), ['chat', 'flood 0', 'flood 1'])
  t.equal((await status()).requests, 0)
})

t.test('a tenant of pictures cannot starve one of texts: it pays what engines count', async t => {
  const { system, ref, script, ends, place, fell } = await start(t)
  // Pictures of an estimate of 100 tokens are 1,000; texts are 100.
  const picture = { request: { promptTokens: 100, estimate: { tokensMax: 40_000 } } }
  for (let n = 0; n < 50; n++) {
    void place(`picture ${n}`, { tenant: 'pictures' }, picture)
    void place(`text ${n}`, { tenant: 'texts' })
  }
  await system.settle()
  const settled = new Set<string>()
  for (let turn = 0; turn < 55; turn++) {
    script.room = 1
    fell()
    await system.settle()
    for (const id of ends.keys()) {
      if (settled.has(id)) continue
      settled.add(id)
      const counted = { promptTokens: 1000, cachedTokens: undefined }
      if (id.startsWith('picture')) ref.tell({ type: 'counted', id, model: 'm', counted })
    }
  }
  const pictures = [...ends.keys()].filter(id => id.startsWith('picture')).length
  t.equal(ends.size, 55)
  t.ok(pictures >= 5 && pictures <= 6, `${pictures} pictures of 55 requests`)
})

t.test('what an engine counts is bounded: by the body, else by the longest prompt of the model', async t => {
  const { system, ref, script, place, status } = await start(t)
  const card = { name: 'm', maxModelTokens: 5000 }
  const fleet = { ...FLEET, workers: [{ ...FLEET.workers[0]!, models: [card] }] } as unknown as Fleet
  ref.tell({ type: 'fleet', fleet })
  script.room = 3
  const served = async () => (await status()).models[0]!.snapshot.tenants[0]!.served.uncachedTokens
  for (const [id, tokensMax] of [
    ['body', 2000],
    ['stored', Number.POSITIVE_INFINITY],
  ] as const) {
    const answer = place(id, { tenant: 'a' }, { request: { estimate: { tokensMax } } })
    await system.settle()
    t.match(await answer, { kind: 'decided', isEstimated: true })
    const counted = { promptTokens: 4_294_967_296, cachedTokens: undefined }
    ref.tell({ type: 'counted', id, model: 'm', counted })
  }
  t.equal(await served(), 2000 + 5000)
  // Of a prompt by the word of the client, only the engine knows what was cached.
  const claimed = { cacheUse: 'claimed', estimate: { tokensMax: 9000 } } as const
  script.cachedTokens = 100
  void place('claimed', { tenant: 'a' }, { request: claimed })
  await system.settle()
  ref.tell({
    type: 'counted',
    id: 'claimed',
    model: 'm',
    counted: { promptTokens: 700, cachedTokens: 200 },
  })
  t.equal(await served(), 7000 + 500)
})

t.test('a placement whose answer was late is charged as estimated', async t => {
  const { system, script, place, settle, status } = await start(t)
  script.room = 1
  void place('late', { tenant: 'a' }, { request: { estimate: { tokensMax: 9000 } } })
  await system.settle()
  settle('late')
  await system.settle()
  t.equal((await status()).models[0]!.snapshot.tenants[0]!.served.uncachedTokens, 100)
})
