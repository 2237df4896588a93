/** What the language lacks on an older Node, on this one without it. */

import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import process from 'node:process'
import t from 'tap'

const FILE = join(import.meta.dirname, '../src/es2024.ts')

const NONE =
  'delete Promise.withResolvers; delete Map.groupBy; delete ArrayBuffer.prototype.transfer; delete ArrayBuffer.prototype.detached'

const USE = `
const { promise, resolve, reject } = Promise.withResolvers()
resolve(1)
reject(new Error('too late'))
const failed = Promise.withResolvers()
failed.reject(new Error('as told'))
const groups = Map.groupBy(new Set(['a', 'bb', 'c']).values(), (text, index) => text.length)
const positions = Map.groupBy(['x', 'y'], (_, index) => index)
const bytes = Uint8Array.of(1, 2, 3)
const empty = new ArrayBuffer(0)
const [before, { buffer }] = [empty.detached, bytes]
const heir = buffer.transfer()
const short = heir.transfer(2)
const long = short.transfer(4)
console.log(JSON.stringify([
  await promise,
  await failed.promise.catch(error => error.message),
  [...groups],
  [...positions],
  [before, buffer.detached, bytes.length, heir.detached, short.detached, long.detached, [...new Uint8Array(long)]],
  Object.keys(Promise).length + Object.keys(Map).length + Object.keys(ArrayBuffer.prototype).length,
]))
`

function said(before: string): string {
  const { stdout, stderr } = spawnSync(
    process.execPath,
    ['--input-type=module', '--eval', `${before}\n${USE}`],
    {
      encoding: 'utf8',
    },
  )
  return stdout || stderr
}

t.test('it says what the language says, where the language lacks it', async t => {
  const without = said(
    `delete Promise.withResolvers; delete Map.groupBy; await import(${JSON.stringify(FILE)})`,
  )
  t.equal(without, said(''))
  t.match(
    without,
    '[1,"as told",[[1,["a","c"]],[2,["bb"]]],[[0,["x"]],[1,["y"]]],[false,true,0,true,true,false,[1,2,0,0]],0]',
  )
  t.match(said(NONE), 'TypeError')
})

t.test('what the language has is kept', async t => {
  const own = `Map.groupBy = () => []; await import(${JSON.stringify(FILE)})`
  t.match(said(own), '[1,"as told",[],[],')
})
