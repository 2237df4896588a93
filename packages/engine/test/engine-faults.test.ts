/** Faults that an engine has on demand: lost events, refusals, hangs, restarts, ends. */

import { connect } from 'node:net'
import { type Clock, systemClock } from '@homing/base'
import t from 'tap'
import {
  chunksOf,
  ids,
  replay,
  runningOf,
  send,
  startEngine,
  started,
  stream,
  subscribe,
  until,
} from './engine-client.ts'

t.test('dropped batches are missing on the socket and come with a replay, in both framings', async t => {
  for (const replayForm of ['topic', 'plain'] as const) {
    const { engine, post, transport } = await started(t, { replayForm, topic: 'kv' })
    const { events, replay: endpoint } = engine.describe().ranks[0]!
    const subscriber = await subscribe(transport, events)
    await post('/admin/faults', { events: { drop: 2 } })
    for (let i = 0; i < 4; i++) await post('/v1/completions', { prompt: ids(20, 100 + i), max_tokens: 1 })
    await until(() => subscriber.batches.length === 2, 'two of four arrived')
    t.strictSame(
      subscriber.batches.map(batch => batch.sequence),
      [2, 3],
    )
    const whole = await replay(transport, endpoint!, 0)
    t.strictSame(whole.sequences, [0, 1, 2, 3])
    t.ok(whole.frameCounts.every(count => count === (replayForm === 'topic' ? 4 : 3)))
    t.strictSame((await replay(transport, endpoint!, 3)).sequences, [3])
    await post('/admin/faults', { events: { replayLoseEvery: 2 } })
    t.strictSame((await replay(transport, endpoint!, 0)).sequences, [0, 2])
  }
})

t.test('a restart in place shows in nothing but the events', async t => {
  const { engine, get, post, transport } = await started(t)
  const { events, replay: endpoint } = engine.describe().ranks[0]!
  const subscriber = await subscribe(transport, events)
  const startOf = async () => /process_start_time_seconds .*/.exec((await get('/metrics')).text)?.[0]
  const before = await startOf()
  for (let i = 0; i < 3; i++) await post('/v1/completions', { prompt: ids(20, 100 + i), max_tokens: 1 })
  t.match((await post('/admin/restart', { inPlace: true, firstSequence: 7 })).json, { epoch: 2 })
  t.equal(engine.state().ranks[0]!.cachedBlocks, 0)
  await post('/v1/completions', { prompt: ids(20), max_tokens: 1 })
  await until(() => subscriber.batches.length === 4, 'a batch of the new life came')
  t.equal(subscriber.batches.at(-1)!.sequence, 7)
  t.equal(subscriber.connections, 1)
  t.equal(await startOf(), before)
  t.strictSame((await replay(transport, endpoint!, 0)).sequences, [7])
  t.equal((await post('/admin/restart', { inPlace: true, firstSequence: -1 })).status, 400)
})

t.test('faults of events that are not understood are refused', async t => {
  const { engine, post } = await started(t)
  for (const events of [{ group: 'x' }, { removalGroup: -2 }, { slidingGroup: 4000 }, { namesSalts: 1 }]) {
    t.equal((await post('/admin/faults', { events })).status, 400, JSON.stringify(events))
  }
  const manners = { group: 3, removalGroup: 'none', slidingGroup: 1, namesKinds: false, repeatsStores: false }
  t.equal((await post('/admin/faults', { events: manners })).status, 200)
  t.match(engine.state().ranks[0]!.faults, manners)
})

t.test('a forgotten batch and a full buffer leave a hole', async t => {
  const { engine, post, transport } = await started(t, { replayBatchesMax: 3 })
  const { replay: endpoint } = engine.describe().ranks[0]!
  for (let i = 0; i < 5; i++) {
    if (i === 3) await post('/admin/faults', { events: { drop: 1, forget: true } })
    await post('/v1/completions', { prompt: ids(20, 100 + i), max_tokens: 1 })
  }
  t.strictSame((await replay(transport, endpoint!, 0)).sequences, [2, 4])
})

t.test('an engine without replay says so, and publishes all the same', async t => {
  const { engine, post, transport, url } = await started(t, { offersReplay: false })
  const [rank] = engine.describe().ranks
  t.match(rank, { replay: undefined, replayPort: undefined })
  const sources = await transport.http.fetch(
    { origin: url, method: 'GET', path: '/kv_event_sources' },
    { timeoutMs: 60_000 },
  )
  t.match(JSON.parse(Buffer.from(sources.body).toString()), { 0: { replay_endpoint: null } })
  const subscriber = await subscribe(transport, rank!.events)
  await post('/v1/completions', { prompt: ids(20), max_tokens: 1 })
  await until(() => subscriber.batches.length === 1, 'a batch came')
})

