/**
 * Blocks that a service inherits from a peer at its start: how long they stay, and how far they are believed.
 */

import { KV_CLEARED, kvRemoved } from '@homing/protocol'
import t, { type Test } from 'tap'
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

const QUERY = { token_ids: tokensUpTo(16), model_name: 'm' }

function given(engine: FakeEngine) {
  return {
    instanceId: 7n,
    dpRank: 0,
    model: 'm',
    group: 'default',
    blockSizeTokens: BLOCK,
    endpoint: engine.endpoint,
    replayEndpoint: engine.replayEndpoint,
  }
}

/**
 * An engine that repeats nothing, a service that saw all of it, and one that starts later with the first as
 * peer.
 */
async function inherited(t: Test, meanwhile: (engine: FakeEngine) => void = () => {}) {
  const w: ServiceWorld = serviceWorld(t)
  const engine = await w.engine('10.0.0.1', { hasReplay: false })
  const first = await w.start('10.0.0.8')
  await w.ask(first.url, 'POST', '/register', registration(engine))
  await w.settle()
  engine.publish(stored([101, 102, 103], tokensUpTo(12)))
  await w.settle()
  const second = w.spawn('10.0.0.9', {
    registrations: [given(engine)],
    peers: ['http://10.0.0.7:8090', first.url],
  })
  await w.settle()
  meanwhile(engine)
  await w.advance('2s')
  const ready = await second.whenReady
  const scores = async () => (await w.ask(second.url, 'POST', '/query', QUERY)).json.scores
  const listener = async () => (await w.ask(second.url, 'GET', '/workers')).json[0].listeners[0]
  return { w, engine, ready, url: second.url, scores, listener }
}

t.test('the first peer that answers is believed, but not as exact', async t => {
  const { w, ready, url, scores, listener } = await inherited(t)
  t.match(ready, { recovery: /^3 blocks of 1 of 1 ranks are known only from http:\/\/10\.0\.0\.8:8090$/ })
  t.strictSame(await scores(), { 7: { 0: 12 } })
  t.equal((await w.ask(url, 'POST', '/query', QUERY)).headers['x-homing-trust'], 'approximate')
  t.match(await listener(), {
    trust: 'approximate',
    trust_reason:
      /some blocks are known only from http:\/\/10\.0\.0\.8:8090, and no replay has confirmed them/,
    inherited: { peer: 'http://10.0.0.8:8090', blocks: 3 },
  })
  const dump = (await w.ask(url, 'GET', '/dump')).json['m:default']
  t.strictSame(
    dump.events[0].event.data.stored.blocks.map(({ block_hash }: { block_hash: number }) => block_hash),
    [101, 102, 103],
  )
})

t.test('a service that is stopped while it asks its peers leaves its port to the next one', async t => {
  const w: ServiceWorld = serviceWorld(t)
  const engine = await w.engine('10.0.0.1')
  const stopped = w.spawn('10.0.0.9', { registrations: [given(engine)], peers: ['http://10.0.0.7:8090'] })
  await stopped.system.settle()
  await stopped.system.shutdown()
  await t.rejects(stopped.whenReady)
  await w.advance('20s')
  const { ready } = await w.start('10.0.0.9')
  t.match(ready, { ranks: 0 })
})

t.test('events go on from what was inherited', async t => {
  const { w, engine, scores } = await inherited(t)
  engine.publish(stored([104], [13, 14, 15, 16], 103))
  await w.settle()
  t.strictSame(await scores(), { 7: { 0: 16 } })
  engine.publish(kvRemoved({ hashes: hashes(102) }))
  await w.settle()
  t.strictSame(await scores(), { 7: { 0: 4 } })
})

t.test('what happened while the peer was asked is not lost', async t => {
  const { scores } = await inherited(t, engine => {
    engine.publish(stored([104], [13, 14, 15, 16], 103))
    engine.publish(kvRemoved({ hashes: hashes(104) }))
    engine.publish(kvRemoved({ hashes: hashes(103) }))
  })
  t.strictSame(await scores(), { 7: { 0: 8 } })
})

t.test('a cleared cache clears what was inherited', async t => {
  const { w, engine, scores, listener } = await inherited(t)
  engine.publish(KV_CLEARED)
  await w.settle()
  t.strictSame(await scores(), {})
  t.match(await listener(), { inherited: null })
})

t.test('an engine that goes away takes with it what was inherited', async t => {
  const { w, engine, scores, listener } = await inherited(t)
  engine.stop()
  await w.advance('2s')
  t.strictSame(await scores(), {})
  t.match(await listener(), { status: 'failed', inherited: null })
})

