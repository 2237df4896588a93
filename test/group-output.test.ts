/** The output of a group is cut into those of its files, whatever becomes of the group. */

import { spawnSync } from 'node:child_process'
import { join, relative } from 'node:path'
import process from 'node:process'
import t from 'tap'
import { cutGroup } from './group-output.ts'
import { readTap } from './tap-reader.ts'

const ROOT = join(import.meta.dirname, '..')

/** Runs files with these texts as a group. */
function group(folder: string, names: readonly string[]) {
  const files = names.map(name => relative(ROOT, join(folder, name)))
  const { stdout, status } = spawnSync(process.execPath, [join(ROOT, 'test/group.ts')], {
    cwd: ROOT,
    env: { ...process.env, TEST_GROUP: JSON.stringify(files) },
    encoding: 'utf8',
  })
  const { files: outputs, strays } = cutGroup(stdout, files)
  const of = (name: string) => {
    const output = outputs.get(relative(ROOT, join(folder, name)))
    return output === undefined
      ? undefined
      : { ...readTap(output.tap), hasEnded: output.seconds !== undefined }
  }
  return { of, strays, status }
}

t.test('each file has its cases, its failures and its skips', async t => {
  const folder = t.testdir({
    'good.test.ts': `import t from 'tap'
t.test('one', async t => { t.pass() }); t.test('two', t => { t.pass(); t.end() })
console.log('ok 1 - printed')`,
    'bad.test.ts': `import t from 'tap'
await t.test('fails', async t => { t.equal(1, 2) }); t.test('throws', async () => { throw new Error('thrown') })`,
    'none.test.ts': `import t from 'tap'
t.test('needs much', { skip: 'nothing to do here' }, async () => {})`,
    'flat.test.ts': `import t from 'tap'
t.teardown(() => console.log('torn down')); t.ok(true)`,
    'broken.test.ts': `import './missing.ts'`,
    'last.test.ts': `import t from 'tap'
t.test('last', async t => { t.pass() })`,
  })
  const names = ['good', 'bad', 'none', 'flat', 'broken', 'last'].map(name => `${name}.test.ts`)
  const { of, strays, status } = group(folder, names)
  t.match(of('good.test.ts'), { passed: 2, failed: [], isComplete: true, hasEnded: true })
  t.strictSame(
    of('bad.test.ts')!.failed.map(({ path }) => path),
    [['fails'], ['throws']],
  )
  t.match(of('bad.test.ts')!.failed[1]!.report.join(), /thrown/)
  t.match(of('none.test.ts'), { passed: 0, failed: [], skipped: [{ reason: 'nothing to do here' }] })
  t.match(of('flat.test.ts'), { passed: 1, failed: [] })
  t.match(of('broken.test.ts')!.failed[0]!.report.join(), /missing\.ts/)
  t.match(of('last.test.ts'), { passed: 1, failed: [] })
  t.strictSame(strays, [])
  t.equal(status, 1)
})

t.test(
  'a process that dies leaves the file that it was in without its plan, and the next not begun',
  async t => {
    const folder = t.testdir({
      'good.test.ts': `import t from 'tap'
t.test('one', async t => { t.pass() })`,
      'dies.test.ts': `import t from 'tap'
t.test('two', async t => { t.pass(); process.kill(process.pid, 'SIGKILL'); await new Promise(() => {}) })`,
      'next.test.ts': `import t from 'tap'
t.test('three', async t => { t.pass() })`,
    })
    const { of } = group(folder, ['good.test.ts', 'dies.test.ts', 'next.test.ts'])
    t.match(of('good.test.ts'), { passed: 1, isComplete: true, hasEnded: true })
    t.equal(of('dies.test.ts')!.hasEnded, false)
    t.equal(of('next.test.ts'), undefined)
  },
)

t.test('tests that a module beside a file makes of its own are told', async t => {
  const folder = t.testdir({
    'beside.ts': `import t from 'tap'
export const check = () => t.test('of the root', async t => { t.pass() })`,
    'a.test.ts': `import t from 'tap'
import { check } from './beside.ts'
check(); t.pass()`,
  })
  t.strictSame(group(folder, ['a.test.ts']).strays, ['of the root'])
})
