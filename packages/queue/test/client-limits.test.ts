/** Limits of clients, against a count that is kept the long way. */

import { seededRandom } from '@homing/base'
import t from 'tap'
import { type ClientKey, type ClientLease, ClientLimits } from '../src/index.ts'

const SEED = Number(process.env['HOMING_SEED'] ?? 38)
const CASES = 200
const STEPS = 400

function key(name: string, limits: Partial<ClientKey> = {}): ClientKey {
  return {
    name,
    digests: [name],
    models: undefined,
    concurrentRequests: undefined,
    requestsPerMinute: undefined,
    tokensPerMinute: undefined,
    ...limits,
  }
}

t.test('the three limits, and when to come back', async t => {
  const a = key('a', { concurrentRequests: 2, requestsPerMinute: 3, tokensPerMinute: 100 })
  const limits = new ClientLimits([a], 1)
  t.equal(limits.find('a'), a)
  t.equal(limits.find('b'), undefined)
  const [one, two] = [limits.enter(a, 0) as ClientLease, limits.enter(a, 0) as ClientLease]
  t.match(limits.enter(a, 0), { reason: 'concurrency', limit: 2, retryAfterSeconds: 1 })
  one.end()
  one.end()
  t.equal(limits.open, 1)
  const three = limits.enter(a, 0) as ClientLease
  two.end()
  t.match(limits.enter(a, 0), { reason: 'rate', limit: 3, retryAfterSeconds: 20 })
  t.match(limits.enter(a, 19_000), { reason: 'rate', retryAfterSeconds: 1 })
  three.charge(150, 20_000)
  t.match(limits.enter(a, 20_000), { reason: 'tokens', limit: 100, retryAfterSeconds: 31 })
  three.end()
  const four = limits.enter(a, 51_000) as ClientLease
  four.end()
  t.equal(limits.open, 0)
})

t.test('what an open request takes is counted by the limit as it is now', async t => {
  const [free, low, high] = [
    key('a'),
    key('a', { tokensPerMinute: 100 }),
    key('a', { tokensPerMinute: 1000 }),
  ]
  const limits = new ClientLimits([free], 1)
  const before = limits.enter(free, 0) as ClientLease
  limits.setKeys([low])
  before.charge(150, 0)
  t.match(limits.enter(low, 0), { reason: 'tokens', limit: 100 })
  limits.setKeys([high])
  before.charge(10, 60_000)
  // A minute has brought 1000 into the bucket, which was 50 short, not 100.
  const after = limits.enter(high, 60_000) as ClientLease
  after.charge(939, 60_000)
  t.notMatch(limits.enter(high, 60_000), { reason: 'tokens' })
  after.charge(1, 60_000)
  t.match(limits.enter(high, 60_000), { reason: 'tokens', limit: 1000 })
})

t.test('of several threads each has its share, rounded up', async t => {
  const a = key('a', { concurrentRequests: 3 })
  const limits = new ClientLimits([a], 2)
  t.notMatch(limits.enter(a, 0), { reason: 'concurrency' })
  t.notMatch(limits.enter(a, 0), { reason: 'concurrency' })
  t.match(limits.enter(a, 0), { reason: 'concurrency', limit: 3 })
})

t.test('whatever happens, what is open is counted, and a minute gives what it may', async t => {
  t.comment(`HOMING_SEED=${SEED}`)
  const random = seededRandom(SEED)
  for (let at = 0; at < CASES; at++) {
    const draw = (): ClientKey[] =>
      ['a', 'b', 'c']
        .filter(() => random.below(4) > 0)
        .map(name =>
          key(name, {
            concurrentRequests: random.below(3) === 0 ? undefined : 1 + random.below(5),
            requestsPerMinute: random.below(3) === 0 ? undefined : 1 + random.below(60),
            tokensPerMinute: random.below(3) === 0 ? undefined : 1 + random.below(500),
          }),
        )
    let keys = draw()
    const limits = new ClientLimits(keys, 1 + random.below(3))
    const open = new Map<ClientLease, string>()
    let nowMs = 0
    for (let step = 0; step < STEPS; step++) {
      nowMs += random.below(3000)
      const what = random.below(20)
      if (what === 0) {
        keys = draw()
        limits.setKeys(keys)
      } else if (what < 10 && keys.length > 0) {
        const wanted = keys[random.below(keys.length)]!
        const mine = [...open.values()].filter(name => name === wanted.name).length
        const entered = limits.enter(wanted, nowMs)
        if ('reason' in entered) {
          if (!(entered.retryAfterSeconds >= 1)) t.fail(`retry after ${entered.retryAfterSeconds}`)
          if (entered.reason === 'concurrency' && mine === 0) t.fail('refused with nothing open')
        } else {
          if (wanted.concurrentRequests !== undefined && mine >= wanted.concurrentRequests)
            t.fail('let in past the limit')
          open.set(entered, wanted.name)
        }
      } else if (open.size > 0) {
        const lease = [...open.keys()][random.below(open.size)]!
        if (what < 13) lease.charge(random.below(300), nowMs)
        else {
          lease.end()
          if (random.below(2) === 0) lease.end()
          open.delete(lease)
        }
      }
      if (limits.open !== open.size) t.fail(`${limits.open} open, ${open.size} expected (case ${at})`)
    }
    for (const lease of open.keys()) lease.end()
    if (limits.open !== 0) t.fail('something is open still')
    // Time heals every debt.
    for (const one of keys) {
      const entered = limits.enter(one, nowMs + 1e12)
      if ('reason' in entered) t.fail(`${entered.reason} after a long time`)
    }
  }
  // A minute after the bucket was full, at most two minutes' worth was let in.
  for (let at = 0; at < CASES; at++) {
    const perMinute = 1 + random.below(100)
    const a = key('a', { requestsPerMinute: perMinute })
    const limits = new ClientLimits([a], 1)
    let count = 0
    for (let nowMs = 0; nowMs <= 60_000; nowMs += random.below(500))
      if (!('reason' in limits.enter(a, nowMs))) count++
    if (count > 2 * perMinute) t.fail(`${count} of ${perMinute} a minute`)
  }
  t.pass('all cases hold')
})