t.test('a replay request without the delimiter gets no answer', async t => {
  const { engine, post, transport } = await started(t)
  await post('/v1/completions', { prompt: ids(20), max_tokens: 1 })
  let answers = 0
  const dealer = transport.messages.dial(
    { endpoint: engine.describe().ranks[0]!.replay! },
    () => void answers++,
  )
  dealer.send([new Uint8Array(8)])
  dealer.send([new Uint8Array(0), new Uint8Array(8)])
  await until(() => answers >= 2, 'the second request is answered')
  t.equal(answers, 2, 'one batch and the end')
  dealer.close()
})

t.test('batches are duplicated and delayed on demand', async t => {
  const delayMs = 600_000
  const delayed: (() => void)[] = []
  /** What is due after `delayMs` is due when the test says so. */
  const clock: Clock = {
    ...systemClock,
    after(ms, callback, options) {
      if (ms !== delayMs) return systemClock.after(ms, callback, options)
      delayed.push(callback)
      return { cancel() {} }
    },
  }
  const { engine, post, transport } = await started(t, {}, undefined, clock)
  const subscriber = await subscribe(transport, engine.describe().ranks[0]!.events)
  await post('/admin/faults', { events: { duplicate: 1 } })
  await post('/v1/completions', { prompt: ids(20, 1), max_tokens: 1 })
  await until(() => subscriber.batches.length === 2, 'twice')
  await post('/admin/faults', { events: { delay: 1, delayMs } })
  for (let i = 2; i < 4; i++) await post('/v1/completions', { prompt: ids(20, 20 * i), max_tokens: 1 })
  await until(() => subscriber.batches.length === 3, 'the one behind it is there')
  t.equal(delayed.length, 1)
  delayed[0]!()
  await until(() => subscriber.batches.length === 4, 'the delayed one is there')
  t.strictSame(
    subscriber.batches.map(batch => batch.sequence),
    [0, 0, 2, 1],
  )
})

t.test('refuses, dies and fails on demand, as often as asked', async t => {
  const own = await started(t)
  const { post, get, transport, url } = own
  const body = { prompt: ids(20), max_tokens: 9 }
  await post('/admin/faults', { refuse: 1 })
  t.equal((await post('/v1/completions', body)).status, 503)
  t.equal((await post('/v1/completions', body)).status, 200)
  await post('/admin/faults', { refuse: -1 })
  t.equal((await get('/health')).status, 503)
  await send(transport, url, 'DELETE', '/admin/faults')
  t.equal((await get('/health')).status, 200)

  await post('/admin/faults', { die: { tokens: 3, requests: 1 } })
  const dying = stream(transport, url, '/v1/completions', { ...body, stream: true })
  t.equal(await dying.ended, 'failed')
  t.equal(dying.text.split('data:').length - 1, 3)
  await post('/admin/faults', { die: { tokens: 0, requests: 1 } })
  const dead = stream(transport, url, '/v1/completions', { ...body, stream: true })
  t.equal(await dead.ended, 'failed')
  t.equal(dead.status, 0)

  await post('/admin/faults', { error: { tokens: 2, requests: 1 } })
  const failing = await post('/v1/completions', { ...body, stream: true })
  const chunks = chunksOf(failing.text)
  t.equal(chunks.length, 3)
  t.match(chunks[2], { error: { code: 500 } })
  t.equal((await post('/v1/completions', body)).status, 200)
  t.equal(runningOf(own), 0)
  t.match((await post('/admin/faults', { hangs: true })).json.error.message, 'unknown fault hangs')
})

t.test('a hung engine answers when the hang ends', async t => {
  const own = await started(t)
  const { post, get, transport, url } = own
  await post('/admin/faults', { hang: 'generation' })
  const waiting = stream(transport, url, '/v1/completions', { prompt: ids(20), max_tokens: 2 })
  t.equal((await get('/health')).status, 200)
  await post('/admin/faults', { hang: 'all' })
  const health = get('/health')
  t.equal(waiting.outcome, undefined)
  await post('/admin/faults', { hang: 'off' })
  t.equal((await health).status, 200)
  t.equal(await waiting.ended, 'end')
  t.equal(waiting.status, 200)
})

