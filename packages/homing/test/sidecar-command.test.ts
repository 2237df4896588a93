/** `homing sidecar` as a process, between a simulated engine without replay and a router that comes late. */

import assert from 'node:assert/strict'
import { systemClock } from '@homing/base'
import {
  decodeKvBatch,
  type KvEvent,
  parseSnapshotReply,
  type SnapshotReply,
  snapshotRequestFrames,
} from '@homing/protocol'
import { systemTransport } from '@homing/transport'
import t, { type Test } from 'tap'
import { RunningCommand, run } from './command.ts'

const ENGINE = [
  'engine',
  '--port',
  '0',
  '--events-port',
  '0',
  '--speed',
  '0',
  '--no-replay',
  '--block-size',
  '4',
]
const SIDECAR = ['sidecar', '--host', '127.0.0.1', '--events-port', '0', '--replay-port', '0']
const ROUTER = [
  'router',
  '--port',
  '0',
  '--host',
  '127.0.0.1',
  '--router-event-threads',
  '1',
  '--log-level',
  'error',
]

interface Key {
  readonly trust: string
  readonly trust_reason: string
  readonly blocks_held: number
}

async function json(url: string, init?: RequestInit): Promise<unknown> {
  const answer = await fetch(url, { ...init, signal: AbortSignal.timeout(240_000) })
  assert.ok(answer.ok, `${url}: ${answer.status}`)
  return answer.json()
}

function complete(url: string, prompt: readonly number[]): Promise<unknown> {
  return json(`${url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ prompt, max_tokens: 1 }),
  })
}

/**
 * Asks until the answer is as wanted; each ask waits for its answer, and the time limit of the test ends it.
 */
async function keyOf(url: string, isWanted: (key: Key) => boolean): Promise<Key> {
  for (;;) {
    const { workers } = (await json(`${url}/workers`)) as {
      readonly workers: readonly { readonly worker_keys: readonly Key[] }[]
    }
    const key = workers[0]?.worker_keys[0]
    if (key !== undefined && isWanted(key)) return key
  }
}

/** An engine without replay, and the query with which its sidecar is named to a router. */
async function engineWithSidecar(t: Test) {
  const engine = new RunningCommand(t, ENGINE)
  const { url } = await engine.ready()
  const [, events] = await engine.says(/events (tcp:\S+), no replay\n/)
  const sidecar = new RunningCommand(t, [...SIDECAR, '--events', events!])
  const [, endpoint, pid] = await sidecar.says(/^sidecar ready on (tcp:\S+) \(pid (\d+)\)\n/)
  assert.equal(Number(pid), sidecar.child.pid)
  const [, query] = await sidecar.says(
    /point the router at it: homing router --worker 'http:\/\/ENGINE:PORT(\?\S+)'/,
  )
  // What is published before the sidecar has subscribed is lost to it.
  while (!sidecar.stderr.includes('connected to the engine')) await sidecar.changed()
  return { engine, url, events: events!, sidecar, endpoint: endpoint!, query: query! }
}

t.test('a router that comes late is exact behind a sidecar, though its engine repeats nothing', async t => {
  const { engine, url, sidecar, query } = await engineWithSidecar(t)
  for (let i = 0; i < 5; i++)
    await complete(
      url,
      Array.from({ length: 20 }, (_, at) => i * 100 + at),
    )

  const router = new RunningCommand(t, [...ROUTER, '--worker', `${url}${query}`])
  const { url: routed } = await router.ready()
  // The sidecar may hear the last events when the router has its snapshot already.
  const { trust_reason } = await keyOf(routed, key => key.trust === 'exact' && key.blocks_held >= 5 * 5)
  t.match(trust_reason, /every batch since the engine started is applied/)
  const answer = await fetch(`${routed}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ prompt: Array.from({ length: 20 }, (_, at) => 300 + at), max_tokens: 1 }),
    signal: AbortSignal.timeout(240_000),
  })
  t.strictSame(
    [answer.status, answer.headers.get('x-homing-overlap-blocks'), answer.headers.get('x-homing-trust')],
    // The last token of a prompt is always computed, so its fifth block does not count.
    [200, '4', 'exact'],
  )
  await answer.text()

  engine.child.kill('SIGKILL')
  await engine.exit()
  while (!sidecar.stderr.includes('earlier events are withdrawn')) await sidecar.changed()
  router.child.kill('SIGTERM')
  t.equal((await router.exit()).code, 0)
  sidecar.child.kill('SIGTERM')
  const { code, stderr } = await sidecar.exit()
  t.equal(code, 0)
  t.match(stderr, /"reason":"signal SIGTERM","graceMs":5000,"msg":"stopping"/)
})

