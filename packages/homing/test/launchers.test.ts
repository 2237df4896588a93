/** Launchers: whether the processes that started this one are still alive. */

import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import t, { type Test } from 'tap'
import { isChainWhole } from '../src/launchers.ts'

const SKIP = process.platform === 'linux' ? false : 'only Linux has /proc'
const { readFileSync } = fs

/** Reading a file fails with this code until the test ends. */
function failReading(test: Test, code: string): void {
  test.teardown(() => {
    fs.readFileSync = readFileSync
    syncBuiltinESMExports()
  })
  fs.readFileSync = () => {
    throw Object.assign(new Error(code), { code })
  }
  syncBuiltinESMExports()
}

function chain(): readonly number[] {
  const stat = readFileSync(`/proc/${process.ppid}/stat`, 'latin1')
  const grandparent = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
  return [process.ppid, grandparent]
}

t.test('a chain is whole while each is the parent of the one before it', { skip: SKIP }, async t => {
  const [parent, grandparent] = chain()
  t.ok(isChainWhole([parent!, grandparent!]))
  t.notOk(isChainWhole([parent!, parent!]))
  t.notOk(isChainWhole([grandparent!]))
})

t.test('a launcher is not taken for gone because no file can be opened', { skip: SKIP }, async t => {
  const pids = chain()
  for (const code of ['EMFILE', 'ENFILE', 'ENOMEM']) {
    failReading(t, code)
    t.ok(isChainWhole(pids), code)
  }
  for (const code of ['ENOENT', 'ESRCH']) {
    failReading(t, code)
    t.notOk(isChainWhole(pids), `${code}: it is known to be gone`)
  }
})
