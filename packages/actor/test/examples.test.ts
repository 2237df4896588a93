/**
 * The programs of the examples, the README and docs/actors.md do what the texts say; everything that
 * docs/actors.md names exists.
 */

import { execFile } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import t, { type Test as Tap } from 'tap'
import { exampleOutputs } from './example-outputs.ts'

const run = promisify(execFile)

function runFile(file: string): Promise<{ readonly stdout: string; readonly stderr: string }> {
  const { NODE_OPTIONS: _, ...env } = process.env
  return run(process.execPath, [file], { timeout: 300_000, env })
}

for (const [name, output] of Object.entries(exampleOutputs)) {
  t.test(`the example ${name} prints what it promises and ends`, async t => {
    const { stdout, stderr } = await runFile(fileURLToPath(new URL(`../examples/${name}`, import.meta.url)))
    t.equal(stdout, output)
    t.equal(stderr, '')
  })
}

interface Program {
  readonly name: string
  readonly text: string
}

/** The programs of a page: blocks of code that begin with the name of their file. */
function programsOf(page: string): Program[] {
  const text = readFileSync(new URL(page, import.meta.url), 'utf8')
  return [...text.matchAll(/```ts\n\/\/ ([\w-]+\.ts)[^\n]*\n([\s\S]*?)```/g)].map(([, name, code]) => ({
    name: name!,
    text: code!,
  }))
}

/** A folder with these programs, within this package, so that its name is found. */
function folderOf(t: Tap, programs: readonly Program[]): string {
  const folder = mkdtempSync(fileURLToPath(new URL('./fixtures/page-', import.meta.url)))
  t.teardown(() => rmSync(folder, { recursive: true }))
  for (const { name, text } of programs) writeFileSync(join(folder, name), text)
  return folder
}

t.test('the first actor of the README runs as it stands there', async t => {
  const programs = programsOf('../README.md')
  t.strictSame(
    programs.map(({ name }) => name),
    ['greeter.ts', 'main.ts'],
  )
  const { stdout, stderr } = await runFile(join(folderOf(t, programs), 'main.ts'))
  t.equal(stdout, 'good day to you, Ada, from core-0\n')
  t.equal(stderr, '')
})

t.test(
  'the programs of docs/actors.md run as they stand there, and what they ask is answered as it says',
  async t => {
    const programs = programsOf('../../../docs/actors.md').map(({ name, text }) => ({
      name,
      // Says what the page only shows.
      text: text.replaceAll(/^(await [^\n]*\.ask\([^\n]*\)) +\/\/ (\d+)[^\n]*/gm, 'console.log($1, $2)'),
    }))
    t.strictSame(
      programs.map(({ name }) => name),
      ['word-counter.ts', 'main.ts', 'simulated.ts'],
    )
    const folder = folderOf(t, programs)
    t.equal((await runFile(join(folder, 'main.ts'))).stdout, '1 1\n')
    const { stdout } = await runFile(join(folder, 'simulated.ts'))
    t.equal(stdout.split('\n').at(-2), '0 0')
  },
)

t.test('docs/actors.md and examples/README.md name every example', t => {
  for (const page of ['../../../docs/actors.md', '../examples/README.md']) {
    const text = readFileSync(new URL(page, import.meta.url), 'utf8')
    const names = [...text.matchAll(/^\| `([\w-]+\.[jt]s)` \|/gm)].map(([, name]) => name)
    t.strictSame(names.toSorted(), Object.keys(exampleOutputs).toSorted(), page)
  }
  t.end()
})

t.test('every promise in docs/actors.md names tests that exist', t => {
  const page = readFileSync(new URL('../../../docs/actors.md', import.meta.url), 'utf8')
  const table = page.slice(page.indexOf('## What is promised'), page.indexOf('What is **not** promised'))
  const promises = table.split('\n').filter(line => line.startsWith('| ') && !line.includes('| shown by |'))
  t.ok(promises.length > 20, 'the table was found')
  const missing = promises.flatMap(line => {
    const shownBy = line.split('|').at(-2)!
    const named = [...shownBy.matchAll(/`([\w/-]+)` ((?:\*[^*]+\*(?:, )?)+)/g)]
    if (named.length === 0) return [`no test: ${line}`]
    return named.flatMap(([, file, titles]) => {
      const source = readFileSync(new URL(`${file}.test.ts`, import.meta.url), 'utf8').replaceAll("\\'", "'")
      return [...titles!.matchAll(/\*([^*]+)\*/g)]
        .filter(([, title]) => !source.includes(title!))
        .map(([, title]) => `${file}: ${title}`)
    })
  })
  t.strictSame(missing, [])
  t.end()
})

t.test('docs/actor-runtime.md names every layer of the runtime and its files', t => {
  const page = readFileSync(new URL('../../../docs/actor-runtime.md', import.meta.url), 'utf8')
  const source = new URL('../src/', import.meta.url)
  // A simulation is used whole; its files say themselves what they are.
  const layers = readdirSync(source).filter(name => !name.endsWith('.ts') && name !== 'simulation')
  const missing = layers.flatMap(layer => {
    const row = page.split('\n').find(line => line.startsWith(`| \`${layer}\` |`))
    if (row === undefined) return [`${layer}/`]
    const names = readdirSync(new URL(layer, source)).map(name =>
      name.endsWith('.ts') ? name.slice(0, -'.ts'.length) : `${name}/`,
    )
    return names.filter(name => !row.includes(`\`${name}\``)).map(name => `${layer}/${name}`)
  })
  t.ok(layers.length > 5)
  t.strictSame(missing, [])
  t.end()
})
