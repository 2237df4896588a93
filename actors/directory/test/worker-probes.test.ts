/** When a worker is up, down, late or full, by its probes and its calls; how many are probed at one time. */

import t from 'tap'
import { PROBES_AT_ONCE_MAX } from '../src/worker-probes.ts'
import { world } from './directory-world.ts'

t.test('a worker that is not there is kept, probed on, and found when it comes', async t => {
  const w = await world(t)
  w.start(['http://10.0.0.1:8000'])
  const probed = w.ref.ask({ type: 'whenProbed', withinMs: 60_000 }, { timeout: 5000 })
  await w.system.settle()
  t.equal(
    (await probed).workers[0]!.state,
    'down',
    'whoever waits for the first probe does not wait for the worker',
  )
  await w.system.advance('1m')
  t.equal(w.worker().state, 'down')
  const { unansweredSinceMs } = w.worker()
  t.ok(w.clock.wallMs() - unansweredSinceMs! >= 60_000, 'since it joined')
  await w.engine('10.0.0.1')
  await w.system.advance('2s')
  t.match(w.worker(), { state: 'up', unansweredSinceMs: undefined })
})

t.test('a worker whose connection is full of calls stays as it is until it can be asked again', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1')
  w.start(['http://10.0.0.1:8000'])
  await w.system.advance('10s')
  t.equal(w.worker().state, 'up')
  w.network.faults.http = () => 'full'
  await w.system.advance('1m')
  t.equal(w.worker().state, 'up')
})

t.test('what this machine lacks is no fault of a worker: its state stays, and it is told once', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1')
  await w.engine('10.0.0.2')
  w.network.faults.http = ({ origin }) => (origin.startsWith('http://10.0.0.2') ? 'no-socket' : 'deliver')
  w.start(['http://10.0.0.1:8000', 'http://10.0.0.2:8000'])
  const probed = w.ref.ask({ type: 'whenProbed', withinMs: 60_000 }, { timeout: 5000 })
  await w.system.settle()
  t.strictSame(
    (await probed).workers.map(({ state }) => state),
    ['up', 'probing'],
    'the start does not wait for it',
  )
  t.match(w.worker(1).stateReason, /EMFILE/)
  w.network.faults.http = () => 'no-socket'
  await w.system.advance('5m')
  t.strictSame(
    w.fleet.workers.map(({ state }) => state),
    ['up', 'probing'],
  )
  const warned = () => w.log.lines.filter(({ level }) => level === 'warn').map(({ text }) => text)
  t.equal(
    warned().filter(text => text.startsWith('workers cannot be probed')).length,
    2,
    'before and after one was',
  )
  t.notOk(warned().some(text => /is down|does not answer/.test(text)))
  w.network.faults.http = undefined
  await w.system.advance('10s')
  t.strictSame(
    w.fleet.workers.map(({ state }) => state),
    ['up', 'up'],
  )
})

t.test('a worker without a connection is down at once, probed soon, and up when it answers', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1')
  await w.begin(['http://10.0.0.1:8000'])
  const suspect = { type: 'suspect', workerId: '10.0.0.1:8000', isUnreachable: true } as const
  w.ref.tell({ ...suspect, reason: 'connection refused' })
  await w.system.settle()
  const unansweredSinceMs = w.clock.wallMs()
  t.match(w.worker(), { state: 'down', stateReason: 'connection refused', unansweredSinceMs })
  await w.system.advance(200)
  t.equal(w.worker().state, 'up')
  // Again at once: it is probed later than the first time.
  w.ref.tell({ ...suspect, reason: 'connection refused' })
  await w.system.advance(300)
  t.equal(w.worker().state, 'down')
  await w.system.advance(100)
  t.equal(w.worker().state, 'up')
})

t.test('calls that broke are no death while probes at once are answered', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1')
  await w.begin(['http://10.0.0.1:8000'])
  const suspect = { type: 'suspect', workerId: '10.0.0.1:8000', isUnreachable: false } as const
  let probes = 0
  w.network.faults.http = () => {
    probes++
    return 'deliver'
  }
  for (let call = 0; call < 30; call++) w.ref.tell({ ...suspect, reason: 'reset' })
  await w.system.settle()
  t.ok(probes > 0, 'it is probed at once')
  t.equal(w.worker().state, 'up')
  w.ref.tell({ ...suspect, reason: 'reset' })
  await w.system.advance(600)
  t.equal(w.worker().state, 'up', 'calls that broke with one blow count once')
  for (let again = 0; again < 20; again++) {
    w.ref.tell({ ...suspect, reason: 'reset again' })
    await w.system.advance(600)
    // A request that breaks every worker must not take them from everybody: the router judges that.
    t.equal(w.worker().state, 'up')
  }
})

t.test('a probe that is too slow is no miss of a worker that sends bytes of answers', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1')
  await w.begin(['http://10.0.0.1:8000'])
  w.network.faults.http = () => ({ delayMs: 20_000 })
  for (let second = 0; second < 60; second++) {
    w.ref.tell({ type: 'alive', workerIds: ['10.0.0.1:8000', 'unknown:1'] })
    await w.system.advance('1s')
  }
  t.equal(w.worker().state, 'up')
  await w.system.advance('1m')
  t.equal(w.worker().state, 'down', 'without them it is')
})

