/** Merging the modules of a dist/: entries stay, state exists once, and each module keeps its own path. */

import { spawnSync } from 'node:child_process'
import { existsSync, globSync, mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import process from 'node:process'
import t, { type Test } from 'tap'
import { mergeModules } from './merge-modules.ts'

const FILES: Readonly<Record<string, string>> = {
  'package.json': '{"type":"module"}',
  'a/src/main.js': `
    import { count, where, files, entry } from './state.js'
    import { Worker } from 'node:worker_threads'
    count()
    const { actorUrl } = await import('../../b/src/index.js')
    const { counted } = await import(actorUrl)
    console.log(JSON.stringify({ counted: counted(), where, files, entry }))
    new Worker(entry).on('error', error => { throw error })`,
  'a/src/state.js': `
    import { readFileSync } from 'node:fs'
    const extension = import.meta.url.slice(import.meta.url.lastIndexOf('.'))
    let calls = 0
    export const count = () => ++calls
    export const where = [import.meta.url, import.meta.filename, import.meta.dirname, import.meta.resolve('../../b/src/index.js')]
    export const files = readFileSync(new URL('../data.txt', import.meta.url), 'utf8')
    export const entry = new URL(\`./thread-entry\${extension}\`, import.meta.url)`,
  'a/src/thread-entry.js': `import { count } from './state.js'; console.log(\`thread \${count()}\`)`,
  'a/src/alone.js': `export const unused = 1`,
  'a/data.txt': 'data',
  'b/src/index.js': `export { actorUrl } from './actor.js'`,
  'b/src/actor.js': `
    import { count } from '../../a/src/state.js'
    const defineActor = url => url
    export const actorUrl = defineActor(import.meta.url)
    export const counted = () => count()`,
}

function writeModules(t: Test, files: Readonly<Record<string, string>>): string {
  const dist = t.testdir()
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(dist, path)), { recursive: true })
    writeFileSync(join(dist, path), text)
  }
  return dist
}

function run(dist: string): string {
  const { stdout, stderr, status } = spawnSync(process.execPath, [join(dist, 'a/src/main.js')], {
    encoding: 'utf8',
  })
  if (status !== 0) throw new Error(stderr)
  return stdout
}

t.test('merged modules do what they did, with one state and their own paths', async t => {
  const dist = writeModules(t, FILES)
  const before = run(dist)
  t.match(before, /"counted":2/)
  t.strictSame(await mergeModules(dist, ['a/src/main.js']), [])
  t.equal(run(dist), before)
})

t.test('what is named by its path stays a file, and others do not', async t => {
  const dist = writeModules(t, FILES)
  await mergeModules(dist, ['a/src/main.js'])
  const left = globSync('**/*.js', { cwd: dist }).filter(path => !path.startsWith('chunks'))
  t.strictSame(left.sort(), ['a/src/main.js', 'a/src/thread-entry.js', 'b/src/actor.js', 'b/src/index.js'])
})

t.test('two errors of one name are a fault: one of them would be called otherwise', async t => {
  const error =
    'export class OddError extends Error { constructor() { super(); this.name = new.target.name } }'
  const dist = writeModules(t, {
    'package.json': '{"type":"module"}',
    'main.js': `
      import * as a from './a.js'
      import * as b from './b.js'
      console.log(new a.OddError().name, new b.OddError().name)`,
    'a.js': error,
    'b.js': error,
  })
  t.match(await mergeModules(dist, ['main.js']), [/two classes are called OddError/])
})

t.test(
  'a published module that is missing, and one that cannot be read, are faults and change nothing',
  async t => {
    const dist = writeModules(t, { ...FILES, 'b/src/broken.js': 'export const = 1' })
    const missing = await mergeModules(dist, ['a/src/none.js'])
    t.strictSame(missing, ['cannot merge modules: there is no a/src/none.js'])
    t.match(await mergeModules(dist, ['b/src/broken.js']), [/^cannot merge modules: .*"="/])
    t.ok(existsSync(join(dist, 'a/src/alone.js')))
  },
)