t.test('a TensorRT-LLM server is polled, and its events are published', async t => {
  const answers = [
    '[{"event_id":0,"data":{"type":"created","num_blocks_per_cache_level":[100,0]},"window_size":8192},' +
      '{"event_id":1,"data":{"type":"stored","parent_hash":null,"blocks":[{"type":"stored_block",' +
      '"block_hash":17357386176853808775,"tokens":[{"type":"unique_token","token_id":1,"token_extra_id":0},' +
      '{"type":"unique_token","token_id":2,"token_extra_id":0}],"cache_level":0,"priority":35}]},"window_size":8192}]',
  ]
  const transport = systemTransport({ clock: systemClock, log: { warn() {} } })
  t.teardown(() => transport.close())
  const server = await transport.http.listen({ host: '127.0.0.1', port: 0 }, exchange => {
    exchange.writeHead(exchange.path === '/kv_cache_events' ? 200 : 404, {})
    exchange.end(Buffer.from(answers.shift() ?? '[]'))
  })
  const url = `http://127.0.0.1:${server.port}`
  const sidecar = new RunningCommand(t, [...SIDECAR, '--poll', url, '--block-size', '2'])
  const [, replay] = await sidecar.says(/^rank 0: engine http:\S+, events \S+, replay (tcp:\S+)\n/m)
  // Until the first answer is published, the snapshot is empty.
  let events: readonly KvEvent[] = []
  while (events.length === 0) {
    const { promise: answered, resolve } = Promise.withResolvers<SnapshotReply>()
    const dealer = transport.messages.dial({ endpoint: replay! }, frames =>
      resolve(parseSnapshotReply(frames)),
    )
    dealer.send(snapshotRequestFrames())
    const reply = await answered
    dealer.close()
    if (reply.kind === 'part') events = decodeKvBatch(reply.payload).events
  }
  t.match(events, [{ kind: 'stored', tokens: Int32Array.of(1, 2), blockSizeTokens: 2 }])
  sidecar.child.kill('SIGTERM')
  t.equal((await sidecar.exit()).code, 0)
})

t.test('a port that is taken is one line that says what to do', async t => {
  const { events, endpoint, sidecar } = await engineWithSidecar(t)
  const port = endpoint.slice(endpoint.lastIndexOf(':') + 1)
  const refused = await run(t, [...SIDECAR, '--events', events, '--events-port', port])
  t.strictSame([refused.code, refused.stdout], [1, ''])
  t.match(
    refused.stderr,
    /homing: cannot listen on tcp:\S+: .*EADDRINUSE.*; choose another with --events-port or --replay-port \(0: a free one\)/,
  )
  sidecar.child.kill('SIGTERM')
  t.equal((await sidecar.exit()).code, 0)
})

t.test('settings that cannot be are told at once, with exit code 2', async t => {
  for (const [argv, message] of [
    [
      [],
      /--events is missing: name the endpoint .* such as --events tcp:\/\/127\.0\.0\.1:5557, or .* --poll\n$/,
    ],
    [['--events', 'tcp://a:5557', '--poll', 'http://a:8000'], /name two engines/],
    [['--poll', 'http://a:8000/v1'], /has the path \/v1; leave out \/v1/],
    [['--poll', 'a:8000'], /is not a URL such as http/],
    [['--events', 'tcp://*:5557'], /names every interface.*; name the host of the engine/],
    [['--events', 'localhost:5557'], /is not an endpoint; use tcp:\/\/HOST:PORT/],
    [['--events', 'ipc:///tmp/e', '--ranks', '2'], /start a sidecar for each rank/],
    [['--events', 'tcp://a:5557', '--ranks', '2', '--events-port', '6658'], /overlap with --ranks 2/],
    [
      ['--events', 'tcp://a:5557', '--send-queue', '100'],
      /--send-queue 100 must be above --buffer-batches 10000/,
    ],
  ] as const) {
    const { code, stderr, stdout } = await run(t, ['sidecar', ...argv])
    t.strictSame([code, stdout], [2, ''])
    t.match(stderr, message)
  }
})

t.test('the help says what it is for and how a router is pointed at it', async t => {
  const { code, stdout } = await run(t, ['sidecar', '--help'])
  t.equal(code, 0)
  t.match(stdout, /homing sidecar --events tcp:\/\/127\.0\.0\.1:5557/)
  t.match(stdout, /homing router --worker 'http:\/\/ENGINE:8000\?events=5657&replay=6657'/)
})