t.test('/health 5xx takes a worker down whatever its models say, 404 and silence do not', async t => {
  const w = await world(t)
  let health: number | undefined = 404
  await w.outside.http.listen({ host: '10.0.0.5', port: 8000 }, exchange => {
    if (exchange.path === '/health' && health === undefined) return
    const status = exchange.path === '/v1/models' ? 200 : exchange.path === '/health' ? health! : 404
    exchange.writeHead(status, {})
    exchange.end(new TextEncoder().encode('{"data":[{"id":"m"}]}'))
  })
  await w.begin(['http://10.0.0.5:8000'])
  await w.system.advance('30s')
  t.equal(w.worker().state, 'up')
  health = undefined
  await w.system.advance('1m')
  t.equal(w.worker().state, 'up', 'a busy engine may answer late')
  health = 503
  await w.system.advance('10s')
  t.match(w.worker(), { state: 'down', stateReason: 'GET /health answers 503', isDownByAnswer: true })
  health = 200
  await w.system.advance('5s')
  t.equal(w.worker().state, 'up')
})

t.test(
  'another list of models is known with the next cheap probe, or at once when a call says so',
  async t => {
    const w = await world(t)
    let model = 'm'
    await w.outside.http.listen({ host: '10.0.0.5', port: 8000 }, exchange => {
      exchange.writeHead(exchange.path === '/v1/models' ? 200 : 404, {})
      exchange.end(new TextEncoder().encode(`{"data":[{"id":"${model}"}]}`))
    })
    await w.begin(['http://10.0.0.5:8000'])
    await w.system.advance('30s')
    model = 'other'
    await w.system.advance('6s')
    t.match(w.worker().models, [{ name: 'other' }])
    model = 'third'
    w.ref.tell({ type: 'lookAgain', workerId: '10.0.0.5:8000' })
    await w.system.settle()
    t.match(w.worker().models, [{ name: 'third' }])
  },
)

t.test('a call that broke takes the worker down with the next probe that fails', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1')
  await w.begin(['http://10.0.0.1:8000'])
  w.network.faults.http = () => 'refuse'
  w.ref.tell({ type: 'suspect', workerId: '10.0.0.1:8000', reason: 'reset', isUnreachable: false })
  await w.system.settle()
  t.equal(w.worker().state, 'down')
})

t.test('one miss is not death, three are', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1')
  await w.begin(['http://10.0.0.1:8000'])
  let refusals = 1
  w.network.faults.http = () => (refusals-- > 0 ? 'refuse' : 'deliver')
  await w.system.advance('10s')
  t.equal(w.worker().state, 'up')
  t.notOk(w.subscriber.waiting.some(({ fleet }) => fleet.workers[0]!.state === 'down'))
  w.network.faults.http = () => 'refuse'
  await w.system.advance('5s')
  t.equal(w.worker().state, 'down')
  w.network.faults.http = undefined
  await w.system.advance('2s')
  t.equal(w.worker().state, 'up')
})

t.test('a slow answer is not death', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1')
  await w.begin(['http://10.0.0.1:8000'])
  w.network.faults.http = () => ({ delayMs: 1500 })
  await w.system.advance('30s')
  t.equal(w.worker().state, 'up')
  t.notOk(w.subscriber.waiting.some(({ fleet }) => fleet.workers[0]!.state === 'down'))
})

t.test('who waits for the first probes is told a fleet that has seen them', async t => {
  const w = await world(t)
  w.network.faults.http = () => ({ delayMs: 500 })
  w.start(['http://10.0.0.1:8000'])
  w.ref.tell({
    type: 'probed',
    workerId: '10.0.0.1:8000',
    turn: 1,
    outcome: { reached: false, reason: 'connection refused' },
  })
  const probed = w.ref.ask({ type: 'whenProbed', withinMs: 60_000 }, { timeout: 5000 })
  await w.system.settle()
  t.match((await probed).workers[0], { state: 'down', stateReason: 'connection refused' })
})

t.test('who waits for the first probes does not wait for ever', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1')
  w.network.faults.http = () => ({ delayMs: 1500 })
  w.start(['http://10.0.0.1:8000'])
  const probed = w.ref.ask({ type: 'whenProbed', withinMs: 1000 }, { timeout: 5000 })
  await w.system.advance(1000)
  t.match((await probed).workers[0], { state: 'probing' })
})

t.test('of many workers some are probed at one time, and all in the end', async t => {
  const w = await world(t)
  const count = 2 * PROBES_AT_ONCE_MAX + 10
  const ids = Array.from({ length: count }, (_, i) => `10.0.${i >> 8}.${i & 255}`)
  for (const id of ids) await w.engine(id)
  const asked = new Set<string>()
  w.network.faults.http = ({ origin }) => {
    asked.add(origin)
    return { delayMs: 100 }
  }
  w.start(
    ids.map(id => `http://${id}:8000`),
    { workerSlotsMax: 1024 },
  )
  await w.system.settle()
  t.equal(asked.size, PROBES_AT_ONCE_MAX)
  await w.system.advance('2s')
  t.equal(w.fleet.workers.filter(({ state }) => state === 'up').length, count)
})

t.test('workers that hang do not hold up the probes of one that is up', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1')
  w.network.faults.http = ({ origin }) =>
    origin === 'http://10.0.0.1:8000' ? 'deliver' : { delayMs: 3_600_000 }
  const hanging = Array.from(
    { length: 3 * PROBES_AT_ONCE_MAX },
    (_, i) => `http://10.9.${i >> 8}.${i & 255}:8000`,
  )
  for (let i = 0; i < hanging.length; i++) await w.engine(`10.9.${i >> 8}.${i & 255}`)
  w.start(['http://10.0.0.1:8000', ...hanging], { workerSlotsMax: 1024 })
  await w.system.advance('1m')
  const before = w.asked.get('10.0.0.1')!.length
  await w.system.advance('1m')
  const asked = w.asked
    .get('10.0.0.1')!
    .slice(before)
    .filter(path => path === '/health')
  t.ok(asked.length >= 25, `asked ${asked.length} times in a minute`)
})
