import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { BatchRing } from '../src/index.ts'

t.test('keeps the last batches within both bounds, as a plain list does', async t => {
  const agree = fc.property(
    fc.array(fc.nat({ max: 12 }), { maxLength: 60 }),
    fc.integer({ min: 1, max: 8 }),
    fc.integer({ min: 1, max: 40 }),
    fc.nat({ max: 70 }),
    fc.nat({ max: 70 }),
    (sizes, batchesMax, bytesMax, start, end) => {
      const ring = new BatchRing({ batchesMax, bytesMax })
      let naive: { readonly sequence: number; readonly payload: Uint8Array }[] = []
      for (const [sequence, size] of sizes.entries()) {
        const payload = new Uint8Array(size).fill(sequence)
        assert.equal(ring.add(payload), sequence)
        naive.push({ sequence, payload })
        const bytes = (): number => naive.reduce((sum, batch) => sum + batch.payload.length, 0)
        while (naive.length > batchesMax || bytes() > bytesMax) naive = naive.slice(1)
        assert.deepEqual([ring.size, ring.bytes, ring.oldest], [naive.length, bytes(), naive[0]?.sequence])
      }
      assert.equal(ring.nextSequence, sizes.length)
      assert.deepEqual(
        ring.range(start, end),
        naive.filter(({ sequence }) => sequence >= start && sequence <= end),
      )
      assert.deepEqual(
        ring.range(start),
        naive.filter(({ sequence }) => sequence >= start),
      )
      assert.deepEqual(ring.get(start), naive.find(({ sequence }) => sequence === start)?.payload)
    },
  )
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 500 }))
})
