/** Sessions: where they are bound, what ends a binding, and that there are only so many. */

import { ConversationAffinity } from '@homing/placement'
import t from 'tap'
import type { RouterArgs } from '../src/index.ts'
import { DELIVERED, fleetOf, GATEWAY, LEFT, request, start } from './router-world.ts'

const SETTINGS = { ttlMs: 60_000, isHard: true, prefixBlocks: 0, sessionsMax: 3 }
const TWO = fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] })
const withSession = (sessionId: string) => ({ sessionId })

const begin = (t: Test, affinity: Partial<typeof SETTINGS> = {}) =>
  start(t, TWO, { affinity: { ...SETTINGS, ...affinity } } as Partial<RouterArgs>)
type Test = Parameters<typeof start>[0]

t.test('a hard session stays where it began, whatever others hold', async t => {
  const { ref, hold, decide } = await begin(t)
  hold(0, 'AB')
  const first = await decide(request('ABC', withSession('s')))
  t.equal(first.worker, 'a/0')
  hold(1, 'WXYZ')
  t.equal((await decide(request('WXYZ', withSession('s')))).worker, 'a/0')
  t.equal((await decide(request('WXYZ', withSession('other')))).worker, 'b/0')
  t.equal(
    (await decide(request('WXYZ', { ...withSession('s'), pinnedInstanceId: 1 }))).worker,
    'b/0',
    'a pin wins',
  )
  const explained = await ref.ask(
    { type: 'explain', request: request('WXYZ', withSession('s')) },
    { timeout: '1s' },
  )
  t.match(explained, { excluded: [{ worker: 'b/0', reason: 'its session is bound to a/0' }] })
})

t.test('of a hard session that may wait the queue hears for whom', async t => {
  const { ref, hold, decide } = await begin(t)
  hold(0, 'AB')
  await decide(request('ABC', withSession('s')))
  const id = 'waits'
  const roomRules = [{ uncachedTokensMin: 0, byStep: false, busyTokens: 0 }]
  const ask = (routing: ReturnType<typeof request>) =>
    ref.ask({ type: 'decide', id, gateway: GATEWAY, request: routing, roomRules }, { timeout: '1s' })
  t.match(await ask(request('XYZ', withSession('s'))), { kind: 'busy', boundWorker: 'a/0' })
  const measured = await ref.ask(
    { type: 'measure', request: request('XYZ', withSession('s')) },
    { timeout: '1s' },
  )
  t.match(measured, { boundWorker: 'a/0' })
  t.match(await ask(request('XYZ')), { kind: 'decided', decision: { worker: 'b/0' } })
  t.match(await ask(request('XYZ')), { kind: 'busy', boundWorker: undefined })
})

t.test('a soft session prefers it, and goes elsewhere for a better place', async t => {
  const { hold, decide } = await begin(t, { isHard: false })
  hold(0, 'AB')
  t.equal((await decide(request('AB', withSession('s')))).worker, 'a/0')
  t.equal(
    (await decide(request('MNOP', withSession('s')))).worker,
    'a/0',
    'elsewhere it would cost a bit less',
  )
  hold(1, 'QRSTUVWXYZ')
  t.equal((await decide(request('QRSTUVWXYZ', withSession('s')))).worker, 'b/0')
})

t.test('without a session id the first blocks may tell', async t => {
  const { decide } = await begin(t, { prefixBlocks: 2 })
  const { worker } = await decide(request('ABCD'))
  for (const letters of ['ABX', 'ABY', 'ABZ'])
    t.equal((await decide(request(letters))).worker, worker, letters)
  for (const letters of ['EFG', 'HIJ', 'A'])
    t.not((await decide(request(letters))).worker, worker, `${letters} goes by load`)
})

t.test('a failure, a worker that is gone, and time end a binding', async t => {
  const { system, ref, trackerRef, decide } = await begin(t)
  const settle = (id: string, delivery: typeof DELIVERED): void =>
    void ref.tell({ type: 'settled', id, delivery, wasTaken: true })
  const a = await decide(request('AB', withSession('s')))
  settle(a.id, LEFT)
  const again = await decide(request('CD', withSession('s')))
  t.equal(again.worker, a.worker, 'a client that leaves is no failure')
  settle(again.id, { ...DELIVERED, outcome: 'error' })
  const busy = await decide(request('EFGHIJ', { pinnedInstanceId: a.worker === 'a/0' ? 0 : 1 }))
  const moved = await decide(request('KL', withSession('s')))
  t.not(moved.worker, a.worker, 'after a failure it is bound anew')
  settle(busy.id, DELIVERED)
  settle(moved.id, DELIVERED)
  await system.advance('59s')
  const kept = await decide(request('MN', withSession('s')))
  t.equal(kept.worker, moved.worker)
  settle(kept.id, DELIVERED)
  await system.advance('61s')
  await decide(request('OPQRST', { pinnedInstanceId: moved.worker === 'a/0' ? 0 : 1 }))
  const late = await decide(request('UV', withSession('s')))
  t.not(late.worker, moved.worker, 'it was idle for too long')
  const left = { version: 2, workers: TWO.workers.filter(({ keys }) => keys[0]!.key !== late.worker) }
  for (const to of [ref, trackerRef]) to.tell({ type: 'fleet', fleet: left })
  t.not((await decide(request('WX', withSession('s')))).worker, late.worker, 'its worker is gone')
})

