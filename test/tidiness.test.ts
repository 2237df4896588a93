import { join } from 'node:path'
import t from 'tap'
import { importsOf, type Manifest, type Repository, readRepository, withoutComments } from './repository.ts'
import { rules } from './tidiness.ts'

const repository = readRepository(join(import.meta.dirname, '..'))

for (const rule of rules) {
  t.test(rule.title, async t => {
    t.strictSame(rule.faults(repository), [])
  })
}

t.test('comments are blanked out and strings are not', async t => {
  t.equal(withoutComments(`a // b\n'// c' /* d\n e */ f`), `a     \n'// c'     \n      f`)
  t.equal(withoutComments('x.replace(/\\/\\*/g, y) // z'), 'x.replace(/\\/\\*/g, y)     ')
})

t.test('imports are found in all their forms', async t => {
  const code = [
    "import a from 'a'",
    "import type { B } from 'b'",
    "import {\n  c,\n} from 'c'",
    "import 'd'",
    "export { e } from 'e'",
    "export type { F } from 'f'",
    "const g = await import('g')",
    "let h: import('h').H",
  ].join('\n')
  t.strictSame(
    importsOf(code).map(({ specifier, isType }) => (isType ? `type ${specifier}` : specifier)),
    ['a', 'type b', 'c', 'd', 'e', 'type f', 'g', 'type h'],
  )
})

t.test('a fault of each kind is found', async t => {
  const faultsOf = (title: RegExp, path: string, text: string) => {
    const file = { path, text, code: withoutComments(text) }
    const changed: Repository = { ...repository, files: [file] }
    return rules
      .find(rule => title.test(rule.title))!
      .faults(changed)
      .filter(fault => fault.startsWith(path))
  }
  const actor = 'actors/router/src/x.ts'
  const constants = (text: string) => faultsOf(/constants of one name/, actor, text).length
  t.equal(constants('const ASK_MS_MAX = 5 * SECOND_MS\nconst ASK_MS_MAX = 5001'), 1)
  t.equal(constants('const ASK_MS_MAX = 5 * SECOND_MS\nexport const ASK_MS_MAX = 5_000'), 0)
  t.equal(constants('const NONE = -1\nconst NONE = 0'), 0, 'one word is a matter of its file')
  t.equal(constants("const TRUSTS = ['a', 'b', 'c'] as const\nconst TRUSTS = ['c', 'b', 'a']"), 1)
  t.equal(faultsOf(/sockets/, actor, "import { connect } from 'node:net'").length, 1)
  t.equal(faultsOf(/sockets/, actor, 'await fetch(url)').length, 1)
  t.equal(faultsOf(/sockets/, actor, 'await transport.fetch(url)').length, 0)
  t.equal(faultsOf(/time and chance/, actor, 'const now = Date.now()').length, 1)
  t.equal(faultsOf(/time and chance/, actor, '// Date.now() is not used').length, 0)
  t.equal(faultsOf(/time and chance/, actor, 'setImmediate(run)').length, 1)
  t.equal(faultsOf(/types of messages/, actor, "import { tracker } from '@homing/actors/tracker'").length, 1)
  t.equal(
    faultsOf(/types of messages/, actor, "import type { Booking } from '@homing/actors/tracker'").length,
    0,
  )
  t.equal(
    faultsOf(/types of messages/, 'packages/load/src/x.ts', "import type { B } from '@homing/actors/tracker'")
      .length,
    1,
  )
  t.equal(faultsOf(/starts threads/, actor, 'const thread = new Worker(entry)').length, 1)
  t.equal(faultsOf(/thread pool/, actor, "import { Piscina } from 'piscina'").length, 1)
  t.equal(faultsOf(/environment/, actor, 'process.env.X').length, 1)
  t.equal(faultsOf(/only re-exports/, 'packages/load/src/index.ts', "export * from './x.ts'").length, 1)
  t.equal(faultsOf(/only re-exports/, 'packages/load/src/index.ts', "export { x } from './x.ts'").length, 0)
  t.equal(faultsOf(/named after nothing/, 'packages/load/src/load-utils.ts', '').length, 1)
  t.equal(faultsOf(/left to be done/, actor, `// ${'TO'}${'DO'} later`).length, 1)
  const wide = 'x'.repeat(120)
  t.equal(faultsOf(/wider than 110/, actor, `// ${wide}`).length, 1)
  t.equal(faultsOf(/wider than 110/, actor, `/**\n * ${wide}\n */`).length, 1)
  t.equal(faultsOf(/wider than 110/, actor, `const a = '${wide}'`).length, 0, 'a text is no comment')
  t.equal(faultsOf(/wider than 110/, actor, `// ${'x'.repeat(107)}`).length, 0)
  t.equal(faultsOf(/run a file with node/, actor, `// ${'node'} test/x.ts`).length, 1)
  t.equal(faultsOf(/run a file with node/, actor, `// pnpm exec ${'node'} test/x.ts`).length, 0)
  t.equal(faultsOf(/every error code/, actor, "readonly code = 'HOMING_NO_SUCH_CODE'").length, 1)
  const twice = rules
    .find(({ title }) => /exported by one folder/.test(title))!
    .faults({
      ...repository,
      files: [
        { path: 'packages/load/src/index.ts', text: '', code: "export { type A, b as c } from './x.ts'" },
        { path: 'actors/router/src/index.ts', text: '', code: "export type {\n  A,\n  C,\n} from './y.ts'" },
        { path: 'actors/gateway/src/index.ts', text: '', code: "export type { A } from '@homing/load'" },
      ],
    })
  t.strictSame(twice, ['actors/router/src/index.ts: A is something of packages/load already'])
  const ruledOut = /glossary.md rules out/
  t.match(faultsOf(ruledOut, actor, 'export interface PodLoad {}'), [/PodLoad says 'pod': say worker/])
  t.equal(faultsOf(ruledOut, actor, 'export const CACHE_HITS_MAX = 1').length, 1)
  t.equal(faultsOf(ruledOut, actor, 'export async function cacheHits() {}').length, 1)
  t.equal(faultsOf(ruledOut, actor, "export { trust as confidence } from './trust.ts'").length, 1)
  t.equal(faultsOf(ruledOut, actor, 'export abstract class KVScore {}').length, 1)
  t.equal(faultsOf(ruledOut, actor, 'export interface Podium {}\nconst pod = 1 // pod').length, 0)
  t.equal(faultsOf(ruledOut, actor, 'export interface InstanceOverlap {}').length, 0)
  const stale = rules
    .find(({ title }) => /lets no name stay/.test(title))!
    .faults({ ...repository, files: [] })
  t.ok(stale.includes('docs/glossary.md: InstanceOverlap does not exist'))
  const cell = 'packages/actor/src/cell/x.ts'
  const alongLayers = /along its layers/
  t.equal(faultsOf(alongLayers, cell, "import type { Runtime } from '../runtime/runtime.ts'").length, 1)
  t.equal(faultsOf(alongLayers, cell, "export { createActorSystem } from '../index.ts'").length, 1)
  t.equal(faultsOf(alongLayers, cell, "import { a } from '../asks/asks.ts'\nimport './cell.ts'").length, 0)
  t.equal(
    faultsOf(alongLayers, 'packages/actor/src/index.ts', "export { a } from './cell/cell.ts'").length,
    0,
  )
  t.equal(faultsOf(alongLayers, 'packages/actor/src/misplaced/x.ts', '').length, 1)
  t.equal(faultsOf(/among the dependencies/, actor, "import x from 'left-pad'").length, 1)
})

