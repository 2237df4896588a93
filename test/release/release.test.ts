/**
 * A release: what `pnpm release` writes, and the packed `homing` on each Node that it is for, installed by
 * npm in an empty folder.
 */

import { execFile, spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, globSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { createInterface } from 'node:readline'
import { brotliCompressSync, gzipSync, zstdCompressSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { REGISTRY_AWAY } from '../registry.ts'
import { changesOf, refusalOf, titlesOf } from './changes.ts'
import { noticesOf, thirdParties } from './third-party.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const { version: VERSION } = JSON.parse(readFileSync(join(ROOT, 'packages/homing/package.json'), 'utf8')) as {
  version: string
}
const CHANGELOG = readFileSync(join(ROOT, 'CHANGELOG.md'), 'utf8')
/** The oldest that is supported, and the first of each later line that npm has as a package. */
const NODES = ['20.19.0', '22.12.0', '24.12.0', '26.3.0']
const TOO_OLD = '18.20.8'
/** The first that decodes zstd, and the first whose threads share a port. */
const ZSTD_FROM = [22, 15]
const SHARED_PORT_FROM = [22, 12]
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
  t.equal(changesOf(changelog, '0.2.0', { isDraft: true }), '- new\n')
  t.equal(changesOf(changelog.replace('- new\n', ''), '0.2.0', { isDraft: true }), '- old\n')
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

t.test('a version with changes that have none yet, or that is not named, is no release', async t => {
  const changelog = '# Changelog\n\n## Unreleased\n\n- new\n\n## 0.2.0, 2026-11-01\n\n- old\n'
  t.match(refusalOf(changelog, '0.3.0'), 'cannot release 0.3.0: CHANGELOG.md has no "## 0.3.0"')
  t.match(refusalOf(changelog, '0.2.0'), 'cannot release 0.2.0: CHANGELOG.md has changes after it')
  t.equal(refusalOf(changelog.replace('- new\n', ''), '0.2.0'), undefined)
  t.equal(refusalOf(changelog, '0.2.0', { isDraft: true }), undefined)
  t.match(refusalOf('# Changelog\n', '0.2.0', { isDraft: true }), /^cannot draft 0\.2\.0: .* has neither/)
})

t.test('the changelog has a heading for each version, the newest first, with its date', async t => {
  const [first, ...others] = titlesOf(CHANGELOG)
  t.equal(first, 'Unreleased')
  t.ok(others.length > 0)
  for (const title of others) t.match(title, /^\d+\.\d+\.\d+, \d{4}-\d{2}-\d{2}$/)
  const versions = others.map(title => title.split(',')[0]!.split('.').map(Number))
  const order = (a: readonly number[], b: readonly number[]): number => {
    const at = a.findIndex((part, index) => part !== b[index])
    return at < 0 ? 0 : b[at]! - a[at]!
  }
  t.strictSame(versions, versions.toSorted(order))
  t.ok(changesOf(CHANGELOG, VERSION), 'the version of the packages has its changes')
  for (const [, version] of CHANGELOG.matchAll(/^### Upgrade from (.*)$/gm))
    t.ok(changesOf(CHANGELOG, version!), `notes are for those who have ${version}`)
})

t.test('pnpm release refuses what the changelog is not ready for', async t => {
  const refusal = refusalOf(CHANGELOG, VERSION)
  // Where it is ready, a whole release would be made here.
  const wanted = refusal === undefined ? '' : `${refusal}\n`
  const dir = t.testdir(refusal === undefined ? { 'homing-0.0.9.tgz': 'an older one' } : {})
  const before = readdirSync(dir)
  const { status, stderr } = spawnSync(process.execPath, [RELEASE, dir], { encoding: 'utf8' })
  t.equal(status, 1)
  t.match(stderr, wanted)
  t.strictSame(readdirSync(dir), before)
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

const isFrom = (version: string, [major, minor]: readonly number[]): boolean => {
  const [ownMajor, ownMinor] = version.split('.').map(Number)
  return ownMajor! > major! || (ownMajor === major && ownMinor! >= minor!)
}

interface Running {
  readonly url: string
  /** Ends it in order; answers its exit code. */
  stop(): Promise<number | null>
}

/** Starts a program of the installed homing; what it says is in the error if it ends before it is ready. */
async function start(t: Test, version: string, words: readonly string[]): Promise<Running> {
  const child = spawn(nodeOf(version), [MAIN, ...words], { stdio: ['ignore', 'pipe', 'pipe'], cwd: folder })
  t.teardown(() => child.kill('SIGKILL'))
  const ended = once(child, 'exit') as Promise<[number | null]>
  const said: string[] = []
  child.stderr.on('data', chunk => said.push(String(chunk)))
  for await (const line of createInterface({ input: child.stdout })) {
    const url = / ready on (http:[^\s,]+)/.exec(line)?.[1]
    if (url === undefined) continue
    child.stdout.resume()
    const stop = async (): Promise<number | null> => {
      child.kill('SIGTERM')
      return (await ended)[0]
    }
    return { url, stop }
  }
  throw new Error(`${words.join(' ')} ended with ${(await ended)[0]}: ${said.join('')}`)
}

const CHAT = {
  model: 'homing-demo',
  messages: [{ role: 'user', content: 'Which way is home?' }],
  max_tokens: 4,
}

function post(url: string, body: unknown, headers: Readonly<Record<string, string>> = {}): Promise<Response> {
  return fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: body instanceof Uint8Array ? new Uint8Array(body) : JSON.stringify(body),
  })
}

for (const version of NODES) {
  const skip = !isInstalled && NO_NODES
  t.test(`an installed homing serves its demo fleet on Node ${version}`, { skip }, async t => {
    const { url, stop } = await start(t, version, ['router', '--port', '0'])
    const answer = await post(url, CHAT)
    t.equal(answer.status, 200, await answer.text())
    const stream = await post(url, { ...CHAT, stream: true })
    t.match(await stream.text(), /\ndata: \[DONE\]\n\n$/)
    const text = Buffer.from(JSON.stringify(CHAT))
    for (const [encoding, encoded] of [
      ['gzip', gzipSync(text)],
      ['br', brotliCompressSync(text)],
    ] as const)
      t.equal((await post(url, encoded, { 'content-encoding': encoding })).status, 200, encoding)
    const zstd = await post(url, zstdCompressSync(text), { 'content-encoding': 'zstd' })
    t.equal(zstd.status, isFrom(version, ZSTD_FROM) ? 200 : 415, await zstd.text())
    for (const path of ['/', '/metrics', '/workers', '/decisions', '/v1/models'])
      t.equal((await fetch(`${url}${path}`)).status, 200, path)
    t.equal(await stop(), 0)
  })

  t.test(
    `gateways on threads of their own share a port from Node 22.12 on: ${version}`,
    { skip },
    async t => {
      const words = ['router', '--port', '0', '--gateway-threads', '2', '--log-level', 'error']
      if (isFrom(version, SHARED_PORT_FROM)) {
        const { url, stop } = await start(t, version, words)
        const all = await Promise.all(Array.from({ length: 8 }, () => post(url, CHAT)))
        t.strictSame(new Set(all.map(({ status }) => status)), new Set([200]))
        t.equal(await stop(), 0)
      } else
        await t.rejects(
          start(t, version, words),
          /ended with 1: .*threads cannot share a port on Node 20\.19\.0/s,
        )
    },
  )

  t.test(`the other programs start and end on Node ${version}`, { skip }, async t => {
    for (const words of [
      ['indexer'],
      ['slots'],
      ['select'],
      ['engine', '--events-port', '0', '--replay-port', '0'],
    ]) {
      const { url, stop } = await start(t, version, [...words, '--port', '0'])
      t.equal((await fetch(`${url}/health`)).status, 200, words.join(' '))
      t.equal(await stop(), 0, words.join(' '))
    }
    const load = ['--policies', 'product', '--requests', '50', '--speeds', '1', '--seeds', '1']
    const { status, stdout, stderr } = spawnSync(nodeOf(version), [MAIN, 'simulate', ...load], {
      encoding: 'utf8',
      cwd: folder,
    })
    t.equal(status, 0, stderr)
    t.match(stdout, /\n {2}product +\d/)
  })
}

t.test(
  'every name that is imported of Node is one of the oldest',
  { skip: !isInstalled && NO_NODES },
  async t => {
    const wanted = new Map<string, Set<string>>()
    for (const file of globSync('{packages,actors}/*/src/**/*.ts', { cwd: ROOT })) {
      if (/testing|\/browser\/|test-server/.test(file)) continue
      const source = readFileSync(join(ROOT, file), 'utf8')
      for (const [, names, module] of source.matchAll(/^import \{([^}]*)\} from '(node:[^']*)'/gm))
        for (const name of names!.split(',').map(item => item.trim().split(' as ')[0]!))
          if (name !== '' && !name.startsWith('type '))
            wanted.set(module!, (wanted.get(module!) ?? new Set()).add(name))
    }
    t.ok(wanted.size > 15)
    const asked = JSON.stringify([...wanted].map(([module, names]) => [module, [...names]]))
    const script = `const lacking = []
for (const [module, names] of ${asked}) {
  const has = await import(module)
  for (const name of names) if (!(name in has)) lacking.push(module + ' ' + name)
}
console.log(JSON.stringify(lacking))`
    const words = ['--input-type=module', '--eval', script]
    const { stdout, stderr } = spawnSync(nodeOf(NODES[0]!), words, { encoding: 'utf8' })
    t.equal(stderr, '')
    t.strictSame(JSON.parse(stdout), [])
  },
)

t.test('an older Node is refused in a sentence', { skip: !isInstalled && NO_NODES }, async t => {
  const { status, stderr } = spawnSync(nodeOf(TOO_OLD), [MAIN, 'router'], { encoding: 'utf8' })
  t.equal(status, 1)
  t.match(stderr, /^homing: cannot run on Node 18\.20\.8: Node 20\.19 or later is needed[^\n]*\n$/)
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