t.test('a worker that has left and came back is another one, whether or not anybody saw it gone', async t => {
  const { ref, trackerRef, decide } = await begin(t)
  const first = await decide(request('AB', withSession('s')))
  const lives = (joinedMs: number) =>
    fleetOf({ id: 'a', slots: [0], joinedMs }, { id: 'b', slots: [1], joinedMs })
  const become = (joinedMs: number): void => {
    for (const to of [ref, trackerRef]) to.tell({ type: 'fleet', fleet: lives(joinedMs) })
  }
  const instanceId = first.worker === 'a/0' ? 0 : 1
  await decide(request('CDEFGH', { pinnedInstanceId: instanceId }))
  t.equal((await decide(request('IJ', withSession('s')))).worker, first.worker, 'bound, whatever its load')
  become(2)
  const moved = await decide(request('KL', withSession('s')))
  t.not(moved.worker, first.worker, 'it goes by load')
  t.equal((await decide(request('MN', withSession('s')))).worker, moved.worker, 'and is bound anew')
  const session = new ConversationAffinity(SETTINGS).keyOf(request('X', withSession('t')))!
  ref.tell({ type: 'boundElsewhere', bindings: [{ session, worker: first.worker }] })
  t.equal((await decide(request('OP', withSession('t')))).worker, first.worker)
  become(3)
  await decide(request('QRSTUVWXYZ', { pinnedInstanceId: instanceId }))
  t.not((await decide(request('Q', withSession('t')))).worker, first.worker)
})

t.test('the end of a request at an earlier life of a worker says nothing of the next', async t => {
  const affinity = new ConversationAffinity(SETTINGS)
  affinity.placed('s', 'w/0', 1, 0)
  affinity.placed('s', 'w/0', 2, 1)
  affinity.ended('s', 'w/0', 1, true, 2)
  t.equal(affinity.size, 1, 'the earlier one failed')
  affinity.ended('s', 'w/0', 1, false, 2)
  affinity.placed('other', 'w/0', 2, 2 * SETTINGS.ttlMs)
  t.equal(affinity.size, 2, 'its own request is still under way')
})

t.test('of more sessions than may be, the one longest unused is forgotten', async t => {
  const affinity = new ConversationAffinity(SETTINGS)
  for (let i = 0; i < 100_000; i++) affinity.placed(`s${i}`, 'w/0', 1, i / 1000)
  t.equal(affinity.size, 3)
  for (let i = 99_997; i < 100_000; i++) affinity.ended(`s${i}`, 'w/0', 1, false, 100)
  affinity.placed('late', 'w/0', 1, 60_100)
  t.equal(affinity.size, 1, 'those that are over make room')
})

t.test('two routers that bound a session to two workers agree, whoever hears first', async t => {
  for (const sessions of [1, 2, 3, 4, 5, 6, 7, 8]) {
    const key = `session ${sessions}`
    const routers = ['a/0', 'b/0'].map(own => {
      const affinity = new ConversationAffinity(SETTINGS)
      affinity.placed(key, own, 1, 0)
      return { own, affinity }
    })
    const [first, second] = routers as [(typeof routers)[0], (typeof routers)[0]]
    first.affinity.placedElsewhere({ session: key, worker: second.own }, 1, 1)
    second.affinity.placedElsewhere({ session: key, worker: first.own }, 1, 2)
    const bound = routers.map(({ affinity }) => {
      const candidates = ['a/0', 'b/0'].map(worker => ({ worker: { joinedMs: 1 }, key: { key: worker } }))
      const found = { candidates, excluded: [], preferences: undefined } as never
      return affinity.applied(found, key, 3).boundWorker
    })
    t.equal(bound[0], bound[1], key)
  }
})

t.test('a session that another router has bound goes there', async t => {
  const { ref, decide } = await begin(t)
  const first = await decide(request('XYZ', withSession('s')))
  const other = first.worker === 'a/0' ? 'b/0' : 'a/0'
  // As the other router names it.
  const session = new ConversationAffinity(SETTINGS).keyOf(request('XYZ', withSession('t')))!
  t.match(session, /^[0-9a-f]{16}$/)
  ref.tell({ type: 'boundElsewhere', bindings: [{ session, worker: other }] })
  t.equal((await decide(request('XYZ', withSession('t')))).worker, other)
})

t.test('a session that moved at another router moves here, whatever it was bound to', async t => {
  const { ref, decide } = await begin(t)
  const [a, b] = ['a/0', 'b/0']
  for (let i = 0; i < 3; i++) {
    const given = request('XYZ', withSession(`s${i}`))
    const session = new ConversationAffinity(SETTINGS).keyOf(given)!
    ref.tell({ type: 'boundElsewhere', bindings: [{ session, worker: a! }] })
    ref.tell({ type: 'boundElsewhere', bindings: [{ session, worker: b!, isMoved: true }] })
    t.equal((await decide(given)).worker, b)
    ref.tell({ type: 'boundElsewhere', bindings: [{ session, worker: a!, isMoved: true }] })
    t.equal((await decide(given)).worker, a)
  }
})

t.test('a second worker for a late first token binds a session only if it serves the request', async t => {
  for (const affinity of [{}, { prefixBlocks: 2 }]) {
    const session = affinity.prefixBlocks === undefined ? withSession('s') : {}
    for (const isWon of [false, true]) {
      const { ref, decide } = await begin(t, affinity)
      const settle = (id: string, outcome: 'ok' | 'aborted'): void =>
        void ref.tell({ type: 'settled', id, delivery: { ...DELIVERED, outcome }, wasTaken: true })
      const first = await decide(request('ABC', session))
      const hedges = { decisionId: first.id }
      const second = await decide(request('ABC', { ...session, hedges, excludedWorkers: [first.workerId] }))
      t.not(second.worker, first.worker, 'it is not held by the binding')
      settle(first.id, isWon ? 'aborted' : 'ok')
      settle(second.id, isWon ? 'ok' : 'aborted')
      const next = await decide(request('ABCD', session))
      t.equal(next.worker, isWon ? second.worker : first.worker)
    }
  }
})