t.test('what a profiler left at the top is found', async t => {
  const root = t.testdir({ 'package.json': '{}', '.gitignore': '', 'isolate-0x1-2-v8.log': '' })
  const { faults } = rules.find(({ title }) => /nothing is at the top/.test(title))!
  t.match(faults({ ...repository, root }), [/^isolate-0x1-2-v8\.log: /])
})

t.test('a dependency that nothing uses is found, and one that only tests use', async t => {
  const folder = 'packages/load'
  const faultsWith = (changed: Partial<Manifest>, path: string, text: string) =>
    rules
      .find(({ title }) => /every dependency is used/.test(title))!
      .faults({
        ...repository,
        manifests: new Map([[folder, changed]]),
        files: [{ path: `${folder}/${path}`, text, code: withoutComments(text) }],
      })
  const dependencies = { 'left-pad': '1.0.0' }
  const fault = ['packages/load/package.json: left-pad is used by nothing']
  t.strictSame(faultsWith({ dependencies }, 'src/a.ts', "import x from 'left-pad'"), [])
  t.strictSame(faultsWith({ dependencies }, 'src/a.ts', "require('left-pad/all.js')"), [])
  t.strictSame(faultsWith({ dependencies }, 'src/a.ts', "// import x from 'left-pad'"), fault)
  t.strictSame(faultsWith({ dependencies }, 'src/a.ts', "import x from 'left-padding'"), fault)
  t.strictSame(faultsWith({ dependencies }, 'test/a.test.ts', "import x from 'left-pad'"), fault)
  t.strictSame(faultsWith({ devDependencies: dependencies }, 'test/a.test.ts', "import 'left-pad'"), [])
  t.strictSame(faultsWith({ devDependencies: dependencies }, 'test/a.test.ts', ''), fault)
})

