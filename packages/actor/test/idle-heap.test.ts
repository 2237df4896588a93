/** The room for young objects of a thread that has become idle. */

import { SimulatedClock } from '@homing/base'
import t from 'tap'
import { IdleHeap, type ThreadHeap } from '../src/threads/idle-heap.ts'

const MEBIBYTE = 2 ** 20

/** A thread whose heap the test sets, and how often it has collected. */
function idle(shrinks: (collection: number) => number) {
  const clock = new SimulatedClock()
  const thread = { busyShare: 0, roomBytes: 16 * MEBIBYTE, collections: 0 }
  const heap: ThreadHeap = {
    busyShare: () => thread.busyShare,
    youngRoomBytes: () => thread.roomBytes,
    collectYoung() {
      thread.collections++
      thread.roomBytes = shrinks(thread.collections)
    },
  }
  const idleHeap = new IdleHeap(clock, heap)
  return { clock, thread, idleHeap }
}

t.test('a thread that has become idle collects once, and is left alone then', async t => {
  const { clock, thread } = idle(() => 1 * MEBIBYTE)
  thread.busyShare = 0.5
  clock.advance(20_000)
  t.equal(thread.collections, 0, 'not while it is busy')
  thread.busyShare = 0.01
  clock.advance(5000)
  t.equal(thread.collections, 0, 'nor while V8 still counts what was allocated under load')
  clock.advance(5000)
  t.equal(thread.collections, 1)
  clock.advance(600_000)
  t.equal(thread.collections, 1)
})

t.test('it does so again after it has been busy, and where the room stayed as it was', async t => {
  const { clock, thread } = idle(collection => (collection % 2 === 0 ? 1 : 16) * MEBIBYTE)
  clock.advance(60_000)
  t.equal(thread.collections, 2, 'many objects survived the first time')
  thread.busyShare = 0.5
  clock.advance(2000)
  thread.roomBytes = 16 * MEBIBYTE
  thread.busyShare = 0
  clock.advance(60_000)
  t.equal(thread.collections, 4)
})

t.test('a room that does not become smaller costs a few collections, not one at each look', async t => {
  const { clock, thread } = idle(() => 16 * MEBIBYTE)
  clock.advance(600_000)
  t.equal(thread.collections, 3)
})

t.test('a small room is left as it is', async t => {
  const { clock, thread } = idle(() => 0)
  thread.roomBytes = 2 * MEBIBYTE
  clock.advance(600_000)
  t.equal(thread.collections, 0)
})

t.test('it looks no more once it is stopped', async t => {
  const { clock, thread, idleHeap } = idle(() => 0)
  idleHeap.stop()
  clock.advance(600_000)
  t.equal(thread.collections, 0)
})
