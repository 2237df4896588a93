/** The memory of request bodies. */

import t from 'tap'
import { Bodies } from '../src/index.ts'

t.test('bodies together take no more than the bound, and give back what they held', async t => {
  const bodies = new Bodies(10, (bytes, bytesMax) => new Error(`${bytes} of ${bytesMax}`))
  const [one, other] = [bodies.hold(), bodies.hold()]
  one.take(4)
  other.take(4)
  t.throws(() => other.take(3), { message: '8 of 10' })
  t.throws(() => other.check(3), { message: '8 of 10' })
  other.check(2)
  t.equal(bodies.bytes, 8, 'what was refused or only announced is not held')
  one.release()
  one.release()
  t.equal(bodies.bytes, 4)
  other.take(6)
  other.release()
  t.equal(bodies.bytes, 0)
})

t.test('bytes that are kept after their request count, also past the bound', async t => {
  const bodies = new Bodies(10, (bytes, bytesMax) => new Error(`${bytes} of ${bytesMax}`))
  const hold = bodies.hold()
  hold.take(8)
  const giveBack = bodies.keep(8)
  hold.release()
  t.equal(bodies.bytes, 8)
  t.throws(() => bodies.hold().take(3), { message: '8 of 10' })
  giveBack()
  t.equal(bodies.bytes, 0)
})

t.test('what is released takes and gives nothing more', async t => {
  const bodies = new Bodies(10, (bytes, bytesMax) => new Error(`${bytes} of ${bytesMax}`))
  const [hold, other] = [bodies.hold(), bodies.hold()]
  other.take(3)
  hold.take(5)
  hold.release()
  t.throws(() => hold.take(1), { code: 'HOMING_TRANSPORT_CLIENT_GONE' })
  hold.give(5)
  t.equal(bodies.bytes, 3)
  hold.release()
  t.equal(bodies.bytes, 3)
})
