/** What the directory does when a diagnosis of one of its workers is asked for. */

import t from 'tap'
import { world } from './directory-world.ts'

t.test('a worker of a directory is looked at anew, once for all who ask at one time', async t => {
  const w = await world(t)
  const events = ['10.0.0.1', '10.0.0.2'].map(host => [
    { data_parallel_rank: 0, endpoint: `tcp://${host}:5557` },
  ])
  await w.engine('10.0.0.1', { events: events[0] })
  await w.engine('10.0.0.2', { events: events[1] })
  await w.publisher('tcp://10.0.0.1:5557')
  await w.begin(['http://10.0.0.1:8000', 'http://10.0.0.2:8000?events=5557&replay=6557'])
  const diagnose = (workerId: string) => w.ref.ask({ type: 'diagnoseWorker', workerId }, { timeout: 60_000 })
  t.equal(await diagnose('10.0.0.9:8000'), 'unknown')

  const before = w.asked.get('10.0.0.1')!.length
  const asked = [diagnose('10.0.0.1:8000'), diagnose('10.0.0.1:8000')]
  await w.system.advance('10s')
  const [one, other] = await Promise.all(asked)
  t.strictSame(one, other)
  const paths = w.asked.get('10.0.0.1')!.slice(before)
  t.equal(paths.filter(path => path === '/version').length, 1)
  if (one === undefined || typeof one === 'string') throw new Error('no diagnosis')
  t.match(one, {
    verdict: 'inexact',
    trust: { reachable: 'partial', reason: /^no replay/ },
    known: { state: 'up', keys: [{ key: '10.0.0.1:8000/0', trust: String }] },
  })

  await w.exact(w.worker().keys[0]!.workerSlot)
  const known = async () => {
    const again = diagnose('10.0.0.1:8000')
    await w.system.advance('10s')
    const found = await again
    return typeof found === 'string' ? [] : found.findings.filter(({ about }) => about === 'router')
  }
  t.strictSame(await known(), [], 'the router has no less than is within reach')
  const { workerSlot } = w.worker().keys[0]!
  const lost = { trust: 'approximate', epoch: 1, isSuffix: false, reason: 'lost' } as const
  w.ref.tell({ type: 'source', workerSlot, ...lost, blockSizeTokens: undefined })
  await w.system.settle()
  t.match(await known(), [
    { level: 'note', text: 'the trust of the router in 10.0.0.1:8000/0 is approximate now: lost' },
  ])

  const dead = diagnose('10.0.0.2:8000')
  await w.system.advance('30s')
  t.match(await dead, {
    trust: { reachable: 'approximate', reason: /no event socket at tcp:\/\/10\.0\.0\.2:5557/ },
  })
})

t.test('as many as may be are looked at, and a further one is told so', async t => {
  const w = await world(t)
  const hosts = ['1', '2', '3', '4', '5'].map(n => `10.0.1.${n}`)
  for (const host of hosts) await w.engine(host)
  await w.begin(hosts.map(host => `http://${host}:8000?events=5557`))
  const asked = hosts.map(host =>
    w.ref.ask({ type: 'diagnoseWorker', workerId: `${host}:8000` }, { timeout: 60_000 }),
  )
  await w.system.advance('30s')
  const found = (await Promise.all(asked)).map(one => (typeof one === 'string' ? one : one.verdict))
  t.strictSame(found, ['inexact', 'inexact', 'inexact', 'inexact', 'busy'])
})

t.test('of two workers with one event socket the one that joined later gets the next free port', async t => {
  const w = await world(t)
  const events = [{ data_parallel_rank: 0, endpoint: 'tcp://10.0.0.1:5557' }]
  await w.engine('10.0.0.1', { events })
  await w.engine('10.0.0.1', { events }, 8001)
  await w.publisher('tcp://10.0.0.1:5557')
  await w.begin(['http://10.0.0.1:8000'])
  const added = w.ref.ask({ type: 'addWorker', url: 'http://10.0.0.1:8001' }, { timeout: 5000 })
  await w.system.settle()
  t.strictSame(await added, { id: '10.0.0.1:8001' })
  const flags = async (workerId: string) => {
    const asked = w.ref.ask({ type: 'diagnoseWorker', workerId }, { timeout: 60_000 })
    await w.system.advance('30s')
    const found = await asked
    return typeof found === 'string' ? found : found.engineFlags
  }
  t.match(await flags('10.0.0.1:8001'), /"endpoint":"tcp:\/\/\*:5567","replay_endpoint":"tcp:\/\/\*:6567"/)
  t.notMatch(await flags('10.0.0.1:8000'), /endpoint/, 'the first may keep its own')
})
