/** docs/first-hour.md, typed as printed. */

import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { hasCurl, runTypedPage } from './typed-page.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const textOf = (file: string): string => readFileSync(join(ROOT, file), 'utf8')
const isCheckout = spawnSync('git', ['rev-parse'], { cwd: ROOT }).status === 0
const skip = hasCurl ? false : 'curl is not installed'

t.test('every command of docs/first-hour.md does what the page says', { skip }, async t => {
  await runTypedPage(t, {
    page: 'first-hour.md',
    ports: /\b(800[0-3]|555[7-9]|655[7-9])\b/g,
    stepsMin: 14,
    isQuestion: command => !/ -d | -X /.test(command),
  })
})

t.test(
  'clone and install are those of the README and the Containerfile, and the clone has what is typed next',
  { skip: isCheckout ? false : 'this is no git checkout' },
  async t => {
    const [, block = ''] =
      /^## Clone and install$.*?^```\n(.*?)^```$/ms.exec(textOf('docs/first-hour.md')) ?? []
    const [clone = '', install = '', alias = '', ...more] = block.trim().split('\n')
    t.strictSame(more, [])
    const readme = textOf('README.md').split('\n')
    t.ok(readme.includes(clone), clone)
    t.ok(readme.includes(alias), alias)
    t.ok(textOf('Containerfile').split('\n').includes(`RUN ${install}`), install)
    const folder = t.testdir()
    execFileSync('sh', ['-c', clone.replace('REPOSITORY', `'${ROOT}'`)], { cwd: folder, stdio: 'pipe' })
    const { scripts } = JSON.parse(readFileSync(join(folder, 'homing', 'package.json'), 'utf8'))
    t.ok(scripts.start, 'which homing is short for')
    t.ok(existsSync(join(folder, 'homing', 'pnpm-lock.yaml')), 'which the install is held to')
  },
)
