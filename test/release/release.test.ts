/**
 * A release: what `pnpm release` writes, and the packed `homing` on each Node that it is for, installed by
 * npm in an empty folder.
 */

import { execFile, spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { createInterface } from 'node:readline'
import t from 'tap'
import { REGISTRY_AWAY } from '../registry.ts'
import { changesOf } from './changes.ts'
import { noticesOf, thirdParties } from './third-party.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const { version: VERSION } = JSON.parse(readFileSync(join(ROOT, 'packages/homing/package.json'), 'utf8')) as {
  version: string
}
/** The oldest that is supported, and the first of each later line that npm has as a package. */
const NODES = ['22.19.0', '24.12.0', '26.3.0']
const TOO_OLD = '20.19.5'
const NO_NODES = 'the npm registry cannot be reached, or has not all of these for this machine'
/** It has not all of them. */
const NOT_THERE = /E404|EBADPLATFORM/

const RELEASE = join(import.meta.dirname, 'release.ts')
const target = mkdtempSync(join(tmpdir(), 'homing-released-'))
const folder = mkdtempSync(join(tmpdir(), 'homing-nodes-'))
const MAIN = join(folder, 'node_modules/homing/dist/packages/homing/src/main.js')
t.teardown(() => {
  for (const path of [target, folder]) rmSync(path, { recursive: true, force: true })
})
t.setTimeout(900_000)

t.test('the notes of a release are those of its version; of a draft, what is not released yet', async t => {
  const changelog = '# Changelog\n\nWords.\n\n## Unreleased\n\n- new\n\n## 0.2.0, 2026-11-01\n\n- old\n'
  t.equal(changesOf(changelog, '0.2.0'), '- old\n')
  t.equal(changesOf(changelog, '0.3.0'), undefined)
  t.equal(changesOf(changelog, '0.3.0', { isDraft: true }), '- new\n')
  t.equal(changesOf(changelog, '0.2.0', { isDraft: true }), '- old\n')
  t.equal(changesOf('# Changelog\n\n## Unreleased\n', '0.3.0', { isDraft: true }), undefined)
  t.equal(changesOf('# Changelog\n\n## 0.2.01\n\n- other\n', '0.2.0'), undefined)
})