t.test('a rank that is unregistered leaves nothing of what was inherited', async t => {
  const { w, engine, url, scores } = await inherited(t)
  await w.ask(url, 'POST', '/unregister', { instance_id: 7, model_name: 'm' })
  await w.settle()
  await w.ask(url, 'POST', '/register', registration(engine))
  await w.settle()
  t.strictSame(await scores(), {})
})

t.test('an engine that repeats its history is exact by itself and inherits nothing', async t => {
  const w = serviceWorld(t)
  const engine = await w.engine('10.0.0.1')
  engine.publish(stored([101, 102], tokensUpTo(8)))
  const first = await w.start('10.0.0.8')
  await w.ask(first.url, 'POST', '/register', registration(engine))
  await w.settle()
  const second = w.spawn('10.0.0.9', { registrations: [given(engine)], peers: [first.url] })
  await w.advance('2s')
  t.match(await second.whenReady, { ranks: 1, recovery: /^0 blocks of 0 of 1 ranks/ })
  const answer = await w.ask(second.url, 'POST', '/query', QUERY)
  t.strictSame(answer.json.scores, { 7: { 0: 8 } })
  t.equal(answer.headers['x-homing-trust'], 'exact')
})

t.test('a peer that may mean another engine is not believed', async t => {
  const events = JSON.stringify([
    {
      worker_id: 7,
      event: { data: { stored: { parent_hash: null, blocks: [{ block_hash: 101, tokens_hash: 1 }] } } },
    },
  ])
  const w = serviceWorld(t)
  const engine = await w.engine('10.0.0.1', { hasReplay: false })
  const near = await w.engine('127.0.0.1', { hasReplay: false })
  let body = ''
  await w.network.transport().http.listen({ host: '10.0.0.8', port: 8090 }, exchange => {
    exchange.writeHead(200, {})
    exchange.end(new TextEncoder().encode(body))
  })
  for (const [of, endpoints, blocks] of [
    [engine, { 7: { 0: engine.endpoint } }, 1],
    [engine, undefined, 0],
    [engine, { 8: { 0: engine.endpoint }, 7: { 1: engine.endpoint } }, 0],
    [engine, { 7: { 0: 'tcp://10.0.0.2:5557' } }, 0],
    [near, { 7: { 0: near.endpoint } }, 0],
  ] as const) {
    const named = endpoints === undefined ? '' : `"endpoints": ${JSON.stringify(endpoints)},`
    body = `{"m:default": {"block_size": 4, ${named} "events": ${events}}}`
    const service = w.spawn('10.0.0.9', { registrations: [given(of)], peers: ['http://10.0.0.8:8090'] })
    await w.advance('2s')
    const { recovery } = (await service.whenReady) as { readonly recovery: string }
    t.equal(recovery.startsWith(`${blocks} blocks of ${blocks} of 1 ranks`), true, recovery)
    t.equal(/it may mean another engine/.test(recovery), blocks === 0, recovery)
    const ended = service.system.shutdown()
    await w.advance('1s')
    await ended
  }
})

t.test('where no peer can be used the index begins empty', async t => {
  const w = serviceWorld(t)
  const engine = await w.engine('10.0.0.1', { hasReplay: false })
  let body = ''
  await w.network.transport().http.listen({ host: '10.0.0.8', port: 8090 }, exchange => {
    exchange.writeHead(200, {})
    exchange.end(new TextEncoder().encode(body))
  })
  for (body of [
    'not JSON',
    '[]',
    '{"m": {"block_size": 4, "events": []}}',
    '{"m:default": {"block_size": "4", "events": []}}',
    '{"m:default": {"block_size": 4, "events": {}}}',
    '{"m:default": {"block_size": 4, "endpoints": {"7": "tcp://a:1"}, "events": []}}',
    '{"m:default": {"block_size": 4, "events": [{"worker_id": 7}]}}',
    '{"m:default": {"block_size": 4, "events": [{"worker_id": 7, "event": {"data": {"stored": {"parent_hash": null, "blocks": [{"block_hash": 1}]}}}}]}}',
  ]) {
    const service = w.spawn('10.0.0.9', { registrations: [given(engine)], peers: ['http://10.0.0.8:8090'] })
    await w.advance('2s')
    t.match(await service.whenReady, { recovery: 'no peer could be asked: the index begins empty' }, body)
    t.strictSame((await w.ask(service.url, 'POST', '/query', QUERY)).json.scores, {})
    const ended = service.system.shutdown()
    await w.advance('1s')
    await ended
  }
})
