/** Sockets that two owners name. */

import t from 'tap'
import { isOfThisMachine, isSameSocket, SocketClaims } from '../src/index.ts'

const events = (endpoint: string) => ({ use: 'events', endpoint }) as const
const replay = (endpoint: string) => ({ use: 'replay', endpoint }) as const

t.test('a socket that another names clashes, whatever either uses it for', async t => {
  for (const [mine, other] of [
    [events('tcp://h:5557'), events('tcp://h:5557')],
    [events('tcp://h:5557'), replay('tcp://h:5557')],
    [replay('tcp://h:5557'), events('tcp://h:5557')],
    [replay('tcp://h:5557'), replay('tcp://h:5557')],
    [events('tcp://H:5557'), events('tcp://h:5557')],
    [events('tcp://localhost:5557'), events('tcp://127.0.0.1:5557')],
    [events('tcp://[::1]:5557'), events('tcp://127.0.0.1:5557')],
    [events('tcp://0.0.0.0:5557'), events('tcp://localhost:5557')],
    [events('tcp://h:05557'), events('tcp://h:5557')],
    [events('ipc:///run/e'), events('ipc:///run/e')],
  ] as const) {
    const claims = new SocketClaims()
    claims.claim('first', [mine])
    t.equal(claims.clashOf('first'), undefined)
    claims.claim('second', [other])
    t.strictSame(claims.clashOf('first'), { ...mine, rival: 'second', rivalUse: other.use })
    t.strictSame(claims.clashOf('second'), { ...other, rival: 'first', rivalUse: mine.use })
    t.equal(claims.claim('second', [other]), false, 'nothing new')
    t.equal(claims.claim('second', [events('tcp://h:5558')]), true)
    t.equal(claims.clashOf('first'), undefined, 'the second has moved')
    claims.claim('second', [other])
    claims.claim('first', [])
    t.equal(claims.clashOf('second'), undefined, 'the first is gone')
  }
})

t.test('sockets of other hosts or ports do not clash', async t => {
  const claims = new SocketClaims()
  claims.claim('a', [events('tcp://10.0.0.1:5557'), replay('tcp://10.0.0.1:6557')])
  claims.claim('b', [events('tcp://10.0.0.2:5557'), replay('tcp://10.0.0.2:6557')])
  claims.claim('c', [events('tcp://10.0.0.1:5558'), replay('tcp://10.0.0.1:6558')])
  for (const owner of ['a', 'b', 'c', 'nobody']) t.equal(claims.clashOf(owner), undefined)
})

t.test('one that names a socket twice clashes with itself', async t => {
  const claims = new SocketClaims()
  claims.claim('a', [events('tcp://h:5557'), replay('tcp://h:5557')])
  t.strictSame(claims.clashOf('a'), { ...events('tcp://h:5557'), rival: 'a', rivalUse: 'replay' })
})

t.test('an endpoint of this machine is another one on another machine', async t => {
  for (const endpoint of ['tcp://LOCALHOST:1', 'tcp://127.0.0.1:1', 'tcp://[::1]:1', 'ipc:///run/e']) {
    t.equal(isOfThisMachine(endpoint), true, endpoint)
  }
  t.equal(isOfThisMachine('tcp://10.0.0.1:1'), false)
  t.equal(isOfThisMachine('tcp://localhost.example:1'), false)
  t.equal(isSameSocket('tcp://localhost:1', 'tcp://127.0.0.1:01'), true)
  t.equal(isSameSocket('tcp://10.0.0.1:1', 'tcp://10.0.0.1:2'), false)
})
