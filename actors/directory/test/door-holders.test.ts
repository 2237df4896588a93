/** Gateways on threads of their own are told where the keys of engines stand, and never a key. */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import type { DoorsMessage } from '../src/index.ts'
import { world } from './directory-world.ts'

const KEY = 'sk-of-the-engine'

t.test('a holder is told of every key that is new, has changed or is gone, by its place', async t => {
  const folder = t.testdir({ key: KEY })
  const file = join(folder, 'key')
  const w = await world(t)
  await w.engine('10.0.0.1')
  await w.engine('10.0.0.2')
  const holder = w.system.probe<DoorsMessage>('gateway-0')
  await w.begin(['http://10.0.0.2:8000'], { engineKey: { file } })
  w.ref.tell({ type: 'holdsDoors', holder: holder.ref })
  await w.system.settle()
  const told = () => holder.waiting.flatMap(({ doors }) => doors)
  t.strictSame(told(), [{ origin: 'http://10.0.0.2:8000', key: { file } }], 'those that there are')

  w.ref.tell({ type: 'holdsDoors', holder: holder.ref })
  await w.system.advance('10s')
  t.equal(told().length, 1, 'probes of the same key tell nothing, and neither does a renewal')

  writeFileSync(file, `${KEY}-changed`)
  await w.system.advance('5s')
  t.equal(told().length, 2, 'a changed key is to be read again')

  const added = w.ref.ask({ type: 'addWorker', url: 'http://10.0.0.1:8000' }, { timeout: 1000 })
  await w.system.settle()
  await added
  t.match(told().at(-1), { origin: 'http://10.0.0.1:8000', key: { file } })
  const doors = w.ref.ask({ type: 'doors', holder: holder.ref }, { timeout: 1000 })
  await w.system.settle()
  t.strictSame(
    (await doors).map(({ origin }) => origin),
    ['http://10.0.0.2:8000', 'http://10.0.0.1:8000'],
  )

  const removed = w.ref.ask({ type: 'removeWorker', workerId: '10.0.0.2:8000' }, { timeout: 1000 })
  await w.system.settle()
  await removed
  t.strictSame(told().at(-1), { origin: 'http://10.0.0.2:8000', key: undefined })
  t.notMatch(JSON.stringify(holder.waiting), KEY, 'no key is in a message')
})

t.test('a key that cannot be read is told, too: no client’s key takes its place', async t => {
  const file = join(t.testdir({}), 'missing')
  const w = await world(t)
  await w.engine('10.0.0.1')
  const holder = w.system.probe<DoorsMessage>('gateway-0')
  w.start(['http://10.0.0.1:8000'], { engineKey: { file } })
  w.ref.tell({ type: 'holdsDoors', holder: holder.ref })
  await w.system.settle()
  t.strictSame(holder.waiting.flatMap(({ doors }) => doors).at(-1)?.key, { file })
})

t.test('engines without keys have no doors', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1')
  await w.begin(['http://10.0.0.1:8000'])
  const holder = w.system.probe<DoorsMessage>('gateway-0')
  const doors = w.ref.ask({ type: 'doors', holder: holder.ref }, { timeout: 1000 })
  await w.system.settle()
  t.strictSame(await doors, [])
})