t.test('a workspace without a script for its tests is found', async t => {
  const faults = rules
    .find(({ title }) => /script that runs its tests/.test(title))!
    .faults({
      ...repository,
      manifests: new Map([
        ['packages/load', { scripts: { test: `${'node'} ../../test/run.ts .` } }],
        ['actors', {}],
      ]),
    })
  t.strictSame(faults, [`actors/package.json: its script test is not ${'node'} ../test/run.ts .`])
})

t.test('a circle of imports is found, within a package and between two, and one of types, too', async t => {
  const circlesIn = (texts: Readonly<Record<string, string>>) => {
    const files = Object.entries(texts).map(([path, text]) => ({ path, text, code: withoutComments(text) }))
    return rules.find(({ title }) => /in a circle/.test(title))!.faults({ ...repository, files })
  }
  const a = 'packages/load/src/a.ts'
  const b = 'packages/load/src/b.ts'
  const c = 'packages/load/src/c.ts'
  const back = "import { a } from './a.ts'"
  t.strictSame(circlesIn({ [a]: "import { b } from './b.ts'", [b]: back }), [`${a} → ${b} → ${a}`])
  t.strictSame(circlesIn({ [a]: "import { b } from './b.ts'", [b]: "import type { A } from './a.ts'" }), [
    `${a} → ${b} → ${a}`,
  ])
  t.strictSame(circlesIn({ [a]: "import { b } from './b.ts'", [b]: "import type { C } from './c.ts'" }), [])
  t.strictSame(
    circlesIn({
      [a]: "import './b.ts'",
      [b]: "export { c } from './c.ts'",
      [c]: back,
      'packages/load/src/d.ts': back,
    }),
    [`${a} → ${b} → ${c} → ${a}`],
  )
  const index = 'packages/actor/src/index.ts'
  const testing = 'packages/actor/src/testing.ts'
  t.strictSame(
    circlesIn({
      [testing]: "import { x } from '@homing/load'",
      'packages/load/src/index.ts': "export { x } from './a.ts'",
      [a]: "import { y } from '@homing/actor/testing'",
      [index]: "export { x } from '@homing/load'",
    }),
    [`${testing} → packages/load/src/index.ts → ${a} → ${testing}`],
  )
})

t.test(
  'an import of a later folder or an actor is found, and a folder that imports what imports it',
  async t => {
    const faultsIn = (title: RegExp, texts: Readonly<Record<string, string>>) => {
      const files = Object.entries(texts).map(([path, text]) => ({ path, text, code: withoutComments(text) }))
      return rules.find(rule => title.test(rule.title))!.faults({ ...repository, files })
    }
    const later = /stand before it/
    const load = 'packages/load/src/a.ts'
    const why = 'which stands no lower than packages/load in docs/architecture.md'
    t.strictSame(faultsIn(later, { [load]: "import type { A } from '@homing/placement'" }), [
      `${load}: imports packages/placement, ${why}`,
    ])
    t.strictSame(faultsIn(later, { [load]: "import type { A } from '@homing/actors/router'" }), [
      `${load}: imports actors, ${why}`,
    ])
    t.strictSame(faultsIn(later, { [load]: "import { A } from '@homing/base'" }), [])
    t.strictSame(faultsIn(later, { 'actors/router/src/a.ts': "import { A } from '@homing/load'" }), [])
    t.equal(faultsIn(later, { 'actors/router/src/a.ts': "import { run } from 'homing'" }).length, 1)

    const upward = /no folder imports/
    const folder = 'packages/load/src/inner'
    const types = 'packages/load/src/types.ts'
    const asksTypes = { [`${folder}/b.ts`]: "import type { T } from '../types.ts'" }
    const index = { 'packages/load/src/index.ts': "export { b } from './inner/b.ts'" }
    t.strictSame(faultsIn(upward, { ...index, ...asksTypes, [types]: '' }), [])
    t.strictSame(faultsIn(upward, { ...asksTypes, [types]: "import type { C } from './inner/c.ts'" }), [
      `${folder} → ${types} → ${folder}`,
    ])
    const other = 'packages/load/src/other'
    t.strictSame(
      faultsIn(upward, {
        [`${folder}/b.ts`]: "import type { D } from '../other/d.ts'",
        [`${other}/e.ts`]: "import type { C } from '../inner/c.ts'",
      }),
      [`${folder} → ${other} → ${folder}`],
    )
  },
)
