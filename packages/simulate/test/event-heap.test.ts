import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { EventHeap } from '../src/event-heap.ts'

t.test('the next event is the earliest, then the one that was pushed first', async t => {
  const property = fc.property(
    fc.array(fc.tuple(fc.constantFrom('push', 'pop', 'move', 'remove'), fc.nat(7), fc.nat(3)), {
      maxLength: 60,
    }),
    actions => {
      const heap = new EventHeap(8)
      let naive: { worker: number; atMs: number; order: number }[] = []
      let order = 0
      const next = () => naive.toSorted((a, b) => a.atMs - b.atMs || a.order - b.order)[0]
      for (const [action, worker, atMs] of actions) {
        const isPending = naive.some(event => event.worker === worker)
        if (action === 'push' && !isPending) {
          heap.push(worker, atMs)
          naive.push({ worker, atMs, order: order++ })
        } else if (action === 'pop' && naive.length > 0) {
          const expected = next()!
          assert.equal(heap.pop(), expected.worker)
          naive = naive.filter(event => event !== expected)
        } else if (action === 'move' && naive.length > 0) {
          const moved = next()!
          heap.moveNext(atMs)
          naive = [...naive.filter(event => event !== moved), { worker: moved.worker, atMs, order: order++ }]
        } else if (action === 'remove') {
          heap.remove(worker)
          naive = naive.filter(event => event.worker !== worker)
        }
        const expected = next()
        assert.equal(heap.nextMs, expected?.atMs ?? Number.POSITIVE_INFINITY)
        if (expected !== undefined) assert.equal(heap.next, expected.worker)
      }
    },
  )
  t.doesNotThrow(() => fc.assert(property, { numRuns: 1000 }))
})
