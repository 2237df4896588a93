/** The service on real threads and real sockets, when one of its event threads dies. */

import assert from 'node:assert/strict'
import { createActorSystem } from '@homing/actor'
import { silentLog, systemClock } from '@homing/base'
import {
  encodeEventFrames,
  encodeKvBatch,
  encodeReplayEnd,
  encodeReplayReply,
  parseReplayRequest,
} from '@homing/protocol'
import { systemTransport } from '@homing/transport'
import t from 'tap'
import { type IndexServiceArgs, indexService } from '../src/index.ts'
import { BLOCK, stored, tokensUpTo } from './service-world.ts'

const ARGS: Omit<IndexServiceArgs, 'registrations'> = {
  host: '127.0.0.1',
  port: 0,
  bodyBytesMax: 1024 * 1024,
  bodiesBytesMax: 1024 * 1024,
  bodyTimeoutMs: 10_000,
  clientStallTimeoutMs: 10_000,
  openRequestsMax: 8,
  threads: 2,
  indexBytes: 8 * 1024 * 1024,
  labelBytes: 1 << 16,
  workerSlotsMax: 8,
  replayTimeoutMs: 500,
  peers: [],
  peersMax: 1,
  peerWaitMs: 0,
  peerTimeoutMs: 1000,
  peerDumpBytesMax: 1024 * 1024,
  accessLog: undefined,
  traceIdHeader: 'x-trace-id',
}

t.test('after the death of an event thread its ranks are replayed, and the others never stop', async t => {
  const transport = systemTransport({ clock: systemClock, log: silentLog })
  t.teardown(() => transport.close())
  const { messages, http } = transport
  // Two engines that published the same prompt, and repeat it.
  const payload = encodeKvBatch(
    { timestampSeconds: 1, rank: undefined, events: [stored([1, 2], tokensUpTo(8))] },
    'vllm-map',
  )
  const registrations = await Promise.all(
    [1n, 2n].map(async instanceId => {
      const publisher = await messages.publish({ endpoint: 'tcp://127.0.0.1:0' })
      const replay = await messages.serve({ endpoint: 'tcp://127.0.0.1:0' }, (identity, frames) => {
        if (parseReplayRequest(frames) === 0)
          replay.send(identity, encodeReplayReply('topic', '', 0, payload))
        replay.send(identity, encodeReplayEnd('topic'))
      })
      publisher.send(encodeEventFrames('', 0, payload))
      return {
        instanceId,
        dpRank: 0,
        model: 'm',
        group: 'default',
        blockSizeTokens: BLOCK,
        endpoint: publisher.endpoint,
        replayEndpoint: replay.endpoint,
      }
    }),
  )
  const system = await createActorSystem({ pools: { events: { count: 2 } }, logLevel: 'silent' })
  t.teardown(() => system.shutdown({ deadline: '5s' }))
  const ref = system.spawn(indexService, { name: 'index-service', args: { ...ARGS, registrations } })
  const ready = await ref.ask({ type: 'whenReady' }, { timeout: '1m' })
  assert.ok('port' in ready)
  const origin = `http://127.0.0.1:${ready.port}`
  const scores = async (): Promise<Record<string, unknown>> => {
    const body = new TextEncoder().encode(JSON.stringify({ token_ids: tokensUpTo(8), model_name: 'm' }))
    const reply = await http.fetch({ origin, method: 'POST', path: '/query', body }, { timeoutMs: 60_000 })
    return JSON.parse(new TextDecoder().decode(reply.body)).scores
  }
  /**
   * Bounded by the time limit of the test. A shard that dies may answer for a while, and one that is rebuilt
   * in part.
   */
  const untilBoth = async (): Promise<void> => {
    while (JSON.stringify(await scores()) !== '{"1":{"0":8},"2":{"0":8}}');
  }
  await untilBoth()
  let hasDied = false
  for (const thread of ['events-0', 'events-1', 'events-0']) {
    await system.killThread(thread)
    // Later the shard that died before may still be rebuilt: its old memory answers until it is.
    if (!hasDied) t.ok(Object.keys(await scores()).length >= 1, 'the other shard answers')
    hasDied = true
    await untilBoth()
    t.pass(`both answer after the death of ${thread}`)
  }
})

t.test('what was inherited dies with its event thread, and is no longer told', async t => {
  const transport = systemTransport({ clock: systemClock, log: silentLog })
  t.teardown(() => transport.close())
  const { messages, http } = transport
  const publisher = await messages.publish({ endpoint: 'tcp://127.0.0.1:0' })
  // Asked for a replay, which never comes: so its listener is connected.
  const { promise: connected, resolve } = Promise.withResolvers<void>()
  const replay = await messages.serve({ endpoint: 'tcp://127.0.0.1:0' }, () => resolve())
  const peer = await http.listen({ host: '127.0.0.1', port: 0 }, async exchange => {
    await connected
    exchange.writeHead(200, {})
    const blocks = '[{"block_hash": 1, "tokens_hash": 14643705804678351452}]'
    const event = `{"worker_id": 7, "event": {"event_id": 0, "data": {"stored": {"parent_hash": null, "blocks": ${blocks}}}}}`
    const endpoints = `{"7": {"0": "${publisher.endpoint}"}}`
    exchange.end(
      new TextEncoder().encode(
        `{"m:default": {"block_size": 4, "endpoints": ${endpoints}, "events": [${event}]}}`,
      ),
    )
  })
  const system = await createActorSystem({ pools: { events: { count: 2 } }, logLevel: 'silent' })
  t.teardown(() => system.shutdown({ deadline: '5s' }))
  const registration = {
    instanceId: 7n,
    dpRank: 0,
    model: 'm',
    group: 'default',
    blockSizeTokens: BLOCK,
    endpoint: publisher.endpoint,
    replayEndpoint: replay.endpoint,
  }
  const args = {
    ...ARGS,
    registrations: [registration],
    peers: [`http://127.0.0.1:${peer.port}`],
    peerTimeoutMs: 20_000,
  }
  const ref = system.spawn(indexService, { name: 'index-service', args })
  const ready = await ref.ask({ type: 'whenReady' }, { timeout: '1m' })
  assert.ok('port' in ready)
  t.match(ready.recovery, /^1 blocks of 1 of 1 ranks/)
  const origin = `http://127.0.0.1:${ready.port}`
  const inherited = async (): Promise<unknown> => {
    const reply = await http.fetch({ origin, method: 'GET', path: '/workers' }, { timeoutMs: 60_000 })
    return JSON.parse(new TextDecoder().decode(reply.body))[0].listeners[0].inherited
  }
  t.match(await inherited(), { blocks: 1 })
  await system.killThread('events-0')
  // Bounded by the time limit of the test.
  while ((await inherited()) !== null);
  await peer.close(0)
})
