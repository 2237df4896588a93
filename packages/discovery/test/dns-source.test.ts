/** The DNS source against a DNS server of ours, over UDP. Time is moved by the test, answers are real. */

import { SimulatedClock } from '@homing/base'
import { type DnsName, DnsSource, readDnsName } from '@homing/discovery'
import t, { type Test } from 'tap'
import { type DnsRecord, DnsServer } from './dns-server.ts'
import { Listener, transportFor } from './world.ts'

const REFRESH_MS = 5000
const STALE_MS = 60_000

const a = (address: string, ttl = 30): DnsRecord => ({ type: 'A', address, ttl })

async function world(t: Test, ...texts: readonly string[]) {
  const server = await DnsServer.start()
  t.teardown(() => server.stop())
  const clock = new SimulatedClock()
  const listener = new Listener()
  let looks = 0
  const changed = listener.changed.bind(listener)
  listener.changed = () => {
    looks++
    changed()
  }
  const start = (): void => {
    listener.source = new DnsSource({
      resolver: transportFor(t).nameResolver!([server.address]),
      names: texts.map(text => readDnsName(text) as DnsName),
      refreshMs: REFRESH_MS,
      staleMsMax: STALE_MS,
      clock,
      handler: listener,
    })
    t.teardown(() => listener.source.close())
  }
  /** Resolves when the next look is over. */
  const look = async (ms = REFRESH_MS): Promise<void> => {
    const before = looks
    clock.advance(ms)
    await listener.until('it has looked', () => looks > before)
  }
  return { server, listener, start, look, first: () => listener.until('it has looked', () => looks > 0) }
}

t.test('addresses of a name come, move and go', async t => {
  const { server, listener, start, look, first } = await world(t, 'http://engines.test:8000/v?ranks=2')
  server.set('engines.test', [a('10.0.0.1'), a('10.0.0.2')])
  start()
  await first()
  t.strictSame(listener.said, [
    'http://10.0.0.1:8000/v?ranks=2 ready',
    'http://10.0.0.2:8000/v?ranks=2 ready',
  ])
  server.set('engines.test', [a('10.0.0.2'), a('10.0.0.3')])
  await look()
  t.equal(listener.said!.length, 3, 'one answer without an address says nothing yet')
  await look()
  t.strictSame(listener.said, [
    'http://10.0.0.2:8000/v?ranks=2 ready',
    'http://10.0.0.3:8000/v?ranks=2 ready',
  ])
  server.set('engines.test', [])
  await look()
  await look()
  t.strictSame(listener.said, [], 'a name that is not there has none')
  t.strictSame(listener.failures, [])
})

t.test('IPv6 counts where there is no IPv4', async t => {
  const { server, listener, start, first } = await world(t, 'http://six.test:8000', 'http://both.test')
  server.set('six.test', [{ type: 'AAAA', address: 'fd00::12' }])
  server.set('both.test', [a('10.0.0.1'), { type: 'AAAA', address: 'fd00::1' }])
  start()
  await first()
  t.strictSame(listener.said, ['http://10.0.0.1:80 ready', 'http://[fd00::12]:8000 ready'])
})

t.test('SRV records give addresses and ports of the first priority', async t => {
  const { server, listener, start, first, look } = await world(t, 'srv://_http._tcp.engines.test?events=5557')
  const srv = (target: string, port: number, priority = 1): DnsRecord => ({
    type: 'SRV',
    target,
    port,
    priority,
  })
  server.set('_http._tcp.engines.test', [
    srv('a.engines.test', 8001),
    srv('b.engines.test', 8002),
    srv('c.engines.test', 1, 9),
  ])
  server.set('a.engines.test', [a('10.0.0.1')])
  server.set('b.engines.test', [a('10.0.0.2')])
  start()
  await first()
  t.strictSame(listener.said, [
    'http://10.0.0.1:8001?events=5557 ready',
    'http://10.0.0.2:8002?events=5557 ready',
  ])
  server.set('a.engines.test', [a('10.0.0.7')])
  await look()
  await look()
  t.strictSame(listener.said, [
    'http://10.0.0.2:8002?events=5557 ready',
    'http://10.0.0.7:8001?events=5557 ready',
  ])
})

t.test('an answer that holds for less is asked again sooner, but not within a second', async t => {
  const { server, listener, start, first, look } = await world(t, 'http://engines.test:8000')
  server.set('engines.test', [a('10.0.0.1', 2)])
  start()
  await first()
  server.set('engines.test', [a('10.0.0.1', 0), a('10.0.0.2', 0)])
  await look(2000)
  t.equal(listener.said!.length, 2)
  server.set('engines.test', [a('10.0.0.3', 0)])
  await look(1000)
  await look(1000)
  t.strictSame(listener.said, ['http://10.0.0.3:8000 ready'])
})

t.test('without an answer the last one stays, and its workers are doubtful after a while', async t => {
  const { server, listener, start, first, look } = await world(t, 'http://engines.test:8000')
  server.set('engines.test', [a('10.0.0.1')])
  start()
  await first()
  server.mood = 'servfail'
  await look()
  t.strictSame(listener.said, ['http://10.0.0.1:8000 ready'])
  t.equal(listener.failures.length, 1)
  t.match(listener.failures[0], /cannot resolve "engines\.test": no server answers \(ESERVFAIL\)/)
  await look(STALE_MS)
  t.strictSame(listener.said, ['http://10.0.0.1:8000 doubtful'])
  t.equal(listener.failures.length, 1, 'it is said once')
  server.mood = 'well'
  await look()
  t.strictSame(listener.said, ['http://10.0.0.1:8000 ready'])
  t.equal(listener.recoveries, 1)
})

t.test('a name without any answer takes nothing from the others', async t => {
  const { server, listener, start, first, look } = await world(
    t,
    'http://engines.test:8000',
    'http://other.test:8000',
  )
  server.set('engines.test', [a('10.0.0.1')])
  server.set('other.test', [a('10.0.0.2')])
  server.moods.set('other.test', 'servfail')
  start()
  await first()
  await listener.says(['http://10.0.0.1:8000 ready'])
  t.equal(listener.source.finding()!.isWhole, false, 'so that a worker of the other would stay')
  server.moods.clear()
  await look()
  await listener.says(['http://10.0.0.1:8000 ready', 'http://10.0.0.2:8000 ready'])
  t.equal(listener.source.finding()!.isWhole, true)
})

t.test('while no server answers from the start on, there is no finding', async t => {
  const { server, listener, start, first } = await world(t, 'http://engines.test:8000')
  server.mood = 'servfail'
  start()
  await first()
  t.equal(listener.source.finding(), undefined)
})

t.test('names that cannot be used are refused with what would be right', async t => {
  const fault = (text: string): string => {
    const read = readDnsName(text)
    return typeof read === 'string' ? read : `taken: ${JSON.stringify(read)}`
  }
  t.match(fault('engines.test'), /is not a URL such as http:\/\/engines/)
  t.match(fault('https://engines.test'), /is https/)
  t.match(fault('http://10.0.0.1:8000'), /names an address: give it with --worker/)
  t.match(fault('srv://_http._tcp.test:80'), /must not have a port/)
  t.match(fault('http://engines.test?id=1'), /must not have id=/)
  t.match(fault('http://engines.test?key_file=/etc/passwd'), /must not name a key/)
  t.strictSame(readDnsName('SRV://_HTTP._tcp.Engines.test/a/?ranks=2'), {
    kind: 'service',
    name: '_http._tcp.engines.test',
    port: 0,
    rest: '/a?ranks=2',
  })
})
