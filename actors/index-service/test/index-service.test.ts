/** The service by its answers; hashes are the public vectors: blocks of four tokens 1, 2, 3, … */

import { readFileSync } from 'node:fs'
import { Metrics } from '@homing/metrics'
import { KV_CLEARED, kvRemoved } from '@homing/protocol'
import t from 'tap'
import { SERVICE_ROUTES } from '../src/index.ts'
import { BLOCK, hashes, registration, serviceWorld, stored, tokensUpTo } from './service-world.ts'

const OK = { status: 'ok' }
/** Local hashes of the blocks [1 … 4], [5 … 8], [9 … 12]. */
const LOCAL = ['14643705804678351452', '16777012769546811212', '483935686894639516'] as const

t.test('a registered rank is followed, and queries say how many tokens it holds', async t => {
  const w = serviceWorld(t)
  const engine = await w.engine('10.0.0.1')
  engine.publish(stored([101, 102], tokensUpTo(8)))
  const { url } = await w.start('10.0.0.9')
  t.match(await w.ask(url, 'POST', '/register', registration(engine)), { status: 201, json: OK })
  engine.publish(stored([103], [9, 10, 11, 12], 102))
  await w.settle()

  const query = { token_ids: tokensUpTo(15), model_name: 'm' }
  const answer = await w.ask(url, 'POST', '/query', query)
  t.equal(answer.status, 200)
  t.strictSame(answer.json, {
    scores: { 7: { 0: 12 } },
    frequencies: [1, 1, 1],
    instances: { 7: { longest_matched: 12, gpu: 12, dp: { 0: 12 }, cpu: 12, disk: 12 } },
  })
  t.equal(answer.headers['x-homing-trust'], 'exact')

  const byHash = `{"model_name": "m", "block_hashes": [${LOCAL[0]}, ${LOCAL[1]}]}`
  t.strictSame((await w.ask(url, 'POST', '/query_by_hash', byHash)).json.scores, { 7: { 0: 8 } })
  // The same hashes as other senders write them: with a sign, and as text.
  const signed = '{"model_name": "m", "block_hashes": [-3803038269031200164, "16777012769546811212"]}'
  t.strictSame((await w.ask(url, 'POST', '/query_by_hash', signed)).json.frequencies, [1, 1])

  engine.publish(kvRemoved({ hashes: hashes(102) }))
  await w.settle()
  t.strictSame((await w.ask(url, 'POST', '/query', query)).json.scores, { 7: { 0: 4 } })
  engine.publish(KV_CLEARED)
  await w.settle()
  t.strictSame((await w.ask(url, 'POST', '/query', query)).json, {
    scores: {},
    frequencies: [],
    instances: {},
  })
})

t.test('ranks and instances are told apart, in their own model and group only', async t => {
  const w = serviceWorld(t)
  const engines = await Promise.all(['10.0.0.1', '10.0.0.2', '10.0.0.3'].map(host => w.engine(host)))
  const [a, b, c] = engines as [(typeof engines)[0], (typeof engines)[0], (typeof engines)[0]]
  a.publish(stored([1, 2], tokensUpTo(8)))
  b.publish(stored([1], tokensUpTo(4)))
  c.publish(stored([1, 2, 3], tokensUpTo(12)))
  const { url } = await w.start('10.0.0.9')
  await w.ask(url, 'POST', '/register', registration(a))
  await w.ask(url, 'POST', '/register', registration(b, { dp_rank: 1 }))
  await w.ask(url, 'POST', '/register', registration(c, { instance_id: 8, routing_group: 'other' }))
  const query = (fields: object) =>
    w.ask(url, 'POST', '/query', { token_ids: tokensUpTo(12), model_name: 'm', ...fields })
  t.strictSame((await query({})).json, {
    scores: { 7: { 0: 8, 1: 4 } },
    frequencies: [2, 1],
    instances: { 7: { longest_matched: 8, gpu: 8, dp: { 0: 8, 1: 4 }, cpu: 8, disk: 8 } },
  })
  t.strictSame((await query({ routing_group: 'other' })).json.scores, { 8: { 0: 12 } })
  const unknown = await query({ routing_group: 'third' })
  t.equal(unknown.status, 404)
  t.match(unknown.json.error, /model "m" in routing group "third" is not registered/)
})

