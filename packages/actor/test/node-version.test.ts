/**
 * A Node that is too old is told so in a sentence. The built package is imported by one in
 * test/examples-project.test.ts.
 */

import { spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { stripTypeScriptTypes } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { NODE_MIN, nodeFault } from '../src/values/node-version.ts'
import { NO_OLD_NODE, oldNode, TOO_OLD } from './old-node.ts'

const PACKAGE = join(import.meta.dirname, '..')
/**
 * What Node 20 exports from its own modules, of what is imported by name. A name that it lacks fails when the
 * modules are linked, before any of them runs: such a name is read from the module imported as a whole.
 */
const NODE_20_EXPORTS: Readonly<Record<string, readonly string[]>> = {
  crypto: ['randomBytes', 'randomUUID'],
  fs: ['constants', 'writeSync'],
  'fs/promises': ['open', 'rename', 'rm', 'stat'],
  module: ['createRequire'],
  perf_hooks: ['performance'],
  tty: ['isatty'],
  url: ['fileURLToPath'],
  util: ['inspect', 'types'],
  v8: ['getHeapSpaceStatistics', 'getHeapStatistics', 'setFlagsFromString'],
  vm: ['runInNewContext'],
  worker_threads: [
    'MessageChannel',
    'Worker',
    'parentPort',
    'receiveMessageOnPort',
    'resourceLimits',
    'workerData',
  ],
}

t.test('the oldest Node is the one that package.json names', async t => {
  const { engines } = JSON.parse(readFileSync(join(PACKAGE, 'package.json'), 'utf8')) as {
    readonly engines: { readonly node: string }
  }
  t.equal(engines.node, `>=${NODE_MIN}`)
})

t.test('older versions are refused, by number', async t => {
  for (const version of ['v20.18.9', 'v18.20.8', 'v9.99.0']) t.match(nodeFault(version), version)
  for (const version of ['v20.19.0', 'v22.0.0', 'v24.0.0', 'v100.1.0', 'v23.0.0-nightly'])
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

t.test('nothing is imported by name that an older Node lacks', async t => {
  let imports = 0
  for (const name of ['actor', 'base']) {
    const folder = join(PACKAGE, '..', name, 'src')
    for (const file of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
      if (!file.endsWith('.ts')) continue
      const source = readFileSync(join(folder, file), 'utf8')
      for (const [, names, module] of source.matchAll(/^import \{([^}]*)\} from 'node:([^']*)'/gm)) {
        const values = names!.split(',').map(item => item.trim().split(' as ')[0]!)
        for (const value of values.filter(item => item !== '' && !item.startsWith('type '))) {
          imports++
          if (NODE_20_EXPORTS[module!]?.includes(value) !== true)
            t.fail(`${name}/src/${file}: ${value} of ${module}`)
        }
      }
    }
  }
  t.ok(imports > 15, `${imports} imports`)
})

const old = oldNode()
t.test(
  'a Node that is too old says so: the check alone runs on it',
  { skip: old === undefined && NO_OLD_NODE },
  async t => {
    const folder = mkdtempSync(join(tmpdir(), 'homing-node-'))
    t.teardown(() => rmSync(folder, { recursive: true }))
    const source = readFileSync(join(PACKAGE, 'src/values/node-version.ts'), 'utf8')
    writeFileSync(join(folder, 'node-version.mjs'), stripTypeScriptTypes(source))
    const { status, stderr } = spawnSync(old!, [join(folder, 'node-version.mjs')], {
      encoding: 'utf8',
      timeout: 60_000,
    })
    t.equal(status, 1)
    t.match(stderr, TOO_OLD)
  },
)
