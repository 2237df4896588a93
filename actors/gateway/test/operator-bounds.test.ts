/** What operator requests may take: places, memory of answers, dumps, work at engines. On both ports. */

import type { IndexedBlock } from '@homing/fleet'
import t, { type Test } from 'tap'
import { HOST, type StartOptions, start, type World } from './gateway-world.ts'
import { READ } from './sample-records.ts'
import { data, end, head } from './worker-exchange.ts'

const BODY = '{"model":"m","prompt":"hi"}'
const ADMIN_PORT = 9000

const ON_EACH_PORT = (
  name: string,
  run: (t: Test, options: StartOptions, origin: object) => Promise<void>,
) => {
  t.test(`${name}, on the port of the API`, async t => await run(t, {}, {}))
  t.test(
    `${name}, on a port of its own`,
    async t => await run(t, { adminPort: ADMIN_PORT }, { origin: `http://${HOST}:${ADMIN_PORT}` }),
  )
}

const samples = async ({ ask }: World, origin: object, name: string): Promise<readonly string[]> =>
  (await ask('GET', '/metrics', origin)).body.split('\n').filter(line => line.startsWith(name))

function blocksOf(count: number): readonly IndexedBlock[] {
  return Array.from({ length: count }, (_, i) => {
    const engineHash = i.toString(16).padStart(16, '0')
    return { engineHash, parentEngineHash: undefined, localHash: engineHash, isReachable: true }
  })
}

ON_EACH_PORT('views that wait for clients leave all others their places', async (t, options, origin) => {
  const bounds = { ...options, openOperatorRequestsMax: 6 }
  const world = await start(t, { openRequestsMax: 1 }, { read: () => undefined }, bounds)
  const { send, ask, system, answer, script } = world
  // The tokenizer never answers.
  const views = [1, 2].map(() => send('POST', '/route', { ...origin, body: BODY }))
  await system.settle()
  t.ok(views.every(view => view.end === 'open'))
  const third = send('POST', '/route', { ...origin, body: BODY })
  await system.settle()
  t.match(third.error, [503, 'ServiceUnavailableError', 'overloaded'])
  t.match(third.body, /POST \/route is answered for 4 requests at one time, 2 of them of one client/)
  t.equal(third.headers['retry-after'], '1')
  t.strictSame(await samples(world, origin, 'homing_operator_turns_refused_total{route="route"}'), [
    'homing_operator_turns_refused_total{route="route"} 1',
  ])

  // One more place is left.
  script.blocks = blocksOf(3000)
  const dump = send('GET', '/dump', origin)
  dump.call.pause()
  await system.settle()
  const refused = await ask('GET', '/workers', origin)
  t.match(refused.error, [503, 'ServiceUnavailableError', 'overloaded'])
  t.match(refused.body, /3 operator requests of this client are open/)
  t.equal(refused.headers['retry-after'], '1')
  t.equal((await ask('GET', '/metrics', origin)).status, 200, 'what watches has places of its own')
  t.strictSame(await samples(world, origin, 'homing_operator_refused_total'), [
    'homing_operator_refused_total{bound="requests"} 1',
    'homing_operator_refused_total{bound="bytes"} 0',
  ])
  t.equal((await ask('GET', '/health')).status, 200)
  script.read = () => ({ kind: 'read', request: READ })
  const relayed = send('POST', '/v1/embeddings', { body: BODY })
  await system.settle()
  t.match(
    (await ask('POST', '/v1/embeddings', { body: BODY })).error,
    [503],
    'the one place of the data path',
  )
  await answer(head(), data('x'), end)
  t.equal(relayed.status, 200, 'it was not taken by operator requests')
  dump.call.abort()
  await system.settle()
  t.equal((await ask('GET', '/workers', origin)).status, 200, 'the place is free again')
  await system.advance('7s')
  t.ok(views.every(view => view.status === 504))
})

t.test('requests of the data path leave operators their places', async t => {
  const { send, ask, system } = await start(t, { openRequestsMax: 1 })
  send('POST', '/v1/embeddings', { body: BODY })
  await system.settle()
  t.match((await ask('POST', '/v1/embeddings', { body: BODY })).error, [503])
  for (const path of ['/metrics', '/workers', '/dump', '/health', '/ready']) {
    t.equal((await ask('GET', path)).status, 200, path)
  }
  t.equal((await ask('POST', '/route', { body: BODY })).status, 200)
})

ON_EACH_PORT(
  'of 30 dumps one is made, four wait, and no slice comes ahead of its client',
  async (t, options, origin) => {
    const world = await start(t, {}, { blocks: blocksOf(5000) }, options)
    const { send, system, log } = world
    const dumps = Array.from({ length: 30 }, () => {
      const dump = send('GET', '/dump', origin)
      dump.call.pause()
      return dump
    })
    await system.settle()
    t.ok(log.dumps.length <= 2, `slices asked for: ${log.dumps}`)
    for (const dump of dumps) dump.call.resume()
    await system.settle()
    const refused = dumps.filter(({ status }) => status === 503)
    t.equal(refused.length, 25)
    t.match(refused[0]!.body, /one is made at a time, and the line for it is full/)
    t.equal(refused[0]!.headers['retry-after'], '10')
    const whole = dumps.filter(({ status }) => status === 200)
    t.equal(whole.length, 5)
    for (const { body, end } of whole) {
      t.equal(end, 'complete')
      t.equal(JSON.parse(body)['10.0.0.1:8001/0'].blocks.length, 5000)
    }
    t.strictSame(log.dumps, Array(5).fill([0, 1024, 2048, 3072, 4096]).flat())
    t.strictSame(await samples(world, origin, 'homing_operator_turns_refused_total{route="dump"}'), [
      'homing_operator_turns_refused_total{route="dump"} 25',
    ])
  },
)

ON_EACH_PORT('a dump ends when its client leaves, or takes nothing', async (t, options, origin) => {
  const { send, system, log, script } = await start(t, {}, { blocks: blocksOf(5000) }, options)
  const dump = () => {
    const call = send('GET', '/dump', origin)
    call.call.pause()
    return call
  }
  const left = dump()
  await system.settle()
  left.call.abort()
  await system.settle()
  t.strictSame(log.dumps.splice(0).at(-1), 'end')

  const stalled = dump()
  const next = dump()
  await system.settle()
  await system.advance('5s')
  t.equal(next.status, undefined, 'it waits in line')
  await system.advance('16s')
  next.call.resume()
  await system.settle()
  // The gateway of this world waits less long for its console than the console for the turn.
  t.equal(next.status, options.adminPort === undefined ? 504 : 503, 'not for ever')
  await system.advance('10s')
  t.strictSame(log.dumps.splice(0).at(-1), 'end')
  stalled.call.resume()
  await system.settle()
  t.equal(stalled.end, 'broken', 'a short answer does not look whole')
  script.blocks = blocksOf(1)
  const small = send('GET', '/dump', origin)
  await system.settle()
  t.equal(small.status, 200)
  t.equal(small.headers['content-length'], String(small.body.length))
})