t.test('blocks on the host and on disk are named beyond those on the device', async t => {
  const w = serviceWorld(t)
  const engine = await w.engine('10.0.0.1')
  const prompt = stored([1, 2, 3], tokensUpTo(12))
  engine.publish(prompt, { ...prompt, tier: 'host' } as typeof prompt)
  engine.publish(kvRemoved({ hashes: hashes(2, 3) }), kvRemoved({ hashes: hashes(3), tier: 'host' }))
  engine.publish({ ...stored([3], [9, 10, 11, 12], 2), tier: 'disk' } as typeof prompt)
  const { url } = await w.start('10.0.0.9')
  await w.ask(url, 'POST', '/register', registration(engine))
  await w.settle()
  t.strictSame((await w.ask(url, 'POST', '/query', { token_ids: tokensUpTo(12), model_name: 'm' })).json, {
    scores: { 7: { 0: 4 } },
    frequencies: [1],
    instances: { 7: { longest_matched: 12, gpu: 4, dp: { 0: 4 }, cpu: 8, disk: 12 } },
  })
})

t.test('adapter and cache salt are part of what is held', async t => {
  const w = serviceWorld(t)
  const engine = await w.engine('10.0.0.1')
  const event = stored([1], tokensUpTo(4))
  engine.publish({ ...event, loraName: 'adapter-a', cacheSalt: 'tenant-a' } as typeof event)
  const { url } = await w.start('10.0.0.9')
  await w.ask(url, 'POST', '/register', registration(engine))
  const scores = async (fields: object) =>
    (await w.ask(url, 'POST', '/query', { token_ids: tokensUpTo(4), model_name: 'm', ...fields })).json.scores
  t.strictSame(await scores({ lora_name: 'adapter-a', cache_salt: 'tenant-a' }), { 7: { 0: 4 } })
  t.strictSame(await scores({ lora_name: 'adapter-a', cache_salt: '' }), {})
  t.strictSame(await scores({ cache_salt: 'tenant-a' }), {})
  t.strictSame(await scores({}), {})
  // The vector of both.
  const byHash = '{"model_name": "m", "block_hashes": [9967753091837871098]}'
  t.strictSame((await w.ask(url, 'POST', '/query_by_hash', byHash)).json.scores, { 7: { 0: 4 } })
  const salted = await w.ask(url, 'POST', '/query_by_hash', {
    model_name: 'm',
    block_hashes: [],
    cache_salt: '',
  })
  t.equal(salted.status, 400)
  t.match(salted.json.error, /cache_salt is not accepted/)
})

t.test('what contradicts a registration is a conflict and changes nothing', async t => {
  const w = serviceWorld(t)
  const engine = await w.engine('10.0.0.1')
  const { url } = await w.start('10.0.0.9')
  const register = (fields: object) => w.ask(url, 'POST', '/register', registration(engine, fields))
  t.equal((await register({})).status, 201)
  for (const [fields, message] of [
    [{}, /rank 0: it is registered already/],
    [{ dp_rank: 1, block_size: 16 }, /has blocks of 4 tokens, not 16/],
    [{ instance_id: 8, block_size: 16 }, /has blocks of 4 tokens, not 16/],
    [{ dp_rank: 1, model_name: 'n' }, /is registered for model m in routing group default/],
    [{ dp_rank: 1, routing_group: 'g' }, /is registered for model m in routing group default/],
  ] as const) {
    const answer = await register(fields)
    t.equal(answer.status, 409)
    t.match(answer.json.error, message)
  }
  t.equal((await w.ask(url, 'GET', '/workers')).json.length, 1)
  const endpoints = { endpoint: 'tcp://10.0.0.2:1', replay_endpoint: null }
  t.equal((await register({ instance_id: 8, model_name: 'n', block_size: 16, ...endpoints })).status, 201)
})

