/** Which rings are used again, and when. */

import { createActorSystem } from '@homing/actor'
import { silentLog } from '@homing/base'
import t, { type Test } from 'tap'
import type { Life } from '../src/links/life.ts'
import { RING_DATA } from '../src/links/ring/ring.ts'
import { RingStock } from '../src/links/ring/ring-stock.ts'
import { echo } from './fixtures/echo.ts'

const WORDS = 64

const main = { name: 'main', uid: 1 }
const a = { name: 'a', uid: 2 }
const b = { name: 'b', uid: 3 }

/** Main, a and b, all linked. */
function start(): { stock: RingStock; fromA: readonly SharedArrayBuffer[] } {
  const stock = new RingStock(WORDS)
  const { toRunning: aToMain } = stock.link(main, a)
  stock.link(main, b)
  const { toStarting: aToB } = stock.link(a, b)
  return { stock, fromA: [aToMain, aToB] }
}

/** The next life of a. */
const heir = { name: 'a', uid: 4 }

function replaceA(t: Test, stock: RingStock, rings: readonly SharedArrayBuffer[]): void {
  for (const running of [main, b]) {
    const { toRunning, isHeir } = stock.link(running, heir)
    t.ok(isHeir)
    t.notOk(rings.includes(toRunning), 'what may still be read is not written')
  }
}

t.test('what a dead life had written is used again once its reader has linked the next life', async t => {
  const { stock, fromA } = start()
  stock.forgetLife(a, true)
  replaceA(t, stock, fromA)
  t.equal(stock.freeCount, 0)
  stock.linked(main, heir)
  t.equal(stock.freeCount, 1)
  stock.linked(b, a)
  t.equal(stock.freeCount, 1, 'a late word about the dead life says nothing')
  stock.linked(b, heir)
  t.equal(stock.freeCount, 2)
  new Int32Array(fromA[0]!).fill(7)
  stock.forgetLife(heir, true)
  const next = stock.link(main, { name: 'a', uid: 5 }).toRunning
  t.ok(fromA.includes(next))
  t.ok(
    new Int32Array(next, 0, RING_DATA).every(word => word === 0),
    'and is as new',
  )
})

t.test('or once its reader is dead as well', async t => {
  const { stock, fromA } = start()
  stock.forgetLife(a, true)
  stock.forgetLife(b, true)
  t.equal(stock.freeCount, 2, 'from a to b, and from b to a')
  t.notOk(stock.link(main, heir).isHeir && stock.link(heir, { name: 'b', uid: 5 }).isHeir)
  t.notOk(fromA.includes(stock.link(main, heir).toStarting))
})

t.test('what is inherited is in use', async t => {
  const { stock } = start()
  stock.forgetLife(b, true)
  t.equal(stock.freeCount, 0, 'the next life of b reads what a and main have written')
  t.ok(stock.link(a, { name: 'b', uid: 5 }).isHeir)
})

t.test('what a life that could not be ended has written or read is never used again', async t => {
  const { stock, fromA } = start()
  stock.forgetLife(a, false)
  replaceA(t, stock, fromA)
  stock.linked(main, heir)
  stock.linked(b, heir)
  t.equal(stock.freeCount, 0)
  stock.forgetLife(b, true)
  stock.forgetLife(heir, true)
  t.equal(stock.freeCount, 1, 'from the heir to b; what b had written was read by the one that may wake up')
})

t.test(
  'what was between a thread that is gone and another is used again once that has forgotten it',
  async t => {
    const { stock, fromA } = start()
    stock.forgetLife(a, true)
    t.equal(stock.freeCount, 0)
    stock.forgot(main, 'a')
    t.equal(stock.freeCount, 2, 'from a to main, and from main to a')
    stock.forgot(b, 'c')
    stock.forgot(main, 'a')
    t.equal(stock.freeCount, 2)
    stock.forgetLife(b, true)
    t.equal(stock.freeCount, 4, 'b will not read or write either')
    t.ok(fromA.includes(stock.link(main, { name: 'c', uid: 4 }).toRunning))
  },
)

t.test('but not when that thread may wake up', async t => {
  const { stock } = start()
  stock.forgetLife(a, false)
  stock.forgot(main, 'a')
  stock.forgot(b, 'a')
  t.equal(stock.freeCount, 0)
})

t.test('no more is kept than a bound', async t => {
  const stock = new RingStock(1 << 20)
  for (let uid = 2; uid < 20; uid++) stock.link(main, { name: `a-${uid}`, uid })
  for (let uid = 2; uid < 20; uid++) {
    stock.forgetLife({ name: `a-${uid}`, uid }, true)
    stock.forgot(main, `a-${uid}`)
  }
  t.equal(stock.freeCount, 15, 'of 36 with 4 MiB each')
})

t.test('threads of their own that come and go use the same rings', async t => {
  const rings = new Set<SharedArrayBuffer>()
  const link = RingStock.prototype.link
  t.intercept(RingStock.prototype, 'link', {
    value(this: RingStock, running: Life, starting: Life) {
      const pair = link.call(this, running, starting)
      rings.add(pair.toRunning).add(pair.toStarting)
      return pair
    },
  })
  const system = await createActorSystem({ pools: { p: { count: 1 } }, log: silentLog, threadExecArgv: [] })
  t.teardown(() => system.shutdown())
  const resident = system.spawn(echo, { name: 'resident', args: {}, thread: 'p-0' })
  for (let i = 0; i < 12; i++) {
    const ref = system.spawn(echo, { name: 'passing', args: {}, thread: 'dedicated' })
    const where = await ref.ask({ type: 'where' }, { timeout: '1m' })
    await system.stop(ref)
    while (system.threads().some(({ name, state }) => name === where && state !== 'ended'))
      await new Promise<void>(resolve => setImmediate(resolve))
    // The other thread has heard of it.
    await resident.ask({ type: 'where' }, { timeout: '1m' })
  }
  t.ok(rings.size <= 20, `${rings.size} rings for 13 links with 2 threads`)
})

t.test('what is told to a thread that is away is inherited by its next life', async t => {
  const { stock } = start()
  stock.forgetLife(b, true)
  stock.forgetLife(a, true)
  const { toAway } = stock.linkAway('b', heir)
  const { toStarting, isHeir } = stock.link(heir, { name: 'b', uid: 5 })
  t.ok(isHeir)
  t.equal(toStarting, toAway)
})
