/** Counts that several threads share. */

import t from 'tap'
import { ALONE, commonCount, commonMemory } from '../src/index.ts'

t.test('each sees what the others have, of one bound', async t => {
  const memory = commonMemory(3)
  const rows = [0, 1, 2].map(index => commonCount({ memory, index }, 'open'))
  const tabs = commonCount({ memory, index: 0 }, 'tabs')
  for (const [index, row] of rows.entries()) row.set(10 ** index)
  tabs.set(5)
  t.strictSame(
    rows.map(({ others }) => others),
    [110, 101, 11],
  )
  t.equal(tabs.others, 0)
})

t.test('a new life begins at zero, and takes nothing from the others', async t => {
  const memory = commonMemory(2)
  const [one, other] = [0, 1].map(index => commonCount({ memory, index }, 'open'))
  one!.set(4)
  other!.set(7)
  const again = commonCount({ memory, index: 0 }, 'open')
  t.equal(other!.others, 0)
  t.equal(again.others, 7)
})

t.test('bytes are counted in units, rounded up', async t => {
  const memory = commonMemory(2)
  const [one, other] = [0, 1].map(index => commonCount({ memory, index }, 'bodies', 1024))
  one!.set(2 ** 40 + 1)
  t.equal(other!.others, 2 ** 40 + 1024)
})

t.test('a thread that is alone has no others', async t => {
  ALONE.set(5)
  t.equal(ALONE.others, 0)
  t.equal(commonCount(undefined, 'open'), ALONE)
})