t.test('a socket belongs to one rank; the answer names both', async t => {
  const w = serviceWorld(t)
  const engine = await w.engine('10.0.0.1')
  const { url } = await w.start('10.0.0.9')
  const register = (fields: object) => w.ask(url, 'POST', '/register', registration(engine, fields))
  t.equal((await register({})).status, 201)
  const { endpoint, replayEndpoint: replay } = engine
  for (const [fields, message] of [
    [
      { instance_id: 8 },
      /^cannot register instance 8 rank 0: .* for its events, which instance 7 rank 0 names for its events/,
    ],
    [
      { dp_rank: 1, replay_endpoint: null },
      /instance 7 rank 1: .* which instance 7 rank 0 names for its events/,
    ],
    [
      { instance_id: 8, endpoint: 'tcp://10.0.0.1:9' },
      /for its replay, which instance 7 rank 0 names for its replay/,
    ],
    [{ instance_id: 8, endpoint: replay, replay_endpoint: null }, /for its events, which .* for its replay/],
    [{ instance_id: 8, model_name: 'n', routing_group: 'g' }, /which instance 7 rank 0 names/],
  ] as const) {
    const answer = await register(fields)
    t.equal(answer.status, 409)
    t.match(answer.json.error, message)
  }
  const twice = await register({ instance_id: 8, endpoint: 'tcp://a:1', replay_endpoint: 'tcp://A:01' })
  t.equal(twice.status, 400)
  t.match(twice.json.error, /replay_endpoint must differ from endpoint/)

  await w.ask(url, 'POST', '/unregister', { instance_id: 7, model_name: 'm' })
  t.equal((await register({ instance_id: 8 })).status, 201, 'it is free at once')
  t.equal((await register({ endpoint, replay_endpoint: null })).status, 409)
})

t.test('an instance that is registered again at other ports begins anew', async t => {
  const w = serviceWorld(t)
  const [before, after] = [await w.engine('10.0.0.1'), await w.engine('10.0.0.2')]
  before.publish(stored([1, 2], tokensUpTo(8)))
  after.publish(stored([5], [90, 91, 92, 93]))
  const { url } = await w.start('10.0.0.9')
  const query = async (token_ids: number[]) =>
    (await w.ask(url, 'POST', '/query', { token_ids, model_name: 'm' })).json.scores
  await w.ask(url, 'POST', '/register', registration(before))
  await w.settle()
  t.strictSame(await query(tokensUpTo(8)), { 7: { 0: 8 } })
  await w.ask(url, 'POST', '/unregister', { instance_id: 7, model_name: 'm' })
  await w.ask(url, 'POST', '/register', registration(after))
  await w.settle()
  before.publish(stored([3], [9, 10, 11, 12], 2))
  await w.settle()
  t.strictSame(await query(tokensUpTo(12)), {}, 'of the ports before nothing counts, and nothing is heard')
  t.strictSame(await query([90, 91, 92, 93]), { 7: { 0: 4 } })
})

