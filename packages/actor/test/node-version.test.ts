/** A Node that is too old is told so in a sentence, by the built package too. */

import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { stripTypeScriptTypes } from 'node:module'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import t from 'tap'
import { NODE_MIN, nodeFault } from '../src/values/node-version.ts'

const PACKAGE = join(import.meta.dirname, '..')

t.test('the oldest Node is the one that package.json names', async t => {
  const { engines } = JSON.parse(readFileSync(join(PACKAGE, 'package.json'), 'utf8')) as {
    readonly engines: { readonly node: string }
  }
  t.equal(engines.node, `>=${NODE_MIN}`)
})

t.test('older versions are refused, by number', async t => {
  for (const version of ['v20.20.2', 'v22.18.9', 'v9.99.0']) t.match(nodeFault(version), version)
  for (const version of ['v22.19.0', 'v24.0.0', 'v100.1.0', 'v23.0.0-nightly'])
    t.equal(nodeFault(version), undefined)
})

t.test('every entry checks it before it imports anything else', async t => {
  const { exports } = JSON.parse(readFileSync(join(PACKAGE, 'package.json'), 'utf8')) as {
    readonly exports: Readonly<Record<string, string>>
  }
  for (const entry of Object.values(exports)) {
    const [first] = readFileSync(join(PACKAGE, entry), 'utf8').match(/^(import|export) .*$/gm) ?? []
    t.match(first, /^import '.*values\/node-version\.ts'$/, entry)
  }
})

/** A Node of this machine that is too old. */
function oldNode(): string | undefined {
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    const path = join(folder, 'node')
    if (!existsSync(path)) continue
    const { stdout } = spawnSync(path, ['--version'], { encoding: 'utf8', timeout: 10_000 })
    if (nodeFault(stdout.trim()) !== undefined) return path
  }
  return undefined
}

const old = oldNode()
t.test(
  'a Node that is too old says so',
  { skip: old === undefined && 'no old Node on this machine' },
  async t => {
    const folder = mkdtempSync(join(tmpdir(), 'homing-node-'))
    t.teardown(() => rmSync(folder, { recursive: true }))
    const source = readFileSync(join(PACKAGE, 'src/values/node-version.ts'), 'utf8')
    writeFileSync(join(folder, 'node-version.mjs'), stripTypeScriptTypes(source))
    const { status, stderr } = spawnSync(old!, [join(folder, 'node-version.mjs')], {
      encoding: 'utf8',
      timeout: 10_000,
    })
    t.equal(status, 1)
    t.match(stderr, /Error: cannot run @homing\/actor on Node v\d+\.\d+\.\d+: it needs Node 22\.19 or later/)
  },
)
