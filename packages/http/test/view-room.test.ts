/** Places of operator requests, bytes of their answers, and turns. */

import { SimulatedClock } from '@homing/base'
import type { HttpExchange } from '@homing/transport'
import t from 'tap'
import { Turns, ViewRoom } from '../src/index.ts'

class FakeExchange {
  readonly #onOver: (() => void)[] = []
  readonly exchange: HttpExchange

  constructor(peerAddress = `client ${FakeExchange.count++}`) {
    const onOver = (callback: () => void) => void this.#onOver.push(callback)
    this.exchange = { peerAddress, onOver } as HttpExchange
  }

  static count = 0

  over(): void {
    for (const callback of this.#onOver.splice(0)) callback()
  }
}

t.test('a request counts until its answer has left, and what watches has places of its own', async t => {
  const room = new ViewRoom({ openMax: 2 })
  const [first, second] = [new FakeExchange(), new FakeExchange()]
  room.enter(first.exchange, false).take(5)
  const place = room.enter(second.exchange, false)
  const refused = { code: 'HOMING_HTTP_VIEWS_BUSY', details: { max: 2, retryAfterSeconds: 1 } }
  t.throws(() => room.enter(new FakeExchange().exchange, false), refused)
  for (let i = 0; i < 8; i++) room.enter(new FakeExchange().exchange, true)
  t.throws(() => room.enter(new FakeExchange().exchange, true), { code: 'HOMING_HTTP_VIEWS_BUSY' })
  t.strictSame([room.open, room.unsentBytes, room.refused], [10, 5, { requests: 2, bytes: 0 }])
  first.over()
  first.over()
  place.leave()
  second.over()
  t.strictSame([room.open, room.unsentBytes], [8, 0])
  place.take(100)
  t.equal(room.unsentBytes, 0, 'of a client that has gone nothing waits')
})

t.test('one client takes half of the places at most', async t => {
  const room = new ViewRoom({ openMax: 3 })
  const first = new FakeExchange('a')
  room.enter(first.exchange, false)
  room.enter(new FakeExchange('a').exchange, false)
  t.throws(() => room.enter(new FakeExchange('a').exchange, false), { code: 'HOMING_HTTP_VIEWS_BUSY' })
  const other = room.enter(new FakeExchange('b').exchange, false)
  other.leave()
  room.enter(new FakeExchange('a').exchange, true)
  first.over()
  room.enter(new FakeExchange('a').exchange, false)
})

t.test('answers that wait for clients have a bound together, and one alone is always taken', async t => {
  const room = new ViewRoom({ openMax: 9, unsentBytesMax: 100 })
  const [large, small] = [new FakeExchange(), new FakeExchange()]
  room.enter(large.exchange, false).take(500)
  const place = room.enter(small.exchange, false)
  t.throws(() => place.take(1), { code: 'HOMING_HTTP_VIEWS_BUSY' })
  t.strictSame([room.unsentBytes, room.refused], [500, { requests: 0, bytes: 1 }])
  large.over()
  place.take(60)
  room.enter(new FakeExchange().exchange, false).take(40)
  t.throws(() => room.enter(new FakeExchange().exchange, false).take(1))
  t.equal(room.unsentBytes, 100)
})

t.test('turns come in order, the line is short, and nothing waits for long', async t => {
  const clock = new SimulatedClock()
  const refusal = () => new Error('busy')
  const turns = new Turns({ clock, atOnceMax: 1, waitingMax: 2, waitMsMax: 1000, refusal })
  const begun: string[] = []
  const take = (name: string) => turns.take().then(over => ({ over: over, at: begun.push(name) }))
  const first = await take('first')
  const second = take('second')
  const third = take('third')
  await t.rejects(take('fourth'), { message: 'busy' })
  first.over()
  first.over()
  const { over } = await second
  t.strictSame(begun, ['first', 'second'])
  const waited = t.rejects(third, { message: 'busy' })
  await clock.advance(1000)
  await waited
  t.equal(turns.refused, 2)
  over()
  const last = await take('last')
  last.over()
  t.strictSame(begun, ['first', 'second', 'last'])
})

t.test('one client has a part of the turns', async t => {
  const clock = new SimulatedClock()
  const options = { clock, atOnceMax: 3, waitingMax: 0, waitMsMax: 0, perKeyMax: 2 }
  const turns = new Turns({ ...options, refusal: () => new Error('busy') })
  const [one] = [await turns.take('a'), await turns.take('a')]
  await t.rejects(turns.take('a'), { message: 'busy' })
  await turns.take('b')
  await t.rejects(turns.take('c'), { message: 'busy' }, 'all are taken')
  one()
  await turns.take('c')
})
