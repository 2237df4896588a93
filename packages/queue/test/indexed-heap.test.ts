import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { IndexedHeap } from '../src/indexed-heap.ts'

t.test('gives the first of what is in it, whatever came, went and changed', async t => {
  const step = fc.record({
    do: fc.constantFrom('push', 'remove', 'update'),
    nth: fc.nat(15),
    key: fc.nat(20),
  })
  const agree = fc.property(fc.array(step, { maxLength: 100, size: 'max' }), steps => {
    const items = Array.from({ length: 16 }, (_, number) => ({ heapPlaces: [-1, -1], number, key: 0 }))
    const isBefore = (a: { key: number; number: number }, b: { key: number; number: number }) =>
      a.key < b.key || (a.key === b.key && a.number < b.number)
    const heap = new IndexedHeap<(typeof items)[number]>(1, isBefore)
    const inside = new Set<(typeof items)[number]>()
    for (const { do: action, nth, key } of steps) {
      const item = items[nth]!
      if (action === 'remove') {
        assert.equal(heap.remove(item), inside.delete(item))
      } else if (action === 'push' && !inside.has(item)) {
        item.key = key
        heap.push(item)
        inside.add(item)
      } else {
        item.key = key
        heap.update(item)
      }
      assert.equal(heap.size, inside.size)
      assert.equal(heap.has(item), inside.has(item))
      assert.equal(heap.first, [...inside].sort((a, b) => (isBefore(a, b) ? -1 : 1))[0])
    }
  })
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 500 }))
})
