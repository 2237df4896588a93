import { join } from 'node:path'
import t from 'tap'
import { importsOf, type Repository, readRepository, rules, withoutComments } from './tidiness.ts'

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
  t.equal(faultsOf(/sockets/, actor, "import { connect } from 'node:net'").length, 1)
  t.equal(faultsOf(/sockets/, actor, 'await fetch(url)').length, 1)
  t.equal(faultsOf(/sockets/, actor, 'await transport.fetch(url)').length, 0)
  t.equal(faultsOf(/time and chance/, actor, 'const now = Date.now()').length, 1)
  t.equal(faultsOf(/time and chance/, actor, '// Date.now() is not used').length, 0)
  t.equal(faultsOf(/time and chance/, actor, 'setImmediate(run)').length, 1)
  t.equal(faultsOf(/types of messages/, actor, "import { tracker } from '@homing/tracker'").length, 1)
  t.equal(faultsOf(/types of messages/, actor, "import type { Booking } from '@homing/tracker'").length, 0)
  t.equal(
    faultsOf(/types of messages/, 'packages/load/src/x.ts', "import type { B } from '@homing/tracker'")
      .length,
    1,
  )
  t.equal(faultsOf(/thread pool/, actor, "import { Piscina } from 'piscina'").length, 1)
  t.equal(faultsOf(/environment/, actor, 'process.env.X').length, 1)
  t.equal(faultsOf(/only re-exports/, 'packages/load/src/index.ts', "export * from './x.ts'").length, 1)
  t.equal(faultsOf(/only re-exports/, 'packages/load/src/index.ts', "export { x } from './x.ts'").length, 0)
  t.equal(faultsOf(/named after nothing/, 'packages/load/src/load-utils.ts', '').length, 1)
  t.equal(faultsOf(/left to be done/, actor, `// ${'TO'}${'DO'} later`).length, 1)
  t.equal(faultsOf(/every error code/, actor, "readonly code = 'HOMING_NO_SUCH_CODE'").length, 1)
  t.equal(faultsOf(/among the dependencies/, actor, "import x from 'left-pad'").length, 1)
})