t.test('bad input is 400 with one sentence, and other statuses are what they say', async t => {
  const w = serviceWorld(t)
  const engine = await w.engine('10.0.0.1')
  const { url } = await w.start('10.0.0.9', { bodyBytesMax: 2000 })
  const register = (fields: object) => ['/register', registration(engine, fields)] as const
  const cases: readonly (readonly [string, unknown, RegExp])[] = [
    ['/register', '{', /the body is not JSON: /],
    ['/register', '[]', /the body is not a JSON object/],
    ['/register', {}, /instance_id is missing/],
    [...register({ instance_id: -1 }), /instance_id must be a whole number from 0 to 18446744073709551615/],
    [...register({ instance_id: 1.5 }), /instance_id must be/],
    [...register({ instance_id: '18446744073709551616' }), /instance_id must be/],
    [...register({ model_name: null }), /model_name is missing/],
    [...register({ model_name: '' }), /model_name must not be empty/],
    [...register({ routing_group: 'a:b' }), /routing_group must not contain a colon/],
    [...register({ block_size: 0 }), /block_size must be a whole number from 1 to 65536/],
    [...register({ dp_rank: -1 }), /dp_rank must be/],
    [...register({ endpoint: 'http://a:1' }), /endpoint "http:\/\/a:1" must be tcp:\/\/HOST:PORT/],
    [...register({ endpoint: 'tcp://*:5557' }), /names every interface/],
    [...register({ replay_endpoint: 'tcp://a:0' }), /replay_endpoint .* port out of range/],
    ['/query', { model_name: 'm' }, /token_ids is missing/],
    ['/query', { model_name: 'm', token_ids: 'abc' }, /token_ids must be a list of numbers/],
    ['/query', { model_name: 'm', token_ids: [1, -2] }, /token_ids\[1\] must be/],
    ['/query', { model_name: 'm', token_ids: [1], lora_name: 3 }, /lora_name must be a string/],
    ['/query_by_hash', { model_name: 'm', block_hashes: [1.5] }, /block_hashes\[0\] must be/],
    ['/register_peer', { url: 'ftp://x' }, /url "ftp:\/\/x" must be a URL such as/],
  ]
  for (const [path, body, message] of cases) {
    const { status, json } = await w.ask(url, 'POST', path, body)
    t.equal(status, 400, `${path} ${JSON.stringify(body)}`)
    t.match(json.error, message)
  }
  t.strictSame((await w.ask(url, 'GET', '/workers')).json, [], 'an empty list, not 404')
  t.equal((await w.ask(url, 'GET', '/none')).status, 404)
  const wrong = await w.ask(url, 'GET', '/query')
  t.strictSame([wrong.status, wrong.headers['allow']], [405, 'POST'])
  t.equal((await w.ask(url, 'POST', '/query', ' '.repeat(2001))).status, 413)
  t.equal((await w.ask(url, 'POST', '/unregister', { instance_id: 7, model_name: 'm' })).status, 404)
})

t.test('instance ids keep all their 64 bits', async t => {
  const w = serviceWorld(t)
  const engine = await w.engine('10.0.0.1')
  engine.publish(stored([1], tokensUpTo(4)))
  const { url } = await w.start('10.0.0.9')
  const id = '18446744073709551615'
  const body = JSON.stringify(registration(engine)).replace('"instance_id":7', `"instance_id":${id}`)
  t.equal((await w.ask(url, 'POST', '/register', body)).status, 201)
  await w.settle()
  t.match((await w.ask(url, 'GET', '/workers')).text, `"instance_id":${id},`)
  t.match((await w.ask(url, 'GET', '/dump')).text, `"worker_id":${id},`)
  const query = await w.ask(url, 'POST', '/query', { token_ids: tokensUpTo(4), model_name: 'm' })
  t.strictSame(Object.keys(query.json.instances), [id])
  t.equal((await w.ask(url, 'POST', '/unregister', { instance_id: id, model_name: 'm' })).status, 200)
})

t.test(
  'what is unregistered counts no more, and its slot serves another when nothing is left of it',
  async t => {
    const w = serviceWorld(t)
    const [a, b, c] = [await w.engine('10.0.0.1'), await w.engine('10.0.0.2'), await w.engine('10.0.0.3')]
    a.publish(stored([1, 2], tokensUpTo(8)))
    for (const engine of [b, c]) engine.publish(stored([1], tokensUpTo(4)))
    const { url } = await w.start('10.0.0.9', { workerSlotsMax: 2 })
    await w.ask(url, 'POST', '/register', registration(a))
    await w.ask(url, 'POST', '/register', registration(b, { dp_rank: 1 }))
    const full = await w.ask(url, 'POST', '/register', registration(c, { dp_rank: 2 }))
    t.equal(full.status, 503)
    t.match(full.json.error, /another rank: 2 are registered \(--worker-slots-max\)/)
    t.equal(
      (await w.ask(url, 'POST', '/unregister', { instance_id: 7, model_name: 'm', dp_rank: 0 })).status,
      200,
    )
    const query = { token_ids: tokensUpTo(8), model_name: 'm' }
    t.strictSame((await w.ask(url, 'POST', '/query', query)).json.scores, { 7: { 1: 4 } })
    await w.settle()
    t.equal((await w.ask(url, 'POST', '/register', registration(c, { dp_rank: 2 }))).status, 201)
    await w.settle()
    t.strictSame((await w.ask(url, 'POST', '/query', query)).json.scores, { 7: { 1: 4, 2: 4 } })
    for (const model of ['n', 'm']) {
      const { status } = await w.ask(url, 'POST', '/unregister', {
        instance_id: 7,
        model_name: model,
        routing_group: 'default',
      })
      t.equal(status, model === 'm' ? 200 : 404)
    }
    t.equal((await w.ask(url, 'POST', '/query', query)).status, 404)
  },
)