t.test('a restart cuts requests, empties the cache and numbers from 0 on the same ports', async t => {
  const own = await started(t, { speed: 1 })
  const { engine, post, transport, url } = own
  const { events } = engine.describe().ranks[0]!
  const subscriber = await subscribe(transport, events)
  await post('/v1/completions', { prompt: ids(20), max_tokens: 1 })
  const hash = engine.state({ hasBlocks: true }).ranks[0]!.blocks![0]!.hash
  const cut = stream(transport, url, '/v1/completions', { prompt: ids(20), max_tokens: 9999, stream: true })
  await until(() => cut.text.includes('data:'), 'tokens come')
  t.strictSame((await post('/admin/restart', {})).json, { epoch: 2 })
  t.equal(await cut.ended, 'failed')
  t.equal(engine.describe().ranks[0]!.events, events)
  t.match(engine.state({ hasBlocks: true }), { epoch: 2, ranks: [{ nextSequence: 0, blocks: [] }] })
  await subscriber.whenItHears(2)
  await post('/v1/completions', { prompt: ids(20), max_tokens: 1 })
  await until(
    () => subscriber.batches.at(-1)?.sequence === 0 && subscriber.batches.length > 1,
    'a first batch',
  )
  t.not(engine.state({ hasBlocks: true }).ranks[0]!.blocks![0]!.hash, hash)
})

t.test('a killed engine is gone, and its owner knows', async t => {
  let isTold = false
  const { post, get } = await started(t, {}, () => {
    isTold = true
  })
  await post('/admin/kill', {}).catch(() => undefined)
  await until(() => isTold, 'the owner is told')
  await t.rejects(get('/health'))
})

t.test('a port that is taken fails the start and leaves nothing open', async t => {
  const first = await started(t)
  const { port } = first.engine.describe()
  await t.rejects(startEngine({ port }), { code: 'HOMING_TRANSPORT_LISTEN' })
})

t.test('a restart cuts requests that hang, and those whose body is on the way', async t => {
  const own = await started(t)
  const { engine, post, transport, url } = own
  await post('/admin/faults', { hang: 'generation' })
  const hung = stream(transport, url, '/v1/completions', { prompt: ids(20), max_tokens: 2 })
  const half = connect(Number(new URL(url).port), '127.0.0.1')
  half.on('error', () => undefined)
  const halfEnded = new Promise<void>(resolve => void half.once('close', () => resolve()))
  half.write('POST /tokenize HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{')
  t.teardown(() => half.destroy())
  await until(() => engine.openRequests === 2, 'both are taken')
  await post('/admin/restart', {})
  t.equal(await hung.ended, 'failed')
  await halfEnded
  await post('/admin/faults', { hang: 'off' })
  t.equal((await post('/v1/completions', { prompt: ids(20), max_tokens: 1 })).status, 200)
  t.equal(engine.state().requestsTaken, 1, 'no request of the first life is served in the second')
})

t.test('restarts at the same time follow each other', async t => {
  for (const publishesEvents of [true, false]) {
    const { engine, post, get } = await started(t, { publishesEvents })
    const answers = await Promise.all([1, 2, 3].map(() => post('/admin/restart', { downMs: 20 })))
    t.strictSame(
      answers.map(({ status }) => status),
      [200, 200, 200],
    )
    t.strictSame(
      answers.map(({ json }) => json.epoch),
      [2, 3, 4],
    )
    t.equal(engine.state().epoch, 4)
    t.equal((await get('/health')).status, 200)
  }
})

t.test('who closes an engine that is down does not wait for its next life', async t => {
  const { engine } = await started(t)
  const restarted = engine.restart(600_000)
  await engine.close()
  await restarted
  t.equal(engine.state().epoch, 1)
})

t.test('a client that leaves while its request hangs leaves nothing behind', async t => {
  const own = await started(t)
  const { engine, post, transport, url } = own
  await post('/admin/faults', { hang: 'all' })
  const waiting = stream(transport, url, '/v1/completions', { prompt: ids(20), max_tokens: 2 })
  await until(() => engine.openRequests === 1, 'it hangs')
  waiting.abort()
  await until(() => engine.openRequests === 0, 'it is forgotten')
  await post('/admin/faults', { hang: 'off' })
  t.equal(engine.state().requestsTaken, 0)
})
