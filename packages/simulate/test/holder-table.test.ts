import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { HolderTable } from '../src/holder-table.ts'

interface Change {
  readonly kind: 'add' | 'remove' | 'clear'
  readonly id: number
  readonly worker: number
}

const changes = (workers: number): fc.Arbitrary<Change[]> =>
  fc.array(
    fc.record({
      kind: fc.constantFrom('add', 'add', 'add', 'remove', 'clear' as const),
      id: fc.integer({ min: 0, max: 6 }).map(id => (id === 6 ? 2 ** 40 : id)),
      worker: fc.integer({ min: 0, max: workers - 1 }),
    }) as fc.Arbitrary<Change>,
    { maxLength: 80 },
  )

t.test('overlaps are those of plain sets, for any number of workers', async t => {
  const property = fc.property(
    fc
      .constantFrom(1, 8, 31, 32, 33, 64, 70)
      .chain(workers => fc.tuple(fc.constant(workers), changes(workers))),
    fc.array(
      fc.integer({ min: 0, max: 6 }).map(id => (id === 6 ? 2 ** 40 : id)),
      { maxLength: 6 },
    ),
    ([workers, history], prompt) => {
      const table = new HolderTable(workers)
      const naive = new Map<number, Set<number>>()
      const holdersOf = (id: number): Set<number> => naive.get(id) ?? new Set()
      for (const { kind, id, worker } of history) {
        if (kind === 'add') {
          table.add(id, worker)
          naive.set(id, holdersOf(id).add(worker))
        } else if (kind === 'remove') {
          table.remove(id, worker)
          holdersOf(id).delete(worker)
        } else {
          table.clear(worker)
          for (const holders of naive.values()) holders.delete(worker)
        }
      }
      const overlaps = new Int32Array(workers).fill(-1)
      table.overlaps(prompt, prompt.length, overlaps)
      for (let worker = 0; worker < workers; worker++) {
        let expected = 0
        while (expected < prompt.length && holdersOf(prompt[expected]!).has(worker)) expected++
        assert.equal(overlaps[worker], expected)
      }
      for (const id of prompt) assert.equal(table.holders(id), holdersOf(id).size)
      assert.equal(table.size, [...naive.values()].filter(holders => holders.size > 0).length)
    },
  )
  t.doesNotThrow(() => fc.assert(property, { numRuns: 500 }))
})

t.test('it grows, and reuses the places of blocks that nobody holds any more', async t => {
  const table = new HolderTable(40)
  for (let round = 0; round < 5; round++) {
    for (let id = 0; id < 3000; id++) table.add(round * 10_000 + id, 39)
    t.equal(table.size, 3000)
    for (let id = 0; id < 3000; id++) table.remove(round * 10_000 + id, 39)
    t.equal(table.size, 0)
  }
})