t.test('/workers says the state of every listener, the worst one of an instance first', async t => {
  const w = serviceWorld(t)
  const [a, b, c] = [await w.engine('10.0.0.1'), await w.engine('10.0.0.2'), await w.engine('10.0.0.3')]
  a.publish(stored([1], tokensUpTo(4)))
  const { url } = await w.start('10.0.0.9')
  await w.ask(url, 'POST', '/register', registration(a))
  const statusOf = async () => (await w.ask(url, 'GET', '/workers')).json[0].status
  await w.settle()
  const [row] = (await w.ask(url, 'GET', '/workers')).json
  t.match(row, {
    instance_id: 7,
    source: 'zmq',
    status: 'active',
    model_name: 'm',
    routing_group: 'default',
    block_size: 4,
    endpoints: { 0: 'tcp://10.0.0.1:5557' },
    listeners: { 0: { endpoint: 'tcp://10.0.0.1:5557', status: 'active', trust: 'exact', blocks: 1 } },
  })
  t.notOk('last_error' in row.listeners[0])
  // Nobody listens there yet.
  await w.ask(url, 'POST', '/register', registration(b, { dp_rank: 1, endpoint: 'tcp://10.0.0.4:5557' }))
  t.equal(await statusOf(), 'pending')
  await w.ask(url, 'POST', '/register', registration(c, { dp_rank: 2 }))
  await w.settle()
  c.stop()
  await w.settle()
  t.equal(await statusOf(), 'failed')
  t.match((await w.ask(url, 'GET', '/workers')).json[0].listeners[2], {
    status: 'failed',
    last_error: /event socket is down/,
  })
  t.strictSame((await w.ask(url, 'GET', '/workers?model_name=n')).json, [])
  t.strictSame((await w.ask(url, 'GET', '/workers?model_name=m&routing_group=x')).json, [])
  t.equal((await w.ask(url, 'GET', '/workers?model_name=m&routing_group=default')).json.length, 1)
})

t.test('an engine with other blocks than registered is failed, and counts for nothing', async t => {
  const w = serviceWorld(t)
  const engine = await w.engine('10.0.0.1')
  engine.publish(stored([1], tokensUpTo(4)))
  const { url } = await w.start('10.0.0.9')
  await w.ask(url, 'POST', '/register', registration(engine, { block_size: 2 }))
  await w.settle()
  t.match((await w.ask(url, 'GET', '/workers')).json[0].listeners[0], {
    status: 'failed',
    trust: 'none',
    last_error: /stores blocks of 4 tokens, not 2: unregister it, and register it with block_size 4/,
  })
  await w.ask(url, 'POST', '/unregister', { instance_id: 7, model_name: 'm' })
  await w.settle()
  t.equal((await w.ask(url, 'POST', '/register', registration(engine))).status, 201)
  await w.settle()
  t.equal((await w.ask(url, 'GET', '/workers')).json[0].status, 'active')
})

t.test('/dump names what is held, parents first, with ids of its own', async t => {
  const w = serviceWorld(t)
  const engine = await w.engine('10.0.0.1')
  engine.publish(stored([101, 102, 103], tokensUpTo(12)), stored([104], [21, 22, 23, 24], 102))
  const { url } = await w.start('10.0.0.9')
  t.strictSame((await w.ask(url, 'GET', '/dump')).json, {})
  await w.ask(url, 'POST', '/register', registration(engine))
  await w.settle()
  const { json, text } = await w.ask(url, 'GET', '/dump')
  t.strictSame(Object.keys(json), ['m:default'])
  t.equal(json['m:default'].block_size, BLOCK)
  const { events } = json['m:default']
  for (const [i, { worker_id: id, storage_tier: tier, event }] of events.entries()) {
    t.strictSame([id, tier, event.dp_rank, event.event_id], [7, 'device', 0, i])
  }
  t.match(text, `{"block_hash":101,"tokens_hash":${LOCAL[0]}},{"block_hash":102,"tokens_hash":${LOCAL[1]}}`)
  const known = new Set<number | null>([null])
  for (const { event } of events) {
    t.ok(known.has(event.data.stored.parent_hash), 'parents come before children')
    for (const block of event.data.stored.blocks) known.add(block.block_hash)
  }
  t.strictSame([...known], [null, 101, 102, 103, 104])
  // Blocks below one that is gone are in no overlap, so a dump must not name them as beginnings of prompts.
  engine.publish(kvRemoved({ hashes: hashes(101) }))
  await w.settle()
  t.strictSame((await w.ask(url, 'GET', '/dump')).json, {
    'm:default': { block_size: 4, endpoints: { 7: { 0: engine.endpoint } }, events: [] },
  })
})

