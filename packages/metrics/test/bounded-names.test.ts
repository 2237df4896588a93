/** Names of a label: bounded, and forgotten when they are no longer used. */

import t from 'tap'
import { BoundedNames, OTHER_NAMES } from '../src/index.ts'

t.test('as many names as may be have a label, the others share one, and idle ones make room', async t => {
  const forgotten: string[] = []
  const names = new BoundedNames({ namesMax: 2, idleMs: 1000, forgotten: name => forgotten.push(name) })
  t.equal(names.of('a', 0), 'a')
  t.equal(names.of('b', 500), 'b')
  t.equal(names.of('c', 999), OTHER_NAMES)
  t.equal(names.of('a', 999), 'a')
  t.equal(names.of('c', 1500), 'c', 'b was idle')
  t.strictSame(forgotten, ['b'])
  t.equal(names.has('b'), false)
  names.sweep(1998)
  t.strictSame(forgotten, ['b'])
  names.sweep(5000)
  t.strictSame(forgotten, ['b', 'a', 'c'])
  t.equal(names.of('b', 5000), 'b')
})
