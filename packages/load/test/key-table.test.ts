import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { KeyTable } from '../src/key-table.ts'

t.test('agrees with a Map after any inserts, removals and new keys, growth included', async t => {
  const key = fc.tuple(fc.nat(6), fc.nat(6), fc.nat(6))
  const agree = fc.property(fc.array(fc.tuple(fc.boolean(), key, key), { maxLength: 400 }), steps => {
    const table = new KeyTable(2)
    const naive = new Map<string, number>()
    for (const [isInsert, [a, b, c], [d, e, f]] of steps) {
      const name = `${a} ${b} ${c}`
      const entry = table.find(a, b, c)
      assert.equal(entry, naive.get(name) ?? -1)
      if (isInsert && entry < 0) {
        const inserted = table.insert(a, b, c)
        assert.equal(table.words[table.valueAt(inserted, 0)], 0)
        table.words[table.valueAt(inserted, 0)] = 7
        naive.set(name, inserted)
      } else if (isInsert && table.find(d, e, f) < 0) {
        table.rekey(entry, d, e, f)
        assert.equal(table.words[table.valueAt(entry, 0)], 7)
        naive.delete(name)
        naive.set(`${d} ${e} ${f}`, entry)
      } else if (!isInsert && entry >= 0) {
        table.remove(entry)
        naive.delete(name)
      }
      assert.equal(table.count, naive.size)
    }
  })
  t.doesNotThrow(() => fc.assert(agree))
})

t.test('many keys stay findable through growth and removal', async t => {
  const table = new KeyTable(1)
  for (let i = 0; i < 20_000; i++) table.insert(i, -i, i * 7)
  for (let i = 0; i < 20_000; i += 2) table.remove(table.find(i, -i, i * 7))
  t.equal(table.count, 10_000)
  let found = 0
  for (let i = 0; i < 20_000; i++) if (table.find(i, -i, i * 7) >= 0) found += i & 1 ? 1 : -1e9
  t.equal(found, 10_000)
})
