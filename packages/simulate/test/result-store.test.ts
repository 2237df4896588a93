import { existsSync, readdirSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { SimulatedClock } from '@homing/base'
import t from 'tap'
import { ResultStore, resultKey } from '../src/index.ts'

const MIB = 2 ** 20

function storeIn(
  folder: string,
  bytesMax = MIB,
): { store: ResultStore<unknown>; clock: SimulatedClock; troubles: string[] } {
  const clock = new SimulatedClock()
  const troubles: string[] = []
  return {
    clock,
    troubles,
    store: new ResultStore({ folder, bytesMax, clock, onTrouble: words => troubles.push(words) }),
  }
}

function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter(name => name.endsWith('.json'))
}

const keyOf = (i: number): string => resultKey({ i })

t.test('a key depends on every value, and not on the order of fields', async t => {
  t.equal(resultKey({ a: 1, b: { c: [1, 2], d: null } }), resultKey({ b: { d: null, c: [1, 2] }, a: 1 }))
  t.equal(resultKey({ a: 1, b: undefined }), resultKey({ a: 1 }))
  const keys = [{ a: 1 }, { a: '1' }, { a: [1] }, { a: { b: 1 } }, { a: null }, {}, { a: 1, b: 1 }].map(
    resultKey,
  )
  t.equal(new Set(keys).size, keys.length)
})

t.test('what was put is got by another process, too', async t => {
  const folder = join(t.testdir({}), 'not', 'there', 'yet')
  const { store, troubles } = storeIn(folder)
  t.equal(store.get(keyOf(1)), undefined)
  store.put(keyOf(1), { x: [1.5, 'two'] })
  t.strictSame(storeIn(folder).store.get(keyOf(1)), { x: [1.5, 'two'] })
  t.strictSame(troubles, [])
})

t.test('a file that was cut is a result that is not there, and is written again', async t => {
  const folder = t.testdir({})
  const { store, troubles } = storeIn(folder)
  store.put(keyOf(1), { x: 1 })
  const [name] = filesIn(folder)
  for (const text of ['', '{"format":1,"ru', '{"format":0,"run":{"x":9}}', 'null']) {
    writeFileSync(join(folder, name!), text)
    t.equal(store.get(keyOf(1)), undefined, text)
  }
  store.put(keyOf(1), { x: 2 })
  t.strictSame(store.get(keyOf(1)), { x: 2 })
  t.strictSame(troubles, [])
})

t.test('past its size, results that were not used for the longest time go', async t => {
  const folder = t.testdir({})
  const { store, clock } = storeIn(folder, 20_000)
  const run = 'x'.repeat(950)
  for (let i = 0; i < 15; i++) store.put(keyOf(i), run)
  for (const [i, name] of filesIn(folder).entries()) utimesSync(join(folder, name), i, i)
  clock.advance(1000)
  t.equal(store.get(keyOf(3)), run, 'used just now')
  for (let i = 15; i < 60; i++) store.put(keyOf(i), run)
  const bytes = filesIn(folder).length * 980
  t.ok(bytes <= 20_000 && bytes > 15_000, `${bytes} bytes are kept`)
  t.equal(store.get(keyOf(59)), run)
  t.strictSame(
    filesIn(folder).filter(name => !/[0-9a-f]{64}\.json$/.test(name)),
    [],
    'nothing half written is left',
  )
})

t.test('a folder that cannot be used is told once', async t => {
  const file = join(t.testdir({ file: 'not a folder' }), 'file')
  const { store, troubles } = storeIn(file)
  t.equal(store.get(keyOf(1)), undefined)
  store.put(keyOf(1), 1)
  store.put(keyOf(2), 2)
  t.equal(troubles.length, 1)
  t.match(troubles[0], /^cannot keep results in .*file: ENOTDIR.*; going on without$/)
  t.ok(existsSync(file))
})
