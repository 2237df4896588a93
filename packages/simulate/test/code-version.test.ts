import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import t from 'tap'
import { cellTaskUrl } from '../src/cell-task-url.ts'
import { codeVersion, sourcesBehind } from '../src/code-version.ts'

/** A package with a policy each, behind a task. */
function makeSources(folder: string): string {
  const put = (path: string, text: string): void => {
    mkdirSync(join(folder, path, '..'), { recursive: true })
    writeFileSync(join(folder, path), text)
  }
  put(
    'task.ts',
    "import { choose } from '@homing/choice'\nimport {\n  a,\n  b,\n} from './engine.ts'\nexport { c } from './engine.ts'\n",
  )
  put('engine.ts', "import type { D } from './types.ts'\nexport const a = 1\n")
  put('types.ts', 'export type D = 1\n')
  put('unrelated.ts', 'export const x = 1\n')
  put('node_modules/@homing/choice/package.json', '{"exports": {".": "./src/index.ts"}}')
  put(
    'node_modules/@homing/choice/src/index.ts',
    "export { type Other, other } from './other.ts'\nexport { choose } from './choose.ts'\n",
  )
  put('node_modules/@homing/choice/src/other.ts', 'export const other = 1\n')
  put(
    'node_modules/@homing/choice/src/choose.ts',
    "import { linear } from './policies/linear.ts'\nimport { product } from './policies/product.ts'\n",
  )
  put('node_modules/@homing/choice/src/policies/linear.ts', 'export const linear = 1\n')
  put('node_modules/@homing/choice/src/policies/product.ts', 'export const product = 1\n')
  return pathToFileURL(join(folder, 'task.ts')).href
}

const POLICIES = ['linear', 'product', '']

t.test('a changed policy changes the version of its columns alone, other code that of all', async t => {
  const folder = t.testdir({})
  const entry = makeSources(folder)
  const versions = (): string[] => POLICIES.map(policy => codeVersion(sourcesBehind(entry), policy))
  const before = versions()
  t.equal(new Set(before).size, 3)
  t.strictSame(versions(), before)

  const changed = (path: string, text: string): string[] => {
    writeFileSync(join(folder, path), text)
    const after = versions()
    return POLICIES.filter((_, i) => after[i] !== before[i])
  }
  t.strictSame(changed('unrelated.ts', 'export const x = 2\n'), [])
  t.strictSame(changed('node_modules/@homing/choice/src/policies/product.ts', 'export const product = 2\n'), [
    'product',
  ])
  makeSources(folder)
  t.strictSame(changed('types.ts', 'export type D = 2\n'), [], 'types make no results')
  t.strictSame(changed('node_modules/@homing/choice/src/other.ts', 'export const other = 2\n'), [])
  t.strictSame(changed('engine.ts', 'export const a = 2\n'), POLICIES)
  makeSources(folder)
  t.strictSame(changed('node_modules/@homing/choice/src/choose.ts', '// nothing\n'), POLICIES)
})

t.test('where packages import each other by relative paths, the same code counts', async t => {
  const folder = t.testdir({})
  const entry = makeSources(folder)
  const version = (): string => codeVersion(sourcesBehind(entry), 'linear')
  const inWorkspace = version()
  const task = join(folder, 'task.ts')
  const text = readFileSync(task, 'utf8')
  writeFileSync(task, text.replace('@homing/choice', './node_modules/@homing/choice/src/index.ts'))
  const bundled = version()
  t.not(bundled, inWorkspace, 'the import line itself is code')
  writeFileSync(join(folder, 'node_modules/@homing/choice/src/other.ts'), 'export const other = 2\n')
  t.equal(version(), bundled, 'what is not imported does not count')
  writeFileSync(
    join(folder, 'node_modules/@homing/choice/src/policies/linear.ts'),
    'export const linear = 2\n',
  )
  t.not(version(), bundled)
})

t.test('the simulation, the policies and the load tables of the router are among the sources', async t => {
  const paths = sourcesBehind(cellTaskUrl).map(({ path }) => path)
  for (const part of [
    '/simulate/src/cell-task.ts',
    '/simulate/src/simulate-cell.ts',
    '/selection/src/selector.ts',
    '/selection/src/policies/product.ts',
    '/load/src/active-load.ts',
    '/engine/src/timing-profile.ts',
    '/trace/src/transformations.ts',
    '/base/src/seeded-random.ts',
  ]) {
    t.ok(
      paths.some(path => path.endsWith(part)),
      part,
    )
  }
  t.notOk(
    paths.some(path => path.includes('/report/') || path.endsWith('simulate/src/sweep.ts')),
    'what only shows results is not',
  )
  t.notOk(
    paths.some(path => path.includes('/transport/') || path.includes('/actor/')),
    'sockets are not',
  )
})