t.test('third parties are all that is needed, each once; what is missing is an error', async t => {
  const at = (name: string, more: object) => ({
    'package.json': JSON.stringify({ name, version: '1.0.0', license: 'MIT', ...more }),
  })
  const dir = t.testdir({
    node_modules: {
      homing: at('homing', { dependencies: { a: '^1.0.0', b: '^1.0.0' } }),
      a: { ...at('a', { dependencies: { b: '^1.0.0' } }), LICENSE: 'text of a' },
      b: at('b', { optionalDependencies: { 'for-others': '*' }, license: { type: 'ISC' } }),
      unneeded: at('unneeded', {}),
    },
  })
  const parties = thirdParties(dir)
  t.strictSame(
    parties.map(({ name, license, text }) => [name, license, text]),
    [
      ['a', 'MIT', 'text of a'],
      ['b', 'ISC', undefined],
    ],
  )
  t.match(noticesOf(parties), /\| b \| 1\.0\.0 \| ISC \|[\s\S]*## a 1\.0\.0\n\n```text\ntext of a\n```/)
  for (const [file, text] of [
    ['LICENSE.txt', 'text of b\n'],
    ['LICENSE_MPL-2.0.txt', 'text of its library\n'],
    ['NOTICE', 'who wrote it\n'],
    ['license.js', 'no text'],
  ])
    writeFileSync(join(dir, 'node_modules/b', file!), text!)
  t.equal(
    thirdParties(dir)[1]!.text,
    'LICENSE.txt:\n\ntext of b\n\nLICENSE_MPL-2.0.txt:\n\ntext of its library\n\nNOTICE:\n\nwho wrote it',
  )
  rmSync(join(dir, 'node_modules/b'), { recursive: true })
  t.throws(() => thirdParties(dir), /b, which .*\/a needs, is not installed/)
})

t.test('a version that the changelog does not name is no release', async t => {
  const named = changesOf(readFileSync(join(import.meta.dirname, '../../CHANGELOG.md'), 'utf8'), VERSION)
  // Once it is named, a whole release would be made here.
  if (named !== undefined) return
  const dir = t.testdir({})
  const { status, stderr } = spawnSync(process.execPath, [RELEASE, dir], { encoding: 'utf8' })
  t.equal(status, 1)
  t.match(stderr, `cannot release ${VERSION}: CHANGELOG.md has no "## ${VERSION}"`)
  t.strictSame(readdirSync(dir), [])
})

t.test('a folder that has something already is refused, and left as it is', async t => {
  const dir = t.testdir({ 'homing-0.0.9.tgz': 'an older one' })
  const { status, stderr } = spawnSync(process.execPath, [RELEASE, '--draft', dir], {
    encoding: 'utf8',
  })
  t.equal(status, 1)
  t.match(stderr, /^cannot release into .*: it is not empty \(homing-0\.0\.9\.tgz\); name a new folder/)
  t.strictSame(readdirSync(dir), ['homing-0.0.9.tgz'])
})

await t.test('pnpm release writes packages, materials, notices, notes and their sums', async t => {
  const { status, stderr } = spawnSync(process.execPath, [RELEASE, '--draft', target], {
    encoding: 'utf8',
  })
  if (status !== 0 && (REGISTRY_AWAY.test(stderr) || NOT_THERE.test(stderr))) {
    t.pass('a release is made', { skip: 'the npm registry cannot be reached' })
    rmSync(target, { recursive: true, force: true })
    return
  }
  t.equal(status, 0, stderr)
  const bom = JSON.parse(readFileSync(join(target, `homing-${VERSION}.cdx.json`), 'utf8')) as {
    components: readonly { name: string; version: string; licenses?: readonly unknown[] }[]
  }
  const notices = readFileSync(join(target, 'THIRD-PARTY.md'), 'utf8')
  const { dependencies } = JSON.parse(
    spawnSync('tar', ['-xOzf', join(target, `homing-${VERSION}.tgz`), 'package/package.json'], {
      encoding: 'utf8',
    }).stdout,
  ) as { dependencies: Readonly<Record<string, string>> }
  for (const name of Object.keys(dependencies)) {
    const component = bom.components.find(one => one.name === name)
    t.ok(component, `the materials have ${name}`)
    t.match(notices, `| ${name} | ${component?.version} |`)
  }
  for (const { name, version } of bom.components)
    if (name !== 'homing') t.match(notices, `## ${name} ${version}\n`, 'every component has a notice')
  t.notMatch(notices, '| not said |')
  const sums = readFileSync(join(target, 'SHA256SUMS'), 'utf8').trim().split('\n')
  t.strictSame(
    sums.map(line => line.split('  ')[1]),
    readdirSync(target)
      .filter(name => name !== 'SHA256SUMS')
      .sort(),
  )
  for (const line of sums) {
    const [sum, name] = line.split('  ')
    t.equal(
      createHash('sha256')
        .update(readFileSync(join(target, name!)))
        .digest('hex'),
      sum,
      name!,
    )
  }
})

const skip = existsSync(target) ? false : 'without the npm registry nothing is installed'

/** False: the registry has not all that is needed for this machine. */
let isInstalled = false
await t.test('npm installs the packed homing and each Node in one folder', { skip }, async t => {
  isInstalled = await installed()
  t.pass(isInstalled ? 'installed' : 'not all is there', { skip: !isInstalled && NO_NODES })
})

for (const version of NODES) {
  t.test(
    `an installed homing serves its demo fleet on Node ${version}`,
    { skip: !isInstalled && NO_NODES },
    async t => {
      const router = spawn(nodeOf(version), [MAIN, 'router', '--port', '0'], {
        stdio: ['ignore', 'pipe', 'pipe'],
      })
      const complaints: string[] = []
      router.stderr.on('data', chunk => complaints.push(String(chunk)))
      let url: string | undefined
      const lines = createInterface({ input: router.stdout })
      for await (const line of lines) {
        url = /ready on (http:\S+)/.exec(line)?.[1]
        if (url !== undefined) break
      }
      router.stdout.resume()
      t.ok(url, complaints.join(''))
      const answer = await fetch(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({
          model: 'homing-demo',
          messages: [{ role: 'user', content: 'Which way is home?' }],
          max_tokens: 4,
        }),
      })
      t.equal(answer.status, 200, await answer.text())
      router.kill('SIGTERM')
      const [exitCode] = await once(router, 'exit')
      t.equal(exitCode, 0, complaints.join(''))
    },
  )
}

t.test('an older Node is refused in a sentence', { skip: !isInstalled && NO_NODES }, async t => {
  const { status, stderr } = spawnSync(nodeOf(TOO_OLD), [MAIN, 'router'], { encoding: 'utf8' })
  t.equal(status, 1)
  t.match(stderr, /^homing: cannot run on Node 20\.19\.5: Node 22\.19 or later is needed[^\n]*\n$/)
})

/** Each Node under a name of its own. */
async function installed(): Promise<boolean> {
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ private: true }))
  const nodes = [...NODES, TOO_OLD].map(
    version => `node-${version}@npm:node-${process.platform}-${process.arch}@${version}`,
  )
  const words = ['install', '--no-audit', '--no-fund', ...nodes, join(target, `homing-${VERSION}.tgz`)]
  const child = execFile('npm', words, { cwd: folder, timeout: 600_000 })
  let said = ''
  for (const stream of [child.stdout!, child.stderr!]) stream.on('data', chunk => (said += String(chunk)))
  const [exitCode] = await once(child, 'close')
  if (exitCode !== 0 && (REGISTRY_AWAY.test(said) || NOT_THERE.test(said))) return false
  if (exitCode !== 0) throw new Error(said)
  return true
}

function nodeOf(version: string): string {
  return join(folder, 'node_modules', `node-${version}`, 'bin/node')
}