t.test('peers are listed, once each and no more than there is room for', async t => {
  const w = serviceWorld(t)
  const { url } = await w.start('10.0.0.9')
  t.strictSame((await w.ask(url, 'GET', '/peers')).json, [])
  const peer = { url: 'http://10.0.0.8:8090/' }
  t.match(await w.ask(url, 'POST', '/register_peer', peer), { status: 201, json: OK })
  t.equal((await w.ask(url, 'POST', '/register_peer', peer)).status, 201)
  t.strictSame((await w.ask(url, 'GET', '/peers')).json, ['http://10.0.0.8:8090'])
  await w.ask(url, 'POST', '/register_peer', { url: 'http://b:1' })
  t.equal((await w.ask(url, 'POST', '/register_peer', { url: 'http://c:1' })).status, 503)
  t.match(await w.ask(url, 'POST', '/deregister_peer', peer), { status: 200, json: OK })
  t.equal((await w.ask(url, 'POST', '/deregister_peer', peer)).status, 404)
})

t.test('a service that begins anew observes its process once: nothing would end a second time', async t => {
  const observed = t.capture(Metrics.prototype, 'observeProcess', Metrics.prototype.observeProcess)
  const w = serviceWorld(t)
  const { url, ref, system } = await w.start('10.0.0.9')
  await system.stop(ref)
  await w.start('10.0.0.9', {}, system)
  t.match((await w.ask(url, 'GET', '/metrics')).text, /^process_cpu_seconds_total/m)
  t.equal(observed().length, 1)
})

t.test('health, metrics and the way out', async t => {
  const w = serviceWorld(t)
  const engine = await w.engine('10.0.0.1')
  engine.publish(stored([1], tokensUpTo(4)))
  const { url, ref, system } = await w.start('10.0.0.9')
  await w.ask(url, 'POST', '/register', registration(engine))
  await w.ask(url, 'POST', '/query', { token_ids: tokensUpTo(5), model_name: 'm' })
  t.match(await w.ask(url, 'GET', '/health'), { status: 200, json: OK })
  t.match(await w.ask(url, 'POST', '/reopen_logs'), { status: 200, json: OK })
  const { text } = await w.ask(url, 'GET', '/metrics')
  for (const line of [
    'homing_indexer_requests_total{route="/register",status="201"} 1',
    'homing_indexer_query_tokens_total 4',
    'homing_indexer_overlap_tokens_total 4',
    'homing_indexer_registered_workers{model="m",routing_group="default"} 1',
    'homing_indexer_slots_limit_keys 8',
    'homing_indexer_listener_keys{status="active"} 1',
    'homing_indexer_trust_keys{trust="exact"} 1',
  ]) {
    t.match(text, line)
  }
  const page = readFileSync(new URL('../../../docs/metrics.md', import.meta.url), 'utf8')
  const answered = [...text.matchAll(/^# TYPE (\w+) /gm)].map(([, name]) => name!)
  t.strictSame(
    answered.filter(name => !page.includes(`\`${name}\``)),
    [],
    'docs/metrics.md names every metric',
  )
  const documented = page.split('## Indexer')[1]?.split('\n## ')[0] ?? ''
  for (const [, name] of documented.matchAll(/`(homing_\w+)`/g)) t.ok(answered.includes(name!), name!)
  const cut = ref.ask({ type: 'drain', graceMs: 100 }, { timeout: 5000 })
  await system.advance('1s')
  t.equal(await cut, 0)
})

t.test('a page of another site reaches no route, and programs of other machines all', async t => {
  const w = serviceWorld(t)
  const engine = await w.engine('10.0.0.1')
  const { url } = await w.start('10.0.0.9', { hostNames: ['index.example.org'] })
  for (const headers of [
    { host: 'evil.example:8090', origin: 'http://evil.example:8090' },
    { host: 'evil.example:8090' },
    { host: 'localhost:8090', origin: 'http://localhost:3000' },
    { host: 'localhost:8090', referer: 'http://evil.example/' },
    { host: 'localhost:8090', 'sec-fetch-site': 'cross-site' },
  ]) {
    for (const { method, path } of SERVICE_ROUTES) {
      const body = method === 'POST' ? registration(engine) : undefined
      const { status, json } = await w.ask(url, method, path, body, headers)
      const what = `${method} ${path} with ${JSON.stringify(headers)}`
      if (path === '/health') t.equal(status, 200, what)
      else t.match({ status, json }, { status: 403, json: { code: 'HOMING_HTTP_STRANGE_PAGE' } }, what)
    }
  }
  t.strictSame((await w.ask(url, 'GET', '/workers')).json, [])
  for (const host of ['localhost:8090', '10.0.0.9:8090', 'index.example.org']) {
    const headers = { host }
    t.equal((await w.ask(url, 'POST', '/register', registration(engine), headers)).status, 201, host)
    const gone = { instance_id: 7, model_name: 'm' }
    t.equal((await w.ask(url, 'POST', '/unregister', gone, headers)).status, 200, host)
    await w.settle()
  }
})

t.test(
  'queries and other requests have places apart, until their clients have taken the answers',
  async t => {
    const w = serviceWorld(t)
    const engine = await w.engine('10.0.0.1')
    engine.publish(stored([101], tokensUpTo(4)))
    const { url } = await w.start('10.0.0.9', { openOperatorRequestsMax: 4 })
    await w.ask(url, 'POST', '/register', registration(engine))
    const query = { token_ids: tokensUpTo(4), model_name: 'm' }
    /** A client that takes nothing of its answer. */
    const silent = (method: string, path: string, body?: unknown) => {
      const bytes = body === undefined ? {} : { body: new TextEncoder().encode(JSON.stringify(body)) }
      const handler = { head: () => {}, data: () => {}, end: () => {}, failed: () => {} }
      const call = w.network.transport().http.call({ origin: url, method, path, ...bytes }, handler)
      call.pause()
      return call
    }
    const queries = Array.from({ length: 8 }, () => silent('POST', '/query', query))
    await w.settle()
    const refused = await w.ask(url, 'POST', '/query', query)
    t.match(refused, { status: 503, json: { code: 'HOMING_INDEX_SERVICE_BUSY' } })
    t.equal(refused.headers['retry-after'], '1')
    for (const path of ['/workers', '/dump', '/peers', '/']) {
      t.equal((await w.ask(url, 'GET', path)).status, 200, path)
    }
    for (const call of queries) call.abort()
    await w.settle()

    const views = [1, 2].map(() => silent('GET', '/workers'))
    await w.settle()
    for (const path of ['/workers', '/dump']) {
      const { status, json, headers } = await w.ask(url, 'GET', path)
      t.match([status, json.code, headers['retry-after']], [503, 'HOMING_HTTP_VIEWS_BUSY', '1'], path)
    }
    t.equal((await w.ask(url, 'POST', '/query', query)).status, 200)
    t.equal((await w.ask(url, 'GET', '/health')).status, 200)
    const { text } = await w.ask(url, 'GET', '/metrics')
    t.match(text, /homing_indexer_operator_refused_total\{bound="requests"\} 2/)
    t.notMatch(text, /homing_indexer_operator_unsent_bytes 0\n/)
    for (const call of views) call.abort()
    await w.settle()
    t.match((await w.ask(url, 'GET', '/metrics')).text, /homing_indexer_operator_unsent_bytes 0\n/)
    t.equal((await w.ask(url, 'GET', '/workers')).status, 200)
  },
)
